//! The one integration binary: a file for each feature.

#[path = "../support/mod.rs"]
mod support;

mod architecture;
mod auth;
mod capture;
mod cli;
mod clipboard;
mod control_server;
mod decoder_props;
mod display;
mod enrol;
mod held;
mod input;
mod ipc;
mod journal;
mod link;
mod link_support;
mod openapi;
mod peer;
mod process;
mod protocol1;
mod rbac;
mod recovery;
mod reference;
mod rest;
mod roles;
mod script;
mod script_desktop;
mod script_examples;
mod script_host;
mod script_limits;
mod script_modules;
mod sessions_http;
mod streams;
mod terminal_node;
mod typing;
mod vectors;
mod window;
mod ws_pty;
