//! The five kinds into which every error folds at an edge, and what each means there.

use serde::{Deserialize, Serialize};

/// What went wrong, from the point of view of the person who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request itself is wrong; asking again unchanged fails again.
    User,
    /// A setting or a file on this machine has to change first.
    Config,
    /// The caller may not do this.
    Denied,
    /// Something needed is away, busy or too slow; asking again may work.
    Unavailable,
    /// A defect of ours.
    Internal,
}

impl Kind {
    /// The HTTP status used where a code does not name a closer one.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::User => 400,
            Self::Config => 500,
            Self::Denied => 403,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }

    /// The exit code of the command line.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::User => exit::USAGE,
            Self::Config => exit::CONFIG,
            Self::Denied => exit::DENIED,
            Self::Unavailable => exit::UNAVAILABLE,
            Self::Internal => exit::INTERNAL,
        }
    }
}

/// Exit codes (protocols page, section 3).
pub mod exit {
    pub const OK: u8 = 0;
    /// The work ran and failed.
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const UNAVAILABLE: u8 = 69;
    pub const INTERNAL: u8 = 70;
    pub const DENIED: u8 = 77;
    pub const CONFIG: u8 = 78;
    pub const TIMED_OUT: u8 = 124;
    pub const INTERRUPTED: u8 = 130;
}
