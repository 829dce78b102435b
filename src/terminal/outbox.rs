//! What waits for one console: the program's bytes while it keeps up, a screen when it lags.
//!
//! ```text
//! following ── more than 64 KiB of bytes wait, or came within 16 ms ──► lagging (bytes dropped)
//!     ▲                                                                   │
//!     └────────────────── a screen was taken at offset N ◄────────────────┘   then bytes from N
//! ```
//!
//! A flood that a console could take is no use to it either: nobody reads more than a screen in 16 ms.
//!
//! A console that acknowledges what it has taken in has little under way, however much the links between
//! would hold: at most `CONSOLE_UNDER_WAY_MAX` bytes, or two screens. So what follows a flood, such as the
//! effect of Ctrl-C, does not stand in a queue behind it.
//!
//! Invariants: items leave in the order in which they came; bytes are never dropped without a screen
//! that stands for them; memory is bounded by the lag limit and a fixed number of control pieces.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::lately::Lately;
use crate::base::limits;
use crate::wire::messages::sessions::Control;
use crate::wire::{Code, Piece, PieceKind};

/// What the sender of a console's stream does next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Send(Piece),
    /// The console lags: take a screen, then `replace` what waits.
    TakeScreen,
    /// Nothing more will come; the reason, if there is one to tell.
    Closed(Option<&'static str>),
}

#[derive(Debug)]
enum Item {
    Bytes(Bytes),
    Control(Control),
    /// A part of a snapshot or screen.
    Image(PieceKind, Bytes),
}

/// What is under way to a console that acknowledges. Bytes of kinds 0 and 3 count, from the attachment on.
#[derive(Debug, Default)]
struct Pace {
    sent: u64,
    acked: u64,
    /// Where the last two screens end, the older one first.
    screens: [u64; 2],
    /// Since when something is held back for want of an acknowledgement, and none came.
    held_since: Option<Instant>,
}

impl Pace {
    fn send(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.held_since = None;
    }

    fn ack(&mut self, bytes: u64) {
        let acked = bytes.clamp(self.acked, self.sent);
        if acked > self.acked {
            self.acked = acked;
            self.held_since = None;
        }
    }

    /// Something is held back now; answers when the console counts as stalled.
    fn hold(&mut self, now: Instant) -> Instant {
        let stalled = Duration::from_millis(limits::CONSOLE_STALLED_MS);
        *self.held_since.get_or_insert(now) + stalled
    }

    fn has_room(&self) -> bool {
        self.sent - self.acked < limits::CONSOLE_UNDER_WAY_MAX
    }

    fn takes_screen(&self) -> bool {
        self.has_room() && self.acked >= self.screens[0]
    }

    /// A screen of so many bytes goes next.
    fn begin_screen(&mut self, length: usize) {
        self.screens = [self.screens[1], self.sent + length as u64];
    }

    fn shows_last_screen(&self) -> bool {
        self.acked >= self.screens[1]
    }
}

#[derive(Debug, Default)]
struct Inner {
    items: VecDeque<Item>,
    /// `None`: the console acknowledges nothing, and is bounded by its wire alone.
    pace: Option<Pace>,
    /// Bytes of `Item::Bytes` that wait.
    waiting: usize,
    lately: Lately,
    lagging: bool,
    /// Old bytes are on their way that go before all but the first item.
    held: bool,
    closed: bool,
    reason: Option<&'static str>,
    sent: u64,
    screens: u64,
}

/// Figures of an outbox for debug views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutboxStats {
    pub waiting: u64,
    pub sent: u64,
    pub screens: u64,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    inner: Mutex<Inner>,
    ready: Notify,
    closing: Notify,
}

impl Outbox {
    /// For a console that says by `ack` what it has taken in.
    pub fn paced() -> Self {
        let outbox = Self::default();
        outbox.lock().pace = Some(Pace::default());
        outbox
    }

