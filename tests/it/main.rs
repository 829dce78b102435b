//! The one integration binary: a file for each feature.
mod enrol;
mod journal;
mod link;
mod link_support;
