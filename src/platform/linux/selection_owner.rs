//! Owning a selection: a thread that hands the content out until another client takes over.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt as _, EventMask,
    PropMode, Property, PropertyNotifyEvent, SELECTION_NOTIFY_EVENT, SelectionNotifyEvent,
    SelectionRequestEvent, Timestamp, Window,
};
use x11rb::wrapper::ConnectionExt as _;

use super::selection::{Client, Content, lost, wait_readable};
use crate::base::limits::{CLIPBOARD_PART_LEN, CLIPBOARD_SILENCE_MS, CLIPBOARD_TRANSFERS_MAX};
use crate::platform::{PlatformError, Result};

/// An owner that we started. Dropping it ends its thread, and with it the content.
pub struct SelectionOwner {
    display: String,
    window: Window,
    token: Token,
}

/// Tells one owner from another: a window's number passes on to the next client once its own is gone.
type Token = [u32; 5];

fn next_token() -> Token {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    [std::process::id(), count, 0, 0, 0]
}

impl Drop for SelectionOwner {
    fn drop(&mut self) {
        // A display that is gone has ended the owner already; so has a client that took over.
        let Ok(client) = Client::connect(&self.display) else {
            return;
        };
        let Ok(quit) = client.atom(QUIT) else { return };
        let message = ClientMessageEvent::new(32, self.window, quit, self.token);
        if let Ok(cookie) =
            client
                .connection
                .send_event(false, self.window, EventMask::NO_EVENT, message)
        {
            // A window that is gone refuses it, which is just as well.
            let _ = cookie.check();
        }
    }
}

const QUIT: &str = "WINGMAN_SELECTION_QUIT";

/// Takes the CLIPBOARD selection and starts to hand the content out.
pub fn become_owner(display: &str, content: Content) -> Result<SelectionOwner> {
    let client = Client::connect(display)?;
    let owned_since = client.time()?;
    let clipboard = client.atom("CLIPBOARD")?;
    let connection = &client.connection;
    connection
        .set_selection_owner(client.window, clipboard, owned_since)
        .map_err(lost)?
        .check()
        .map_err(lost)?;
    let owner = connection
        .get_selection_owner(clipboard)
        .map_err(lost)?
        .reply()
        .map_err(lost)?;
    if owner.owner != client.window {
        return Err(PlatformError::ClipboardFailed(
            "another client took it at the same moment".into(),
        ));
    }
    let handle = SelectionOwner {
        display: display.to_owned(),
        window: client.window,
        token: next_token(),
    };
    let server = Server::new(client, content, owned_since, handle.token)?;
    std::thread::Builder::new()
        .name("clipboard".into())
        .spawn(move || server.run())
        .map_err(|error| PlatformError::ClipboardFailed(format!("start a thread: {error}")))?;
    Ok(handle)
}

/// What the owning thread works with.
struct Server {
    client: Client,
    /// Each format's atom with its bytes.
    formats: Vec<(Atom, Vec<u8>)>,
    owned_since: Timestamp,
    targets: Atom,
    timestamp: Atom,
    incr: Atom,
    quit: Atom,
    token: Token,
    transfers: Vec<Transfer>,
}

/// Content on its way in parts.
struct Transfer {
    requestor: Window,
    property: Atom,
    format: Atom,
    sent: usize,
    last_progress: Instant,
}

impl Server {
    fn new(client: Client, content: Content, owned_since: Timestamp, token: Token) -> Result<Self> {
        let formats = content
            .0
            .into_iter()
            .map(|offer| Ok((client.atom(offer.format)?, offer.bytes)))
            .collect::<Result<_>>()?;
        Ok(Self {
            formats,
            owned_since,
            targets: client.atom("TARGETS")?,
            timestamp: client.atom("TIMESTAMP")?,
            incr: client.atom("INCR")?,
            quit: client.atom(QUIT)?,
            token,
            transfers: Vec::new(),
            client,
        })
    }

    /// Serves until the selection is lost and the last transfer has ended, or the display goes.
    fn run(mut self) {
        let mut owned = true;
        while owned || !self.transfers.is_empty() {
            match self.event() {
                Ok(Some(Event::SelectionClear(_))) => owned = false,
                Ok(Some(Event::ClientMessage(event)))
                    if event.type_ == self.quit && event.data.as_data32() == self.token =>
                {
                    return;
                }
                Ok(Some(Event::SelectionRequest(request))) => self.answer(&request),
                Ok(Some(Event::PropertyNotify(event))) => self.next_part(&event),
                Ok(Some(_)) => {}
                Ok(None) => self.drop_silent(),
                Err(_) => return,
            }
        }
    }

