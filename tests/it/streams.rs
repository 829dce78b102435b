//! Streams beside answers, on the link and on local IPC alike: order, bounds, ends, resumption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use wingman::base::ids::InstanceId;
use wingman::base::limits;
use wingman::config::{IpcConfig, Transport};
use wingman::ipc::{self, IpcOptions, IpcServer};
use wingman::journal::{Journal, Options};
use wingman::wire::envelope::{Decoder, Envelope, Unit};
use wingman::wire::frame::{Frame, FrameType, Protocol};
use wingman::wire::framed::Framed;
use wingman::wire::link::{ChannelClose, ChannelCredit, Message, Notice};
use wingman::wire::messages::sessions::Control;
use wingman::wire::peer::{Peer, Side};
use wingman::wire::{
    Answer, BoxFuture, Call, Code, Fault, Handler, Origin, Piece, PieceKind, StreamEnd,
};

use super::link_support::wait_for;

const ORIGIN: Origin = Origin::Server { epoch: 1 };
/// Bytes of one numbered line.
const LINE_LEN: u64 = 12;

/// A node whose one method is `session.attach`; `sessionId` says what the stream does.
#[derive(Default)]
struct Node {
    /// Pieces that left `flood`.
    flooded: AtomicUsize,
    /// Streams whose owner here has seen their end.
    ended: AtomicUsize,
}

struct Shared(Arc<Node>);

impl Handler for Shared {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        let node = Arc::clone(&self.0);
        Box::pin(async move {
            if call.method != "session.attach" {
                return Answer::of(&call.params);
            }
            let (near, far) = StreamEnd::pair();
            let number = |key: &str| call.params[key].as_u64().unwrap_or(0);
            let (since, total) = (number("since"), number("total"));
            match call.params["sessionId"].as_str() {
                Some("echo") => tokio::spawn(echo(node, near)),
                Some("lines") => tokio::spawn(lines(near, since, total)),
                Some("flood") => tokio::spawn(flood(node, near)),
                Some("controls") => tokio::spawn(controls(near, total)),
                other => return Err(Fault::new(Code::SessionNotFound, format!("no {other:?}"))),
            };
            Ok(Answer {
                stream: Some(far),
                ..Answer::of(&json!({"offset": since}))?
            })
        })
    }

    fn disconnected(&self, _origin: Origin) {}
}

async fn echo(node: Arc<Node>, mut end: StreamEnd) {
    while let Some(piece) = end.recv.recv().await {
        if end.send.send(piece).await.is_err() {
            break;
        }
    }
    node.ended.fetch_add(1, Ordering::SeqCst);
}

/// Numbered lines from a byte position on.
async fn lines(end: StreamEnd, since: u64, total: u64) {
    let mut position = since;
    while position < total {
        let line = format!("{:011}\n", position / LINE_LEN);
        let rest = line.as_bytes()[(position % LINE_LEN) as usize..].to_vec();
        position += rest.len() as u64;
        if end.send.send(bytes(rest)).await.is_err() {
            return;
        }
    }
}

async fn flood(node: Arc<Node>, end: StreamEnd) {
    while end.send.send(bytes(vec![7; 1024])).await.is_ok() {
        node.flooded.fetch_add(1, Ordering::SeqCst);
    }
    node.ended.fetch_add(1, Ordering::SeqCst);
}

/// Control pieces of the length `total`, between bytes.
async fn controls(end: StreamEnd, total: u64) {
    for _ in 0..8 {
        let control = Piece::new(PieceKind::Control, vec![b'c'; total as usize]);
        for piece in [bytes(vec![1; 40_000]), control] {
            if end.send.send(piece).await.is_err() {
                return;
            }
        }
    }
}

fn bytes(body: impl Into<Bytes>) -> Piece {
    Piece::new(PieceKind::Bytes, body)
}

/// A node behind one of the two wires.
enum Way {
    Link {
        caller: Peer,
        answerer: Peer,
    },
    Ipc {
        client: ipc::Client,
        _server: IpcServer,
        _dir: TempDir,
        stop: CancellationToken,
    },
}

const LINK: bool = true;
const IPC: bool = false;

async fn start(link: bool) -> (Way, Arc<Node>) {
    let node = Arc::new(Node::default());
    let handler = Arc::new(Shared(Arc::clone(&node)));
    let way = if link {
        on_link(handler)
    } else {
        on_ipc(handler).await
    };
    (way, node)
}

