//! The server: routes table, authentication, permissions, registry, executions, audit, gateway, events.
