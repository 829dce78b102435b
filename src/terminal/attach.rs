//! Consoles at a session: how one comes, what it is sent, what it may do, how it leaves.
//!
//! ```text
//! attach ─► snapshot or old bytes ─► following ⇄ lagging ─► left · exclusive holders keep their
//!                                                          lease for a moment when a stream breaks
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use super::grid::Size;
use super::outbox::{Next, Outbox};
use super::session::{Seat, Session, lock};
use crate::base::ids::ConsoleId;
use crate::base::{EpochMillis, limits};
use crate::model::attention::Input;
use crate::model::lease::Change;
use crate::platform::pty::{HolderIo, PtySize};
use crate::wire::event::name;
use crate::wire::messages::sessions::{AttachParams, AttachReply, Control, LeaseAction, Location};
use crate::wire::{Code, Fault, Piece, PieceKind, StreamEnd};

/// A size inside of the bounds of a grid.
pub(super) fn clamp(cols: u16, rows: u16) -> (u16, u16) {
    let size = Size { cols, rows }.clamped();
    (size.cols, size.rows)
}

impl Session {
    /// Attaches a console and answers its end of the stream. Errors: `too_many_sessions`,
    /// `session_incompatible`, `lease_held`. A session that has ended shows its last screen.
    pub async fn attach(
        self: &Arc<Self>,
        params: AttachParams,
    ) -> Result<(AttachReply, StreamEnd), Fault> {
        if let super::Life::Unreachable { why } = &*self.life.borrow() {
            return Err(Fault::new(
                Code::SessionIncompatible,
                format!("session {}: {why}", self.id),
            ));
        }
        let console = params.console_id.clone().unwrap_or_else(ConsoleId::random);
        let outbox = match params.acks {
            true => Outbox::paced(),
            false => Outbox::default(),
        };
        let outbox = Arc::new(outbox);
        let (reply, serial, gap) = self.take_seat(&params, &console, &outbox)?;
        if let Some((from, length)) = gap {
            let old = self.fetch(from, length).await.unwrap_or_default();
            if old.len() as u64 == u64::from(length) {
                outbox.release(Bytes::from(old));
            } else {
                outbox.release_with_screen();
            }
        }
        let (ours, theirs) = StreamEnd::pair();
        let StreamEnd { send, recv } = ours;
        let session = Arc::clone(self);
        let sender = tokio::spawn(send_pieces(Arc::clone(self), Arc::clone(&outbox), send));
        tokio::spawn(async move {
            let why = session.read_pieces(&console, serial, recv).await;
            // What waits may still go out; a console that has gone takes nothing.
            outbox.close(Some(why));
            session.leave(&console, serial, why);
            if why == GONE {
                sender.abort();
            }
        });
        Ok((reply, theirs))
    }

