//! Pure records and state machines that both sides share.

pub mod link;
