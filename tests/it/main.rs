//! The one integration binary: a file for each feature.
mod auth;
mod control_server;
mod decoder_props;
mod enrol;
mod journal;
mod link;
mod link_support;
mod openapi;
mod rbac;
mod rest;

#[path = "../support/mod.rs"]
mod support;

mod architecture;
mod capture;
mod decoder_props;
mod display;
mod ipc;
mod ipc;
mod peer;
mod protocol1;
mod recovery;
mod reference;
mod roles;
mod script;
mod script_desktop;
mod script_examples;
mod script_host;
mod script_limits;
mod typing;
mod vectors;
mod window;
