//! A link before it is live: the opening exchange reads and writes frame by frame.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::codes::{Code, Fault};
use super::frame::{Decoder, Frame, FrameType, Protocol};
use super::link::{LinkError, Message};
use crate::base::limits;

/// A stream of frames before the link is live: the opening exchange reads and writes one by one.
#[derive(Debug)]
pub struct Framed<S> {
    pub(super) stream: S,
    pub(super) decoder: Decoder,
    pub(super) protocol: Protocol,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    /// Bodies may have `body_len_max` bytes until the link goes live.
    pub fn new(stream: S, protocol: Protocol, body_len_max: usize) -> Self {
        Self {
            stream,
            decoder: Decoder::new(protocol, body_len_max),
            protocol,
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The next frame; `link_closed` at the end of the stream. Cancel safe.
    pub async fn read(&mut self) -> Result<Frame, Fault> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(frame);
            }
            let read = self.stream.read_buf(self.decoder.buffer()).await;
            match read {
                Ok(0) => {
                    self.decoder.finish()?;
                    return Err(Fault::new(Code::LinkClosed, "the peer closed the link"));
                }
                Ok(_) => {}
                Err(error) => return Err(closed_by(&error)),
            }
        }
    }

    pub async fn write(&mut self, frame: &Frame) -> Result<(), Fault> {
        let mut out = BytesMut::new();
        frame.encode(&mut out)?;
        let written = async {
            self.stream.write_all(&out).await?;
            self.stream.flush().await
        };
        written.await.map_err(|error| closed_by(&error))
    }

    /// Sends a Notify.
    pub async fn notify<M: Message>(&mut self, message: &M) -> Result<(), Fault> {
        self.write(&Frame::new(FrameType::Notify, 0, message.to_body()?))
            .await
    }

    /// Sends the Error frame and closes; what the peer does meanwhile does not matter.
    pub async fn refuse(mut self, fault: &Fault) {
        if let Ok(frame) = error_frame(fault) {
            let goodbye = async {
                self.write(&frame).await?;
                self.stream.shutdown().await.map_err(|e| closed_by(&e))
            };
            // The reason is a courtesy; the close is what counts.
            let _ =
                tokio::time::timeout(Duration::from_millis(limits::LINK_CLOSE_MS), goodbye).await;
        }
    }
}

pub(super) fn closed_by(error: &std::io::Error) -> Fault {
    Fault::new(Code::LinkClosed, format!("the link broke: {error}"))
}

pub(super) fn error_frame(fault: &Fault) -> Result<Frame, Fault> {
    let body = serde_json::to_vec(&LinkError::of(fault))
        .map_err(|error| Fault::internal(format!("encode an error: {error}")))?;
    Ok(Frame::new(FrameType::Error, 0, body))
}