    /// Puts a console at the session, with everything that it needs first in its outbox. The answer's
    /// last part: old bytes to be fetched before anything else is sent.
    #[allow(clippy::type_complexity)]
    fn take_seat(
        self: &Arc<Self>,
        params: &AttachParams,
        console: &ConsoleId,
        outbox: &Arc<Outbox>,
    ) -> Result<(AttachReply, u64, Option<(u64, u32)>), Fault> {
        let now = EpochMillis::now();
        let cells = clamp(params.cols, params.rows);
        let record = self.record();
        let screen = lock(&self.screen);
        let mut seats = lock(&self.seats);
        if seats.consoles.len() >= limits::CONSOLES_PER_SESSION_MAX
            && !seats.consoles.contains_key(console)
        {
            let text = format!("{} consoles are attached already", seats.consoles.len());
            return Err(Fault::new(Code::TooManySessions, text));
        }
        if let Some(former) = seats.consoles.remove(console) {
            let text = "another attachment took this console's place";
            former.outbox.dismiss(REPLACED, text);
        }
        let mut change = seats.lease.attach(console.clone(), params.mode, cells);
        if params.exclusive {
            match seats.lease.take(console, params.takeover) {
                Ok(taken) => {
                    change = Change {
                        lease: true,
                        resize: taken.resize.or(change.resize),
                    };
                }
                Err(fault) => {
                    seats.lease.detach(console);
                    return Err(fault);
                }
            }
        }
        seats.serial += 1;
        let serial = seats.serial;
        let size = screen.grid.size();
        let end = screen.next.offset;
        let since = params.since.filter(|since| {
            *since <= end && end - since <= limits::CONSOLE_RESUME_MAX && self.is_running()
        });
        let lease = seats.lease.lease().clone();
        let attached = |since, truncated, snapshot_bytes| Control::Attached {
            since,
            truncated,
            snapshot_bytes,
            cols: size.cols,
            rows: size.rows,
            console_id: Some(console.clone()),
            lease: lease.clone(),
        };
        let (offset, snapshot_bytes, gap) = match since {
            Some(since) => {
                outbox.push_control(attached(since, false, 0));
                let gap = u32::try_from(end - since).ok().filter(|length| *length > 0);
                if gap.is_some() {
                    outbox.hold();
                }
                (since, 0, gap.map(|length| (since, length)))
            }
            None => {
                let (offset, snapshot, pending) = Self::snapshot(&screen);
                outbox.push_control(attached(
                    offset,
                    params.since.is_some(),
                    snapshot.len() as u64,
                ));
                outbox.push_snapshot(snapshot.clone());
                outbox.push_bytes(&pending);
                (offset, snapshot.len() as u64, None)
            }
        };
        if let super::Life::Exited { code, signal, .. } = &*self.life.borrow() {
            outbox.push_control(Control::Exit {
                exit_code: *code,
                exit_signal: *signal,
            });
        }
        let seat = Seat {
            outbox: Arc::clone(outbox),
            location: params.location,
            label: params
                .label
                .chars()
                .filter(|c| !c.is_control())
                .take(limits::SESSION_NAME_CHARS_MAX)
                .collect(),
            focused: true,
            attached_at: now,
            last_input: None,
            input_bytes: 0,
            typing_told: EpochMillis(0),
            serial,
        };
        let payload = json!({
            "consoleId": console, "label": seat.label, "location": seat.location, "mode": params.mode,
        });
        seats.consoles.insert(console.clone(), seat);
        drop(screen);
        self.apply(&mut seats, change);
        drop(seats);
        self.tell(name::CONSOLE_ATTACHED, payload);
        let reply = AttachReply {
            console_id: console.clone(),
            offset,
            snapshot_bytes,
            truncated: params.since.is_some() && since.is_none(),
            lease,
            session: record,
            holder: self.watched_at(params),
        };
        Ok((reply, serial, gap))
    }

    /// Where a console on this machine may watch the holder.
    fn watched_at(&self, params: &AttachParams) -> Option<String> {
        let near = params.location == Location::Local && HolderIo::IS_WATCHABLE;
        (near && self.is_running())
            .then(|| super::holder::socket_of(&self.folder))
            .and_then(|path| path.to_str().map(str::to_owned))
    }

