//! The one integration binary: a file for each feature.
mod journal;
mod script;
mod script_host;
mod script_limits;
