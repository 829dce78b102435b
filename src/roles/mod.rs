//! Composition: build the parts, wire them, run, shut down.
