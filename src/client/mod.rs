//! One caller over HTTP or IPC, with the login and server look-up of the command line.
