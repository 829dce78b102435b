//! The one journal of a node: append, read from a cursor, follow, rotate, recover.
