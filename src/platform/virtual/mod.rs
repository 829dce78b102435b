//! A display that needs no server: scripted frames for pure tests.
