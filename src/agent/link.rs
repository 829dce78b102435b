//! The outbound link for life: dial, register, serve, wait, again.
//!
//! ```text
//! disabled ◄─ configuration says so      stop ─► ended
//!     │
//!     ▼
//! connecting ─► connected ─► reconnecting (lost) ─► connecting …
//!     └──────── error (refused, wrong pin, not joined) ─► connecting …
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

use super::dial::{self, Refused};
use super::identity;
use super::resources::HostFigures;
use super::session::{self, History, Registered};
use crate::base::ids::{AgentId, InstanceId};
use crate::base::{Clock, SystemClock, ids};
use crate::config::RemoteConfig;
use crate::journal::Journal;
use crate::model::link::{LinkInput, Reconnect};
use crate::wire::event::{Draft, name};
use crate::wire::frame::Protocol;
use crate::wire::link::Register;
use crate::wire::messages::system::RemoteState;
use crate::wire::peer::Peer;
use crate::wire::{Code, Fault, Handler};

pub use super::dial::Connector;

/// What a link is built from.
pub struct LinkOptions {
    pub remote: RemoteConfig,
    /// Holds the agent's key.
    pub data_dir: PathBuf,
    pub agent_id: AgentId,
    pub instance_id: InstanceId,
    pub handler: Arc<dyn Handler>,
    pub journal: Journal,
    pub capabilities: watch::Receiver<Vec<String>>,
    /// The script that runs now; empty for none.
    pub current_task: watch::Receiver<String>,
    pub connector: Connector,
}

/// What the link is doing, and why it is not connected.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkState {
    pub state: RemoteState,
    pub message: Option<String>,
}

enum Command {
    Reconfigure(RemoteConfig),
    Stop(oneshot::Sender<()>),
}

/// The link's task.
pub struct Link {
    options: LinkOptions,
    commands: mpsc::Receiver<Command>,
    state: watch::Sender<LinkState>,
    reconnect: Reconnect,
    history: History,
}

/// The way to a running link.
#[derive(Clone)]
pub struct LinkHandle {
    state: watch::Receiver<LinkState>,
    commands: mpsc::Sender<Command>,
}

impl LinkHandle {
    /// The state now and its changes.
    pub fn state(&self) -> watch::Receiver<LinkState> {
        self.state.clone()
    }

    /// Puts another server in force: the link is rebuilt at once.
    pub async fn reconfigure(&self, remote: RemoteConfig) {
        // A link that has stopped has no use for it.
        let _ = self.commands.send(Command::Reconfigure(remote)).await;
    }

    /// Ends the link; returns when it is closed.
    pub async fn stop(&self) {
        let (done, ended) = oneshot::channel();
        if self.commands.send(Command::Stop(done)).await.is_ok() {
            let _ = ended.await;
        }
    }
}

/// Why a round of the link ended.
enum Round {
    Again,
    Stop(oneshot::Sender<()>),
}

impl Link {
    /// Starts the link on the current runtime.
    pub fn spawn(options: LinkOptions) -> LinkHandle {
        let (state, state_seen) = watch::channel(LinkState {
            state: RemoteState::Disconnected,
            message: None,
        });
        let (sender, commands) = mpsc::channel(1);
        let history = History {
            reconnects: 0,
            last_disconnect_reason: None,
            plain_cursor: options.journal.range().next_seq,
            figures: HostFigures::start(),
        };
        let link = Self {
            options,
            commands,
            state,
            reconnect: Reconnect::default(),
            history,
        };
        tokio::spawn(link.run());
        LinkHandle {
            state: state_seen,
            commands: sender,
        }
    }

    async fn run(mut self) {
        loop {
            let round = if self.is_enabled() {
                self.round().await
            } else {
                self.set(RemoteState::Disabled, None);
                let command = self.commands.recv().await;
                self.obey(command)
            };
            if let Round::Stop(done) = round {
                self.set(RemoteState::Disconnected, None);
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
                return;
            }
        }
    }

    fn is_enabled(&self) -> bool {
        match self.options.connector {
            Connector::Tcp => self.options.remote.enable,
            Connector::Memory(_) => true,
        }
    }

    fn obey(&mut self, command: Option<Command>) -> Round {
        match command {
            Some(Command::Reconfigure(remote)) => {
                self.options.remote = remote;
                self.reconnect = Reconnect::default();
                Round::Again
            }
            Some(Command::Stop(done)) => Round::Stop(done),
            // Every handle is gone.
            None => Round::Stop(oneshot::channel().0),
        }
    }

