//! Sending the journal to the server: from its cursor on, a bounded number ahead of what it has
//! acknowledged.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::plain;
use crate::base::limits;
use crate::journal::Journal;
use crate::wire::Fault;
use crate::wire::link::Event;
use crate::wire::peer::Peer;

/// Sends shared records from `resume_from` on, for as long as the link lasts. `acked` carries the
/// last sequence that the server has on disk.
pub(super) async fn send(
    journal: &Journal,
    peer: &Peer,
    resume_from: u64,
    mut acked: watch::Receiver<u64>,
) -> Result<(), Fault> {
    let range = journal.range();
    let from = resume_from.clamp(range.first_seq.max(1), range.next_seq.max(1));
    if from != resume_from {
        tracing::warn!(
            wanted = resume_from,
            first = range.first_seq,
            next = range.next_seq,
            "the server's cursor lies outside of the journal; sending from {from} on"
        );
    }
    let mut follower = journal.follow(from)?;
    let mut under_way: VecDeque<u64> = VecDeque::new();
    loop {
        let last = *acked.borrow_and_update();
        while under_way.front().is_some_and(|seq| *seq <= last) {
            under_way.pop_front();
        }
        if under_way.len() >= limits::EVENTS_UNACKED_LEN_MAX {
            if acked.changed().await.is_err() {
                return Ok(());
            }
            continue;
        }
        let record = follower.next().await?;
        if record.is_shared() {
            peer.notify(&Event::of_record(&record)?).await?;
            under_way.push_back(record.sequence);
        }
    }
}

/// Protocol 1 has no cursors: sends records from `cursor` on under their old names and moves it.
pub(super) async fn send_plain(
    journal: &Journal,
    peer: &Peer,
    cursor: &mut u64,
) -> Result<(), Fault> {
    let range = journal.range();
    let mut follower =
        journal.follow((*cursor).clamp(range.first_seq.max(1), range.next_seq.max(1)))?;
    loop {
        let record = follower.next().await?;
        if record.is_shared() {
            for (event, data) in plain::events_of(&record) {
                let event = event.to_owned();
                peer.notify(&Event {
                    event,
                    data,
                    seq: None,
                })
                .await?;
            }
        }
        *cursor = record.sequence + 1;
    }
}
