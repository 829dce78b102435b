//! The agent's end of a holder: one reader, writers for everybody.
//!
//! Input goes straight into the terminal where the holder sent it along and none waits in the holder, which
//! saves a key the way through another process; otherwise, and for what the terminal does not take at
//! once, through the holder. So it stays in order, and a program that does not read stops nobody.
//!
//! A writer never blocks: what the socket does not take at once waits in a bounded queue, which a thread of
//! its own sends and then ends. That is rare, since a holder reads whatever else it does.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::buffer::FrameBuffer;
use super::protocol::{
    self, BLOCK_LEN_MAX, FromHolder, Hello, PART_LEN, PROTOCOL, Position, ToHolder,
};
use super::{HolderError, folder};
use crate::base::limits;
use crate::platform::pty::{PtySize, Readiness, Received, SessionStream, TerminalInput};

/// A reader's buffer while much comes.
const LARGE_LEN: usize = 128 * 1024;

enum Source {
    Stream(Arc<Shared>),
    File(File),
}

/// Reads what a holder says, in order: by `next`, which blocks its thread, or in a task by `try_fill`
/// and `readable`.
pub struct Reader {
    source: Source,
    buffer: FrameBuffer,
    hello: Hello,
}

struct Queue {
    /// What waits; the thread that sends is running while `sending`.
    bytes: Vec<u8>,
    sending: bool,
    failed: bool,
    /// The terminal itself, while the connection lives.
    terminal: Option<TerminalInput>,
    /// Bytes of input and replies that went to the holder, and up to where none of them waits there.
    input: u64,
    taken: Option<u64>,
}

impl Queue {
    /// Gives the terminal what it takes at once, where nothing that was given before waits; answers the
    /// rest.
    fn put_in<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match &self.terminal {
            // While a frame is under way the rest could be refused after a part was taken.
            Some(terminal) if self.taken == Some(self.input) && !self.sending && !self.failed => {
                // A terminal that has gone takes nothing; the holder tells how it ended.
                let taken = terminal.write(bytes).unwrap_or(0);
                bytes.get(taken..).unwrap_or_default()
            }
            _ => bytes,
        }
    }
}

/// What a try to read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Bytes; there may be more.
    More,
    /// All there was, which may be nothing.
    All,
    /// The connection has ended.
    Closed,
}

struct Shared {
    stream: Arc<SessionStream>,
    queue: Mutex<Queue>,
}

/// Tells a holder what to do; clones share the connection.
#[derive(Clone)]
pub struct Writer(Arc<Shared>);

/// One block of a session's history; the agent numbers them, rising, and never changes one.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    pub id: u64,
    /// At most `BLOCK_LEN_MAX`.
    pub bytes: &'a [u8],
}

/// A screen to store, with what is new of its history.
#[derive(Clone, Copy, Debug)]
pub struct NewCheckpoint<'a> {
    /// The place in the stream up to which the screen has seen everything.
    pub at: Position,
    /// Whatever the agent needs to make the screen again.
    pub screen: &'a [u8],
    pub append: &'a [Block<'a>],
    /// Blocks with smaller numbers are not history any more.
    pub keep_from: u64,
}

/// Connects to the holder of a session and says hello; takes the place of an agent that is connected.
/// Errors: `Io` when nobody listens, `Incompatible`.
pub fn connect(folder: &Path) -> Result<(Reader, Writer), HolderError> {
    let stream = SessionStream::connect(&folder::socket_of(folder))
        .map(Arc::new)
        .map_err(HolderError::io("connect to the holder"))?;
    let mut hello = Vec::new();
    ToHolder::Hello { protocol: PROTOCOL }.put(&mut hello);
    stream
        .send(&hello)
        .map_err(HolderError::io("say hello to the holder"))?;
    let shared = Arc::new(Shared {
        stream,
        queue: Mutex::new(Queue {
            bytes: Vec::new(),
            sending: false,
            failed: false,
            terminal: None,
            input: 0,
            taken: None,
        }),
    });
    let mut buffer = FrameBuffer::new(LARGE_LEN);
    let deadline = Instant::now() + Duration::from_millis(limits::HOLDER_HELLO_MS);
    while !buffer.has_frame()? {
        let left = deadline.saturating_duration_since(Instant::now());
        let readable = shared
            .stream
            .wait_readable(left)
            .map_err(HolderError::io("wait for the holder"))?;
        if !readable && left.is_zero() {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Err(HolderError::io("wait for the holder's hello")(late));
        }
        let receive = |room: &mut [u8]| {
            let (length, terminal) = shared.stream.receive_terminal(room)?;
            if terminal.is_some() {
                shared.lock().terminal = terminal;
            }
            Ok(length)
        };
        if readable && !fill(&mut buffer, receive)? {
            return Err(HolderError::Closed);
        }
    }
    let reader = Reader::greeted(Source::Stream(shared.clone()), buffer)?;
    Ok((reader, Writer(shared)))
}

