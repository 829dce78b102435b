//! One live link, from its ack to its end: heartbeats, signs of life, capabilities, events.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::dial::Connection;
use super::events;
use super::link::LinkOptions;
use super::plain::PlainHandler;
use super::resources::HostFigures;
use crate::base::limits;
use crate::wire::frame::Protocol;
use crate::wire::link::{Capabilities, Heartbeat, JournalAck, Notice, RegisterAck};
use crate::wire::messages::agents::LinkHealth;
use crate::wire::peer::{Peer, Side};
use crate::wire::{Code, Fault, Handler, Origin};

/// A connection whose registration was accepted.
pub(super) struct Registered {
    pub connection: Connection,
    pub ack: RegisterAck,
    /// What the registration told counts as seen.
    pub capabilities: watch::Receiver<Vec<String>>,
}

/// What outlives one link.
pub(super) struct History {
    pub reconnects: u64,
    pub last_disconnect_reason: Option<String>,
    /// Protocol 1: the next record to send.
    pub plain_cursor: u64,
    pub figures: HostFigures,
}

/// Serves a registered link until it ends; answers why it did. `started` is called once it is live.
pub(super) async fn run(
    options: &LinkOptions,
    history: &mut History,
    Registered {
        connection,
        ack,
        capabilities,
    }: Registered,
    started: impl FnOnce(&Peer),
) -> Fault {
    let protocol = connection.protocol();
    let epoch = ack.epoch.unwrap_or(0);
    let handler: Arc<dyn Handler> = match protocol {
        Protocol::V1 => Arc::new(PlainHandler {
            inner: Arc::clone(&options.handler),
        }),
        Protocol::V2 => Arc::clone(&options.handler),
    };
    let origin = Origin::Server { epoch };
    let (peer, notices) = Peer::start(connection, Side::Connecting, origin, handler);
    started(&peer);
    let period = match protocol {
        Protocol::V1 => Duration::from_millis(limits::HEARTBEAT_V1_MS),
        Protocol::V2 => Duration::from_millis(ack.heartbeat_ms.unwrap_or(limits::HEARTBEAT_MS)),
    };
    let (acked, ack_seen) = watch::channel(0);
    let mut cursor = history.plain_cursor;
    let send_events = async {
        match protocol {
            Protocol::V1 => events::send_plain(&options.journal, &peer, &mut cursor).await,
            Protocol::V2 => {
                let from = ack.resume_from.unwrap_or(1);
                events::send(&options.journal, &peer, from, ack_seen).await
            }
        }
    };
    let ended = tokio::select! {
        () = take_notices(notices, acked) => None,
        sent = send_events => sent.err(),
        beaten = beat(options, history, &peer, period) => beaten.err(),
        told = tell_capabilities(capabilities, &peer) => told.err(),
        () = watch_life(&peer, period), if protocol == Protocol::V2 => {
            Some(Fault::new(Code::TimedOut, "the server has gone silent"))
        }
    };
    history.plain_cursor = cursor;
    if let Some(fault) = ended.filter(|fault| fault.code != Code::LinkClosed) {
        peer.close(fault);
    }
    peer.closed().await
}

async fn take_notices(mut notices: mpsc::Receiver<Notice>, acked: watch::Sender<u64>) {
    while let Some(notice) = notices.recv().await {
        match notice.read::<JournalAck>() {
            Some(Ok(ack)) => drop(acked.send_replace(ack.seq)),
            Some(Err(fault)) => tracing::warn!(%fault, "ignoring an acknowledgement"),
            None => tracing::debug!(notice = notice.message_type, "notice of no known type"),
        }
    }
}

/// Sends heartbeats; one comes early when the current task changes.
async fn beat(
    options: &LinkOptions,
    history: &History,
    peer: &Peer,
    period: Duration,
) -> Result<(), Fault> {
    let mut task = options.current_task.clone();
    let pause = Duration::from_millis(limits::HEARTBEAT_PAUSE_MS).min(period);
    loop {
        let current_task = task.borrow_and_update().clone();
        let status = if current_task.is_empty() {
            "idle"
        } else {
            "busy"
        };
        let uptime = u64::try_from(peer.age().as_millis()).unwrap_or(u64::MAX);
        let stats = peer.stats();
        let beat = Heartbeat {
            status: match peer.protocol() {
                Protocol::V1 => "online".to_owned(),
                Protocol::V2 => status.to_owned(),
            },
            current_task: Some(current_task),
            resources: history.figures.latest(),
            link: Some(LinkHealth {
                reconnects: history.reconnects,
                dropped: stats.malformed + stats.orphans,
                outbox_pending: 0,
                last_disconnect_reason: history.last_disconnect_reason.clone(),
                session_uptime_ms: uptime,
                heartbeat_age_ms: None,
            }),
        };
        peer.notify(&beat).await?;
        tokio::time::sleep(pause).await;
        tokio::select! {
            () = tokio::time::sleep(period.saturating_sub(pause)) => {}
            changed = task.changed() => {
                if changed.is_err() {
                    // Nobody tells of tasks any more; the beat goes on.
                    tokio::time::sleep(period.saturating_sub(pause)).await;
                }
            }
        }
    }
}

async fn tell_capabilities(
    mut capabilities: watch::Receiver<Vec<String>>,
    peer: &Peer,
) -> Result<(), Fault> {
    while capabilities.changed().await.is_ok() {
        let names = capabilities.borrow_and_update().clone();
        peer.notify(&Capabilities {
            capabilities: names,
        })
        .await?;
    }
    std::future::pending().await
}

/// Returns when the server has shown no sign of life for three periods.
async fn watch_life(peer: &Peer, period: Duration) {
    let silence_max = period * limits::HEARTBEATS_MISSED_MAX;
    loop {
        tokio::time::sleep(period).await;
        // Whatever arrives counts, so the answer itself need not be waited for.
        peer.ping(period).await;
        if peer.silence() >= silence_max {
            return;
        }
    }
}