fn on_link(handler: Arc<Shared>) -> Way {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let framed = |stream| Framed::new(stream, Protocol::V2, 64 * 1024);
    let (answerer, _) = Peer::start(framed(near), Side::Connecting, ORIGIN, handler.clone());
    let (caller, _) = Peer::start(framed(far), Side::Accepting, ORIGIN, handler);
    Way::Link { caller, answerer }
}

async fn on_ipc(handler: Arc<Shared>) -> Way {
    let dir = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let server = serve(&dir, handler, &stop).await;
    let client = ipc::Client::connect(server.endpoint()).await.unwrap();
    Way::Ipc {
        client,
        _server: server,
        _dir: dir,
        stop,
    }
}

async fn serve(dir: &TempDir, handler: Arc<Shared>, stop: &CancellationToken) -> IpcServer {
    let folder = dir.path().join("journal");
    let (journal, _) = Journal::open(Options::new(folder, InstanceId::random())).unwrap();
    let options = IpcOptions {
        config: IpcConfig {
            transport: Transport::UnixSocket,
            endpoint: dir.path().join("a.sock").to_str().unwrap().to_owned(),
            allow_tcp_fallback: false,
        },
        state_dir: dir.path().to_owned(),
    };
    ipc::serve(options, handler, journal, stop.clone())
        .await
        .unwrap()
}

impl Way {
    async fn attach(&self, session: &str, since: u64, total: u64) -> Result<StreamEnd, Fault> {
        let params = json!({"sessionId": session, "since": since, "total": total});
        let (data, stream) = match self {
            Self::Link { caller, .. } => {
                let answer = caller
                    .request(Call::new("session.attach", params, ORIGIN))
                    .await?;
                (answer.data, answer.stream)
            }
            Self::Ipc { client, .. } => {
                let reply = client.call("session.attach", params).await?;
                (reply.data, reply.stream)
            }
        };
        assert_eq!(data["offset"], since);
        Ok(stream.expect("a stream"))
    }

    /// An ordinary call on the same connection.
    async fn ask(&self, params: Value) -> Value {
        match self {
            Self::Link { caller, .. } => {
                let call = Call::new("window.list", params, ORIGIN);
                caller.request(call).await.unwrap().data
            }
            Self::Ipc { client, .. } => client.call("window.list", params).await.unwrap().data,
        }
    }

    fn cut(&self) {
        match self {
            Self::Link { answerer, .. } => answerer.close(Fault::new(Code::LinkClosed, "cut")),
            Self::Ipc { stop, .. } => stop.cancel(),
        }
    }
}

async fn next(end: &mut StreamEnd) -> Option<Piece> {
    wait_for("a piece", end.recv.recv()).await
}

