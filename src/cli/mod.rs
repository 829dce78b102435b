//! clap types; their doc comments are the help.
