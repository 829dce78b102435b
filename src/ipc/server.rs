//! The listener of local IPC.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use interprocess::local_socket::tokio::Listener;
use interprocess::local_socket::traits::tokio::Listener as _;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::local_tcp::Loopback;
use super::{BoxWire, Endpoint};
use crate::base::{Secret, limits};
use crate::config::IpcConfig;
use crate::journal::Journal;
use crate::platform::{local_socket, local_stream};
use crate::wire::envelope::Envelope;
use crate::wire::event::{Draft, name};
use crate::wire::{Code, Fault, Handler};

/// Where to listen.
#[derive(Clone, Debug)]
pub struct IpcOptions {
    pub config: IpcConfig,
    /// Holds the socket where there is no runtime directory, and the token of loopback TCP.
    pub state_dir: PathBuf,
}

/// What all connections share.
pub(super) struct Shared {
    pub handler: Arc<dyn Handler>,
    pub journal: Journal,
}

/// A running listener. It ends when the token given to `serve` fires.
#[derive(Debug)]
pub struct IpcServer {
    endpoint: Endpoint,
    tasks: TaskTracker,
}

impl IpcServer {
    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits until the listener and all connections have ended, which they do at most a second after
    /// the shutdown token fired. The socket is gone then.
    pub async fn stopped(self) {
        self.tasks.wait().await;
    }
}

enum Door {
    Local {
        listener: Listener,
        /// Removes the socket when the door closes.
        _bound: local_socket::Bound,
    },
    Tcp(Loopback),
}

/// Listens at the configured endpoint and serves clients until `shutdown` fires.
///
/// Errors: `address_in_use` when another agent of this user listens there, `config_invalid`,
/// `peer_denied` when the socket's directory belongs to someone else, `storage_failed`.
pub async fn serve(
    options: IpcOptions,
    handler: Arc<dyn Handler>,
    journal: Journal,
    shutdown: CancellationToken,
) -> Result<IpcServer, Fault> {
    let endpoint = Endpoint::resolve(&options.config, &options.state_dir)?;
    let door = open(&endpoint).await?;
    let shared = Arc::new(Shared { handler, journal });
    let tasks = TaskTracker::new();
    tasks.spawn(accept(door, shared, tasks.clone(), shutdown));
    tasks.close();
    Ok(IpcServer { endpoint, tasks })
}

async fn open(endpoint: &Endpoint) -> Result<Door, Fault> {
    let opened = match endpoint {
        Endpoint::Local(path) => {
            local_socket::bind(path).map(|(listener, _bound)| Door::Local { listener, _bound })
        }
        Endpoint::Tcp { address, token } => Loopback::bind(*address, token).await.map(Door::Tcp),
    };
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Fault::new(
            Code::AddressInUse,
            format!("another agent listens at {endpoint}; stop it or set ipc.endpoint"),
        ),
        io::ErrorKind::PermissionDenied => {
            Fault::new(Code::PeerDenied, format!("listen at {endpoint}: {error}"))
        }
        _ => Fault::new(
            Code::StorageFailed,
            format!("listen at {endpoint}: {error}"),
        ),
    })
}

async fn accept(door: Door, shared: Arc<Shared>, tasks: TaskTracker, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits::IPC_CLIENTS_MAX));
    let mut number = 0;
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = next_client(&door) => accepted,
        };
        let (wire, token) = match accepted {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(%error, "a local client could not be accepted");
                // Out of file handles, most likely: they come back when clients go.
                tokio::time::sleep(Duration::from_millis(limits::IPC_ACCEPT_PAUSE_MS)).await;
                continue;
            }
        };
        number += 1;
        let (shared, stop) = (Arc::clone(&shared), shutdown.clone());
        match (wire, Arc::clone(&places).try_acquire_owned()) {
            (Ok(wire), Ok(place)) => {
                tasks.spawn(attend(wire, shared, number, token, stop, place));
            }
            (Ok(wire), Err(_)) => {
                let text = format!("{} local clients are connected", limits::IPC_CLIENTS_MAX);
                tasks.spawn(turn_away(wire, Fault::new(Code::TooManyClients, text)));
            }
            (Err(Stranger(wire)), _) => {
                let text = "this agent serves processes of its own user alone";
                tasks.spawn(turn_away(wire, Fault::new(Code::PeerDenied, text)));
            }
        }
    }
}

/// A peer that is another user's process.
struct Stranger(BoxWire);

type Accepted = (Result<BoxWire, Stranger>, Option<Secret>);

async fn next_client(door: &Door) -> io::Result<Accepted> {
    match door {
        Door::Local { listener, .. } => {
            let stream = listener.accept().await?;
            let own = local_socket::is_same_user(&stream)?;
            let wire: BoxWire = Box::new(local_stream::own(stream)?);
            Ok((if own { Ok(wire) } else { Err(Stranger(wire)) }, None))
        }
        Door::Tcp(loopback) => {
            let (stream, secret) = loopback.accept().await?;
            Ok((Ok(Box::new(stream)), Some(secret)))
        }
    }
}

async fn attend(
    wire: BoxWire,
    shared: Arc<Shared>,
    number: u64,
    token: Option<Secret>,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    tell(&shared.journal, number, true);
    Connection::new(wire, Arc::clone(&shared), number, token)
        .run(stop)
        .await;
    tell(&shared.journal, number, false);
}

fn tell(journal: &Journal, number: u64, connected: bool) {
    let payload = json!({"connection": number, "connected": connected});
    journal.publish_volatile(Draft::new(name::CONNECTION_IPC_CLIENT, payload));
}

/// Says why, then closes.
async fn turn_away(mut wire: BoxWire, fault: Fault) {
    let mut out = BytesMut::new();
    // INVARIANT: the text is far below the limit of a message.
    let _ = Envelope::error(&fault).put(&mut out);
    let told = async {
        wire.write_all(&out).await?;
        wire.shutdown().await?;
        // A close with bytes of the peer's unread would take the message away from it.
        tokio::io::copy(&mut wire, &mut tokio::io::sink()).await
    };
    // A peer that does not read learns nothing; it is not waited for.
    let _ = tokio::time::timeout(Duration::from_millis(limits::IPC_FLUSH_MS), told).await;
}