    /// Takes in what a console sends until it leaves; answers why it did.
    async fn read_pieces(
        self: &Arc<Self>,
        console: &ConsoleId,
        serial: u64,
        mut recv: mpsc::Receiver<Piece>,
    ) -> &'static str {
        let replaced = self.seat_outbox(console, serial);
        let Some(outbox) = replaced else {
            return REPLACED;
        };
        loop {
            let piece = tokio::select! {
                piece = recv.recv() => piece,
                why = outbox.closed() => return why,
            };
            let Some(piece) = piece else { return GONE };
            if let Err(fault) = self.take_piece(console, piece) {
                outbox.push_control(Control::Error {
                    code: fault.code_text().to_owned(),
                    message: fault.message.to_string(),
                });
            }
        }
    }

    fn seat_outbox(&self, console: &ConsoleId, serial: u64) -> Option<Arc<Outbox>> {
        let seats = lock(&self.seats);
        let seat = seats
            .consoles
            .get(console)
            .filter(|seat| seat.serial == serial)?;
        Some(Arc::clone(&seat.outbox))
    }

    fn take_piece(self: &Arc<Self>, console: &ConsoleId, piece: Piece) -> Result<(), Fault> {
        match piece.kind {
            PieceKind::Bytes => self.typed(console, &piece.body),
            PieceKind::Control => {
                let control: Control = serde_json::from_slice(&piece.body).map_err(|error| {
                    Fault::new(
                        Code::InvalidMessage,
                        format!("read a control piece: {error}"),
                    )
                })?;
                self.take_control(console, control)
            }
            PieceKind::Snapshot | PieceKind::Screen => Err(Fault::new(
                Code::InvalidMessage,
                "a console sends bytes and control pieces",
            )),
        }
    }

    /// A console typed: in arrival order, if its lease allows.
    fn typed(self: &Arc<Self>, console: &ConsoleId, bytes: &[u8]) -> Result<(), Fault> {
        let writer = self.live()?;
        let now = EpochMillis::now();
        {
            let mut seats = lock(&self.seats);
            let change = seats.lease.typed(console)?;
            // Under the lock, so that what several consoles type stays in the order of its acceptance.
            writer
                .input(bytes)
                .map_err(|error| Fault::new(Code::InputQueueFull, error.to_string()))?;
            seats.note_typing(console, bytes.len(), now);
            self.apply(&mut seats, change);
        }
        self.note_input(bytes, now);
        Ok(())
    }

    /// Counts input and tells attention; what it was is forgotten here.
    pub(super) fn note_input(self: &Arc<Self>, bytes: &[u8], now: EpochMillis) {
        self.last_input.store(now.0, Ordering::Relaxed);
        self.counters
            .bytes_in
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let enter = bytes.contains(&b'\r') || bytes.contains(&b'\n');
        let length = bytes.len() as u64;
        self.attend(
            Input::UserInput {
                bytes: length,
                enter,
            },
            now,
        );
        let told = &self.told;
        self.tell_bytes(
            name::SESSION_STDIN,
            &told.input,
            &told.input_at,
            length,
            now,
        );
    }

    fn take_control(self: &Arc<Self>, console: &ConsoleId, control: Control) -> Result<(), Fault> {
        let mut seats = lock(&self.seats);
        let change = match control {
            Control::Resize { cols, rows, .. } => {
                seats.lease.resized(console, clamp(cols, rows))?
            }
            Control::Generation { generation } => seats.lease.seen(console, generation),
            Control::Take { takeover } => seats.lease.take(console, takeover)?,
            Control::Release {} => seats.lease.release(Some(console))?,
            Control::Focus { focused } => {
                if let Some(seat) = seats.consoles.get_mut(console) {
                    seat.focused = focused;
                }
                drop(seats);
                let payload = json!({"consoleId": console, "focused": focused});
                let draft = crate::wire::event::Draft::new(name::CONSOLE_FOCUS, payload);
                self.hub
                    .sink
                    .tell_volatile(draft.in_session(self.id.as_str()));
                return Ok(());
            }
            Control::Ack { bytes } => {
                if let Some(seat) = seats.consoles.get(console) {
                    seat.outbox.acked(bytes);
                }
                return Ok(());
            }
            // Where credit matters the wire has taken it already.
            Control::Credit { .. } => return Ok(()),
            Control::Attached { .. }
            | Control::Lease { .. }
            | Control::Typing { .. }
            | Control::Screen { .. }
            | Control::Exit { .. }
            | Control::Error { .. } => {
                return Err(Fault::new(
                    Code::InvalidMessage,
                    "only the owner sends this control piece",
                ));
            }
        };
        self.apply(&mut seats, change);
        Ok(())
    }

    /// Does what a change of the lease asks for.
    pub(super) fn apply(&self, seats: &mut super::session::Seats, change: Change) {
        if let Some((cols, rows)) = change.resize
            && let Ok(writer) = self.live()
            && let Err(error) = writer.resize(PtySize { cols, rows })
        {
            tracing::warn!(session = %self.id, %error, "the terminal keeps its size");
        }
        if change.lease {
            let lease = seats.lease.lease().clone();
            for seat in seats.consoles.values() {
                seat.outbox.push_control(Control::Lease {
                    lease: lease.clone(),
                });
            }
            self.store_generation(lease.generation);
            self.tell(name::SESSION_LEASE, json!({"lease": lease}));
            self.bump();
        }
    }

    /// A console has gone. The lease of one whose stream broke waits a moment for its return.
    fn leave(self: &Arc<Self>, console: &ConsoleId, serial: u64, why: &'static str) {
        let mut seats = lock(&self.seats);
        if seats
            .consoles
            .get(console)
            .is_none_or(|seat| seat.serial != serial)
        {
            return;
        }
        let Some(seat) = seats.consoles.remove(console) else {
            return;
        };
        let holds = seats.lease.lease().holder.as_ref() == Some(console);
        if holds && why == GONE {
            let session = Arc::clone(self);
            let console = console.clone();
            self.hub.runtime.spawn(async move {
                tokio::time::sleep(Duration::from_millis(limits::LEASE_GRACE_MS)).await;
                let mut seats = lock(&session.seats);
                if !seats.consoles.contains_key(&console) {
                    let change = seats.lease.detach(&console);
                    session.apply(&mut seats, change);
                }
            });
        } else {
            let change = seats.lease.detach(console);
            self.apply(&mut seats, change);
        }
        drop(seats);
        let payload = json!({
            "consoleId": console, "label": seat.label, "reason": why, "inputBytes": seat.input_bytes,
            "attachedMs": EpochMillis::now().since(seat.attached_at),
        });
        self.tell(name::CONSOLE_DETACHED, payload);
    }

    /// Ends every stream because the agent ends; consoles come back to the next one.
    pub(super) fn hang_up(&self) {
        self.close_streams(STOPPED);
    }

    /// Ends every stream because nothing is kept of the session any more. Consoles have been told how it
    /// ended; whoever looks at its last screen goes on looking.
    pub(super) fn forgotten(&self) {
        self.close_streams(FORGOTTEN);
    }

    fn close_streams(&self, why: &'static str) {
        for seat in lock(&self.seats).consoles.values() {
            seat.outbox.close(Some(why));
        }
    }

    /// Detaches one console or all of them; answers how many.
    pub fn detach(&self, console: Option<&ConsoleId>) -> u32 {
        let seats = lock(&self.seats);
        let wanted = seats
            .consoles
            .iter()
            .filter(|(id, _)| console.is_none_or(|console| console == *id));
        let mut count = 0;
        for (_, seat) in wanted {
            seat.outbox
                .dismiss(DETACHED, "somebody detached this console");
            count += 1;
        }
        count
    }

    /// Changes the lease on behalf of a command or an API call.
    pub fn change_lease(
        &self,
        action: LeaseAction,
        console: Option<&ConsoleId>,
    ) -> Result<crate::wire::messages::sessions::Lease, Fault> {
        let mut seats = lock(&self.seats);
        let named = || {
            console.ok_or_else(|| {
                Fault::new(
                    Code::InvalidParams,
                    "console: name the one that is to hold the lease",
                )
            })
        };
        let change = match action {
            LeaseAction::Take => seats.lease.take(named()?, false)?,
            LeaseAction::TakeOver => seats.lease.take(named()?, true)?,
            LeaseAction::Release => seats.lease.release(console)?,
        };
        self.apply(&mut seats, change);
        Ok(seats.lease.lease().clone())
    }

    /// The screen that stands for what a lagging console missed.
    fn take_screen(&self, outbox: &Outbox) {
        let screen = lock(&self.screen);
        let (announcement, snapshot, pending) = Self::image(&screen);
        outbox.replace(announcement, &snapshot, pending);
    }

    /// Whether a screen taken now would show a half-drawn frame.
    fn in_update(&self) -> bool {
        let since = lock(&self.screen).sync_since;
        since.is_some_and(|since| EpochMillis::now().since(since) < limits::SYNC_UPDATE_MS as i64)
    }
}

