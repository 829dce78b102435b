//! `screen.*`, `screenshot.*`, `capture.*`, `window.*`, `input.*`, `clipboard.*`, `process.*`.
//! Desktop calls block, so each runs off the asynchronous threads.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::base::Rect;
use crate::desktop::{Chord, Desktop, InputSession};
use crate::platform::Button;
use crate::runtime::blocking;
use crate::runtime::dispatcher::{Context, Dispatcher};
use crate::runtime::node::Node;
use crate::wire::event::{Draft, name};
use crate::wire::messages::Empty;
use crate::wire::messages::desktop as msg;
use crate::wire::{Blob, Code, Fault};

/// How a screenshot is encoded when the caller does not say.
const SCREENSHOT_PROFILE: &str = "dashboard-jpeg";
/// The field in which wires without channels find an image.
const IMAGE_FIELD: &str = "image";

pub fn register(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    let dispatcher = register_screen(dispatcher);
    let dispatcher = register_windows(dispatcher);
    let dispatcher = register_input(dispatcher);
    register_rest(dispatcher)
}

fn register_screen(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<msg::ListMonitors, _, _>(|node, _: Empty, _| {
            with(node, |desktop| {
                let monitors = desktop.monitors()?;
                let primary_id = desktop.primary_monitor()?.id;
                Ok(msg::MonitorsReply {
                    monitors,
                    primary_id,
                })
            })
        })
        .on_blob::<msg::Screenshot, _, _>(|node, params: msg::CaptureParams, _| {
            with(node, move |desktop| {
                let (capture, bytes) = desktop.screenshot(&params, SCREENSHOT_PROFILE)?;
                let content_type = capture.content_type.clone();
                Ok((
                    capture,
                    Blob {
                        content_type,
                        bytes,
                        field: IMAGE_FIELD,
                    },
                ))
            })
        })
        .on::<msg::CaptureCreate, _, _>(|node, params: msg::CaptureParams, _| async move {
            let captures = Arc::clone(&node.captures);
            let desktop = Arc::clone(&node);
            let (capture, _) =
                blocking(move || captures.store(&desktop.desktop.current(), &params)).await?;
            let stored = Draft::new(name::CAPTURE_STORED, json!({ "capture": capture }));
            node.journal.append(stored).await?;
            Ok(capture)
        })
        .on::<msg::CaptureListing, _, _>(|node, _, _| async move {
            let captures = Arc::clone(&node.captures);
            blocking(move || captures.list()).await
        })
        .on_blob::<msg::CaptureContent, _, _>(|node, params: msg::CaptureRef, _| async move {
            let captures = Arc::clone(&node.captures);
            let (capture, bytes) = blocking(move || captures.content(&params.capture_id)).await?;
            let content_type = capture.content_type.clone();
            Ok((
                capture,
                Blob {
                    content_type,
                    bytes,
                    field: IMAGE_FIELD,
                },
            ))
        })
}

fn register_windows(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<msg::WindowList, _, _>(|node, query: msg::WindowQuery, _| {
            with(node, move |desktop| desktop.windows(&query))
        })
        .on::<msg::WindowActivate, _, _>(|node, window: msg::WindowRef, _| {
            with(node, move |desktop| {
                desktop.activate_window(window.handle).map(done)
            })
        })
        .on::<msg::WindowPlacing, _, _>(|node, place: msg::WindowPlace, _| {
            with(node, move |desktop| {
                let now = desktop.window(place.handle)?.bounds;
                let bounds = Rect {
                    x: place.x.unwrap_or(now.x),
                    y: place.y.unwrap_or(now.y),
                    width: place.width.unwrap_or(now.width),
                    height: place.height.unwrap_or(now.height),
                };
                desktop.place_window(place.handle, bounds)
            })
        })
        .on::<msg::WindowMinimize, _, _>(|node, window: msg::WindowRef, _| {
            with(node, move |desktop| {
                desktop.minimize_window(window.handle).map(done)
            })
        })
        .on::<msg::WindowClose, _, _>(|node, window: msg::WindowRef, _| {
            with(node, move |desktop| {
                desktop.close_window(window.handle).map(done)
            })
        })
        .on::<msg::WindowWaiting, _, _>(|node, wait: msg::WindowWait, context| {
            with(node, move |desktop| {
                let timeout = Duration::from_millis(wait.timeout_ms.unwrap_or(5_000));
                let found =
                    desktop.wait_window(&wait.query, timeout, &|| context.cancel.is_cancelled())?;
                found.ok_or_else(|| Fault::new(Code::TimedOut, "no window fits in the time given"))
            })
        })
}

