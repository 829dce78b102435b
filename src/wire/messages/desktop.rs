//! `screen.*`, `screenshot.*`, `capture.*`, `window.*`, `input.*`, `clipboard.*`, `process.*`:
//! a node's desktop. Coordinates are physical pixels of the whole desktop unless a field says
//! otherwise.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::base::ids::{CaptureId, FrameId};
use crate::base::limits;
use crate::base::{EpochMillis, Point, Rect};
use crate::method;
use crate::wire::capability;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Monitor {
    /// Numbers the monitors from 0 in the platform's order.
    pub id: u32,
    pub name: String,
    pub is_primary: bool,
    pub bounds: Rect,
    /// 1.0 is 96 dots per inch.
    pub scale: f64,
    /// Absent where the platform cannot tell.
    #[serde(default)]
    pub hdr: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonitorsReply {
    pub monitors: Vec<Monitor>,
    pub primary_id: u32,
}

/// What to grab and how to encode it. At most one of `displayId` and `windowId` is given; `region`
/// is relative to that monitor or window when one is given, absolute otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaptureParams {
    /// The primary monitor when absent or -1 (and no region and no window is given).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_id: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Rect>,
    /// native-jpeg | 1080p-jpeg | native-png | dashboard-jpeg. `dashboard-jpeg` for screenshots and
    /// `native-jpeg` for stored captures when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Whether the pointer is drawn; not when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_cursor: Option<bool>,
}

/// The program in the foreground, sampled right after the frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Foreground {
    pub observed_at: EpochMillis,
    pub process_id: u32,
    pub executable_name: String,
    pub executable_path: String,
    #[serde(default)]
    pub window_title: Option<String>,
}

/// The foreground, or why it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ForegroundState {
    Known(Foreground),
    Unavailable { reason: String },
}

/// How a pixel of the image maps to the desktop: `desktop = origin + pixel × scale`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PixelTransform {
    pub origin: Point,
    pub scale_x: f64,
    pub scale_y: f64,
}

/// The rule that fits the foreground; always unmatched until rule packages exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleState {
    pub status: String,
    pub description: String,
}

/// A grabbed and encoded frame, without its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    /// Present on stored captures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<CaptureId>,
    pub frame_id: FrameId,
    pub created_at: EpochMillis,
    pub profile: String,
    /// jpeg | png.
    pub format: String,
    pub content_type: String,
    /// JPEG only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<u8>,
    /// JPEG only: `444` or `420`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chroma_subsampling: Option<String>,
    /// Of the image, after scaling.
    pub width: u32,
    pub height: u32,
    pub bytes: u64,
    pub sha256: String,
    pub include_cursor: bool,
    /// The monitor that holds the middle of the region; absent when none does.
    #[serde(default)]
    pub monitor: Option<Monitor>,
    /// The region of the desktop that was grabbed.
    pub region: Rect,
    pub transform: PixelTransform,
    /// Milliseconds from the grab to this answer.
    pub age_ms: u64,
    /// x11-shm | x11-get-image | gdi | wgc | virtual.
    pub backend: String,
    pub foreground: ForegroundState,
    pub rule: RuleState,
    /// Older clients read this name for `createdAt`.
    pub timestamp: EpochMillis,
    /// A `data:` URL, on wires without channels alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureList {
    /// Newest first.
    pub items: Vec<Capture>,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaptureRef {
    pub capture_id: CaptureId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The platform's handle.
    pub handle: u64,
    pub title: String,
    /// The window class; empty when there is none.
    pub class: String,
    #[serde(default)]
    pub process_id: Option<u32>,
    #[serde(default)]
    pub process_name: Option<String>,
    pub is_foreground: bool,
    #[serde(default)]
    pub is_minimized: Option<bool>,
    /// The client area without the window manager's frame.
    pub bounds: Rect,
}

