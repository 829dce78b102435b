//! The writer task of a live link: control frames first, then one frame of each channel in turn.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::channel::Outgoing;
use super::codes::Fault;
use super::frame::{Frame, FrameType, put_data};
use super::framed::{closed_by, error_frame};
use super::link::{ChannelClose, ChannelCredit, Message};
use super::peer::{Shared, Tell};
use crate::base::limits;

/// Bytes that one write gathers at most, unless a single frame is longer.
const WRITE_GATHER_LEN: usize = 64 * 1024;

/// Writes until the link closes; then the reason, where there is one to tell, and the end.
pub(super) async fn write_frames<W: AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    mut stream: W,
    mut control: mpsc::Receiver<Frame>,
) {
    let mut out = BytesMut::new();
    loop {
        let gathered = tokio::select! {
            biased;
            () = shared.closing.cancelled() => break,
            gathered = gather(&shared, &mut control, &mut out) => gathered,
        };
        let written = match gathered {
            Ok(()) => tokio::select! {
                written = write_out(&mut stream, &mut out) => written,
                () = shared.closing.cancelled() => break,
            },
            Err(fault) => Err(fault),
        };
        if let Err(fault) = written {
            shared.begin_close(fault, Tell::Nobody);
            break;
        }
    }
    let goodbye = async {
        // What stands in `out` may be half written; a whole frame can follow only whole frames.
        if out.is_empty()
            && let Some((reason, Tell::Peer)) = shared.reason.get()
        {
            error_frame(reason)?.encode(&mut out)?;
            write_out(&mut stream, &mut out).await?;
        }
        stream.shutdown().await.map_err(|error| closed_by(&error))
    };
    // The reason is a courtesy; the close is what counts.
    let _ = tokio::time::timeout(Duration::from_millis(limits::LINK_CLOSE_MS), goodbye).await;
}

/// Waits for something to send, then takes what is ready: one channel's frame at a time, and all
/// control frames before it. A response is queued before its channel's first frame, so it goes first.
async fn gather(
    shared: &Shared,
    control: &mut mpsc::Receiver<Frame>,
    out: &mut BytesMut,
) -> Result<(), Fault> {
    while out.is_empty() {
        while out.len() < WRITE_GATHER_LEN {
            let data = shared.channels.pop();
            let mut idle = data.is_none();
            while let Ok(frame) = control.try_recv() {
                frame.encode(out)?;
                idle = false;
            }
            if let Some(outgoing) = data {
                put(outgoing, out)?;
            }
            if idle {
                break;
            }
        }
        if out.is_empty() {
            tokio::select! {
                frame = control.recv() => match frame {
                    Some(frame) => frame.encode(out)?,
                    None => return Err(shared.why_closed()),
                },
                () = shared.channels.turns.notified() => {}
            }
        }
    }
    Ok(())
}

fn put(outgoing: Outgoing, out: &mut BytesMut) -> Result<(), Fault> {
    let notice = match outgoing {
        Outgoing::Data {
            channel,
            sequence,
            piece,
        } => {
            put_data(channel, sequence, piece.kind as u8, &piece.body, out)?;
            return Ok(());
        }
        Outgoing::Credit { channel, bytes } => ChannelCredit {
            channel,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        }
        .to_body()?,
        Outgoing::Close { channel, reason } => ChannelClose {
            channel,
            reason: reason.to_owned(),
        }
        .to_body()?,
    };
    Frame::new(FrameType::Notify, 0, notice).encode(out)?;
    Ok(())
}

async fn write_out<W: AsyncWrite + Unpin>(stream: &mut W, out: &mut BytesMut) -> Result<(), Fault> {
    let written = async {
        stream.write_all_buf(out).await?;
        stream.flush().await
    };
    written.await.map_err(|error| closed_by(&error))
}
