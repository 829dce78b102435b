//! The one table of methods.

use super::messages::{
    agents, auth, config, desktop, events, executions, ipc, scripts, sessions, system,
};
use super::method::MethodRow;

macro_rules! table {
    ($($method:path),+ $(,)?) => {
        /// Every method, by family.
        pub const METHODS: &[MethodRow] = &[$(MethodRow::of::<$method>()),+];
    };
}

table![
    system::GetStatus,
    system::GetVersion,
    system::TogglePause,
    system::PauseAll,
    system::ResumeAll,
    system::StopAll,
    system::IsPaused,
    system::Shutdown,
    scripts::Run,
    scripts::Stop,
    scripts::List,
    scripts::Pause,
    scripts::Resume,
    executions::List,
    executions::Get,
    executions::Wait,
    executions::Logs,
    executions::GetArtifact,
    executions::Cancel,
    desktop::ListMonitors,
    desktop::Screenshot,
    desktop::CaptureCreate,
    desktop::CaptureListing,
    desktop::CaptureContent,
    desktop::WindowList,
    desktop::WindowActivate,
    desktop::WindowPlacing,
    desktop::WindowMinimize,
    desktop::WindowClose,
    desktop::WindowWaiting,
    desktop::InputMove,
    desktop::InputClick,
    desktop::InputDrag,
    desktop::InputScroll,
    desktop::InputKey,
    desktop::InputKeyDown,
    desktop::InputKeyUp,
    desktop::InputType,
    desktop::ClipboardGet,
    desktop::ClipboardSet,
    desktop::ProcessList,
    sessions::List,
    sessions::Create,
    sessions::Get,
    sessions::Resize,
    sessions::Rename,
    sessions::Kill,
    sessions::Send,
    sessions::Read,
    sessions::Picture,
    sessions::Search,
    sessions::Wait,
    sessions::Explain,
    sessions::SetLease,
    sessions::Detach,
    sessions::Record,
    sessions::Attach,
    sessions::Restore,
    sessions::Debug,
    sessions::GetFootprint,
    sessions::Grants,
    sessions::AddGrant,
    sessions::DropGrant,
    events::Drain,
    events::Follow,
    events::Append,
    ipc::Hello,
    config::GetRemote,
    config::SetRemote,
    agents::List,
    agents::Show,
    agents::SetTags,
    agents::Revoke,
    agents::Split,
    agents::Invite,
    agents::TokenListing,
    agents::TokenCreate,
    agents::TokenRevoke,
    auth::Whoami,
    auth::TicketCreate,
    auth::SessionList,
    auth::SessionRevoke,
    auth::TokenList,
    auth::TokenCreate,
    auth::TokenRevoke,
    auth::Audit,
];

/// The row of a method by name or alias.
pub fn find(name: &str) -> Option<&'static MethodRow> {
    METHODS
        .iter()
        .find(|row| row.name == name || row.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_documented_and_have_a_valid_example() {
        let mut names = std::collections::HashSet::new();
        let mut routes = std::collections::HashSet::new();
        for row in METHODS {
            for name in row.aliases.iter().chain([&row.name]) {
                assert!(names.insert(*name), "{name} twice");
            }
            if let Some(rest) = row.rest {
                assert!(
                    routes.insert((rest.verb, rest.path)),
                    "{} {} twice",
                    rest.verb.as_str(),
                    rest.path
                );
            }
            assert!(row.doc.trim().ends_with('.'), "{}: doc text", row.name);
            let example = serde_json::from_str(row.example)
                .unwrap_or_else(|error| panic!("{}: example: {error}", row.name));
            if let Err(why) = (row.check_params)(example) {
                panic!("{}: example: {why}", row.name);
            }
        }
    }

    #[test]
    fn a_row_without_a_route_is_a_node_s() {
        for row in METHODS.iter().filter(|row| row.rest.is_none()) {
            assert!(
                row.owner.on_ipc() || row.owner.on_link(),
                "{} cannot be reached",
                row.name
            );
        }
    }

    #[test]
    fn aliases_find_their_row() {
        assert_eq!(find("run_script").map(|row| row.name), Some("script.run"));
        assert!(find("nonsense").is_none());
    }
}