/// All that is given must fit; texts match as case-insensitive substrings, unless `exact`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The executable's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowRef {
    pub handle: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowPlace {
    pub handle: u64,
    /// Absent parts stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowWait {
    #[serde(flatten)]
    pub query: WindowQuery,
    /// 5,000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    #[default]
    Left,
    Middle,
    Right,
    Back,
    Forward,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveParams {
    pub x: i32,
    pub y: i32,
    /// A straight path over this time; at once when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClickParams {
    pub x: i32,
    pub y: i32,
    #[serde(default)]
    pub button: Button,
    /// 1 when absent, 2 for a double click, 3 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DragParams {
    pub from: Point,
    pub to: Point,
    #[serde(default)]
    pub button: Button,
    /// 300 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScrollParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<i32>,
    /// Wheel clicks, positive to the right.
    #[serde(default)]
    pub delta_x: i32,
    /// Wheel clicks, positive up.
    #[serde(default)]
    pub delta_y: i32,
}

/// A chord such as `ctrl+shift+t`: every key goes down in order and up in reverse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyParams {
    /// Key names or Windows virtual-key numbers, joined by `+`.
    pub keys: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeParams {
    pub text: String,
    /// Between characters; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClipboardText {
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub process_id: u32,
    #[serde(default)]
    pub parent_id: Option<u32>,
    pub name: String,
    /// Absent where it may not be read.
    #[serde(default)]
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessQuery {
    /// Substring of the name, case ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

method! {
    /// Lists the monitors with their place, scale and which one is primary.
    ListMonitors = "screen.listMonitors" (Empty) -> MonitorsReply;
    Node, DesktopView;
    capability capability::SCREEN_LIST_MONITORS;
    rest Get "/api/agents/{agentId}/monitors" Enveloped;
    example "{}";
}
method! {
    /// Grabs a monitor, a region or a window and answers with the image; nothing is stored.
    Screenshot = "screenshot.capture" (CaptureParams) -> Capture;
    Node, DesktopView;
    capability capability::SCREEN_CAPTURE;
    rest Post "/api/agents/{agentId}/screenshot" Bytes;
    timeout Some(limits::SCREENSHOT_TIMEOUT_MS);
    example r#"{"profile":"native-png","region":{"x":0,"y":0,"width":640,"height":480}}"#;
}
method! {
    /// Grabs and stores a capture with the foreground program's identity and a hash.
    CaptureCreate = "capture.create" (CaptureParams) -> Capture;
    Node, DesktopView;
    capability capability::SCREEN_CAPTURE;
    rest Post "/api/agents/{agentId}/captures" Enveloped;
    timeout Some(limits::SCREENSHOT_TIMEOUT_MS);
    example r#"{"profile":"native-jpeg","includeCursor":false}"#;
}
method! {
    /// Lists the stored captures, newest first.
    CaptureListing = "capture.list" (Empty) -> CaptureList;
    Node, DesktopView;
    rest Get "/api/agents/{agentId}/captures" Enveloped;
    example "{}";
}
method! {
    /// Serves a stored capture's image after checking its hash.
    CaptureContent = "capture.content" (CaptureRef) -> Capture;
    Node, DesktopView;
    rest Get "/api/agents/{agentId}/captures/{captureId}/content" Bytes;
    timeout Some(limits::SCREENSHOT_TIMEOUT_MS);
    example r#"{"captureId":"cap_20261130T222307.000000000Z_0a1b2c3d"}"#;
}
method! {
    /// Lists the windows of the desktop, topmost first.
    WindowList = "window.list" | "list_windows" (WindowQuery) -> Vec<Window>;
    Node, DesktopView;
    capability capability::WINDOW_ENUMERATE;
    rest Get "/api/agents/{agentId}/windows" Enveloped;
    example r#"{"title":"xterm"}"#;
}
method! {
    /// Brings a window to the front and gives it the keyboard.
    WindowActivate = "window.activate" (WindowRef) -> Empty;
    Node, DesktopControl;
    capability capability::WINDOW_ACTIVATE;
    rest Post "/api/agents/{agentId}/windows/{handle}/activate" Enveloped;
    example r#"{"handle":4194307}"#;
}
method! {
    /// Moves and resizes a window.
    WindowPlacing = "window.place" (WindowPlace) -> Window;
    Node, DesktopControl;
    capability capability::WINDOW_ACTIVATE;
    rest Post "/api/agents/{agentId}/windows/{handle}/place" Enveloped;
    example r#"{"handle":4194307,"x":10,"y":20,"width":640,"height":480}"#;
}
method! {
    /// Minimises a window.
    WindowMinimize = "window.minimize" (WindowRef) -> Empty;
    Node, DesktopControl;
    capability capability::WINDOW_ACTIVATE;
    rest Post "/api/agents/{agentId}/windows/{handle}/minimize" Enveloped;
    example r#"{"handle":4194307}"#;
}
method! {
    /// Asks a window to close.
    WindowClose = "window.close" (WindowRef) -> Empty;
    Node, DesktopControl;
    capability capability::WINDOW_ACTIVATE;
    rest Post "/api/agents/{agentId}/windows/{handle}/close" Enveloped;
    example r#"{"handle":4194307}"#;
}
method! {
    /// Waits until a window that fits is there.
    WindowWaiting = "window.wait" (WindowWait) -> Window;
    Node, DesktopView;
    capability capability::WINDOW_ENUMERATE;
    timeout None;
    example r#"{"title":"xterm","timeoutMs":5000}"#;
}
method! {
    /// Moves the pointer.
    InputMove = "input.move" (MoveParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_MOUSE;
    rest Post "/api/agents/{agentId}/input/move" Enveloped;
    example r#"{"x":100,"y":200,"durationMs":150}"#;
}
method! {
    /// Moves the pointer and clicks.
    InputClick = "input.click" (ClickParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_MOUSE;
    rest Post "/api/agents/{agentId}/input/click" Enveloped;
    example r#"{"x":100,"y":200,"button":"left","count":1}"#;
}
method! {
    /// Drags from one point to another.
    InputDrag = "input.drag" (DragParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_MOUSE;
    rest Post "/api/agents/{agentId}/input/drag" Enveloped;
    example r#"{"from":{"x":10,"y":10},"to":{"x":200,"y":10}}"#;
}
method! {
    /// Turns the wheel, both axes.
    InputScroll = "input.scroll" (ScrollParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_MOUSE;
    rest Post "/api/agents/{agentId}/input/scroll" Enveloped;
    example r#"{"x":100,"y":200,"deltaY":-3}"#;
}
method! {
    /// Presses and releases a chord of keys.
    InputKey = "input.key" (KeyParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_KEYBOARD;
    rest Post "/api/agents/{agentId}/input/key" Enveloped;
    example r#"{"keys":"ctrl+l"}"#;
}
method! {
    /// Holds keys down until `input.keyUp`, or until the caller disconnects.
    InputKeyDown = "input.keyDown" (KeyParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_KEYBOARD;
    example r#"{"keys":"shift"}"#;
}
method! {
    /// Lets keys up.
    InputKeyUp = "input.keyUp" (KeyParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_KEYBOARD;
    example r#"{"keys":"shift"}"#;
}
method! {
    /// Types any Unicode text, whatever the keyboard layout.
    InputType = "input.type" (TypeParams) -> Empty;
    Node, DesktopControl;
    capability capability::INPUT_KEYBOARD;
    rest Post "/api/agents/{agentId}/input/type" Enveloped;
    timeout Some(60_000);
    example r#"{"text":"héllo 世界","delayMs":0}"#;
}
method! {
    /// Reads the clipboard's text.
    ClipboardGet = "clipboard.getText" (Empty) -> ClipboardText;
    Node, DesktopControl;
    capability capability::CLIPBOARD;
    rest Get "/api/agents/{agentId}/clipboard" Enveloped;
    example "{}";
}
method! {
    /// Replaces the clipboard's content by a text.
    ClipboardSet = "clipboard.setText" (ClipboardText) -> Empty;
    Node, DesktopControl;
    capability capability::CLIPBOARD;
    rest Put "/api/agents/{agentId}/clipboard" Enveloped;
    example r#"{"text":"hello"}"#;
}
method! {
    /// Lists processes.
    ProcessList = "process.list" (ProcessQuery) -> Vec<Process>;
    Node, DesktopView;
    rest Get "/api/agents/{agentId}/processes" Enveloped;
    example r#"{"name":"xterm"}"#;
}
