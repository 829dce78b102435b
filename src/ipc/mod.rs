//! Local IPC: listener and client, peer check.
