//! Typed settings: schema with defaults, load from file, environment and flags, check.