impl super::session::Seats {
    fn note_typing(&mut self, console: &ConsoleId, length: usize, now: EpochMillis) {
        let Some(seat) = self.consoles.get_mut(console) else {
            return;
        };
        seat.input_bytes += length as u64;
        seat.last_input = Some(now);
        if now.since(seat.typing_told) < limits::SESSION_NOTICE_PAUSE_MS || self.consoles.len() < 2
        {
            return;
        }
        let Some(seat) = self.consoles.get_mut(console) else {
            return;
        };
        seat.typing_told = now;
        let label = seat.label.clone();
        for (id, seat) in &self.consoles {
            if id != console {
                seat.outbox.push_control(Control::Typing {
                    console_id: console.clone(),
                    label: label.clone(),
                });
            }
        }
    }
}

const GONE: &str = "gone";
const REPLACED: &str = "replaced";
const DETACHED: &str = "detached";
const FORGOTTEN: &str = "forgotten";
const STOPPED: &str = "agent_stopped";
const STALLED: &str = "console_too_slow";

/// Sends what waits for a console until it is closed. A console that takes nothing for too long is
/// cut off.
async fn send_pieces(session: Arc<Session>, outbox: Arc<Outbox>, send: mpsc::Sender<Piece>) {
    let stalled = Duration::from_millis(limits::CONSOLE_STALLED_MS);
    let pause = Duration::from_millis(limits::CONSOLE_SCREEN_PAUSE_MS);
    let mut last_screen: Option<tokio::time::Instant> = None;
    loop {
        if !outbox.readable().await {
            outbox.close(Some(STALLED));
            return;
        }
        // Room first: what goes out then is as fresh as it can be.
        let permit = match tokio::time::timeout(stalled, send.reserve()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return,
            Err(_) => {
                outbox.close(Some(STALLED));
                return;
            }
        };
        match outbox.try_next() {
            None => {}
            Some(Next::Send(piece)) => permit.send(piece),
            Some(Next::Closed(_)) => return,
            Some(Next::TakeScreen) => {
                drop(permit);
                if let Some(last) = last_screen {
                    tokio::time::sleep_until(last + pause).await;
                }
                while session.in_update() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                session.take_screen(&outbox);
                last_screen = Some(tokio::time::Instant::now());
            }
        }
    }
}
