//! The link as the node's own methods see it: state, settings, and changes that are written back.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::agent::{LinkHandle, enrol};
use crate::config::{self, RemoteConfig};
use crate::runtime::Remote;
use crate::wire::messages::config as msg;
use crate::wire::messages::system::RemoteState;
use crate::wire::{BoxFuture, Code, Fault};

/// One agent's link with the settings in force.
pub struct RemoteLink {
    inner: std::sync::Arc<Inner>,
}

struct Inner {
    config_path: PathBuf,
    data_dir: PathBuf,
    config: Mutex<RemoteConfig>,
    link: LinkHandle,
    /// One update at a time, since each is read, checked, written and applied.
    updating: tokio::sync::Mutex<()>,
}

impl RemoteLink {
    pub fn new(
        config_path: PathBuf,
        data_dir: PathBuf,
        config: RemoteConfig,
        link: LinkHandle,
    ) -> Self {
        let inner = Inner {
            config_path,
            data_dir,
            config: Mutex::new(config),
            link,
            updating: tokio::sync::Mutex::default(),
        };
        Self {
            inner: std::sync::Arc::new(inner),
        }
    }
}

impl Inner {
    fn current(&self) -> RemoteConfig {
        self.config
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn update(&self, update: msg::RemoteUpdate) -> Result<msg::RemoteConfig, Fault> {
        let _one = self.updating.lock().await;
        let current = self.current();
        let next = match &update.join {
            Some(join) => {
                refuse_beside_join(&update)?;
                enrol::join(join, &self.data_dir, &self.config_path, &current)
                    .await?
                    .remote
            }
            None => {
                let next = merged(&current, &update)?;
                config::write_remote(&self.config_path, &next)
                    .map_err(|error| Fault::new(Code::ConfigNotWritable, error.to_string()))?;
                next
            }
        };
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
        self.link.reconfigure(next.clone()).await;
        Ok(told(&next))
    }
}

impl Remote for RemoteLink {
    fn state(&self) -> (RemoteState, Option<String>) {
        let state = self.inner.link.state();
        let state = state.borrow();
        (state.state, state.message.clone())
    }

    fn config(&self) -> msg::RemoteConfig {
        told(&self.inner.current())
    }

    fn update(&self, update: msg::RemoteUpdate) -> BoxFuture<Result<msg::RemoteConfig, Fault>> {
        let inner = std::sync::Arc::clone(&self.inner);
        Box::pin(async move { inner.update(update).await })
    }
}

fn refuse_beside_join(update: &msg::RemoteUpdate) -> Result<(), Fault> {
    let alone = msg::RemoteUpdate {
        join: update.join.clone(),
        ..msg::RemoteUpdate::default()
    };
    if *update == alone {
        return Ok(());
    }
    Err(Fault::invalid_params(
        "config.setRemote",
        "join brings the whole address and stands alone",
    ))
}

/// The settings after a partial update, checked.
fn merged(current: &RemoteConfig, update: &msg::RemoteUpdate) -> Result<RemoteConfig, Fault> {
    let bad = |why: String| Fault::invalid_params("config.setRemote", why);
    let mut next = current.clone();
    if let Some(ip) = &update.server_ip {
        next.server_ip = ip.trim().to_owned();
    }
    if let Some(port) = update.server_port {
        next.server_port = u16::try_from(port)
            .map_err(|_| bad(format!("serverPort is {port}, not 1 to 65535")))?;
    }
    if let Some(token) = &update.register_token {
        next.register_token = crate::base::Secret::new(token.clone());
    }
    if let Some(enabled) = update.enabled {
        next.enable = enabled;
    }
    if let Some(protocol) = update.protocol {
        next.protocol = protocol;
    }
    next.check().map_err(|error| bad(error.to_string()))?;
    let moved = (&next.server_ip, next.server_port) != (&current.server_ip, current.server_port);
    if next.protocol == 2 && moved && !current.server_key.is_empty() {
        return Err(bad("a new address on protocol 2 needs its join string: the pinned key belongs to the address".into()));
    }
    if next.protocol == 2 && next.enable && next.server_key.is_empty() {
        return Err(bad(
            "protocol 2 has no server key yet: join the server first".into(),
        ));
    }
    Ok(next)
}

fn told(config: &RemoteConfig) -> msg::RemoteConfig {
    msg::RemoteConfig {
        enabled: config.enable,
        server_ip: config.server_ip.clone(),
        server_port: config.server_port,
        register_token_set: !config.register_token.is_empty(),
        protocol: config.protocol,
        server_key: (!config.server_key.is_empty()).then(|| config.server_key.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update() -> msg::RemoteUpdate {
        msg::RemoteUpdate::default()
    }

    #[test]
    fn partial_updates_are_checked_and_the_pin_holds_the_address() {
        let plain = RemoteConfig {
            protocol: 1,
            ..RemoteConfig::default()
        };
        let moved = msg::RemoteUpdate {
            server_port: Some(9_000),
            ..update()
        };
        assert_eq!(merged(&plain, &moved).unwrap().server_port, 9_000);
        for bad in [
            msg::RemoteUpdate {
                server_ip: Some(" ".into()),
                ..update()
            },
            msg::RemoteUpdate {
                server_port: Some(0),
                ..update()
            },
            msg::RemoteUpdate {
                server_port: Some(65_536),
                ..update()
            },
            msg::RemoteUpdate {
                register_token: Some("x".repeat(257)),
                ..update()
            },
            msg::RemoteUpdate {
                protocol: Some(3),
                ..update()
            },
        ] {
            assert_eq!(
                merged(&plain, &bad).unwrap_err().code,
                Code::InvalidParams,
                "{bad:?}"
            );
        }
        let pinned = RemoteConfig {
            enable: true,
            server_key: "ab".repeat(32),
            ..RemoteConfig::default()
        };
        assert!(merged(&pinned, &moved).is_err());
        let off = msg::RemoteUpdate {
            enabled: Some(false),
            ..update()
        };
        assert!(!merged(&pinned, &off).unwrap().enable);
    }
}
