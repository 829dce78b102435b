//! Pure records and state machines that both sides share.

pub mod attention;
pub mod execution;
pub mod lease;
pub mod link;
