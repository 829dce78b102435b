//! One live end of a link against a hand-written other end: every rule of the page, frame by frame.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use wingman::base::limits;
use wingman::wire::frame::{Frame, FrameType, Protocol};
use wingman::wire::framed::Framed;
use wingman::wire::link::{Cancel, ChannelCredit, Message, Notice, PING, PONG};
use wingman::wire::peer::{Peer, Side};
use wingman::wire::{Call, Code, Origin};

use super::link_support::{EchoNode, pattern, wait_for};

const ORIGIN: Origin = Origin::Server { epoch: 7 };

/// A live end and the raw stream of the other.
struct Bench {
    peer: Peer,
    notices: mpsc::Receiver<Notice>,
    node: Arc<EchoNode>,
    node_events: mpsc::UnboundedReceiver<String>,
    raw: Framed<DuplexStream>,
}

fn bench(protocol: Protocol) -> Bench {
    let (near, far) = tokio::io::duplex(1024 * 1024);
    let (node, node_events) = EchoNode::new();
    let framed = Framed::new(near, protocol, 64 * 1024);
    let (peer, notices) = Peer::start(framed, Side::Connecting, ORIGIN, node.clone());
    let raw = Framed::new(far, Protocol::V2, limits::LINK_BODY_LEN_MAX);
    Bench {
        peer,
        notices,
        node,
        node_events,
        raw,
    }
}

fn request(sequence: u32, method: &str, params: Value) -> Frame {
    let body = json!({"type": method, "method": method, "sequence": sequence, "params": params});
    Frame::new(FrameType::Request, sequence, body.to_string())
}

fn notify<M: Message>(message: &M) -> Frame {
    Frame::new(FrameType::Notify, 0, message.to_body().unwrap())
}

impl Bench {
    async fn send(&mut self, frame: Frame) {
        self.raw.write(&frame).await.unwrap();
    }

    async fn read(&mut self) -> Frame {
        wait_for("a frame", self.raw.read()).await.unwrap()
    }

    /// The next response, with what came before it left out.
    async fn response(&mut self) -> (u32, Value) {
        loop {
            let frame = self.read().await;
            if frame.frame_type == FrameType::Response {
                return (frame.sequence, serde_json::from_slice(&frame.body).unwrap());
            }
        }
    }

    /// The Error frame before the close.
    async fn refusal(&mut self) -> Value {
        let frame = self.read().await;
        assert_eq!(frame.frame_type, FrameType::Error);
        let end = wait_for("the close", self.raw.read()).await;
        assert_eq!(end.unwrap_err().code, Code::LinkClosed);
        serde_json::from_slice(&frame.body).unwrap()
    }
}

