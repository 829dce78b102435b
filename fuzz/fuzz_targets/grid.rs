//! Fuzz target: see `tests/support/decoders.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wingman_fuzz::decoders::grid(bytes));
