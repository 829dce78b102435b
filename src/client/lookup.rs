//! Which server or agent the command line talks to.
//!
//! ```text
//! --server → WINGMAN_SERVER (+ WINGMAN_TOKEN) → saved login → record of a running `wingman up`
//!          → the agent on this machine
//! ```
//! The first that is there is taken; one that does not answer is an error, never the next one.

use super::caller::Caller;
use super::http::HttpCaller;
use super::paths::Paths;
use super::{login, record};
use crate::base::Secret;
use crate::config::AgentConfig;
use crate::ipc::{self, Endpoint};
use crate::wire::{Code, Fault};

/// What the command line and the environment say.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `--server` or `WINGMAN_SERVER`; `local` names the agent on this machine.
    pub server: Option<String>,
    /// `WINGMAN_TOKEN`; used for the named server alone.
    pub token: Option<Secret>,
    /// `--pin`: the SHA-256 of the named server's own certificate.
    pub pin: Option<String>,
}

/// A place to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Server {
        address: String,
        token: Option<Secret>,
        pin: Option<String>,
    },
    Local(Endpoint),
}

/// Finds the place; reads files, connects to nothing.
pub fn find(wanted: &Wanted, paths: &Paths) -> Result<Place, Fault> {
    let saved = login::read(&paths.login())?;
    match wanted.server.as_deref() {
        Some("local") => return local(paths),
        Some(server) => return Ok(named(server, wanted, saved)),
        None => {}
    }
    if let Some(login) = saved {
        return Ok(Place::Server {
            address: login.server,
            token: Some(login.token),
            pin: login.pin,
        });
    }
    match record::read(&paths.record())? {
        Some(up) => Ok(Place::Server {
            address: up.address,
            token: Some(up.token),
            pin: up.pin,
        }),
        None => local(paths),
    }
}

/// A server's address as it is saved and compared: `https://` where no scheme is named.
pub fn address(server: &str) -> String {
    let server = server.trim_end_matches('/');
    if server.contains("://") {
        server.to_owned()
    } else {
        format!("https://{server}")
    }
}

/// A named server gets the named token; the saved one only where it was saved for that server.
fn named(server: &str, wanted: &Wanted, saved: Option<login::Login>) -> Place {
    let address = address(server);
    let saved = saved.filter(|login| login.server == address);
    let (token, pin) = saved.map_or((None, None), |login| (Some(login.token), login.pin));
    Place::Server {
        address,
        token: wanted.token.clone().or(token),
        pin: wanted.pin.clone().or(pin),
    }
}

fn local(paths: &Paths) -> Result<Place, Fault> {
    let config = AgentConfig::load(&paths.agent_toml())
        .map_err(|error| Fault::new(Code::ConfigInvalid, error.to_string()))?;
    Endpoint::resolve(&config.ipc, &paths.agent_dir()).map(Place::Local)
}

/// Connects. A server is reached at the first call; a local agent at once.
pub async fn connect(place: Place) -> Result<Caller, Fault> {
    match place {
        Place::Server {
            address,
            token,
            pin,
        } => Ok(Caller::Http {
            http: HttpCaller::new(&address, token, pin.as_deref())?,
            agent: None,
        }),
        Place::Local(endpoint) => Ok(Caller::Ipc(ipc::Client::connect(&endpoint).await?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(dir: &tempfile::TempDir) -> Paths {
        Paths {
            data_dir: dir.path().to_owned(),
        }
    }

    fn server(address: &str, token: &str) -> Place {
        Place::Server {
            address: address.into(),
            token: Some(Secret::new(token)),
            pin: None,
        }
    }

    #[test]
    fn the_first_that_is_there_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let none = Wanted::default();
        assert!(matches!(find(&none, &paths), Ok(Place::Local(_))));
        let up = record::Record {
            address: "http://127.0.0.1:1".into(),
            token: Secret::new("up"),
            pid: std::process::id(),
            pin: None,
        };
        record::write(&paths.record(), &up).unwrap();
        assert_eq!(
            find(&none, &paths).unwrap(),
            server("http://127.0.0.1:1", "up")
        );
        let login = login::Login {
            server: "https://a".into(),
            token: Secret::new("saved"),
            pin: None,
        };
        login::save(&paths.login(), &login).unwrap();
        assert_eq!(find(&none, &paths).unwrap(), server("https://a", "saved"));
        let named = |name: &str, token: Option<&str>| Wanted {
            server: Some(name.into()),
            token: token.map(Secret::new),
            pin: None,
        };
        let asked = named("http://b:1", Some("env"));
        assert_eq!(find(&asked, &paths).unwrap(), server("http://b:1", "env"));
        assert!(matches!(
            find(&named("local", None), &paths),
            Ok(Place::Local(_))
        ));
    }

    #[test]
    fn a_saved_token_goes_to_its_own_server_alone() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let login = login::Login {
            server: "https://a".into(),
            token: Secret::new("saved"),
            pin: None,
        };
        login::save(&paths.login(), &login).unwrap();
        let to = |name: &str| {
            let wanted = Wanted {
                server: Some(name.into()),
                ..Wanted::default()
            };
            find(&wanted, &paths).unwrap()
        };
        assert_eq!(to("a"), server("https://a", "saved"));
        assert!(matches!(to("https://b"), Place::Server { token: None, .. }));
    }
}
