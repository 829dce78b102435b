//! A registered link from its ack to its end: heartbeats, events, silence.
//!
//! ```text
//! connected told ─► notices: heartbeat, capabilities, events in batches ─► acked
//!        │                 silent for 3 heartbeats (protocol 1: 90 s) ─► heartbeat_timeout
//!        └──────────────── closed, revoked, replaced … ─► row written ─► disconnected told
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::gateway::Inner;
use crate::base::ids::AgentId;
use crate::base::limits;
use crate::wire::event::Record;
use crate::wire::frame::Protocol;
use crate::wire::link::{Capabilities, Event, Heartbeat, JournalAck, Notice};
use crate::wire::peer::Peer;
use crate::wire::{Code, Fault};

pub(super) struct Session {
    pub agent: AgentId,
    pub epoch: u64,
    pub peer: Peer,
    pub notices: mpsc::Receiver<Notice>,
    /// Fires when everybody has been told of the end.
    pub ended: CancellationToken,
}

impl Session {
    /// Serves the link until it ends.
    pub(super) async fn run(mut self, inner: Arc<Inner>) {
        // Also when something here panics: who waits for the end must not wait for ever.
        let _ended = self.ended.clone().drop_guard();
        let protocol = self.peer.protocol();
        tracing::info!(agent = %self.agent, epoch = self.epoch, protocol = protocol.number(), "agent connected");
        inner
            .sink
            .connected(&self.agent, self.epoch, protocol.number())
            .await;
        let reason = self.serve(&inner).await;
        let word = reason_word(&reason);
        tracing::info!(agent = %self.agent, epoch = self.epoch, reason = word, "agent disconnected");
        if let Err(fault) = inner.registry.disconnect(&self.agent, self.epoch).await {
            tracing::error!(agent = %self.agent, %fault, "write the agent's last sign of life");
        }
        inner.sink.disconnected(&self.agent, self.epoch, word).await;
    }

    async fn serve(&mut self, inner: &Inner) -> Fault {
        let silence_max = match self.peer.protocol() {
            Protocol::V1 => Duration::from_millis(limits::SILENCE_V1_MAX_MS),
            Protocol::V2 => {
                Duration::from_millis(inner.heartbeat_ms) * limits::HEARTBEATS_MISSED_MAX
            }
        };
        loop {
            let patience = silence_max.saturating_sub(self.peer.silence());
            tokio::select! {
                notice = self.notices.recv() => match notice {
                    Some(notice) => self.take(inner, notice).await,
                    None => return self.peer.closed().await,
                },
                () = tokio::time::sleep(patience) => {
                    if self.peer.silence() >= silence_max {
                        self.peer.close(Fault::new(Code::TimedOut, "heartbeat_timeout"));
                        return self.peer.closed().await;
                    }
                }
                () = inner.stop.cancelled() => {
                    self.peer.close(Fault::new(Code::LinkClosed, "shutdown"));
                    return self.peer.closed().await;
                }
            }
        }
    }

    /// Takes in a notice; an event takes those with it that have arrived already.
    async fn take(&mut self, inner: &Inner, notice: Notice) {
        let mut next = Some(notice);
        while let Some(notice) = next.take() {
            if !inner.registry.is_current(&self.agent, self.epoch) {
                return;
            }
            if let Some(event) = notice.read::<Event>() {
                match self.peer.protocol() {
                    Protocol::V1 => self.plain_event(inner, event).await,
                    Protocol::V2 => next = self.events(inner, event).await,
                }
            } else if let Some(beat) = notice.read::<Heartbeat>() {
                match beat {
                    Ok(beat) => inner.registry.heartbeat(&self.agent, self.epoch, beat),
                    Err(fault) => self.malformed(&fault),
                }
            } else if let Some(names) = notice.read::<Capabilities>() {
                let stored = match names {
                    Ok(names) => {
                        let registry = &inner.registry;
                        registry
                            .set_capabilities(&self.agent, names.capabilities)
                            .await
                    }
                    Err(fault) => Err(fault),
                };
                if let Err(fault) = stored {
                    self.malformed(&fault);
                }
            } else {
                tracing::debug!(agent = %self.agent, notice = notice.message_type, "notice of no known type");
            }
        }
    }

    fn malformed(&self, fault: &Fault) {
        tracing::warn!(agent = %self.agent, %fault, "ignoring a notice");
    }

    async fn plain_event(&self, inner: &Inner, event: Result<Event, Fault>) {
        match event {
            Ok(event) => {
                inner
                    .sink
                    .plain_event(&self.agent, event.event, event.data)
                    .await;
            }
            Err(fault) => self.malformed(&fault),
        }
    }

    /// Stores a batch of records and acknowledges it; answers a notice that was not an event.
    async fn events(&mut self, inner: &Inner, first: Result<Event, Fault>) -> Option<Notice> {
        let mut records = Vec::new();
        let mut left_over = None;
        let mut event = Some(first);
        while let Some(read) = event.take() {
            self.push(&mut records, read);
            if records.len() >= limits::EVENTS_BATCH_LEN_MAX {
                break;
            }
            if let Ok(notice) = self.notices.try_recv() {
                match notice.read::<Event>() {
                    Some(read) => event = Some(read),
                    None => left_over = Some(notice),
                }
            }
        }
        if records.is_empty() {
            return left_over;
        }
        match inner.sink.events(&self.agent, records).await {
            // An ack that does not go out is made good by `resumeFrom`.
            Ok(seq) => drop(self.peer.notify(&JournalAck { seq }).await),
            // Nothing is acknowledged that is not on disk: the agent comes again later.
            Err(fault) => self.peer.close(fault),
        }
        left_over
    }

    fn push(&self, records: &mut Vec<Record>, event: Result<Event, Fault>) {
        match event.and_then(Event::into_record) {
            Ok(record) if record.is_shared() => records.push(record),
            Ok(record) => {
                tracing::warn!(agent = %self.agent, event = record.event_type, "ignoring a local event");
            }
            Err(fault) => self.malformed(&fault),
        }
    }
}

/// The stable word for why a link ended.
fn reason_word(reason: &Fault) -> &str {
    match reason.code {
        Code::AgentRevoked => "revoked",
        Code::AgentQuarantined => "quarantined",
        Code::TimedOut => "heartbeat_timeout",
        Code::LinkClosed if !reason.message.contains(' ') => &reason.message,
        Code::LinkClosed => "closed",
        _ => reason.code_text(),
    }
}