    /// The console has taken in so many bytes since it attached.
    pub fn acked(&self, bytes: u64) {
        if let Some(pace) = &mut self.lock().pace {
            pace.ack(bytes);
        }
        self.ready.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more bytes are of use now; a lagging console gets a screen instead.
    pub fn wants_bytes(&self) -> bool {
        let inner = self.lock();
        !inner.lagging && !inner.closed
    }

    /// The program put out bytes.
    pub fn push_bytes(&self, bytes: &Bytes) {
        let mut inner = self.lock();
        if inner.closed || inner.lagging || bytes.is_empty() {
            return;
        }
        inner.waiting += bytes.len();
        let came = inner.lately.count(bytes.len(), Instant::now());
        if inner.waiting.max(came) > inner.lag_max() {
            inner.start_lagging();
        } else {
            inner.items.push_back(Item::Bytes(bytes.clone()));
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// Something to tell. A newer lease or typing mark takes an older one's place.
    pub fn push_control(&self, control: Control) {
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        let kind = std::mem::discriminant(&control);
        let replaces = matches!(control, Control::Lease { .. } | Control::Typing { .. });
        // A screen carries its own size.
        let moot = inner.lagging && matches!(control, Control::Resize { .. });
        let count = inner.items.len();
        let old = inner.items.iter_mut().find_map(|item| match item {
            Item::Control(old) if replaces && std::mem::discriminant(old) == kind => Some(old),
            _ => None,
        });
        match old {
            Some(old) => *old = control,
            None if moot => {}
            None if count < limits::CONSOLE_ITEMS_MAX => {
                inner.items.push_back(Item::Control(control));
            }
            None => inner.start_lagging(),
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// The pieces of a snapshot at the start of a stream.
    pub fn push_snapshot(&self, snapshot: Bytes) {
        let mut inner = self.lock();
        for part in cut(&snapshot) {
            inner
                .items
                .push_back(Item::Image(PieceKind::Snapshot, part));
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// The screen after a change of size, behind what waits: a mirror has not the scrollback that
    /// its owner's grid reflows with. One that waits already is superseded by a fresh one.
    pub fn push_screen(&self, announcement: Control, screen: &Bytes, after: &Bytes) {
        let mut inner = self.lock();
        if inner.closed || inner.lagging {
            return;
        }
        let waits = |item: &Item| matches!(item, Item::Image(PieceKind::Screen, _));
        if inner.items.iter().any(waits) {
            inner.start_lagging();
        } else {
            inner.items.push_back(Item::Control(announcement));
            for part in cut(screen) {
                inner.items.push_back(Item::Image(PieceKind::Screen, part));
            }
            inner.waiting += after.len();
            if !after.is_empty() {
                inner.items.push_back(Item::Bytes(after.clone()));
            }
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// The screen that stands for what was dropped, and the bytes after it. Goes before everything
    /// that waits.
    pub fn replace(&self, announcement: Control, screen: &Bytes, after: Bytes) {
        let mut inner = self.lock();
        inner.lagging = false;
        inner.screens += 1;
        if let Some(pace) = &mut inner.pace {
            pace.begin_screen(screen.len());
        }
        inner.waiting += after.len();
        if !after.is_empty() {
            inner.items.push_front(Item::Bytes(after));
        }
        let parts: Vec<Bytes> = cut(screen).collect();
        for part in parts.into_iter().rev() {
            inner.items.push_front(Item::Image(PieceKind::Screen, part));
        }
        inner.items.push_front(Item::Control(announcement));
        drop(inner);
        self.ready.notify_one();
    }

    /// Tells the console that it is to go, and ends the stream.
    pub fn dismiss(&self, reason: &'static str, text: &str) {
        self.push_control(Control::Error {
            code: Code::ConsoleDetached.as_str().to_owned(),
            message: text.to_owned(),
        });
        self.close(Some(reason));
    }

    /// Ends the stream once what waits has gone out.
    pub fn close(&self, reason: Option<&'static str>) {
        let mut inner = self.lock();
        if !inner.closed {
            inner.closed = true;
            inner.reason = reason;
        }
        drop(inner);
        self.ready.notify_one();
        self.closing.notify_one();
    }

    pub fn stats(&self) -> OutboxStats {
        let inner = self.lock();
        OutboxStats {
            waiting: inner.waiting as u64,
            sent: inner.sent,
            screens: inner.screens,
        }
    }

    /// Waits until `try_next` has something; false when the console has acknowledged nothing for
    /// `CONSOLE_STALLED_MS` while that held back what waits.
    pub async fn readable(&self) -> bool {
        loop {
            let ready = self.ready.notified();
            let now = Instant::now();
            let stalled_at = {
                let mut inner = self.lock();
                if inner.has_next() {
                    return true;
                }
                inner.hold(now)
            };
            match stalled_at {
                None => ready.await,
                Some(at) => {
                    if now >= at {
                        return false;
                    }
                    // Whether it came or time passed is looked at above.
                    let _ = tokio::time::timeout_at(at.into(), ready).await;
                }
            }
        }
    }

    /// What comes next, if anything does. What waits when the outbox closes still goes out, unless
    /// the console lags.
    pub fn try_next(&self) -> Option<Next> {
        self.lock().take()
    }

    /// Waits for the close; answers its reason.
    pub async fn closed(&self) -> &'static str {
        loop {
            let closing = self.closing.notified();
            {
                let inner = self.lock();
                if inner.closed {
                    return inner.reason.unwrap_or_default();
                }
            }
            closing.await;
        }
    }

    /// Holds everything behind the first item back until `release`.
    pub fn hold(&self) {
        self.lock().held = true;
    }

    /// The old bytes that everything waited for; they do not count as lag.
    pub fn release(&self, old: Bytes) {
        let mut inner = self.lock();
        let parts: Vec<Bytes> = cut(&old).collect();
        let first = inner
            .items
            .front()
            .is_some_and(|item| matches!(item, Item::Control(Control::Attached { .. })));
        let at = usize::from(first);
        for part in parts.into_iter().rev() {
            inner.items.insert(at, Item::Image(PieceKind::Bytes, part));
        }
        inner.held = false;
        drop(inner);
        self.ready.notify_one();
    }

    /// The old bytes are gone: a screen stands for them.
    pub fn release_with_screen(&self) {
        let mut inner = self.lock();
        inner.held = false;
        inner.start_lagging();
        drop(inner);
        self.ready.notify_one();
    }
}

impl Inner {
    fn start_lagging(&mut self) {
        self.lagging = true;
        self.waiting = 0;
        // A screen that is on its way goes on: what is on top of it comes with the next one.
        self.items.retain(|item| match item {
            Item::Control(control) => {
                !matches!(control, Control::Resize { .. } | Control::Typing { .. })
            }
            Item::Image(kind, _) => *kind == PieceKind::Screen,
            Item::Bytes(_) => false,
        });
    }

    fn has_next(&self) -> bool {
        let first = self.items.front();
        if self.held {
            return matches!(first, Some(Item::Control(Control::Attached { .. })));
        }
        if self.closed {
            return true;
        }
        if self.wants_screen() {
            return self.pace.as_ref().is_none_or(Pace::takes_screen);
        }
        match first {
            None => false,
            Some(Item::Bytes(_)) => self.pace.as_ref().is_none_or(Pace::has_room),
            Some(_) => true,
        }
    }

    /// Whether a screen goes next: what has to be told goes before it, the end of the program after it.
    fn wants_screen(&self) -> bool {
        let first = self.items.front();
        let waits = first.is_none() || matches!(first, Some(Item::Control(Control::Exit { .. })));
        self.lagging && waits
    }

    /// When a console counts as stalled whose acknowledgement something waits for.
    fn hold(&mut self, now: Instant) -> Option<Instant> {
        let waits = !self.held && (self.lagging || !self.items.is_empty());
        let pace = self.pace.as_mut().filter(|_| waits)?;
        Some(pace.hold(now))
    }

    /// Bytes that may wait: few while a screen is under way that stands for more.
    fn lag_max(&self) -> usize {
        match &self.pace {
            Some(pace) if !pace.shows_last_screen() => limits::CONSOLE_LAG_BEHIND_SCREEN_MAX,
            _ => limits::CONSOLE_LAG_MAX,
        }
    }

    fn take(&mut self) -> Option<Next> {
        if !self.has_next() {
            return None;
        }
        if self.wants_screen() && !self.held && !self.closed {
            return Some(Next::TakeScreen);
        }
        let piece = match self.items.pop_front() {
            None if self.closed => return Some(Next::Closed(self.reason)),
            None => return None,
            Some(Item::Bytes(first)) => Piece::new(PieceKind::Bytes, self.join(first)),
            Some(Item::Image(kind, body)) => Piece::new(kind, body),
            Some(Item::Control(control)) => {
                // INVARIANT: a control piece has no map with other than text keys and no failing type.
                let body = serde_json::to_vec(&control).unwrap_or_default();
                Piece::new(PieceKind::Control, body)
            }
        };
        self.sent += piece.body.len() as u64;
        if let Some(pace) = &mut self.pace
            && piece.kind.is_acknowledged()
        {
            pace.send(piece.body.len());
        }
        Some(Next::Send(piece))
    }

    /// Joins bytes that wait behind one another up to one piece.
    fn join(&mut self, first: Bytes) -> Bytes {
        self.waiting -= first.len().min(self.waiting);
        let room = limits::STREAM_PIECE_LEN_MAX;
        if first.len() > room {
            let rest = first.slice(room..);
            self.waiting += rest.len();
            self.items.push_front(Item::Bytes(rest));
            return first.slice(..room);
        }
        let mut joined: Option<BytesMut> = None;
        while let Some(Item::Bytes(next)) = self.items.front() {
            let so_far = joined.as_ref().map_or(first.len(), BytesMut::len);
            if so_far + next.len() > room {
                break;
            }
            self.waiting -= next.len().min(self.waiting);
            joined
                .get_or_insert_with(|| BytesMut::from(&first[..]))
                .extend_from_slice(next);
            self.items.pop_front();
        }
        joined.map_or(first, BytesMut::freeze)
    }
}

fn cut(bytes: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    (0..bytes.len())
        .step_by(limits::STREAM_PIECE_LEN_MAX)
        .map(|at| bytes.slice(at..bytes.len().min(at + limits::STREAM_PIECE_LEN_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::sessions::Lease;

    fn take(outbox: &Outbox) -> Option<Next> {
        outbox.lock().take()
    }

    fn bytes(next: Option<Next>) -> Vec<u8> {
        match next {
            Some(Next::Send(piece)) => piece.body.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn small_bytes_leave_together_and_long_ones_in_parts() {
        let outbox = Outbox::default();
        for text in ["a", "b", "c"] {
            outbox.push_bytes(&Bytes::from_static(text.as_bytes()));
        }
        assert_eq!(bytes(take(&outbox)), b"abc");
        assert_eq!(take(&outbox), None);
        outbox.push_bytes(&Bytes::from(vec![1; limits::STREAM_PIECE_LEN_MAX + 5]));
        assert_eq!(bytes(take(&outbox)).len(), limits::STREAM_PIECE_LEN_MAX);
        assert_eq!(bytes(take(&outbox)).len(), 5);
        assert_eq!(outbox.stats().waiting, 0);
    }

    #[test]
    fn lagging_console_gets_controls_then_a_screen_then_the_end() {
        let outbox = Outbox::default();
        let chunk = Bytes::from(vec![7; 40 * 1024]);
        outbox.push_bytes(&chunk);
        outbox.push_bytes(&chunk);
        assert!(!outbox.wants_bytes());
        let lease = Lease::default();
        outbox.push_control(Control::Lease { lease });
        outbox.push_control(Control::Exit {
            exit_code: Some(0),
            exit_signal: None,
        });
        assert!(
            String::from_utf8(bytes(take(&outbox)))
                .unwrap()
                .contains("lease")
        );
        assert_eq!(take(&outbox), Some(Next::TakeScreen));
        let announcement = Control::Screen {
            offset: 9,
            length: 3,
            cols: 80,
            rows: 24,
        };
        outbox.replace(
            announcement,
            &Bytes::from_static(b"xyz"),
            Bytes::from_static(b"+"),
        );
        assert!(
            String::from_utf8(bytes(take(&outbox)))
                .unwrap()
                .contains("screen")
        );
        assert_eq!(bytes(take(&outbox)), b"xyz");
        assert_eq!(bytes(take(&outbox)), b"+");
        assert!(
            String::from_utf8(bytes(take(&outbox)))
                .unwrap()
                .contains("exit")
        );
        assert!(outbox.wants_bytes());
        assert_eq!(outbox.stats().screens, 1);
    }

    #[test]
    fn a_flood_is_shown_as_screens_also_to_a_console_that_takes_everything() {
        let outbox = Outbox::default();
        let chunk = Bytes::from(vec![7; 16 * 1024]);
        let mut lagged = false;
        // Unless the machine stops in between, the fifth one is too much.
        for _ in 0..1_000 {
            outbox.push_bytes(&chunk);
            lagged |= !outbox.wants_bytes();
            take(&outbox);
        }
        assert!(lagged);
    }

    #[test]
    fn controls_alone_cannot_grow_the_outbox() {
        let outbox = Outbox::default();
        for at in 0..100_000 {
            outbox.push_control(Control::Resize {
                cols: 80,
                rows: 24,
                offset: Some(at),
            });
        }
        assert!(outbox.lock().items.len() <= limits::CONSOLE_ITEMS_MAX);
        assert_eq!(take(&outbox), Some(Next::TakeScreen));
    }

    #[test]
    fn old_bytes_go_before_what_came_meanwhile() {
        let outbox = Outbox::default();
        outbox.push_control(Control::Generation { generation: 1 });
        outbox.hold();
        outbox.push_bytes(&Bytes::from_static(b"new"));
        assert_eq!(take(&outbox), None);
        outbox.release(Bytes::from_static(b"old"));
        assert_eq!(bytes(take(&outbox)), b"old");
        assert!(
            String::from_utf8(bytes(take(&outbox)))
                .unwrap()
                .contains("generation")
        );
        assert_eq!(bytes(take(&outbox)), b"new");
    }

    fn screen(length: u64) -> Control {
        Control::Screen {
            offset: 0,
            length,
            cols: 80,
            rows: 24,
        }
    }

    /// Takes all that may go now; answers how many bytes of those that are acknowledged.
    fn take_all(outbox: &Outbox) -> (usize, Option<Next>) {
        let mut counted = 0;
        loop {
            match take(outbox) {
                Some(Next::Send(piece)) if piece.kind.is_acknowledged() => {
                    counted += piece.body.len();
                }
                Some(Next::Send(_)) => {}
                other => return (counted, other),
            }
        }
    }

    #[test]
    fn console_that_acknowledges_is_sent_little_more_than_it_has_taken() {
        let outbox = Outbox::paced();
        outbox.push_bytes(&Bytes::from(vec![1; 60 * 1024]));
        assert_eq!(take_all(&outbox), (32 * 1024, None));
        outbox.acked(16 * 1024);
        assert_eq!(take_all(&outbox), (16 * 1024, None));
        // Words are not held back.
        outbox.push_control(Control::Generation { generation: 1 });
        outbox.acked(60 * 1024);
        assert_eq!(take_all(&outbox), (12 * 1024, None));
        // More than was sent cannot be acknowledged.
        let outbox = Outbox::paced();
        outbox.push_bytes(&Bytes::from(vec![1; 20 * 1024]));
        assert_eq!(take_all(&outbox), (20 * 1024, None));
        outbox.acked(u64::MAX);
        outbox.push_bytes(&Bytes::from(vec![1; 40 * 1024]));
        assert_eq!(take_all(&outbox), (32 * 1024, None));
    }

    #[test]
    fn two_screens_are_under_way_at_most_and_one_that_is_begun_goes_out() {
        let outbox = Outbox::paced();
        outbox.release_with_screen();
        let part = limits::STREAM_PIECE_LEN_MAX;
        let image = Bytes::from(vec![3; part + 5]);
        for _ in 0..2 {
            assert_eq!(take(&outbox), Some(Next::TakeScreen));
            outbox.replace(screen(image.len() as u64), &image, Bytes::new());
            assert!(matches!(take(&outbox), Some(Next::Send(_))));
            // While it is on its way little is enough to lag, and the screen is no less exact for that.
            outbox.push_bytes(&Bytes::from(vec![1; 5 * 1024]));
            assert!(!outbox.wants_bytes());
            assert_eq!(bytes(take(&outbox)).len(), part);
            assert_eq!(bytes(take(&outbox)).len(), 5);
            outbox.acked(1);
        }
        assert_eq!(take(&outbox), None);
        outbox.acked(image.len() as u64);
        assert_eq!(take(&outbox), Some(Next::TakeScreen));
    }

    #[test]
    fn console_is_stalled_once_something_was_held_back_for_long_and_nothing_acknowledged() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let most = limits::CONSOLE_STALLED_MS;
        let outbox = Outbox::paced();
        let hold = |now| outbox.lock().hold(now);
        // An echo that is too small to be acknowledged, long ago, holds nothing back.
        outbox.push_bytes(&Bytes::from_static(b"x"));
        assert_eq!(take_all(&outbox), (1, None));
        assert_eq!(hold(at(0)), None);
        outbox.push_bytes(&Bytes::from(vec![1; 60 * 1024]));
        take_all(&outbox);
        assert_eq!(hold(at(2 * most)), Some(at(3 * most)));
        assert_eq!(hold(at(2 * most + 9)), Some(at(3 * most)));
        // Progress, however little, and then none.
        outbox.acked(2);
        assert_eq!(hold(at(3 * most)), Some(at(4 * most)));
        outbox.acked(2);
        assert_eq!(hold(at(4 * most)), Some(at(4 * most)));
        outbox.acked(u64::MAX);
        take_all(&outbox);
        assert_eq!(hold(at(9 * most)), None);
    }

    #[tokio::test]
    async fn stalled_console_is_told_from_one_that_is_waited_for() {
        let outbox = Outbox::paced();
        outbox.push_bytes(&Bytes::from(vec![1; 60 * 1024]));
        take_all(&outbox);
        let waited = tokio::time::timeout(Duration::from_millis(20), outbox.readable()).await;
        assert!(waited.is_err());
        let stalled = Duration::from_millis(limits::CONSOLE_STALLED_MS);
        if let Some(pace) = &mut outbox.lock().pace {
            pace.held_since = Instant::now().checked_sub(stalled);
        }
        assert!(!outbox.readable().await);
        outbox.acked(32 * 1024);
        assert!(outbox.readable().await);
    }

    #[tokio::test]
    async fn what_waits_at_the_close_still_goes_out() {
        let outbox = Outbox::default();
        outbox.push_bytes(&Bytes::from_static(b"last"));
        outbox.close(Some("detached"));
        assert!(outbox.readable().await);
        assert!(matches!(outbox.try_next(), Some(Next::Send(_))));
        assert_eq!(outbox.try_next(), Some(Next::Closed(Some("detached"))));
        assert_eq!(outbox.closed().await, "detached");
    }
}