    /// Dials, registers, serves, and waits for the next try.
    async fn round(&mut self) -> Round {
        self.set(RemoteState::Connecting, None);
        let mut peer = None;
        let lived = {
            let serve = serve(
                &self.options,
                &mut self.history,
                &mut self.reconnect,
                &self.state,
                &mut peer,
            );
            tokio::select! {
                ended = serve => Ok(ended),
                command = self.commands.recv() => Err(command),
            }
        };
        let refused = match lived {
            Ok(refused) => refused,
            Err(command) => {
                if let Some(peer) = peer {
                    peer.close(Fault::new(Code::LinkClosed, "the agent ends the link"));
                    peer.closed().await;
                }
                return self.obey(command);
            }
        };
        self.lost(refused).await
    }

    async fn lost(&mut self, refused: Refused) -> Round {
        let Refused { fault, retry_ms } = refused;
        self.history.last_disconnect_reason = Some(fault.message.to_string());
        let passing = matches!(
            fault.code,
            Code::LinkClosed | Code::EndpointUnavailable | Code::TimedOut | Code::Busy
        );
        let state = match passing {
            true => RemoteState::Reconnecting,
            false => RemoteState::Error,
        };
        tracing::warn!(code = fault.code_text(), %fault, "the link is down");
        self.set(
            state,
            Some(format!("{} ({})", fault.message, fault.code_text())),
        );
        let input = LinkInput::Lost { retry_ms };
        let wait = self.reconnect.step(input, SystemClock.now());
        let wait_ms = wait.map_or(0, |wait| wait.pick(random_fraction()));
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_millis(wait_ms)) => Round::Again,
            command = self.commands.recv() => self.obey(command),
        }
    }

    fn set(&self, state: RemoteState, message: Option<String>) {
        change(&self.options.journal, &self.state, state, message);
    }
}

/// Shows a state, and writes it down when it differs. Each try to connect is shown, not written.
fn change(
    journal: &Journal,
    shown: &watch::Sender<LinkState>,
    state: RemoteState,
    message: Option<String>,
) {
    let next = LinkState { state, message };
    let changed = shown.send_if_modified(|current| {
        let differs = *current != next;
        *current = next.clone();
        differs
    });
    if changed && state != RemoteState::Connecting {
        let payload = json!({"state": state, "message": next.message});
        let written = journal.append(Draft::new(name::CONNECTION_STATE, payload));
        tokio::spawn(async move {
            // It is a note for people: a full disk must not stop the link.
            if let Err(fault) = written.await {
                tracing::warn!(%fault, "write down the link's state");
            }
        });
    }
}

/// One link from dial to end; always ends with a reason.
async fn serve(
    options: &LinkOptions,
    history: &mut History,
    reconnect: &mut Reconnect,
    state: &watch::Sender<LinkState>,
    live: &mut Option<Peer>,
) -> Refused {
    let opened = async {
        let mut connection =
            dial::connect(&options.connector, &options.remote, &options.data_dir).await?;
        let mut capabilities = options.capabilities.clone();
        let names = capabilities.borrow_and_update().clone();
        let register = introduce(options, connection.protocol(), names);
        let ack = dial::register(&mut connection, &register, &options.remote).await?;
        Ok::<_, Refused>(Registered {
            connection,
            ack,
            capabilities,
        })
    };
    let registered = match opened.await {
        Ok(opened) => opened,
        Err(refused) => return refused,
    };
    reconnect.step(LinkInput::Connected, SystemClock.now());
    let started = |peer: &Peer| {
        *live = Some(peer.clone());
        change(&options.journal, state, RemoteState::Connected, None);
    };
    let fault = session::run(options, history, registered, started).await;
    history.reconnects += 1;
    fault.into()
}

fn introduce(options: &LinkOptions, protocol: Protocol, capabilities: Vec<String>) -> Register {
    let register = Register {
        agent_id: options.agent_id.to_string(),
        hostname: identity::hostname(),
        platform: std::env::consts::OS.to_owned(),
        arch: Some(std::env::consts::ARCH.to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        capabilities,
        ..Register::default()
    };
    if protocol == Protocol::V1 {
        let challenge = options.remote.challenge_auth;
        let token = options.remote.register_token.clone();
        return Register {
            challenge: challenge.then_some(true),
            token: Some(token).filter(|token| !challenge && !token.is_empty()),
            ..register
        };
    }
    Register {
        instance_id: Some(options.instance_id.to_string()),
        protocol: Some(2),
        journal: Some(options.journal.range()),
        ..register
    }
}

/// 0 to 1, from the system's random source.
fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    ids::fill_random(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}
