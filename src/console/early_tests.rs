//! Early output beside the stream: whatever comes first, late or never, a pane ends with the screen that
//! the session's owner has.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;

use super::cell::{Area, Buffer};
use super::mirror::Mirror;
use super::paint::{Caret, Damage};
use super::pane::{How, Pane, SessionKey};
use crate::base::ids::TerminalId;
use crate::platform::pty::PtySize;
use crate::terminal::grid::{Grid, Options, Role, Scrollback, Size};
use crate::terminal::holder::Early;
use crate::wire::messages::sessions::{AttachMode, Control, Lease};
use crate::wire::stream::{Piece, PieceKind, StreamEnd};

const SIZE: (u16, u16) = (20, 6);

/// What happens to a session, and what becomes of it on its two ways.
#[derive(Clone, Debug)]
enum Step {
    Bytes {
        text: String,
        /// Whether the stream carries it, or a screen later.
        streamed: bool,
        /// Whether the holder tells it.
        told: bool,
    },
    Resize(u16, u16),
}

fn step() -> impl Strategy<Value = Step> {
    let text = prop_oneof![
        "[a-z ]{1,9}",
        "[a-z世é]{1,5}",
        "\r\n|\n|\r|\t|\x08",
        "\x1b\\[[1-6];[1-9]H",
        "\x1b\\[(1|0|31|42|7)m",
        "\x1b\\[[JKLMP@]",
        // Cut in the middle of a sequence, and what may end it.
        "\x1b|\x1b\\[|\x1b\\[3|1;2H|\x1b\\]0;ti|tle\x07",
    ];
    prop_oneof![
        20 => (text, prop::bool::weighted(0.9), prop::bool::weighted(0.8))
            .prop_map(|(text, streamed, told)| Step::Bytes { text, streamed, told }),
        1 => (5..30_u16, 2..9_u16).prop_map(|(cols, rows)| Step::Resize(cols, rows)),
    ]
}

/// The session as its owner has it, and what is on both ways to the console.
struct Owner {
    grid: Grid,
    /// Everything fed: its end is the offset of the terminal.
    fed: u64,
    all: Mirror,
    stream: VecDeque<Piece>,
    early: VecDeque<Early>,
    lagging: bool,
}

impl Owner {
    fn new() -> Self {
        let size = Size {
            cols: SIZE.0,
            rows: SIZE.1,
        };
        Self {
            grid: Grid::new(size, Options::new(Role::Host)),
            fed: 0,
            all: Mirror::new(SIZE.0, SIZE.1),
            stream: VecDeque::new(),
            early: VecDeque::new(),
            lagging: false,
        }
    }

    fn tell(&mut self, control: &Control) {
        let body = serde_json::to_vec(control).unwrap();
        self.stream.push_back(Piece::new(PieceKind::Control, body));
    }

    fn send_screen(&mut self) {
        let image = self.grid.snapshot(Scrollback::None);
        let size = self.grid.size();
        self.tell(&Control::Screen {
            offset: self.grid.offset(),
            length: image.len() as u64,
            cols: size.cols,
            rows: size.rows,
        });
        let half = image.len() / 2;
        for part in [&image[..half], &image[half..]] {
            self.stream
                .push_back(Piece::new(PieceKind::Screen, part.to_vec()));
        }
        let pending = self.grid.pending().to_vec();
        if !pending.is_empty() {
            self.stream.push_back(Piece::new(PieceKind::Bytes, pending));
        }
        // The same picture for the one that is compared with: a screen has no scrollback to reflow from.
        self.all = Mirror::new(size.cols, size.rows);
        self.all.feed(&image);
        self.all.feed(self.grid.pending());
        self.lagging = false;
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Bytes {
                text,
                streamed,
                told,
            } => {
                let bytes = text.into_bytes();
                let offset = self.fed;
                self.fed += bytes.len() as u64;
                self.grid.feed(&bytes, &mut Vec::new());
                self.all.feed(&bytes);
                if told {
                    let bytes = Bytes::from(bytes.clone());
                    self.early.push_back(Early::Output { offset, bytes });
                }
                match (streamed, self.lagging) {
                    (true, true) => self.send_screen(),
                    (true, false) => self.stream.push_back(Piece::new(PieceKind::Bytes, bytes)),
                    (false, _) => self.lagging = true,
                }
            }
            Step::Resize(cols, rows) => {
                self.grid.resize(Size { cols, rows });
                self.early.push_back(Early::Resized(PtySize { cols, rows }));
                let offset = Some(self.fed);
                self.tell(&Control::Resize { cols, rows, offset });
                self.send_screen();
            }
        }
    }
}

