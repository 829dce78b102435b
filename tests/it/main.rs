//! The one integration binary: a file for each feature.
mod journal;
