//! Terminal sessions: the process that holds each one's terminal, and what is made of its output.

pub mod holder;
