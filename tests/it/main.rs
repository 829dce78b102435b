//! The one integration binary: a file for each feature.

#[path = "../support/mod.rs"]
mod support;

mod capture;
mod clipboard;
mod display;
mod input;
mod journal;
mod process;
mod typing;
mod window;