    /// The next event; `None` when a transfer has been silent for long.
    fn event(&self) -> Result<Option<Event>> {
        self.client.connection.flush().map_err(lost)?;
        if self.transfers.is_empty() {
            return self
                .client
                .connection
                .wait_for_event()
                .map(Some)
                .map_err(lost);
        }
        let event = self.client.connection.poll_for_event().map_err(lost)?;
        if event.is_some() {
            return Ok(event);
        }
        wait_readable(
            &self.client.connection,
            Duration::from_millis(CLIPBOARD_SILENCE_MS),
        )?;
        self.client.connection.poll_for_event().map_err(lost)
    }

    fn drop_silent(&mut self) {
        let patience = Duration::from_millis(CLIPBOARD_SILENCE_MS);
        self.transfers
            .retain(|transfer| transfer.last_progress.elapsed() < patience);
    }

    /// Gives a reader what it asked for, or says that it cannot.
    fn answer(&mut self, request: &SelectionRequestEvent) {
        // Old readers name no property; the target's name stands for it (ICCCM section 2.2).
        let property = match request.property {
            x11rb::NONE => request.target,
            property => property,
        };
        // A reader that is gone meanwhile cannot be told anything.
        let given = self.give(request, property).unwrap_or(false);
        let notice = SelectionNotifyEvent {
            response_type: SELECTION_NOTIFY_EVENT,
            sequence: 0,
            time: request.time,
            requestor: request.requestor,
            selection: request.selection,
            target: request.target,
            property: if given { property } else { x11rb::NONE },
        };
        let sent = self.client.connection.send_event(
            false,
            request.requestor,
            EventMask::NO_EVENT,
            notice,
        );
        if let Ok(cookie) = sent {
            cookie.ignore_error();
        }
    }

    fn give(&mut self, request: &SelectionRequestEvent, property: Atom) -> Result<bool> {
        let connection = &self.client.connection;
        let (to, target) = (request.requestor, request.target);
        if target == self.targets {
            let mut list = vec![self.targets, self.timestamp];
            list.extend(self.formats.iter().map(|(format, _)| *format));
            let cookie = connection.change_property32(
                PropMode::REPLACE,
                to,
                property,
                AtomEnum::ATOM,
                &list,
            );
            return Ok(cookie.map_err(lost)?.check().is_ok());
        }
        if target == self.timestamp {
            let time = [self.owned_since];
            let cookie = connection.change_property32(
                PropMode::REPLACE,
                to,
                property,
                AtomEnum::INTEGER,
                &time,
            );
            return Ok(cookie.map_err(lost)?.check().is_ok());
        }
        let Some((format, bytes)) = self.formats.iter().find(|(format, _)| *format == target)
        else {
            return Ok(false);
        };
        if bytes.len() <= CLIPBOARD_PART_LEN.min(self.client.part_len_max()) {
            let cookie =
                connection.change_property8(PropMode::REPLACE, to, property, *format, bytes);
            return Ok(cookie.map_err(lost)?.check().is_ok());
        }
        if self.transfers.len() >= CLIPBOARD_TRANSFERS_MAX {
            return Ok(false);
        }
        let watch = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        connection
            .change_window_attributes(to, &watch)
            .map_err(lost)?
            .ignore_error();
        let length = [bytes.len() as u32];
        let cookie =
            connection.change_property32(PropMode::REPLACE, to, property, self.incr, &length);
        if cookie.map_err(lost)?.check().is_err() {
            return Ok(false);
        }
        self.transfers.push(Transfer {
            requestor: to,
            property,
            format: target,
            sent: 0,
            last_progress: Instant::now(),
        });
        Ok(true)
    }

    /// Sends the part that follows once the reader has taken the one before; an empty one ends.
    fn next_part(&mut self, event: &PropertyNotifyEvent) {
        if event.state != Property::DELETE {
            return;
        }
        let part_len = CLIPBOARD_PART_LEN.min(self.client.part_len_max());
        let found = self.transfers.iter().position(|transfer| {
            transfer.requestor == event.window && transfer.property == event.atom
        });
        let Some(at) = found else { return };
        let transfer = &mut self.transfers[at];
        let bytes = self
            .formats
            .iter()
            .find(|(format, _)| *format == transfer.format)
            .map_or(&[][..], |(_, bytes)| bytes);
        let rest = bytes.get(transfer.sent..).unwrap_or_default();
        let part = rest.get(..part_len).unwrap_or(rest);
        let sent = self.client.connection.change_property8(
            PropMode::REPLACE,
            transfer.requestor,
            transfer.property,
            transfer.format,
            part,
        );
        transfer.sent += part.len();
        transfer.last_progress = Instant::now();
        let alive = sent.is_ok_and(|cookie| cookie.check().is_ok());
        if part.is_empty() || !alive {
            self.transfers.swap_remove(at);
        }
    }
}
