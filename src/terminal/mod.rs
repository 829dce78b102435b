//! Terminals: the grid that output is applied to.

pub mod grid;
