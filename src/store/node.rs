//! A node's tables.
