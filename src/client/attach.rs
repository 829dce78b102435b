//! A console's stream over WebSocket: `GET /ws/pty`.
//!
//! ```text
//! server ─ text    ─► control piece           console ─ bytes   ─► binary frame
//!        ─ binary  ─► snapshot, screen, bytes         ─ control ─► text frame
//!            (as many as attached.snapshot_bytes      owner took a piece ─► {"type":"credit"}
//!             or screen.length announced)
//! ```
//!
//! Reading and writing go on side by side, so that neither end waits for the other to read.

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use percent_encoding::utf8_percent_encode;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::http::{HttpCaller, Socket};
use super::request::ENCODED;
use crate::base::ids::AgentId;
use crate::base::limits;
use crate::wire::channel::CreditWindow;
use crate::wire::messages::sessions::{AttachMode, AttachParams, AttachReply, Control, Session};
use crate::wire::stream_flow::Delivery;
use crate::wire::{Code, Fault, Piece, PieceKind, StreamEnd};

/// What the first control piece said, before the session itself is known.
pub(super) struct Opened {
    pub attached: Control,
    pub end: StreamEnd,
}

/// Attaches and waits for `attached`, which is the stream's first piece as well. A refusal carries
/// the code that the server closed with.
pub(super) async fn open(
    http: &HttpCaller,
    params: &AttachParams,
    agent: Option<&AgentId>,
) -> Result<Opened, Fault> {
    let mut socket = http.socket(&target(params, agent)).await?;
    let first = loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => break text,
            Some(Ok(Message::Close(frame))) => return Err(closed(frame.as_ref())),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(_)) => {
                return Err(Fault::new(Code::InvalidMessage, "no `attached` came first"));
            }
            Some(Err(error)) => {
                return Err(Fault::new(Code::LinkClosed, format!("attach: {error}")));
            }
            None => {
                return Err(Fault::new(
                    Code::LinkClosed,
                    "the server closed the WebSocket",
                ));
            }
        }
    };
    let attached = serde_json::from_str(&first)
        .map_err(|error| Fault::new(Code::InvalidMessage, format!("read `attached`: {error}")))?;
    match attached {
        Control::Attached { .. } => {}
        Control::Error { code, message } => return Err(Fault::from_wire(Some(&code), message)),
        _ => return Err(Fault::new(Code::InvalidMessage, "no `attached` came first")),
    }
    let (near, far) = StreamEnd::pair();
    let (sink, stream) = socket.split();
    tokio::spawn(carry(sink, stream, far, first.into()));
    Ok(Opened {
        attached,
        end: near,
    })
}

fn target(params: &AttachParams, agent: Option<&AgentId>) -> String {
    let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
    let mode = match params.mode {
        AttachMode::Control => "control",
        AttachMode::Observe => "observe",
    };
    let mut target = format!(
        "/ws/pty?session={}&cols={}&rows={}&mode={mode}&exclusive={}&takeover={}&label={}&credit=true&acks={}",
        encode(&params.session_id),
        params.cols,
        params.rows,
        params.exclusive,
        params.takeover,
        encode(&params.label),
        params.acks,
    );
    if let Some(since) = params.since {
        target.push_str(&format!("&since={since}"));
    }
    if let Some(console) = &params.console_id {
        target.push_str(&format!("&console_id={}", encode(console.as_str())));
    }
    if let Some(agent) = agent {
        target.push_str(&format!("&machine={}", encode(agent.as_str())));
    }
    target
}

fn closed(frame: Option<&CloseFrame>) -> Fault {
    match frame {
        Some(frame) if !frame.reason.is_empty() => {
            let code = frame.reason.as_str();
            Fault::from_wire(Some(code), format!("the server refused to attach: {code}"))
        }
        _ => Fault::new(Code::LinkClosed, "the server closed the WebSocket"),
    }
}

/// Runs until either side ends the stream, then closes the socket.
async fn carry(
    mut sink: SplitSink<Socket, Message>,
    stream: SplitStream<Socket>,
    end: StreamEnd,
    first: Bytes,
) {
    let StreamEnd { send, mut recv } = end;
    let (grants, granted) = mpsc::unbounded_channel();
    tokio::select! {
        () = take_in(stream, send, grants, first) => {}
        () = send_out(&mut sink, &mut recv, granted) => {}
    }
    // The peer may have closed already, and then needs no goodbye.
    let _ = sink.send(Message::Close(None)).await;
}

async fn take_in(
    mut stream: SplitStream<Socket>,
    send: mpsc::Sender<Piece>,
    grants: mpsc::UnboundedSender<u64>,
    first: Bytes,
) {
    let started = Instant::now();
    let mut window = CreditWindow::new(started.elapsed());
    let mut delivery = Delivery::new(send);
    let mut cutter = Cutter::default();
    let mut waiting = cutter.control(first);
    let mut ended = false;
    loop {
        while delivery.has_room()
            && let Some((piece, cost)) = waiting.pop()
        {
            if !delivery.deliver(piece, cost) {
                // Nobody reads; the stream goes on until its sender is dropped.
                return std::future::pending().await;
            }
        }
        if ended && waiting.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            taken = delivery.taken() => match taken {
                Some(cost) => if let Some(grant) = window.consume(cost, started.elapsed()) {
                    // The writer ends when the stream does.
                    let _ = grants.send(grant as u64);
                },
                None => return std::future::pending().await,
            },
            message = stream.next(), if waiting.is_empty() => match message {
                Some(Ok(Message::Binary(bytes))) => waiting = cutter.bytes(bytes),
                Some(Ok(Message::Text(text))) => waiting = cutter.control(text.into()),
                Some(Ok(Message::Close(frame))) => {
                    waiting = frame.as_ref().map(told).unwrap_or_default();
                    ended = true;
                }
                Some(Err(_)) | None => return,
                Some(Ok(_)) => {}
            }
        }
    }
}