fn register_input(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<msg::InputMove, _, _>(|node, params: msg::MoveParams, context| {
            hands(node, context, move |session, cancelled| {
                let to = crate::base::Point {
                    x: params.x,
                    y: params.y,
                };
                session.move_to(to, millis(params.duration_ms, 0), cancelled)
            })
        })
        .on::<msg::InputClick, _, _>(|node, params: msg::ClickParams, context| {
            hands(node, context, move |session, _| {
                let at = crate::base::Point {
                    x: params.x,
                    y: params.y,
                };
                session.click(at, button(params.button), params.count.unwrap_or(1))
            })
        })
        .on::<msg::InputDrag, _, _>(|node, params: msg::DragParams, context| {
            hands(node, context, move |session, cancelled| {
                let over = millis(params.duration_ms, 300);
                session.drag(
                    params.from,
                    params.to,
                    button(params.button),
                    over,
                    cancelled,
                )
            })
        })
        .on::<msg::InputScroll, _, _>(|node, params: msg::ScrollParams, context| {
            hands(node, context, move |session, cancelled| {
                if let (Some(x), Some(y)) = (params.x, params.y) {
                    session.move_to(crate::base::Point { x, y }, Duration::ZERO, cancelled)?;
                }
                session.scroll(params.delta_x, params.delta_y)
            })
        })
        .on::<msg::InputKey, _, _>(|node, params: msg::KeyParams, context| {
            hands(node, context, move |session, _| {
                session.press(&Chord::parse(&params.keys)?)
            })
        })
        .on::<msg::InputKeyDown, _, _>(|node, params: msg::KeyParams, context| {
            hands(node, context, move |session, _| {
                session.hold(&Chord::parse(&params.keys)?)
            })
        })
        .on::<msg::InputKeyUp, _, _>(|node, params: msg::KeyParams, context| {
            hands(node, context, move |session, _| {
                session.let_up(&Chord::parse(&params.keys)?)
            })
        })
        .on::<msg::InputType, _, _>(|node, params: msg::TypeParams, context| {
            hands(node, context, move |session, cancelled| {
                session.type_text(&params.text, millis(params.delay_ms, 0), cancelled)
            })
        })
}

fn register_rest(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<msg::ClipboardGet, _, _>(|node, _: Empty, _| {
            with(node, |desktop| {
                Ok(msg::ClipboardText {
                    text: desktop.clipboard_text()?,
                })
            })
        })
        .on::<msg::ClipboardSet, _, _>(|node, params: msg::ClipboardText, _| {
            with(node, move |desktop| {
                desktop.set_clipboard_text(&params.text).map(done)
            })
        })
        .on::<msg::ProcessList, _, _>(|node, query: msg::ProcessQuery, _| {
            with(node, move |desktop| {
                let found = desktop.processes(query.name.as_deref())?;
                Ok(found.into_iter().map(process).collect())
            })
        })
}

fn with<T, F>(node: Arc<Node>, work: F) -> impl Future<Output = Result<T, Fault>> + Send
where
    T: Send + 'static,
    F: FnOnce(&Desktop) -> Result<T, Fault> + Send + 'static,
{
    blocking(move || work(&node.desktop.current()))
}

/// Runs input on behalf of the caller; what it leaves held is released when the caller disconnects.
fn hands<F>(
    node: Arc<Node>,
    context: Context,
    work: F,
) -> impl Future<Output = Result<Empty, Fault>> + Send
where
    F: FnOnce(&InputSession<'_>, &dyn Fn() -> bool) -> Result<(), Fault> + Send + 'static,
{
    let owner = Node::owner_of(context.origin);
    with(node, move |desktop| {
        let session = desktop.input(owner)?;
        work(&session, &|| context.cancel.is_cancelled()).map(done)
    })
}

fn done((): ()) -> Empty {
    Empty {}
}

fn millis(given: Option<u64>, default: u64) -> Duration {
    Duration::from_millis(given.unwrap_or(default))
}

fn button(button: msg::Button) -> Button {
    match button {
        msg::Button::Left => Button::Left,
        msg::Button::Middle => Button::Middle,
        msg::Button::Right => Button::Right,
        msg::Button::Back => Button::Back,
        msg::Button::Forward => Button::Forward,
    }
}

fn process(process: crate::platform::Process) -> msg::Process {
    msg::Process {
        process_id: process.pid,
        parent_id: process.parent,
        name: process.name,
        path: process.path.map(|path| path.to_string_lossy().into_owned()),
    }
}
