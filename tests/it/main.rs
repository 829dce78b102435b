//! The one integration binary: a file for each feature.

#[path = "../support/mod.rs"]
mod support;

mod architecture;
mod capture;
mod decoder_props;
mod display;
mod enrol;
mod journal;
mod link;
mod link_support;
mod peer;
mod protocol1;
mod script;
mod script_desktop;
mod script_examples;
mod script_host;
mod script_limits;
mod typing;
mod vectors;
mod window;
