//! Carries the bytes of an answer over a channel, one way, credit by credit.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::channel::{Carries, Channels, Credit, CreditWindow, DONE};
use super::codes::{Code, Fault};
use super::stream::{Piece, PieceKind};
use crate::base::limits;

/// The receiving end of an answer's bytes; dropping it before the end stops the writer.
#[derive(Debug)]
pub(crate) struct OpenInlet {
    channels: Arc<Channels>,
    channel: u32,
    pieces: mpsc::UnboundedReceiver<Piece>,
}

impl OpenInlet {
    /// Opens the channel: `too_many_channels`, or `channel_invalid` for an id that is in use.
    pub fn new(channels: &Arc<Channels>, channel: u32) -> Result<Self, Fault> {
        Ok(Self {
            pieces: channels.open_inlet(channel, Carries::Blob)?,
            channels: Arc::clone(channels),
            channel,
        })
    }

    /// Waits for all `size` bytes: `artifact_too_large` when there are too many, `link_closed` when
    /// they end early, `channel_invalid` when more come.
    pub async fn collect(mut self, size: u64) -> Result<Bytes, Fault> {
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= limits::ARTIFACT_LEN_MAX)
            .ok_or_else(|| {
                Fault::new(
                    Code::ArtifactTooLarge,
                    format!("the answer announces {size} bytes"),
                )
            })?;
        let mut window = CreditWindow::new(self.channels.elapsed());
        let mut all = BytesMut::new();
        while all.len() < size {
            let part = self
                .pieces
                .recv()
                .await
                .ok_or_else(|| Fault::new(Code::LinkClosed, "the bytes ended early"))?
                .body;
            all.extend_from_slice(&part);
            if let Some(grant) = window.consume(part.len() + 1, self.channels.elapsed()) {
                self.channels.give_credit(self.channel, grant);
            }
        }
        if all.len() > size {
            return Err(Fault::new(
                Code::ChannelInvalid,
                "more bytes came than were announced",
            ));
        }
        Ok(all.freeze())
    }
}

impl Drop for OpenInlet {
    fn drop(&mut self) {
        self.channels.refuse(self.channel, DONE);
    }
}

/// Sends bytes by a channel of its own, then its regular end; `channel_invalid` when the reader
/// closed it before.
pub(crate) async fn send_bytes(
    channels: &Channels,
    channel: u32,
    credit: &Credit,
    bytes: &Bytes,
) -> Result<(), Fault> {
    let mut rest = bytes.clone();
    let mut sequence = 0u32;
    while !rest.is_empty() {
        let paid = credit.pay(1, rest.len()).await;
        let length =
            paid.ok_or_else(|| Fault::new(Code::ChannelInvalid, "the reader closed the channel"))?;
        let body = rest.split_to(length);
        channels.push(channel, sequence, Piece::new(PieceKind::Bytes, body));
        sequence = sequence.wrapping_add(1);
    }
    channels.finish(channel);
    Ok(())
}