fn pane() -> (Pane, StreamEnd) {
    let key = SessionKey {
        place: 0,
        id: TerminalId::parse("aaaa").unwrap(),
    };
    let mut pane = Pane::new(key, SIZE, AttachMode::Observe);
    pane.connect(SIZE, &How::default());
    let (ours, theirs) = StreamEnd::pair();
    let reply = super::stage::reply("aaaa", 0);
    assert!(pane.connected(1, Ok((reply, ours))));
    (pane, theirs)
}

fn attached(since: u64) -> Control {
    Control::Attached {
        since,
        truncated: false,
        snapshot_bytes: 0,
        cols: SIZE.0,
        rows: SIZE.1,
        console_id: None,
        lease: Lease::default(),
    }
}

fn picture(mirror: &Mirror) -> (Buffer, Caret) {
    let (cols, rows) = mirror.size();
    let mut buffer = Buffer::new(cols, rows);
    let area = Area::new(0, 0, cols, rows);
    mirror.copy((0, 0), area, &Damage::All, &mut buffer);
    (buffer, mirror.caret())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_pane_ends_with_its_owners_screen_whatever_was_told_early(
        steps in prop::collection::vec(step(), 1..60),
        turns in prop::collection::vec(any::<bool>(), 200),
    ) {
        let mut owner = Owner::new();
        owner.tell(&attached(0));
        steps.into_iter().for_each(|step| owner.take(step));
        if owner.lagging {
            owner.send_screen();
        }
        let (mut pane, _end) = pane();
        let now = Instant::now();
        let (mut stream, mut early) = (owner.stream, owner.early);
        let mut turns = turns.into_iter().cycle();
        while !stream.is_empty() {
            if turns.next().unwrap_or_default() {
                pane.apply(stream.pop_front(), now);
            } else if let Some(told) = early.pop_front() {
                pane.apply_early(Some(told), now);
            }
        }
        early.into_iter().for_each(|told| {
            pane.apply_early(Some(told), now);
        });
        prop_assert_eq!(pane.offset, owner.fed);
        prop_assert_eq!(picture(&pane.mirror), picture(&owner.all));
    }
}

#[test]
fn an_echo_shows_before_the_stream_brings_it_and_once() {
    let (mut pane, _end) = pane();
    let now = Instant::now();
    let body = serde_json::to_vec(&attached(7)).unwrap();
    pane.apply(Some(Piece::new(PieceKind::Control, body)), now);
    let told = |offset, bytes: &'static [u8]| {
        let bytes = Bytes::from_static(bytes);
        Some(Early::Output { offset, bytes })
    };
    assert_eq!(pane.apply_early(told(7, b"ab"), now).fed, 2);
    // After a gap nothing is taken.
    assert_eq!(pane.apply_early(told(12, b"x"), now).fed, 0);
    let piece = |bytes: &'static [u8]| Some(Piece::new(PieceKind::Bytes, bytes));
    assert_eq!(pane.apply(piece(b"abcd"), now).fed, 2);
    assert_eq!(pane.apply_early(told(9, b"cde"), now).fed, 1);
    assert_eq!(pane.apply(piece(b"e"), now).fed, 0);
    assert_eq!(pane.mirror.text(0, 0, 20), "abcde");
    assert_eq!(pane.offset, 12);
}
