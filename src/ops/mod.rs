//! Looking after an installation. Now: the reference pages, generated from what the code declares.

pub mod reference;
