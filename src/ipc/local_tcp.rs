//! Loopback TCP for systems where neither sockets nor pipes work; only with
//! `ipc.allow_tcp_fallback`. The system does not tell whose process connects, so that the client
//! proves that it may read this user's token file.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::{TcpListener, TcpStream};

use crate::base::Secret;
use crate::base::ids::random_hex;

/// A loopback listener with the token that its clients have to show. The one network listener
/// outside of the server.
pub(super) struct Loopback {
    listener: TcpListener,
    secret: Secret,
}

impl Loopback {
    /// Listens, and writes a fresh token to the file.
    pub(super) async fn bind(address: SocketAddr, token: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let secret = random_hex(32);
        let dir = token.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        // Temporary files are made for this user alone.
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        io::Write::write_all(&mut file, secret.as_bytes())?;
        file.persist(token)?;
        Ok(Self {
            listener,
            secret: Secret::new(secret),
        })
    }

    /// The next connection, and what it has to show.
    pub(super) async fn accept(&self) -> io::Result<(TcpStream, Secret)> {
        let (stream, _) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, self.secret.clone()))
    }
}

/// Connects, and reads the token to say hello with.
pub(super) async fn connect(address: SocketAddr, token: &Path) -> io::Result<(TcpStream, Secret)> {
    let secret = std::fs::read_to_string(token)?;
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok((stream, Secret::new(secret.trim())))
}
