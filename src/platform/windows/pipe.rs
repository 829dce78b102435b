//! A named pipe as a session's two ends use it: bytes in, bytes out, neither waiting for the other.
//!
//! Both directions run on one small runtime of this process, since a blocked read of a pipe can be
//! neither woken nor shared with a write otherwise.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use interprocess::local_socket::tokio::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::platform::pty::Received;

/// Bytes that wait in each direction. Full: reading pauses, or nothing more is taken to send.
const WAITING_LEN_MAX: usize = 256 * 1024;
const READ_LEN: usize = 64 * 1024;

/// The runtime that moves the bytes of every pipe of this process.
pub(super) fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("session-pipes")
                .enable_all()
                .build()
        })
        .as_ref()
        .map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

/// The pipe of a session, by the path that its socket would have.
pub(super) fn name_of(socket: &Path) -> PathBuf {
    let bytes = socket.as_os_str().as_encoded_bytes();
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let name = data_encoding::HEXLOWER.encode(&digest.as_ref()[..16]);
    PathBuf::from(format!(r"\\.\pipe\wingman-session-{name}"))
}

/// Something that happened, for one thread or task that waits for any of many things.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    told: Notify,
}

impl Bell {
    pub fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_all();
        self.told.notify_one();
    }

    /// Waits until it was rung since the last time that a task was told.
    pub async fn heard(&self) {
        self.told.notified().await;
    }

    /// Waits until it was rung since the last wait, or until `deadline`.
    pub fn wait(&self, deadline: Option<Instant>) {
        let mut rung = lock(&self.rung);
        while !*rung {
            rung = match deadline {
                None => self
                    .changed
                    .wait(rung)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    let waited = self.changed.wait_timeout(rung, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *rung = false;
    }
}

/// What is behind a lock here is whole whatever panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Waiting {
    inbound: VecDeque<u8>,
    outbound: Vec<u8>,
    /// Bytes that the sending task has taken and not yet written.
    sending: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    to_send: Notify,
    room: Notify,
}

/// An open pipe. Dropping it closes it.
pub(super) struct Pipe {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
    tasks: [JoinHandle<()>; 2],
}

impl Pipe {
    /// Takes over a connection; `bell` is rung whenever something changes.
    pub fn new(stream: Stream, bell: Arc<Bell>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (reads, writes) = tokio::io::split(stream);
        let runtime = runtime()?;
        let spawn = |work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| runtime.spawn(work);
        let tasks = [
            spawn(Box::pin(take_in(reads, shared.clone(), bell.clone()))),
            spawn(Box::pin(send_out(writes, shared.clone(), bell.clone()))),
        ];
        Ok(Self {
            shared,
            bell,
            tasks,
        })
    }

    pub fn is_readable(&self) -> bool {
        let waiting = lock(&self.shared.waiting);
        waiting.closed || !waiting.inbound.is_empty()
    }

    pub fn is_writable(&self) -> bool {
        let waiting = lock(&self.shared.waiting);
        waiting.closed || waiting.outbound.len() + waiting.sending < WAITING_LEN_MAX
    }

    /// Takes bytes that are there.
    pub fn receive(&self, into: &mut [u8]) -> Received {
        let mut waiting = lock(&self.shared.waiting);
        let length = waiting.inbound.len().min(into.len());
        if length == 0 {
            return if waiting.closed {
                Received::Closed
            } else {
                Received::Nothing
            };
        }
        for (place, byte) in into.iter_mut().zip(waiting.inbound.drain(..length)) {
            *place = byte;
        }
        self.shared.room.notify_one();
        Received::Bytes(length)
    }

    /// Takes bytes to send; answers how many, which may be none.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = lock(&self.shared.waiting);
        if waiting.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = WAITING_LEN_MAX.saturating_sub(waiting.outbound.len() + waiting.sending);
        let taken = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        waiting.outbound.extend_from_slice(taken);
        self.shared.to_send.notify_one();
        Ok(taken.len())
    }

    /// Ends both directions at once.
    pub fn shutdown(&self) {
        lock(&self.shared.waiting).closed = true;
        for task in &self.tasks {
            task.abort();
        }
        self.bell.ring();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let [reading, sending] = &self.tasks;
        reading.abort();
        let unsent = {
            let waiting = lock(&self.shared.waiting);
            waiting.outbound.len() + waiting.sending > 0 && !waiting.closed
        };
        // A last word is still written; the task ends by itself after it.
        if unsent {
            lock(&self.shared.waiting).closed = true;
            self.shared.to_send.notify_one();
        } else {
            sending.abort();
        }
    }
}

async fn take_in(mut reads: ReadHalf<Stream>, shared: Arc<Shared>, bell: Arc<Bell>) {
    let mut bytes = vec![0; READ_LEN];
    loop {
        while lock(&shared.waiting).inbound.len() >= WAITING_LEN_MAX {
            shared.room.notified().await;
        }
        let length = reads.read(&mut bytes).await.unwrap_or(0);
        {
            let mut waiting = lock(&shared.waiting);
            waiting
                .inbound
                .extend(bytes.get(..length).unwrap_or_default());
            waiting.closed |= length == 0;
        }
        bell.ring();
        if length == 0 {
            return;
        }
    }
}

async fn send_out(mut writes: WriteHalf<Stream>, shared: Arc<Shared>, bell: Arc<Bell>) {
    loop {
        let (bytes, closed) = {
            let mut waiting = lock(&shared.waiting);
            let bytes = std::mem::take(&mut waiting.outbound);
            waiting.sending = bytes.len();
            (bytes, waiting.closed)
        };
        if bytes.is_empty() {
            if closed {
                return;
            }
            shared.to_send.notified().await;
            continue;
        }
        let failed = writes.write_all(&bytes).await.is_err();
        {
            let mut waiting = lock(&shared.waiting);
            waiting.sending = 0;
            waiting.closed |= failed;
        }
        bell.ring();
        if failed {
            return;
        }
    }
}
