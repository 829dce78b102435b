//! The one integration binary: a file for each feature.
mod decoder_props;
mod journal;
