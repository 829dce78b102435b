//! `GET /api/events`: the server's journal as NDJSON from a cursor.
//!
//! One record a line, then, with `follow`, each new one as it is on disk and an empty line every
//! 15 s. A reader that takes nothing for 30 s while records wait is disconnected; it comes back with
//! the cursor of its last line. A stream ends when its credential is revoked or expires.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::auth::{Auth, Identity, Watched};
use super::methods::Reply;
use crate::base::{Clock, EpochMillis};
use crate::journal::{Follower, Journal};
use crate::wire::Fault;
use crate::wire::event::Record;
use crate::wire::messages::events::FollowParams;

const HEARTBEAT: Duration = Duration::from_secs(15);
/// Lines that wait for one reader.
const LINES_WAITING_MAX: usize = 64;
/// A reader that takes nothing for so long is disconnected.
const SLOW_READER: Duration = Duration::from_secs(30);
/// How often the expiry of the credential is looked at.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);
/// Records looked through for `tail` with a prefix.
const TAIL_SEARCH_MAX: u64 = 100_000;

/// What streams are made of.
pub struct Streams {
    pub journal: Journal,
    pub auth: Arc<Auth>,
    pub clock: Arc<dyn Clock>,
    pub stopping: CancellationToken,
}

/// One reader.
struct Reader {
    follower: Follower,
    /// The sequence before which everything stands already; the end without `follow`.
    until: Option<u64>,
    prefix: String,
    lines: mpsc::Sender<Result<Bytes, std::io::Error>>,
    watched: Watched,
    expires_at: Option<EpochMillis>,
    clock: Arc<dyn Clock>,
    stopping: CancellationToken,
}

impl Streams {
    /// Opens a stream; a cursor that is gone is answered before anything is sent.
    pub async fn open(&self, who: &Identity, params: FollowParams) -> Result<Reply, Fault> {
        let range = self.journal.range();
        let prefix = params.prefix.unwrap_or_default();
        let from = match (params.after, params.tail) {
            (Some(from), _) => from,
            (None, Some(tail)) => self.tail(tail, &prefix).await?,
            (None, None) => range.next_seq,
        };
        let (lines, body) = mpsc::channel(LINES_WAITING_MAX);
        let reader = Reader {
            follower: self.journal.follow(from)?,
            until: (!params.follow).then_some(range.next_seq),
            prefix,
            lines,
            watched: self.auth.watch(who),
            expires_at: who.expires_at,
            clock: Arc::clone(&self.clock),
            stopping: self.stopping.clone(),
        };
        tokio::spawn(reader.run());
        let body = futures_util::stream::unfold(body, |mut body| async move {
            body.recv().await.map(|line| (line, body))
        });
        let mut response = Response::new(Body::from_stream(body));
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        );
        Ok(Reply::Http(response))
    }

    /// The sequence from which `tail` records with the prefix follow.
    async fn tail(&self, tail: u64, prefix: &str) -> Result<u64, Fault> {
        let range = self.journal.range();
        let first = range.first_seq.max(1);
        if prefix.is_empty() {
            return Ok(range.next_seq.saturating_sub(tail).max(first));
        }
        let (journal, prefix) = (self.journal.clone(), prefix.to_owned());
        tokio::task::spawn_blocking(move || {
            let mut hits = std::collections::VecDeque::new();
            let mut next = range.next_seq.saturating_sub(TAIL_SEARCH_MAX).max(first);
            while next < range.next_seq && tail > 0 {
                let records = journal.read(next, 512)?;
                let Some(last) = records.last() else {
                    break;
                };
                next = last.sequence + 1;
                for record in records.iter().filter(|r| r.event_type.starts_with(&prefix)) {
                    hits.push_back(record.sequence);
                    if hits.len() as u64 > tail {
                        hits.pop_front();
                    }
                }
            }
            Ok(hits.front().copied().unwrap_or(range.next_seq))
        })
        .await
        .map_err(|error| Fault::internal(format!("search the journal: {error}")))?
    }
}

impl Reader {
    async fn run(mut self) {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.reset();
        let mut expiry = tokio::time::interval(EXPIRY_CHECK);
        loop {
            if self
                .until
                .is_some_and(|until| self.follower.next_seq() >= until)
            {
                return;
            }
            let line = tokio::select! {
                () = self.watched.ended.cancelled() => return,
                () = self.stopping.cancelled() => return,
                () = self.lines.closed() => return,
                _ = expiry.tick() => {
                    if self.expires_at.is_some_and(|at| at <= self.clock.now()) {
                        return;
                    }
                    continue;
                }
                _ = heartbeat.tick() => Bytes::from_static(b"\n"),
                next = self.follower.next() => match next {
                    Ok(record) => match line(&record, &self.prefix) {
                        Some(line) => line,
                        None => continue,
                    },
                    Err(fault) => {
                        tracing::info!(error = %fault, "event stream ends");
                        return;
                    }
                },
            };
            heartbeat.reset();
            let sent = tokio::select! {
                sent = self.lines.send_timeout(Ok(line), SLOW_READER) => sent.is_ok(),
                () = self.watched.ended.cancelled() => false,
            };
            if !sent {
                return;
            }
        }
    }
}

fn line(record: &Record, prefix: &str) -> Option<Bytes> {
    if !record.event_type.starts_with(prefix) {
        return None;
    }
    let mut text = serde_json::to_vec(record).ok()?;
    text.push(b'\n');
    Some(text.into())
}
