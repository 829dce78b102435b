//! Stable error codes: the texts that callers may depend on, with their kind and HTTP status.

use std::borrow::Cow;
use std::fmt;

use crate::base::Kind;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $kind:ident, $status:literal;)+) => {
        /// A stable error code; its text never changes once released.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// Every code, in the order of this file.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];

            /// The text on the wires.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)+ }
            }

            pub const fn kind(self) -> Kind {
                match self { $(Code::$name => Kind::$kind,)+ }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(Code::$name => $status,)+ }
            }

            /// What it means, for the reference.
            pub const fn doc(self) -> &'static str {
                match self { $(Code::$name => concat!($($doc),+),)+ }
            }

            /// Reads a code from the wire; `None` for one that this version does not know.
            pub fn parse(text: &str) -> Option<Code> {
                match text { $($text => Some(Code::$name),)+ _ => None }
            }
        }
    };
}

codes! {
    // Requests.
    /// The parameters do not fit the method.
    InvalidParams = "invalid_params", User, 400;
    /// The message is not valid JSON or lacks a required part.
    InvalidMessage = "invalid_message", User, 400;
    /// No such method on this wire.
    UnknownMethod = "unknown_method", User, 404;
    /// No such route.
    RouteNotFound = "route_not_found", User, 404;
    /// The route exists under another verb.
    MethodNotAllowed = "method_not_allowed", User, 405;
    /// The body is larger than its limit.
    BodyTooLarge = "body_too_large", User, 413;
    /// The thing named does not exist.
    NotFound = "not_found", User, 404;
    /// The thing named exists already, or is in a state that forbids this.
    Conflict = "conflict", User, 409;
    /// More than one workstation fits and none was named.
    AgentAmbiguous = "agent_ambiguous", User, 409;
    // Permission.
    /// No valid session or token came with the request.
    Unauthenticated = "unauthenticated", Denied, 401;
    /// The account lacks the permission.
    PermissionDenied = "permission_denied", Denied, 403;
    /// The origin or host of the request is not allowed.
    OriginDenied = "origin_denied", Denied, 403;
    /// Too many tries; wait.
    RateLimited = "rate_limited", Denied, 429;
    /// The method exists on the local wire alone.
    LocalOnly = "local_only", Denied, 403;
    /// The peer is another user of this machine.
    PeerDenied = "peer_denied", Denied, 403;
    // Links.
    /// A frame is longer than its limit.
    FrameTooLarge = "frame_too_large", User, 413;
    /// A frame's header is not one of this protocol.
    FrameInvalid = "frame_invalid", User, 400;
    /// The protocol version is not spoken here.
    ProtocolUnsupported = "protocol_unsupported", User, 400;
    /// The token or challenge answer is wrong or missing.
    TokenInvalid = "token_invalid", Denied, 401;
    /// The join string cannot be read.
    JoinStringInvalid = "join_string_invalid", User, 400;
    /// The invitation is unknown or its secret is wrong.
    InviteInvalid = "invite_invalid", Denied, 403;
    /// The invitation was used before.
    InviteUsed = "invite_used", Denied, 403;
    /// The invitation's time has passed.
    InviteExpired = "invite_expired", Denied, 403;
    /// The server's key is not the one that the join string pins.
    PinMismatch = "pin_mismatch", Denied, 403;
    /// The key belongs to no enrolled agent.
    AgentUnknown = "agent_unknown", Denied, 403;
    /// The agent was revoked.
    AgentRevoked = "agent_revoked", Denied, 403;
    /// Two processes hold this agent's key; a person has to split them.
    AgentQuarantined = "agent_quarantined", Denied, 409;
    /// The workstation is not connected.
    AgentOffline = "agent_offline", Unavailable, 502;
    /// The connection closed before the answer came.
    LinkClosed = "link_closed", Unavailable, 502;
    /// The other side is busy; ask again later.
    Busy = "busy", Unavailable, 503;
    /// A channel's number is unknown or its credit is used up.
    ChannelInvalid = "channel_invalid", User, 400;
    /// Too many channels are open on this link.
    TooManyChannels = "too_many_channels", Unavailable, 503;
    /// Too many local clients are connected.
    TooManyClients = "too_many_clients", Unavailable, 503;
    /// Nothing listens at the endpoint.
    EndpointUnavailable = "endpoint_unavailable", Unavailable, 503;
    /// The address is taken by another program.
    AddressInUse = "address_in_use", Config, 500;
    // Work.
    /// The time given has passed.
    TimedOut = "timed_out", Unavailable, 504;
    /// The work was cancelled.
    Cancelled = "cancelled", User, 409;
    /// The run's workstation went away and its outcome is unknown.
    ExecutionLost = "execution_lost", Unavailable, 502;
    /// No such execution.
    ExecutionNotFound = "execution_not_found", User, 404;
    /// The execution has ended already.
    ExecutionFinished = "execution_finished", User, 409;
    /// The agent stopped while the run was under way.
    AgentRestarted = "agent_restarted", Unavailable, 502;
    /// No artifact of that name.
    ArtifactNotFound = "artifact_not_found", User, 404;
    /// The artifact is larger than its limit.
    ArtifactTooLarge = "artifact_too_large", User, 413;
    /// The stored file is missing, short or altered; it was moved to quarantine.
    ArtifactCorrupt = "artifact_corrupt", Internal, 500;
    // Scripts.
    /// The language cannot be told from the name, or is not built in.
    ScriptLanguageUnknown = "script_language_unknown", User, 400;
    /// The script is larger than its limit.
    ScriptTooLarge = "script_too_large", User, 413;
    /// The script does not parse.
    ScriptSyntax = "script_syntax", User, 422;
    /// The script raised an error.
    ScriptError = "script_error", User, 422;
    /// The script passed its memory limit.
    ScriptMemory = "script_memory", User, 422;
    /// The script passed its instruction limit.
    ScriptInstructions = "script_instructions", User, 422;
    /// The script's profile forbids this.
    ScriptForbidden = "script_forbidden", Denied, 403;
    // Desktop.
    /// There is no display, or it has gone.
    DisplayUnavailable = "display_unavailable", Unavailable, 503;
    /// No monitor of that number.
    DisplayNotFound = "display_not_found", User, 404;
    /// This platform or host cannot do it; the message says why.
    Unsupported = "unsupported", Unavailable, 501;
    /// A stored capture is being made.
    CaptureBusy = "capture_busy", Unavailable, 409;
    /// The region is empty or lies outside of the desktop.
    CaptureRegionInvalid = "capture_region_invalid", User, 400;
    /// No such capture profile.
    CaptureProfileUnknown = "capture_profile_unknown", User, 400;
    /// The frame could not be grabbed.
    CaptureFailed = "capture_failed", Unavailable, 503;
    /// The frame could not be encoded.
    EncodeFailed = "encode_failed", Internal, 500;
    /// The foreground window's process could not be told, so nothing was stored.
    ForegroundProcessUnavailable = "foreground_process_unavailable", Unavailable, 503;
    /// No such window.
    WindowNotFound = "window_not_found", User, 404;
    /// The window manager did not do it in time.
    WindowRefused = "window_refused", Unavailable, 409;
    /// No key of that name or number.
    KeyUnknown = "key_unknown", User, 400;
    /// Input was sent, but nothing shows that the target took it.
    Unverifiable = "unverifiable", Unavailable, 503;
    /// The input could not be injected.
    InputFailed = "input_failed", Unavailable, 503;
    /// The clipboard has no content of that kind.
    ClipboardEmpty = "clipboard_empty", User, 404;
    /// The clipboard could not be reached.
    ClipboardFailed = "clipboard_failed", Unavailable, 503;
    /// No such process.
    ProcessNotFound = "process_not_found", User, 404;
    /// The process could not be started or signalled.
    ProcessFailed = "process_failed", Unavailable, 422;
    // Terminals.
    /// No terminal session of that id or name.
    SessionNotFound = "session_not_found", User, 404;
    /// More than one session fits.
    SessionAmbiguous = "session_ambiguous", User, 409;
    /// The session's program has ended.
    SessionExited = "session_exited", User, 409;
    /// The session's holder speaks another protocol version.
    SessionIncompatible = "session_incompatible", Unavailable, 409;
    /// There are as many sessions or consoles as the limit allows.
    TooManySessions = "too_many_sessions", Unavailable, 503;
    /// The program could not be started.
    SessionFailed = "session_failed", Unavailable, 422;
    /// Another console holds the session, or this one only watches.
    LeaseHeld = "lease_held", Denied, 409;
    /// The lease changed since the console saw it.
    LeaseStale = "lease_stale", Denied, 409;
    /// The program does not read its input, and no more is kept for it.
    InputQueueFull = "input_queue_full", Unavailable, 503;
    /// Somebody detached this console, or its next attachment took its place.
    ConsoleDetached = "console_detached", User, 409;
    /// The console did not take what was sent to it.
    ConsoleTooSlow = "console_too_slow", Unavailable, 503;
    // Storage and configuration.
    /// The journal's records before the cursor are gone.
    CursorExpired = "cursor_expired", User, 410;
    /// The cursor is past the end, or is no cursor.
    CursorInvalid = "cursor_invalid", User, 400;
    /// The record is larger than its limit.
    EventTooLarge = "event_too_large", User, 413;
    /// The journal is damaged in the middle.
    JournalCorrupt = "journal_corrupt", Config, 500;
    /// Another process writes this data folder.
    DataFolderLocked = "data_folder_locked", Config, 500;
    /// The disk or a quota is full.
    StorageFull = "storage_full", Unavailable, 507;
    /// A file could not be read or written.
    StorageFailed = "storage_failed", Unavailable, 500;
    /// The configuration is wrong; the message names file, key and reason.
    ConfigInvalid = "config_invalid", Config, 500;
    /// The configuration cannot be written.
    ConfigNotWritable = "config_not_writable", Config, 500;
    /// The path lies outside of the declared roots.
    PathDenied = "path_denied", Denied, 403;
    /// A defect of ours; the log has the details under the request's id.
    Internal = "internal", Internal, 500;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as it crosses a wire: a stable code and a text for people.
///
/// A code from a newer peer that this version does not know keeps its text in `foreign`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// The peer's own code text where it is none of ours.
    pub foreign: Option<String>,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            foreign: None,
        }
    }

    /// A defect of ours, with what was attempted.
    pub fn internal(what: impl fmt::Display) -> Self {
        Self::new(Code::Internal, what.to_string())
    }

    /// Parameters that do not fit `method`.
    pub fn invalid_params(method: &str, why: impl fmt::Display) -> Self {
        Self::new(Code::InvalidParams, format!("{method}: {why}"))
    }

    /// Rebuilds an error from a wire; an unknown code stays visible and is of kind internal.
    pub fn from_wire(code: Option<&str>, message: impl Into<String>) -> Self {
        let text = code.unwrap_or("");
        let known = Code::parse(text);
        Self {
            code: known.unwrap_or(Code::Internal),
            message: Cow::Owned(message.into()),
            foreign: (known.is_none() && !text.is_empty()).then(|| text.to_owned()),
        }
    }

    /// The code text to send on.
    pub fn code_text(&self) -> &str {
        self.foreign.as_deref().unwrap_or(self.code.as_str())
    }

    pub fn kind(&self) -> Kind {
        self.code.kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_snake_case_and_documented() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} twice");
            assert!(
                text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{text}"
            );
            assert_eq!(Code::parse(text), Some(*code));
            assert!(!code.doc().trim().is_empty());
        }
    }

    #[test]
    fn foreign_code_survives() {
        let fault = Fault::from_wire(Some("from_the_future"), "x");
        assert_eq!(fault.code_text(), "from_the_future");
        assert_eq!(fault.code, Code::Internal);
    }
}
