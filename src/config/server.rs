//! server.toml: the control host's settings.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ConfigError, LoggingConfig, invalid, load, parse};

/// All settings of `wingman server`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    pub http: HttpConfig,
    pub agents: AgentsConfig,
    pub executions: ExecutionsConfig,
    pub logging: LoggingConfig,
}

/// The HTTP side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Beyond loopback TLS is required: own files, or a generated certificate whose pin is printed.
    pub listen: String,
    /// PEM files; both or none.
    pub tls_certificate: PathBuf,
    pub tls_key: PathBuf,
    /// Host names that requests may carry besides the address listened on.
    pub allowed_hosts: Vec<String>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:9527".into(),
            tls_certificate: PathBuf::new(),
            tls_key: PathBuf::new(),
            allowed_hosts: Vec::new(),
        }
    }
}

/// The agents' side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentsConfig {
    /// Where agents of protocol 2 connect.
    pub listen: String,
    /// The address that join strings carry; the one listened on when empty.
    pub public_address: String,
    /// Where agents of protocol 1 connect, without TLS; empty means not at all.
    pub plain_listen: String,
    /// Lets `plain_listen` leave loopback.
    pub plain_beyond_loopback: bool,
    /// guacd's address; loopback only.
    pub guacd: String,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8888".into(),
            public_address: String::new(),
            plain_listen: String::new(),
            plain_beyond_loopback: false,
            guacd: "127.0.0.1:4822".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionsConfig {
    /// Seconds after which a run whose agent is gone becomes `lost`.
    pub lease: u64,
    /// Finished executions kept; the oldest go first, with their artifacts.
    pub kept: u64,
}

impl Default for ExecutionsConfig {
    fn default() -> Self {
        Self {
            lease: 90,
            kept: 10_000,
        }
    }
}

impl ServerConfig {
    /// Reads and checks server.toml; a missing file gives the defaults.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = load(path)?;
        config.check()?;
        Ok(config)
    }

    /// Reads and checks a text as if it were the file.
    pub fn from_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = parse(path, text)?;
        config.check()?;
        Ok(config)
    }

    /// Refuses values that no run could use, and addresses that would open more than was asked for.
    pub fn check(&self) -> Result<(), ConfigError> {
        address("http.listen", &self.http.listen)?;
        address("agents.listen", &self.agents.listen)?;
        if !self.agents.plain_listen.is_empty() {
            let plain = address("agents.plain_listen", &self.agents.plain_listen)?;
            if !plain.ip().is_loopback() && !self.agents.plain_beyond_loopback {
                return Err(invalid(
                    "agents.plain_listen",
                    "leaves loopback without TLS, which needs agents.plain_beyond_loopback = true",
                ));
            }
        }
        if !address("agents.guacd", &self.agents.guacd)?
            .ip()
            .is_loopback()
        {
            return Err(invalid("agents.guacd", "must be a loopback address"));
        }
        if self.http.tls_certificate.as_os_str().is_empty()
            != self.http.tls_key.as_os_str().is_empty()
        {
            return Err(invalid(
                "http.tls_certificate",
                "and http.tls_key go together",
            ));
        }
        if !(1..=86_400).contains(&self.executions.lease) {
            return Err(invalid("executions.lease", "must be 1 to 86400 seconds"));
        }
        if self.executions.kept == 0 {
            return Err(invalid("executions.kept", "must be at least 1"));
        }
        Ok(())
    }
}

fn address(key: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse()
        .map_err(|_| invalid(key, format!("is {text:?}, which is no address with a port")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<ServerConfig, ConfigError> {
        ServerConfig::from_text(Path::new("server.toml"), text)
    }

    #[test]
    fn guacd_and_plain_listen_stay_on_loopback() {
        assert!(check("[agents]\nguacd = \"10.0.0.1:4822\"\n").is_err());
        assert!(check("[agents]\nplain_listen = \"0.0.0.0:8889\"\n").is_err());
        let both = "[agents]\nplain_listen = \"0.0.0.0:8889\"\nplain_beyond_loopback = true\n";
        assert!(check(both).is_ok());
    }

    #[test]
    fn unknown_key_is_an_error() {
        assert!(
            check("[http]\nlissten = \"127.0.0.1:1\"\n")
                .unwrap_err()
                .to_string()
                .contains("lissten")
        );
    }
}