/// Reads what an ended session left in its folder: the same frames as from a holder that is asked for its
/// checkpoint and all that came after it, up to the exit.
pub fn last_screen(folder: &Path) -> Result<Reader, HolderError> {
    let path = folder.join(folder::LAST_SCREEN);
    let mut file = File::open(&path).map_err(folder::file_error(&path))?;
    let mut buffer = FrameBuffer::new(LARGE_LEN);
    while !buffer.has_frame()? {
        if !fill(&mut buffer, |room| file.read(room))? {
            return Err(HolderError::Closed);
        }
    }
    Reader::greeted(Source::File(file), buffer)
}

/// One read; `false` at the end.
fn fill(
    buffer: &mut FrameBuffer,
    read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
) -> Result<bool, HolderError> {
    let length = match read(buffer.room()?) {
        Ok(length) => length,
        // The holder ended with words of ours unread.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        Err(error) => return Err(HolderError::io("read from the holder")(error)),
    };
    buffer.filled(length);
    Ok(length > 0)
}

impl Reader {
    fn greeted(source: Source, mut buffer: FrameBuffer) -> Result<Self, HolderError> {
        let raw = buffer.take()?.ok_or(HolderError::Closed)?;
        let kind = raw.kind;
        match protocol::from_holder(raw)? {
            FromHolder::Hello(hello) => Ok(Self {
                source,
                buffer,
                hello,
            }),
            FromHolder::Incompatible { protocol } => Err(HolderError::Incompatible { protocol }),
            _ => Err(protocol::ProtocolError::Malformed { kind, at: 0 }.into()),
        }
    }

