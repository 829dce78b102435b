//! Where the local wire is: the configuration's choice, resolved the same way by both ends.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::config::{IpcConfig, Transport};
use crate::platform::local_socket;
use crate::wire::{Code, Fault};

/// The port of loopback TCP when the configuration names none.
const TCP_DEFAULT: &str = "127.0.0.1:9800";

/// A resolved endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, or a named pipe on Windows.
    Local(PathBuf),
    /// Loopback TCP; the token file proves who asks.
    Tcp { address: SocketAddr, token: PathBuf },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", local_socket::usable_path(path).display()),
            Self::Tcp { address, .. } => write!(f, "{address}"),
        }
    }
}

impl Endpoint {
    /// Resolves the settings. `config_invalid` for an address beyond loopback, for TCP without its
    /// flag and for a transport that this system does not have.
    pub fn resolve(config: &IpcConfig, state_dir: &Path) -> Result<Self, Fault> {
        let named = (config.endpoint != "auto").then_some(config.endpoint.as_str());
        match config.transport {
            Transport::LocalTcp => Self::tcp(config, named.unwrap_or(TCP_DEFAULT), state_dir),
            Transport::NamedPipe if !has_named_pipes() => Err(invalid(
                "ipc.transport is named_pipe, which exists on Windows alone",
            )),
            Transport::UnixSocket if has_named_pipes() => Err(invalid(
                "ipc.transport is unix_socket, which this build does not have on Windows",
            )),
            Transport::Auto | Transport::NamedPipe | Transport::UnixSocket => Ok(Self::Local(
                named.map_or_else(|| local_socket::auto_endpoint(state_dir), PathBuf::from),
            )),
        }
    }

    fn tcp(config: &IpcConfig, address: &str, state_dir: &Path) -> Result<Self, Fault> {
        if !config.allow_tcp_fallback {
            return Err(invalid(
                "ipc.transport is local_tcp, which needs ipc.allow_tcp_fallback = true",
            ));
        }
        let address: SocketAddr = address.parse().map_err(|_| {
            invalid(format!(
                "ipc.endpoint {address:?} is no address with a port"
            ))
        })?;
        if !address.ip().is_loopback() {
            return Err(invalid(format!(
                "ipc.endpoint {address} is not a loopback address"
            )));
        }
        Ok(Self::Tcp {
            address,
            token: state_dir.join("ipc-token"),
        })
    }
}

/// Whether local endpoints are named pipes here.
fn has_named_pipes() -> bool {
    std::path::MAIN_SEPARATOR == '\\'
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(Code::ConfigInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_stays_on_loopback_and_needs_its_flag() {
        let mut config = IpcConfig {
            transport: Transport::LocalTcp,
            ..IpcConfig::default()
        };
        let dir = Path::new("/state");
        let refused = Endpoint::resolve(&config, dir).unwrap_err();
        assert_eq!(refused.code, Code::ConfigInvalid);
        config.allow_tcp_fallback = true;
        let endpoint = Endpoint::resolve(&config, dir).unwrap();
        assert_eq!(endpoint.to_string(), TCP_DEFAULT);
        config.endpoint = "0.0.0.0:9800".into();
        assert!(Endpoint::resolve(&config, dir).is_err());
    }

    #[test]
    fn a_named_endpoint_is_taken_as_it_is() {
        let config = IpcConfig {
            endpoint: "/tmp/mine.sock".into(),
            ..IpcConfig::default()
        };
        assert_eq!(
            Endpoint::resolve(&config, Path::new("/state")).unwrap(),
            Endpoint::Local("/tmp/mine.sock".into())
        );
    }
}
