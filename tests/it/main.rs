//! The one integration binary: a file for each feature.

#[path = "../support/mod.rs"]
mod support;

mod capture;
mod display;
mod journal;
mod script;
mod script_desktop;
mod script_examples;
mod script_host;
mod script_limits;
mod script_modules;
mod typing;
mod window;