/// Polls until a count is reached; whoever counts is a task of this test.
async fn until(counter: &AtomicUsize, least: usize) {
    wait_for("the count", async {
        while counter.load(Ordering::SeqCst) < least {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// What a console sends: kinds, lengths, and how often it looks away before it reads.
fn script() -> impl Strategy<Value = Vec<(bool, usize, u8)>> {
    let length = prop_oneof![1..200_usize, 30_000..35_000_usize, 1..120_000_usize];
    prop::collection::vec((any::<bool>(), length, 0..20_u8), 1..12)
}

/// Sends the script while reading its echo slowly; all bytes come back in order, control pieces whole.
async fn echo_whole(link: bool, script: Vec<(bool, usize, u8)>) {
    let (way, node) = start(link).await;
    let StreamEnd { send, mut recv } = way.attach("echo", 0, 0).await.unwrap();
    let piece = |index: usize, control: bool, length: usize| {
        let length = if control {
            length.min(limits::STREAM_CONTROL_LEN_MAX)
        } else {
            length
        };
        let body: Vec<u8> = (0..length).map(|n| (n * 7 + index) as u8).collect();
        let kind = if control {
            PieceKind::Control
        } else {
            PieceKind::Bytes
        };
        Piece::new(kind, body)
    };
    let pieces = |script: &[(bool, usize, u8)]| -> Vec<Piece> {
        let numbered = script.iter().enumerate();
        numbered
            .map(|(index, row)| piece(index, row.0, row.1))
            .collect()
    };
    let sent = pieces(&script);
    let typist = tokio::spawn(async move {
        for piece in sent {
            send.send(piece).await.unwrap();
        }
        send
    });
    for (expected, (_, _, pauses)) in pieces(&script).into_iter().zip(&script) {
        let mut got = Vec::new();
        while got.len() < expected.body.len() {
            for _ in 0..*pauses {
                tokio::task::yield_now().await;
            }
            let part = wait_for("a piece", recv.recv())
                .await
                .expect("the stream goes on");
            assert_eq!(part.kind, expected.kind);
            let whole = part.kind != PieceKind::Control || part.body.len() == expected.body.len();
            assert!(whole, "a control piece was cut");
            got.extend_from_slice(&part.body);
        }
        assert!(got == expected.body, "the bytes come back unchanged");
    }
    drop(typist.await.unwrap());
    assert_eq!(wait_for("the end", recv.recv()).await, None);
    until(&node.ended, 1).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn link_echoes_every_piece_to_a_slow_reader(script in script()) {
        runtime().block_on(echo_whole(LINK, script));
    }

    #[test]
    fn ipc_echoes_every_piece_to_a_slow_reader(script in script()) {
        runtime().block_on(echo_whole(IPC, script));
    }

    #[test]
    fn control_pieces_of_random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(control) = serde_json::from_slice::<Control>(&body) {
            let again = serde_json::to_vec(&control).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Control>(&again).unwrap(), control);
        }
    }
}

/// Reads lines to the end, cut off at random places and resumed from there.
async fn resume(link: bool, cuts: usize, seed: u64) {
    let total = 20_000 * LINE_LEN;
    let (mut way, _) = start(link).await;
    let mut random = seed;
    let mut draw = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let mut got: Vec<u8> = Vec::new();
    for cut in 0..=cuts {
        let mut end = way.attach("lines", got.len() as u64, total).await.unwrap();
        let wanted = if cut == cuts {
            total
        } else {
            draw(2 * total / cuts as u64)
        };
        let mut read = 0;
        while read < wanted && (got.len() as u64) < total {
            let piece = next(&mut end).await.expect("the stream goes on");
            // A console that dies with a piece half taken in asks for the rest of it.
            let taken = match wanted - read {
                left if left < piece.body.len() as u64 && cut < cuts => left as usize,
                _ => piece.body.len(),
            };
            got.extend_from_slice(&piece.body[..taken]);
            read += taken as u64;
        }
        if draw(10) == 0 {
            way.cut();
            way = start(link).await.0;
        }
    }
    assert_eq!(got.len() as u64, total);
    for (number, line) in got.chunks(LINE_LEN as usize).enumerate() {
        assert_eq!(line, format!("{number:011}\n").as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_random_cuts_of_a_link_lose_and_double_nothing() {
    resume(LINK, 500, 11).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_random_cuts_of_ipc_lose_and_double_nothing() {
    resume(IPC, 500, 12).await;
}

#[tokio::test]
async fn console_that_stops_reading_stops_its_own_program_alone() {
    for link in [LINK, IPC] {
        let (way, node) = start(link).await;
        let _stalled = way.attach("flood", 0, 0).await.unwrap();
        let mut other = way.attach("echo", 0, 0).await.unwrap();
        for round in 0..300 {
            assert_eq!(way.ask(json!({"n": round})).await, json!({"n": round}));
            let key = bytes(round.to_string());
            other.send.send(key.clone()).await.unwrap();
            assert_eq!(next(&mut other).await, Some(key));
        }
        // The credit of pieces that nobody took, the queue before it, and one in hand.
        let most = limits::CHANNEL_CREDIT_FIRST / 1024 + limits::STREAM_PIECES_MAX + 2;
        let left = node.flooded.load(Ordering::SeqCst);
        assert!(left <= most, "{left} KiB left a program that nobody reads");
    }
}

#[tokio::test]
async fn many_streams_go_on_side_by_side() {
    for link in [LINK, IPC] {
        let (way, _) = start(link).await;
        let total = 2_000 * LINE_LEN;
        let mut ends = Vec::new();
        for _ in 0..100 {
            ends.push((way.attach("lines", 0, total).await.unwrap(), 0));
        }
        // In lockstep: one that starved would hold up all others.
        while ends[0].1 < total {
            for (end, got) in &mut ends {
                *got += next(end).await.expect("the stream goes on").body.len() as u64;
            }
        }
        for (end, got) in &mut ends {
            assert_eq!(*got, total);
            assert_eq!(next(end).await, None);
        }
    }
}

#[tokio::test]
async fn either_side_ends_a_stream_and_so_does_the_loss_of_the_wire() {
    for link in [LINK, IPC] {
        let (way, node) = start(link).await;
        drop(way.attach("flood", 0, 0).await.unwrap());
        until(&node.ended, 1).await;
        let StreamEnd { send, recv } = way.attach("echo", 0, 0).await.unwrap();
        drop((send, recv));
        until(&node.ended, 2).await;
        let mut whole = way.attach("lines", 0, 3 * LINE_LEN).await.unwrap();
        for _ in 0..3 {
            assert!(next(&mut whole).await.is_some());
        }
        assert_eq!(next(&mut whole).await, None);
        assert!(whole.send.send(bytes("too late")).await.is_err() || whole.send.is_closed());
        let mut lost = way.attach("echo", 0, 0).await.unwrap();
        way.cut();
        assert_eq!(next(&mut lost).await, None);
        until(&node.ended, 3).await;
        wait_for("the closed end", lost.send.closed()).await;
    }
}

#[tokio::test]
async fn what_was_sent_before_an_end_was_dropped_still_arrives() {
    for link in [LINK, IPC] {
        let (way, _) = start(link).await;
        for lines in 1..100 {
            let mut end = way.attach("lines", 0, lines * LINE_LEN).await.unwrap();
            let mut got = 0;
            while let Some(piece) = next(&mut end).await {
                got += piece.body.len() as u64;
            }
            assert_eq!(got, lines * LINE_LEN);
        }
    }
}

#[tokio::test]
async fn longest_control_piece_gets_through_and_a_longer_one_ends_its_stream() {
    for link in [LINK, IPC] {
        let (way, _) = start(link).await;
        let longest = limits::STREAM_CONTROL_LEN_MAX as u64;
        let mut end = way.attach("controls", 0, longest).await.unwrap();
        let mut controls = 0;
        while let Some(piece) = next(&mut end).await {
            if piece.kind == PieceKind::Control {
                assert_eq!(piece.body.len() as u64, longest);
                controls += 1;
            }
        }
        assert_eq!(controls, 8);
        let mut end = way.attach("controls", 0, longest + 1).await.unwrap();
        while let Some(piece) = next(&mut end).await {
            assert_eq!(piece.kind, PieceKind::Bytes);
        }
        assert_eq!(way.ask(json!({"n": 1})).await, json!({"n": 1}));
    }
}

#[tokio::test]
async fn streams_beyond_the_bound_are_refused_and_closed_ones_make_room() {
    let (way, node) = start(LINK).await;
    let mut ends = Vec::new();
    for _ in 0..limits::CHANNELS_OPEN_MAX {
        ends.push(way.attach("echo", 0, 0).await.unwrap());
    }
    let fault = way.attach("echo", 0, 0).await.unwrap_err();
    assert_eq!(fault.code, Code::TooManyChannels);
    // The refused one counts too: its owner saw the end.
    ends.pop();
    until(&node.ended, 2).await;
    way.attach("echo", 0, 0).await.unwrap();
}

/// A raw end of a link to the node.
struct Raw {
    framed: Framed<tokio::io::DuplexStream>,
    channel: u32,
    _peer: Peer,
}

async fn raw(protocol: Protocol, session: &str) -> (Raw, Value) {
    let (near, far) = tokio::io::duplex(1024 * 1024);
    let handler = Arc::new(Shared(Arc::default()));
    let framed = Framed::new(near, protocol, 64 * 1024);
    let (peer, _) = Peer::start(framed, Side::Connecting, ORIGIN, handler);
    let mut framed = Framed::new(far, Protocol::V2, limits::LINK_BODY_LEN_MAX);
    let params = json!({"sessionId": session});
    let body = match protocol {
        Protocol::V1 => json!({"type": "session.attach", "sequence": 0, "sessionId": session}),
        Protocol::V2 => json!({"type": "session.attach", "sequence": 0, "params": params}),
    };
    let request = Frame::new(FrameType::Request, 0, body.to_string());
    framed.write(&request).await.unwrap();
    let frame = wait_for("the response", framed.read()).await.unwrap();
    let response: Value = serde_json::from_slice(&frame.body).unwrap();
    let channel = response["channel"].as_u64().unwrap_or(0) as u32;
    let raw = Raw {
        framed,
        channel,
        _peer: peer,
    };
    (raw, response)
}

impl Raw {
    async fn read(&mut self) -> Frame {
        wait_for("a frame", self.framed.read()).await.unwrap()
    }

    async fn notify<M: Message>(&mut self, message: &M) {
        let frame = Frame::new(FrameType::Notify, 0, message.to_body().unwrap());
        self.framed.write(&frame).await.unwrap();
    }

    async fn data(&mut self, sequence: u32, body: &[u8]) {
        let frame = Frame {
            frame_type: FrameType::Data,
            sequence,
            channel: self.channel,
            body: Bytes::copy_from_slice(body),
        };
        self.framed.write(&frame).await.unwrap();
    }

    /// The close of the channel, and how many bytes came before it.
    async fn close(&mut self) -> (String, usize) {
        let mut bytes = 0;
        loop {
            let frame = self.read().await;
            if frame.frame_type == FrameType::Data {
                bytes += frame.body.len();
                continue;
            }
            let notice = Notice::parse(&frame.body).unwrap();
            if let Some(close) = notice.read::<ChannelClose>() {
                return (close.unwrap().reason, bytes);
            }
        }
    }
}

#[tokio::test]
async fn protocol_1_refuses_streams() {
    let (_raw, response) = raw(Protocol::V1, "echo").await;
    assert_eq!(response["success"], false);
    assert_eq!(response["code"], "unsupported");
}

#[tokio::test]
async fn ipc_without_binary_refuses_streams() {
    let dir = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let _server = serve(&dir, Arc::new(Shared(Arc::default())), &stop).await;
    let mut stream = UnixStream::connect(dir.path().join("a.sock"))
        .await
        .unwrap();
    let mut out = bytes::BytesMut::new();
    let params = json!({"sessionId": "echo"});
    Envelope::request(1, "session.attach", params)
        .put(&mut out)
        .unwrap();
    stream.write_all(&out).await.unwrap();
    let mut inbox = bytes::BytesMut::new();
    let unit = loop {
        if let Some(unit) = Decoder::default().decode(&mut inbox).unwrap() {
            break unit;
        }
        let read = wait_for("the answer", stream.read_buf(&mut inbox)).await;
        assert!(matches!(read, Ok(1..)));
    };
    let Unit::Message(body) = unit else {
        panic!("{unit:?}")
    };
    let fault = Envelope::parse(&body).unwrap().into_outcome().unwrap_err();
    assert_eq!(fault.code, Code::Unsupported);
}

#[tokio::test]
async fn writer_never_passes_the_credit_that_it_has() {
    let (mut raw, response) = raw(Protocol::V2, "flood").await;
    assert_eq!(response.get("size"), None, "a stream announces no size");
    assert_eq!(raw.channel % 2, 1, "the connecting side's channels are odd");
    let mut credit = limits::CHANNEL_CREDIT_FIRST;
    let mut sequence = 0;
    for grant in [40_000, 1, 2, 70_000, 3, 100] {
        // All that is allowed comes, down to the last byte that fits beside a kind byte.
        while credit > 1 {
            let frame = raw.read().await;
            assert_eq!((frame.channel, frame.sequence), (raw.channel, sequence));
            sequence += 1;
            credit = credit
                .checked_sub(frame.body.len())
                .expect("within the credit");
        }
        credit += grant;
        let channel = raw.channel;
        let bytes = u32::try_from(grant).unwrap();
        raw.notify(&ChannelCredit { channel, bytes }).await;
    }
    let channel = raw.channel;
    let reason = "done".to_owned();
    raw.notify(&ChannelClose { channel, reason }).await;
}

#[tokio::test]
async fn console_beyond_its_credit_or_out_of_order_loses_its_stream_alone() {
    type Frames = Vec<(u32, Vec<u8>)>;
    let cases: [(&str, Frames); 4] = [
        // The flood reads nothing, so no credit comes back.
        ("flood", vec![(0, vec![0; 32_768]), (1, vec![0; 2])]),
        ("echo", vec![(1, vec![0; 2])]),
        ("echo", vec![(0, vec![9; 2])]),
        ("echo", vec![(0, vec![])]),
    ];
    for (session, frames) in cases {
        let (mut raw, _) = raw(Protocol::V2, session).await;
        for (sequence, body) in frames {
            raw.data(sequence, &body).await;
        }
        let (reason, bytes) = raw.close().await;
        assert_eq!(reason, "channel_invalid", "{session}");
        assert!(bytes <= limits::CHANNEL_CREDIT_FIRST);
        let ping = Frame::new(FrameType::Notify, 0, wingman::wire::link::PING);
        raw.framed.write(&ping).await.unwrap();
        assert_eq!(raw.read().await.body, wingman::wire::link::PONG);
    }
}