    /// What the holder said first.
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The next frame, borrowed from the reader's buffer; `None` when the connection has ended. Waits; at
    /// most one read for each time that it has to wait.
    // Not an iterator: what it answers borrows from it.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<FromHolder<'_>>, HolderError> {
        while !self.has_frame()? {
            if !self.wait()? {
                return Ok(None);
            }
        }
        match self.buffer.take()? {
            Some(raw) => Ok(Some(protocol::from_holder(raw)?)),
            None => Ok(None),
        }
    }

    /// Whether `next` answers without waiting.
    pub fn has_frame(&mut self) -> Result<bool, HolderError> {
        while let Some(taken) = self.buffer.peek()?.and_then(protocol::taken) {
            // What concerns the writers alone goes no further.
            if let Source::Stream(shared) = &self.source {
                shared.lock().taken = Some(taken);
            }
            self.buffer.take()?;
        }
        Ok(self.buffer.has_frame()?)
    }

    /// Takes what has come, without waiting, up to one buffer.
    pub fn try_fill(&mut self) -> Result<Filled, HolderError> {
        let Source::Stream(shared) = &self.source else {
            return Ok(Filled::Closed);
        };
        let room = self.buffer.room()?;
        let size = room.len();
        match shared.stream.try_receive(room) {
            Ok(Received::Bytes(length)) => {
                self.buffer.filled(length);
                Ok(if length < size {
                    Filled::All
                } else {
                    Filled::More
                })
            }
            Ok(Received::Nothing) => Ok(Filled::All),
            Ok(Received::Closed) => Ok(Filled::Closed),
            Err(error) => Err(HolderError::io("read from the holder")(error)),
        }
    }

    /// Whether `try_fill` is worth a try within `limit`; blocks its thread.
    pub fn wait_readable(&self, limit: Duration) -> Result<bool, HolderError> {
        match &self.source {
            Source::Stream(shared) => shared
                .stream
                .wait_readable(limit)
                .map_err(HolderError::io("wait for the holder")),
            Source::File(_) => Ok(true),
        }
    }

    /// Tells a task when `try_fill` is worth another try. Needs a tokio runtime.
    pub fn readiness(&self) -> Result<Option<Readiness>, HolderError> {
        match &self.source {
            Source::Stream(shared) => Readiness::new(&shared.stream)
                .map(Some)
                .map_err(HolderError::io("wait for the holder")),
            Source::File(_) => Ok(None),
        }
    }

    /// Waits for more, and gives the memory of a flood back when none comes for a while.
    pub async fn readable(&mut self, readiness: &Readiness) -> Result<(), HolderError> {
        let rest = Duration::from_millis(limits::HOLDER_BUFFER_REST_MS);
        let waited = if self.buffer.is_large() {
            match tokio::time::timeout(rest, readiness.wait()).await {
                Ok(waited) => waited,
                Err(_) => {
                    self.buffer.shrink();
                    readiness.wait().await
                }
            }
        } else {
            readiness.wait().await
        };
        waited.map_err(HolderError::io("wait for the holder"))
    }

    fn wait(&mut self) -> Result<bool, HolderError> {
        let buffer = &mut self.buffer;
        match &mut self.source {
            Source::File(file) => fill(buffer, |room| file.read(room)),
            Source::Stream(shared) => {
                // A large buffer is given back once nothing comes for a while.
                let rest = Duration::from_millis(limits::HOLDER_BUFFER_REST_MS);
                if buffer.is_large() && !shared.stream.wait_readable(rest).unwrap_or(true) {
                    buffer.shrink();
                }
                fill(buffer, |room| shared.stream.receive(room))
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Source::Stream(shared) = &self.source {
            shared.end();
        }
    }
}

impl Writer {
    /// Sends the stream from this position on.
    pub fn subscribe(&self, from: Position) -> Result<(), HolderError> {
        self.send(&[ToHolder::Subscribe(from)])
    }

    /// Gives input to the program, whole and in order. A terminal that takes no more is told later as
    /// `ErrorCode::InputQueueFull`. Errors: `TooLong`, `Busy`, `Closed`.
    pub fn input(&self, bytes: &[u8]) -> Result<(), HolderError> {
        too_long("input", bytes.len(), limits::HOLDER_INPUT_LEN_MAX)?;
        let mut queue = self.0.lock();
        let rest = queue.put_in(bytes);
        if rest.is_empty() {
            return Ok(());
        }
        queue = self.send_locked(queue, &[ToHolder::Input(rest)])?;
        queue.input += rest.len() as u64;
        Ok(())
    }

    /// Gives the terminal's answers to queries that stand before `answered`; otherwise as `input`.
    pub fn reply(&self, answered: u64, bytes: &[u8]) -> Result<(), HolderError> {
        too_long("a reply", bytes.len(), limits::HOLDER_INPUT_LEN_MAX)?;
        let reply = ToHolder::Reply { answered, bytes };
        let mut queue = self.send_locked(self.0.lock(), &[reply])?;
        queue.input += bytes.len() as u64;
        Ok(())
    }

    /// Changes the terminal's size; `FromHolder::Resized` tells when that was in the stream.
    pub fn resize(&self, size: PtySize) -> Result<(), HolderError> {
        self.send(&[ToHolder::Resize(size)])
    }

    /// Stores a screen; `FromHolder::Stored` tells when it has replaced the former one.
    pub fn checkpoint(&self, new: &NewCheckpoint<'_>) -> Result<(), HolderError> {
        for block in new.append {
            too_long("a block of history", block.bytes.len(), BLOCK_LEN_MAX)?;
        }
        let mut frames = vec![ToHolder::CheckpointBegin {
            at: new.at,
            screen_len: new.screen.len() as u64,
            keep_from: new.keep_from,
        }];
        let parts = new.screen.chunks(PART_LEN);
        frames.extend(parts.map(ToHolder::CheckpointScreen));
        let blocks = new.append.iter();
        frames.extend(blocks.map(|block| ToHolder::CheckpointBlock {
            id: block.id,
            bytes: block.bytes,
        }));
        frames.push(ToHolder::CheckpointCommit);
        self.send(&frames)
    }

    /// Asks for output that was sent before; comes as `FromHolder::Fetched`.
    pub fn fetch(&self, from: u64, length: u32) -> Result<(), HolderError> {
        self.send(&[ToHolder::Fetch { from, length }])
    }

    /// Asks for the stored checkpoint; comes before anything else of the stream.
    pub fn fetch_checkpoint(&self) -> Result<(), HolderError> {
        self.send(&[ToHolder::FetchCheckpoint])
    }

    /// Asks for `FromHolder::Stat`.
    pub fn stat(&self) -> Result<(), HolderError> {
        self.send(&[ToHolder::Stat])
    }

    /// Ends the session: asked first, killed after `HOLDER_KILL_GRACE_MS`; `FromHolder::Killed` tells.
    pub fn kill(&self) -> Result<(), HolderError> {
        self.send(&[ToHolder::Kill])
    }

    /// After the exit: the session's folder is removed and its holder ends.
    pub fn forget(&self) -> Result<(), HolderError> {
        self.send(&[ToHolder::Forget])
    }

    /// Ends the connection; the reader then comes to its end.
    pub fn close(&self) {
        self.0.end();
    }

    /// Sends all of these frames or none.
    fn send(&self, frames: &[ToHolder<'_>]) -> Result<(), HolderError> {
        self.send_locked(self.0.lock(), frames).map(drop)
    }

    fn send_locked<'a>(
        &self,
        mut queue: MutexGuard<'a, Queue>,
        frames: &[ToHolder<'_>],
    ) -> Result<MutexGuard<'a, Queue>, HolderError> {
        if queue.failed {
            return Err(HolderError::Closed);
        }
        let waiting = queue.bytes.len();
        for frame in frames {
            frame.put(&mut queue.bytes);
        }
        if queue.sending {
            // What waits is bounded; a single call beyond the bound is let in when nothing waits.
            if waiting > 0 && queue.bytes.len() > limits::HOLDER_SEND_QUEUE_LEN_MAX {
                queue.bytes.truncate(waiting);
                return Err(HolderError::Busy);
            }
            return Ok(queue);
        }
        let sent = match self.0.stream.try_send(&queue.bytes) {
            Ok(sent) => sent,
            Err(_) => {
                queue.failed = true;
                queue.bytes = Vec::new();
                return Err(HolderError::Closed);
            }
        };
        queue.bytes.drain(..sent);
        if queue.bytes.is_empty() {
            if queue.bytes.capacity() > 4 * 1024 {
                queue.bytes = Vec::new();
            }
            return Ok(queue);
        }
        queue.sending = true;
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name("holder-send".to_owned());
        if thread.spawn(move || shared.send_queued()).is_err() {
            // The rest cannot be sent, and half a frame was: nothing more may follow.
            queue.failed = true;
            queue.terminal = None;
            self.0.stream.shutdown();
            return Err(HolderError::Closed);
        }
        Ok(queue)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is held; the queue is whole in any case.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection, and lets go of the terminal, which hangs up once its holder has gone.
    fn end(&self) {
        self.lock().terminal = None;
        self.stream.shutdown();
    }

    /// Sends what waits until nothing does.
    fn send_queued(&self) {
        loop {
            let bytes = {
                let mut queue = self.lock();
                if queue.bytes.is_empty() {
                    queue.sending = false;
                    return;
                }
                std::mem::take(&mut queue.bytes)
            };
            if self.stream.send(&bytes).is_err() {
                let mut queue = self.lock();
                queue.failed = true;
                queue.sending = false;
                queue.bytes = Vec::new();
                return;
            }
        }
    }
}

fn too_long(what: &'static str, length: usize, limit: usize) -> Result<(), HolderError> {
    if length > limit {
        return Err(HolderError::TooLong {
            what,
            length,
            limit,
        });
    }
    Ok(())
}
