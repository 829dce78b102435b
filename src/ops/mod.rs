//! Installation, diagnosis, status.
