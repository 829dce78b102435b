//! Answering requests on a live link: the handler runs, its result goes inline or by channel.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::blob_flow::send_bytes;
use super::codes::{Code, Fault};
use super::frame::{Frame, FrameType, Protocol};
use super::handler::{Answer, Blob};
use super::link::{Response, object};
use super::peer::{RESULT_FIELD, Shared, lock};
use super::stream::StreamEnd;
use super::stream_flow::OpenStream;
use super::{channel, request};
use crate::base::limits;

/// Hands a request to the handler in a task of its own: `busy` with too many under way.
pub(super) async fn take_request(shared: &Arc<Shared>, frame: Frame) {
    let sequence = frame.sequence;
    let Ok(slot) = Arc::clone(&shared.slots).try_acquire_owned() else {
        let busy = Fault::new(Code::Busy, "too many requests are under way on this link");
        respond(shared, sequence, Response::refused(None, &busy)).await;
        return;
    };
    let parsed = object(&frame.body)
        .and_then(|fields| request::parse(shared.protocol, fields, shared.origin));
    let call = match parsed {
        Ok(call) => call,
        Err(fault) => {
            shared.malformed.fetch_add(1, Ordering::Relaxed);
            respond(shared, sequence, Response::refused(None, &fault)).await;
            return;
        }
    };
    lock(&shared.incoming).insert(sequence, call.cancel.clone());
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let method = call.method.clone();
        let cancel = call.cancel.clone();
        // Its own task, so that a panic of the handler is an answer too.
        let work = tokio::spawn(shared.handler.call(call));
        let outcome = work
            .await
            .unwrap_or_else(|error| Err(Fault::internal(format!("{method}: {error}"))));
        answer(&shared, sequence, &method, outcome, &cancel).await;
        lock(&shared.incoming).remove(&sequence);
        drop(slot);
    });
}

async fn answer(
    shared: &Arc<Shared>,
    sequence: u32,
    method: &str,
    outcome: Result<Answer, Fault>,
    cancel: &CancellationToken,
) {
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(fault) => {
            respond(shared, sequence, Response::refused(Some(method), &fault)).await;
            return;
        }
    };
    let mut response = Response {
        success: true,
        method: Some(method.to_owned()),
        ..Response::default()
    };
    if let Some(end) = answer.stream.take() {
        answer_stream(shared, sequence, response, answer.data, end).await;
        return;
    }
    if shared.protocol == Protocol::V1 {
        response.data = answer.into_inline();
        respond(shared, sequence, response).await;
        return;
    }
    let (blob, data) = match answer.blob {
        Some(blob) => (Some(blob), answer.data),
        None => match serde_json::to_vec(&answer.data) {
            Ok(text) if text.len() > limits::LINK_INLINE_RESULT_LEN_MAX => (
                Some(Blob {
                    content_type: "application/json".to_owned(),
                    bytes: text.into(),
                    field: RESULT_FIELD,
                }),
                Value::Null,
            ),
            _ => (None, answer.data),
        },
    };
    response.data = data;
    let Some(blob) = blob else {
        respond(shared, sequence, response).await;
        return;
    };
    let channel = shared.next_channel.fetch_add(2, Ordering::Relaxed);
    let opened = shared.channels.open_outlet(channel);
    let credit = match opened {
        Ok(credit) => credit,
        Err(fault) => {
            respond(shared, sequence, Response::refused(Some(method), &fault)).await;
            return;
        }
    };
    response.channel = Some(channel);
    response.size = Some(blob.bytes.len() as u64);
    response.content_type = Some(blob.content_type);
    response.field = Some(blob.field.to_owned());
    respond(shared, sequence, response).await;
    tokio::select! {
        // The reader's close ends the wait for credit as well.
        sent = send_bytes(&shared.channels, channel, &credit, &blob.bytes) => {
            if let Err(fault) = sent {
                tracing::debug!(%fault, method, "the answer's bytes were not all wanted");
            }
        }
        () = cancel.cancelled() => shared.channels.refuse(channel, channel::DONE),
    }
}

/// Answers with a stream: the response first, then pieces until either side ends them.
async fn answer_stream(
    shared: &Arc<Shared>,
    sequence: u32,
    mut response: Response,
    data: Value,
    end: StreamEnd,
) {
    let opened = if shared.protocol == Protocol::V1 {
        Err(Fault::new(
            Code::Unsupported,
            "protocol 1 has no streams; the session can be used through newer peers alone",
        ))
    } else {
        let channel = shared.next_channel.fetch_add(2, Ordering::Relaxed);
        response.channel = Some(channel);
        OpenStream::new(&shared.channels, channel)
    };
    match opened {
        Ok(stream) => {
            response.data = data;
            respond(shared, sequence, response).await;
            tokio::spawn(stream.carry(end));
        }
        Err(fault) => {
            let method = response.method.as_deref();
            respond(shared, sequence, Response::refused(method, &fault)).await;
        }
    }
}

/// Sends a response; one that passes the frame limit becomes a refusal.
async fn respond(shared: &Arc<Shared>, sequence: u32, response: Response) {
    let too_large = |length: usize| {
        Response::refused(
            response.method.as_deref(),
            &Fault::new(
                Code::BodyTooLarge,
                format!("the answer has {length} bytes, more than one frame carries"),
            ),
        )
    };
    let encoded = match serde_json::to_vec(&response) {
        Ok(body) if body.len() > limits::LINK_BODY_LEN_MAX => {
            serde_json::to_vec(&too_large(body.len()))
        }
        other => other,
    };
    match encoded {
        // A link that is gone needs no answer.
        Ok(body) => drop(
            shared
                .send(Frame::new(FrameType::Response, sequence, body))
                .await,
        ),
        Err(error) => tracing::error!(%error, "encode a response"),
    }
}
