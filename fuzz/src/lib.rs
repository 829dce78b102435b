//! The checks that the fuzz targets run, shared with the property tests.

#[path = "../../tests/support/decoders.rs"]
pub mod decoders;