#[tokio::test]
async fn sequence_zero_is_matched_and_orphans_are_counted() {
    let mut bench = bench(Protocol::V2);
    let peer = bench.peer.clone();
    let call = Call::new("test.echo", json!({}), ORIGIN);
    let asked = tokio::spawn(async move { peer.request(call).await });
    let frame = bench.read().await;
    assert_eq!((frame.frame_type, frame.sequence), (FrameType::Request, 0));
    let orphan = Frame::new(FrameType::Response, 77, &br#"{"success":true}"#[..]);
    bench.send(orphan).await;
    let answer = Frame::new(FrameType::Response, 0, &br#"{"success":true,"data":5}"#[..]);
    bench.send(answer).await;
    assert_eq!(asked.await.unwrap().unwrap().data, json!(5));
    assert_eq!(bench.peer.stats().orphans, 1);
}

#[tokio::test]
async fn malformed_notices_are_counted_and_the_link_stays() {
    let mut bench = bench(Protocol::V2);
    for bad in [&b"{"[..], b"[]", b"{}", b"\xff", b"{\"type\":7}"] {
        bench.send(Frame::new(FrameType::Notify, 0, bad)).await;
    }
    let wrong = br#"{"type":"channel.credit","channel":"x"}"#;
    bench
        .send(Frame::new(FrameType::Notify, 0, &wrong[..]))
        .await;
    bench
        .send(Frame::new(
            FrameType::Notify,
            0,
            &br#"{"type":"later.thing"}"#[..],
        ))
        .await;
    bench.send(Frame::new(FrameType::Notify, 0, PING)).await;
    assert_eq!(bench.read().await.body, PONG);
    assert_eq!(bench.peer.stats().malformed, 6);
    let notice = wait_for("the notice", bench.notices.recv()).await.unwrap();
    assert_eq!(notice.message_type, "later.thing");
}

#[tokio::test]
async fn malformed_header_and_oversize_are_told_before_the_close() {
    for (bytes, code) in [
        (
            vec![0u8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            "frame_invalid",
        ),
        (
            vec![1u8, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            "frame_too_large",
        ),
    ] {
        let (near, mut far) = tokio::io::duplex(1024 * 1024);
        let (node, mut node_events) = EchoNode::new();
        let framed = Framed::new(near, Protocol::V2, 64 * 1024);
        let (peer, _notices) = Peer::start(framed, Side::Accepting, ORIGIN, node);
        tokio::io::AsyncWriteExt::write_all(&mut far, &bytes)
            .await
            .unwrap();
        let mut raw = Framed::new(far, Protocol::V2, 64 * 1024);
        let frame = wait_for("the error", raw.read()).await.unwrap();
        assert_eq!(frame.frame_type, FrameType::Error);
        let told: Value = serde_json::from_slice(&frame.body).unwrap();
        assert_eq!(told["code"], code);
        assert_eq!(wait_for("the end", peer.closed()).await.code_text(), code);
        let gone = wait_for("the release", node_events.recv()).await;
        assert_eq!(gone.as_deref(), Some("Server { epoch: 7 } gone"));
    }
}

#[tokio::test]
async fn reader_without_credit_stops_its_own_channel_alone() {
    let mut bench = bench(Protocol::V2);
    let size = 200_000;
    bench
        .send(request(0, "test.blob", json!({"size": size})))
        .await;
    let (_, response) = bench.response().await;
    assert_eq!(
        (&response["size"], &response["field"]),
        (&json!(size), &json!("image"))
    );
    let channel = u32::try_from(response["channel"].as_u64().unwrap()).unwrap();
    assert_eq!(channel % 2, 1, "the connecting side's channels are odd");
    let mut got = Vec::new();
    let mut expected_sequence = 0;
    let mut credit = limits::CHANNEL_CREDIT_FIRST;
    while got.len() < size {
        // Without credit left nothing of the channel comes, while the rest of the link lives.
        bench
            .send(request(1, "test.echo", json!({"n": got.len()})))
            .await;
        loop {
            let frame = bench.read().await;
            if frame.frame_type == FrameType::Response {
                break;
            }
            if frame.frame_type == FrameType::Notify {
                // The regular end, behind the last byte.
                assert_eq!(got.len(), size);
                continue;
            }
            assert_eq!(frame.channel, channel);
            assert_eq!(frame.sequence, expected_sequence);
            expected_sequence += 1;
            credit = credit
                .checked_sub(frame.body.len())
                .expect("within the credit");
            got.extend_from_slice(&frame.body[1..]);
        }
        let more = ChannelCredit {
            channel,
            bytes: 40_000,
        };
        credit += 40_000;
        bench.send(notify(&more)).await;
    }
    assert!(got == pattern(size), "the bytes arrive unchanged");
}

#[tokio::test]
async fn cancel_reaches_the_work_and_giving_up_is_told() {
    let mut bench = bench(Protocol::V2);
    bench.send(request(4, "test.hang", json!({}))).await;
    bench.send(notify(&Cancel { sequence: 4 })).await;
    let told = wait_for("the cancellation", bench.node_events.recv()).await;
    assert_eq!(told.as_deref(), Some("cancelled"));
    assert_eq!(bench.response().await.1["code"], "cancelled");

    let peer = bench.peer.clone();
    let mut call = Call::new("test.echo", json!({}), ORIGIN);
    call.timeout_ms = Some(20);
    let asked = tokio::spawn(async move { peer.request(call).await });
    assert_eq!(bench.read().await.frame_type, FrameType::Request);
    let late = asked.await.unwrap().unwrap_err();
    assert_eq!(late.code, Code::TimedOut);
    let cancel = Notice::parse(&bench.read().await.body).unwrap();
    let cancel = cancel.read::<Cancel>().unwrap().unwrap();
    assert_eq!(cancel.sequence, 0);
}

#[tokio::test]
async fn requests_beyond_the_bound_are_busy() {
    let mut bench = bench(Protocol::V2);
    let bound = u32::try_from(limits::LINK_REQUESTS_IN_FLIGHT_MAX).unwrap();
    for sequence in 0..=bound {
        bench.send(request(sequence, "test.hang", json!({}))).await;
    }
    let (sequence, response) = bench.response().await;
    assert_eq!((sequence, &response["code"]), (bound, &json!("busy")));
}

#[tokio::test]
async fn protocol_1_flattens_inlines_and_knows_no_channels() {
    let mut bench = bench(Protocol::V1);
    let body = br#"{"type":"test.echo","sequence":0,"path":"a.lua","timeoutMs":"5"}"#;
    bench
        .send(Frame::new(FrameType::Request, 0, &body[..]))
        .await;
    let (_, response) = bench.response().await;
    assert_eq!(response["data"], json!({"path": "a.lua", "timeoutMs": "5"}));
    let body = br#"{"type":"test.blob","size":3}"#;
    bench
        .send(Frame::new(FrameType::Request, 1, &body[..]))
        .await;
    let (_, response) = bench.response().await;
    let image = response["data"]["image"].as_str().unwrap();
    assert!(image.starts_with("data:image/jpeg;base64,"), "{image}");
    assert_eq!(response.get("channel"), None);
    assert_eq!(bench.node.calls.lock().unwrap().len(), 2);
    let mut data = Frame::new(FrameType::Data, 0, &b"\0x"[..]);
    data.channel = 1;
    bench.send(data).await;
    assert_eq!(bench.refusal().await["code"], "frame_invalid");
}
