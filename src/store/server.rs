//! The server's database: its migrations in order. A released migration never changes; new ones
//! are added at the end.

use super::{Migration, accounts, agents, audit, executions, terminals};

/// The schema of `server.db`, lifted one version per entry.
pub const MIGRATIONS: &[Migration] = &[
    accounts::SCHEMA,
    audit::SCHEMA,
    executions::SCHEMA,
    agents::SCHEMA,
    terminals::SCHEMA,
];
