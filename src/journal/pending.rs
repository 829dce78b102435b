//! The promise of an acknowledgement.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::sync::oneshot;

use super::record::{Line, Prepared};
use crate::base::EpochMillis;
use crate::wire::Fault;
use crate::wire::event::Record;

/// What only the writer knows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub sequence: u64,
    pub committed_at: EpochMillis,
}

/// A record in the queue, with the address of its acknowledgement.
pub(super) struct Item {
    pub line: Line,
    pub ack: oneshot::Sender<Result<Stamp, Fault>>,
}

/// Makes the two ends of an append.
pub(super) fn pair(prepared: Prepared) -> (Item, Pending) {
    let (ack, stamp) = oneshot::channel();
    let Prepared { record, line } = prepared;
    let record = Box::new(record);
    (Item { line, ack }, Pending(State::Queued { record, stamp }))
}

/// A record on its way to the disk: await it, or `wait` for it. Dropping it withdraws nothing.
#[must_use = "an append may fail, and only its answer says so"]
pub struct Pending(State);

enum State {
    Refused(Fault),
    Queued {
        record: Box<Record>,
        stamp: oneshot::Receiver<Result<Stamp, Fault>>,
    },
    Done,
}

impl Pending {
    pub(super) fn refused(fault: Fault) -> Self {
        Self(State::Refused(fault))
    }

    /// Blocks until the record is on disk or was refused.
    pub fn wait(self) -> Result<Record, Fault> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        // Inside a task tokio may put a poll off to a later turn of the task; this thread has none.
        let mut this = pin!(tokio::task::unconstrained(self));
        loop {
            match this.as_mut().poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Pending {
    type Output = Result<Record, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Queued { stamp, .. } = &mut self.0 {
            let Poll::Ready(answer) = Pin::new(stamp).poll(context) else {
                return Poll::Pending;
            };
            return match (std::mem::replace(&mut self.0, State::Done), answer) {
                (State::Queued { mut record, .. }, Ok(Ok(stamp))) => {
                    record.sequence = stamp.sequence;
                    record.committed_at = stamp.committed_at;
                    Poll::Ready(Ok(*record))
                }
                (_, Ok(Err(fault))) => Poll::Ready(Err(fault)),
                _ => Poll::Ready(Err(Fault::internal("the journal's writer has ended"))),
            };
        }
        match std::mem::replace(&mut self.0, State::Done) {
            State::Refused(fault) => Poll::Ready(Err(fault)),
            _ => Poll::Ready(Err(Fault::internal("a journal answer was asked for twice"))),
        }
    }
}