/// Why the server ended the stream, as the control piece that other wires would have brought.
fn told(frame: &CloseFrame) -> Pieces {
    if frame.code == CloseCode::Normal || frame.reason.is_empty() {
        return Pieces::new();
    }
    let error = Control::Error {
        code: frame.reason.to_string(),
        message: format!("the server ended the attachment: {}", frame.reason),
    };
    match serde_json::to_vec(&error) {
        Ok(text) => vec![(Piece::new(PieceKind::Control, text), 0)],
        Err(_) => Pieces::new(),
    }
}

/// Tells by what was announced which kind bytes are of.
#[derive(Default)]
struct Cutter {
    /// What the next bytes are, and how many of them.
    announced: Option<(PieceKind, u64)>,
}

/// Pieces with what each costs, the last one first.
type Pieces = Vec<(Piece, usize)>;

impl Cutter {
    fn control(&mut self, text: Bytes) -> Pieces {
        match serde_json::from_slice(&text) {
            Ok(Control::Attached { snapshot_bytes, .. }) if snapshot_bytes > 0 => {
                self.announced = Some((PieceKind::Snapshot, snapshot_bytes));
            }
            Ok(Control::Screen { length, .. }) if length > 0 => {
                self.announced = Some((PieceKind::Screen, length));
            }
            _ => {}
        }
        let cost = text.len();
        vec![(Piece::new(PieceKind::Control, text), cost)]
    }

    fn bytes(&mut self, mut bytes: Bytes) -> Pieces {
        let mut pieces = Vec::with_capacity(1);
        if let Some((kind, left)) = self.announced {
            let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - length as u64;
            self.announced = (left > 0).then_some((kind, left));
            pieces.push((Piece::new(kind, bytes.split_to(length)), length));
        }
        if !bytes.is_empty() {
            let cost = bytes.len();
            pieces.insert(0, (Piece::new(PieceKind::Bytes, bytes), cost));
        }
        pieces
    }
}

async fn send_out(
    sink: &mut SplitSink<Socket, Message>,
    recv: &mut mpsc::Receiver<Piece>,
    mut granted: mpsc::UnboundedReceiver<u64>,
) {
    loop {
        let control = tokio::select! {
            piece = recv.recv() => match piece {
                Some(Piece { kind: PieceKind::Control, body }) => String::from_utf8(body.into()).ok(),
                Some(Piece { mut body, .. }) => {
                    while !body.is_empty() {
                        let part = body.split_to(body.len().min(limits::CHANNEL_CREDIT_FIRST));
                        if sink.send(Message::Binary(part)).await.is_err() {
                            return;
                        }
                    }
                    continue;
                }
                None => return,
            },
            Some(bytes) = granted.recv() => serde_json::to_string(&Control::Credit { bytes }).ok(),
        };
        if let Some(text) = control
            && sink.send(Message::text(text)).await.is_err()
        {
            return;
        }
    }
}

/// The answer that the other wires give, from `attached` and the session.
pub(super) fn reply(attached: Control, session: Session) -> Result<AttachReply, Fault> {
    match attached {
        Control::Attached {
            since,
            truncated,
            snapshot_bytes,
            console_id: Some(console_id),
            lease,
            ..
        } => Ok(AttachReply {
            console_id,
            offset: since,
            snapshot_bytes,
            truncated,
            lease,
            session,
            holder: None,
        }),
        _ => Err(Fault::new(
            Code::InvalidMessage,
            "`attached` names no console",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(control: &Control) -> Bytes {
        serde_json::to_vec(control).unwrap().into()
    }

    #[test]
    fn announced_bytes_are_told_from_those_after_them() {
        let mut cutter = Cutter::default();
        let attached = Control::Attached {
            since: 0,
            truncated: false,
            snapshot_bytes: 5,
            cols: 80,
            rows: 24,
            console_id: None,
            lease: Default::default(),
        };
        cutter.control(text(&attached));
        let mut seen = Vec::new();
        let mut take = |mut pieces: Pieces| {
            while let Some((piece, cost)) = pieces.pop() {
                assert_eq!(piece.body.len(), cost);
                seen.push((piece.kind, piece.body));
            }
        };
        take(cutter.bytes(Bytes::from_static(b"abc")));
        take(cutter.bytes(Bytes::from_static(b"defg")));
        let screen = Control::Screen {
            offset: 9,
            length: 2,
            cols: 80,
            rows: 24,
        };
        cutter.control(text(&screen));
        take(cutter.bytes(Bytes::from_static(b"hi")));
        take(cutter.bytes(Bytes::from_static(b"j")));
        let expected: [(PieceKind, &[u8]); 5] = [
            (PieceKind::Snapshot, b"abc"),
            (PieceKind::Snapshot, b"de"),
            (PieceKind::Bytes, b"fg"),
            (PieceKind::Screen, b"hi"),
            (PieceKind::Bytes, b"j"),
        ];
        let expected = expected.map(|(kind, bytes)| (kind, Bytes::from_static(bytes)));
        assert_eq!(seen, expected);
    }
}
