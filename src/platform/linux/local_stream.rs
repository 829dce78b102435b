//! A connection of local IPC.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use interprocess::local_socket::tokio::Stream;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::watched::Watched;

/// The stream as local IPC uses it: its task sleeps while the peer takes what was written. Needs a tokio
/// runtime.
pub fn own(stream: Stream) -> io::Result<LocalStream> {
    let Stream::UdSocket(stream) = stream;
    let fd = OwnedFd::try_from(stream).map_err(io::Error::other)?;
    Ok(LocalStream(Watched::new(fd)?))
}

#[derive(Debug)]
pub struct LocalStream(Watched);

impl AsyncRead for LocalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = into.remaining();
        let length = ready!(self.0.poll_read(context, wanted, |fd| {
            // SAFETY: only bytes that the kernel has written are claimed, below.
            let space = unsafe { into.unfilled_mut() };
            let ((taken, _), _) = recv(fd, space, RecvFlags::DONTWAIT)?;
            Ok(taken.len())
        }))?;
        // SAFETY: `recv` has initialized so many bytes of the unfilled part.
        unsafe { into.assume_init(length) };
        into.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match send(
                self.0.fd(),
                bytes,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(length) => return Poll::Ready(Ok(length)),
                Err(Errno::AGAIN) => ready!(self.0.poll_room(context))?,
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(self.0.fd(), Shutdown::Write) {
            // The peer has gone already.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (LocalStream, LocalStream) {
        let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = |end: std::os::unix::net::UnixStream| {
            end.set_nonblocking(true).unwrap();
            LocalStream(Watched::new(end.into()).unwrap())
        };
        (stream(left), stream(right))
    }

    #[tokio::test]
    async fn more_than_fits_goes_through_both_ways_and_its_end_is_told() {
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let (mut left, mut right) = pair();
        let there = sent.clone();
        let echo = tokio::spawn(async move {
            let mut taken = Vec::new();
            right.read_to_end(&mut taken).await.unwrap();
            right.write_all(&taken).await.unwrap();
            taken
        });
        left.write_all(&sent).await.unwrap();
        left.shutdown().await.unwrap();
        let mut back = Vec::new();
        left.read_to_end(&mut back).await.unwrap();
        assert_eq!(echo.await.unwrap(), there);
        assert_eq!(back, there);
    }

    #[tokio::test]
    async fn writing_to_a_peer_that_has_gone_is_an_error() {
        let (mut left, right) = pair();
        drop(right);
        let error = left.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_reader_sleeps_while_the_peer_takes_what_was_written() {
        let (mut left, mut right) = pair();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut space = [0; 8];
        let mut into = ReadBuf::new(&mut space);
        left.write_all(b"key").await.unwrap();
        assert!(
            Pin::new(&mut left)
                .poll_read(&mut context, &mut into)
                .is_pending()
        );
        let mut taken = [0; 3];
        right.read_exact(&mut taken).await.unwrap();
        // The runtime looks at its descriptors meanwhile.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        right.write_all(b"echo").await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(
            Pin::new(&mut left)
                .poll_read(&mut context, &mut into)
                .is_ready()
        );
        assert_eq!(into.filled(), b"echo");
    }
}
