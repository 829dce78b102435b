//! The console: what `wingman` and `wingman attach` show.
//!
//! ```text
//! outer terminal -> input -> route -> keys, mouse -> pane -> stream
//! outer terminal <- paint <- view  <- chrome, mirror <- pane <- stream
//! ```
//!
//! Invariants: a console paints from its own grids and never passes a program's bytes through; it never
//! answers a terminal's queries; only a person moves the focus; however it ends, the outer terminal is
//! as it was. Colours, texts and names from sessions are hostile until cleaned.

mod app;
#[cfg(test)]
mod app_tests;
pub mod backend;
pub mod cell;
mod chrome;
mod commands;
#[cfg(test)]
mod early_tests;
mod footer;
pub mod input;
pub mod keymap;
pub mod keys;
pub mod layout;
pub mod mirror;
pub mod mouse;
mod outer;
pub mod paint;
mod pane;
mod places;
mod popup;
mod roster;
mod route;
mod run;
mod scroll;
mod select;
#[cfg(test)]
mod stage;
mod view;

pub use app::Left;
pub use backend::{Backend, Place, Remote};
pub use outer::LEAVE;
pub use run::run;

use crate::config::ConsoleConfig;
use crate::wire::messages::sessions::{AttachMode, Location};

/// How to run a console.
pub struct Options {
    /// Where sessions are; the agent on this machine first, where there is one.
    pub places: Vec<Place>,
    /// The session that gets the focus: an id, the start of one, or a name. The one that waits longest,
    /// or was used last, when absent.
    pub focus: Option<String>,
    pub mode: AttachMode,
    /// Take the right to type alone.
    pub exclusive: bool,
    /// With `exclusive`: also from another holder.
    pub takeover: bool,
    /// Show the session alone, without sidebar and footer.
    pub full_screen: bool,
    /// Who this is, shown to others.
    pub label: String,
    pub location: Location,
    /// The folder in which a new session on this machine is offered to start.
    pub folder: Option<String>,
    pub config: ConsoleConfig,
}
