//! The reader task of a live link: what each kind of frame does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::blob_flow::OpenInlet;
use super::codes::{Code, Fault};
use super::frame::{Decoder, Frame, FrameType, Protocol};
use super::framed::closed_by;
use super::link::{
    Cancel, ChannelClose, ChannelCredit, LinkError, Notice, PING, PONG, Response, object,
};
use super::peer::{Beside, Reply, Shared, Tell, lock};
use super::peer_answer::take_request;
use super::stream_flow::OpenStream;

/// Reads until the link closes or breaks its rules.
pub(super) async fn read_frames<R: AsyncRead + Unpin>(
    shared: Arc<Shared>,
    mut stream: R,
    mut decoder: Decoder,
    notices: mpsc::Sender<Notice>,
) {
    loop {
        let step = async {
            while let Some(frame) = decoder.next_frame()? {
                let passed = shared.started.elapsed().as_millis();
                shared
                    .last_received
                    .store(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
                take_in(&shared, frame, &notices).await;
            }
            match stream.read_buf(decoder.buffer()).await {
                Ok(0) => {
                    decoder.finish()?;
                    Err(Fault::new(Code::LinkClosed, "the peer closed the link"))
                }
                Ok(_) => Ok(()),
                Err(error) => Err(closed_by(&error)),
            }
        };
        let outcome = tokio::select! {
            biased;
            () = shared.closing.cancelled() => return,
            outcome = step => outcome,
        };
        if let Err(fault) = outcome {
            let tell = match fault.code {
                Code::LinkClosed => Tell::Nobody,
                _ => Tell::Peer,
            };
            shared.begin_close(fault, tell);
            return;
        }
    }
}

async fn take_in(shared: &Arc<Shared>, frame: Frame, notices: &mpsc::Sender<Notice>) {
    match frame.frame_type {
        FrameType::Request => take_request(shared, frame).await,
        FrameType::Response => take_response(shared, frame.sequence, &frame.body),
        FrameType::Notify => take_notify(shared, &frame.body, notices).await,
        FrameType::Error => take_error(shared, &frame.body),
        FrameType::Data => {
            let (kind, body) = match frame.body.first() {
                Some(kind) => (Some(*kind), frame.body.slice(1..)),
                None => (None, frame.body),
            };
            shared
                .channels
                .accept(frame.channel, Some(frame.sequence), kind, body);
        }
    }
}

fn take_response(shared: &Arc<Shared>, sequence: u32, body: &[u8]) {
    let parsed = object(body).and_then(|fields| {
        serde_json::from_value::<Response>(Value::Object(fields))
            .map_err(|error| Fault::new(Code::InvalidMessage, format!("read a response: {error}")))
    });
    let mut response = match parsed {
        Ok(response) => response,
        Err(fault) => Response::refused(None, &fault),
    };
    let waiting = lock(&shared.pending).remove(&sequence);
    let beside = match open_beside(shared, &response) {
        Ok(beside) => beside,
        Err(fault) => {
            response = Response::refused(None, &fault);
            Beside::Nothing
        }
    };
    match waiting {
        // A caller that has just given up leaves the reply to nobody, which ends its channel.
        Some(waiting) => drop(waiting.send(Reply { response, beside })),
        None => drop(shared.orphans.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Opens the channel that a response names: one with a size brings bytes, one without is a stream.
fn open_beside(shared: &Arc<Shared>, response: &Response) -> Result<Beside, Fault> {
    let Some(channel) = response.channel else {
        return Ok(Beside::Nothing);
    };
    if shared.protocol == Protocol::V1 || !response.success {
        return Ok(Beside::Nothing);
    }
    let channels = &shared.channels;
    if response.size.is_none() {
        return OpenStream::new(channels, channel).map(Beside::Stream);
    }
    OpenInlet::new(channels, channel).map(Beside::Bytes)
}

async fn take_notify(shared: &Arc<Shared>, body: &[u8], notices: &mpsc::Sender<Notice>) {
    if body == PING {
        // A flood of questions gets as many answers as the queue has room for.
        let _ = shared
            .control
            .try_send(Frame::new(FrameType::Notify, 0, PONG));
        return;
    }
    if body == PONG {
        shared.pong.notify_waiters();
        return;
    }
    let notice = match Notice::parse(body) {
        Ok(notice) => notice,
        Err(fault) => {
            shared.malformed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%fault, "ignoring a malformed notify");
            return;
        }
    };
    if shared.protocol == Protocol::V2 {
        if let Some(credit) = notice.read::<ChannelCredit>() {
            match credit {
                Ok(credit) => shared
                    .channels
                    .granted(credit.channel, credit.bytes as usize),
                Err(_) => drop(shared.malformed.fetch_add(1, Ordering::Relaxed)),
            }
            return;
        }
        if let Some(close) = notice.read::<ChannelClose>() {
            match close {
                Ok(close) => shared.channels.closed(close.channel),
                Err(_) => drop(shared.malformed.fetch_add(1, Ordering::Relaxed)),
            }
            return;
        }
        if let Some(Ok(cancel)) = notice.read::<Cancel>() {
            if let Some(token) = lock(&shared.incoming).get(&cancel.sequence) {
                token.cancel();
            }
            return;
        }
    }
    // The owner has gone only while the link ends.
    let _ = notices.send(notice).await;
}

fn take_error(shared: &Arc<Shared>, body: &[u8]) {
    let parsed = object(body)
        .ok()
        .and_then(|fields| serde_json::from_value::<LinkError>(Value::Object(fields)).ok());
    match parsed {
        Some(error) => {
            let sequence = error.sequence;
            let fault = error.into_fault();
            match sequence.and_then(|sequence| lock(&shared.pending).remove(&sequence)) {
                Some(waiting) => {
                    let response = Response::refused(None, &fault);
                    let _ = waiting.send(Reply {
                        response,
                        beside: Beside::Nothing,
                    });
                }
                None => {
                    tracing::info!(code = fault.code_text(), %fault, "the peer reports an error");
                    // It is the reason if the peer closes now; else the first reason stands open.
                    if sequence.is_none() && shared.protocol == Protocol::V2 {
                        shared.begin_close(fault, Tell::Nobody);
                    }
                }
            }
        }
        None => drop(shared.malformed.fetch_add(1, Ordering::Relaxed)),
    }
}
