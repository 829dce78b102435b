//! agent.toml: the workstation's settings.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ConfigError, invalid, load, parse};
use crate::base::Secret;

/// All settings of `wingman agent`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    pub remote: RemoteConfig,
    pub ipc: IpcConfig,
    pub scripts: ScriptsConfig,
    pub desktop: DesktopConfig,
    pub terminal: TerminalConfig,
    pub logging: LoggingConfig,
}

/// Where the server is and how to speak to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RemoteConfig {
    /// Whether the agent dials out at all. `wingman agent join` sets it.
    pub enable: bool,
    pub server_ip: String,
    pub server_port: u16,
    /// 2, or 1 for an old server without TLS.
    pub protocol: u8,
    /// The pinned Ed25519 key of the server, hexadecimal (protocol 2).
    pub server_key: String,
    /// The shared token of protocol 1, at most 256 characters.
    pub register_token: Secret,
    /// Protocol 1: prove the token by challenge instead of sending it.
    pub challenge_auth: bool,
    /// Seconds.
    pub connect_timeout: u64,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self {
            enable: false,
            server_ip: "127.0.0.1".into(),
            server_port: 8888,
            protocol: 2,
            server_key: String::new(),
            register_token: Secret::default(),
            challenge_auth: false,
            connect_timeout: 10,
        }
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A named pipe on Windows, a Unix socket elsewhere.
    #[default]
    Auto,
    NamedPipe,
    UnixSocket,
    /// Loopback TCP; refused without `allow_tcp_fallback`.
    LocalTcp,
}

/// The local wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IpcConfig {
    pub transport: Transport,
    /// `auto`, or a socket path, pipe name or loopback address.
    pub endpoint: String,
    pub allow_tcp_fallback: bool,
}

impl Default for IpcConfig {
    fn default() -> Self {
        Self {
            transport: Transport::Auto,
            endpoint: "auto".into(),
            allow_tcp_fallback: false,
        }
    }
}

/// What scripts may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptsConfig {
    /// The folder that relative script paths start from; `scripts` in the data folder when empty.
    pub dir: PathBuf,
    /// Folders besides a script's own that its file functions may use.
    pub file_roots: Vec<PathBuf>,
    /// MiB per script.
    pub memory_mb: u32,
    /// Scripts at once; more wait as queued.
    pub running_max: u32,
}

impl Default for ScriptsConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::new(),
            file_roots: Vec::new(),
            memory_mb: 100,
            running_max: 32,
        }
    }
}

/// The desktop that this agent looks after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DesktopConfig {
    /// `auto` takes the environment's display; `none` works without one; or a name such as `:0`.
    pub display: String,
    /// `auto`, or a backend's name (`x11-shm`, `wgc`, `gdi`); one that does not work is an error.
    pub capture_backend: String,
    /// Stored captures kept; the oldest go first.
    pub captures_kept: u32,
}

impl Default for DesktopConfig {
    fn default() -> Self {
        Self {
            display: "auto".into(),
            capture_backend: "auto".into(),
            captures_kept: 100,
        }
    }
}

/// Terminal sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TerminalConfig {
    /// The program of a session that names none; the user's shell when empty.
    pub shell: String,
    /// Lines of scrollback that each session keeps.
    pub scrollback_lines: u32,
    /// A folder of screen rules (`*.toml`) that add to the built-in ones or replace them by name;
    /// `attention` in the data folder when empty.
    pub rules_dir: PathBuf,
    /// Whether agents are told from their screens at all; declared signals always count.
    pub screen_rules: bool,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self {
            shell: String::new(),
            scrollback_lines: 10_000,
            rules_dir: PathBuf::new(),
            screen_rules: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// error | warn | info | debug | trace, or a filter such as `wingman::agent=debug,info`.
    pub level: String,
}

impl Default for LoggingConfig {
    fn default() -> Self {
        Self {
            level: "info".into(),
        }
    }
}

impl AgentConfig {
    /// Reads and checks agent.toml; a missing file gives the defaults.
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

    /// Refuses values that no run could use.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.remote.check()?;
        if self.ipc.transport == Transport::LocalTcp && !self.ipc.allow_tcp_fallback {
            return Err(invalid(
                "ipc.transport",
                "is local_tcp, which needs ipc.allow_tcp_fallback = true",
            ));
        }
        if !(1..=4096).contains(&self.scripts.memory_mb) {
            return Err(invalid("scripts.memory_mb", "must be 1 to 4096"));
        }
        if !(1..=256).contains(&self.scripts.running_max) {
            return Err(invalid("scripts.running_max", "must be 1 to 256"));
        }
        if self.terminal.scrollback_lines > 1_000_000 {
            return Err(invalid(
                "terminal.scrollback_lines",
                "must be at most 1000000",
            ));
        }
        if self.desktop.captures_kept == 0 {
            return Err(invalid("desktop.captures_kept", "must be at least 1"));
        }
        Ok(())
    }
}

impl RemoteConfig {
    /// Refuses an address or token that could not be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.server_ip.trim().is_empty() {
            return Err(invalid("remote.server_ip", "must not be empty"));
        }
        if self.server_port == 0 {
            return Err(invalid("remote.server_port", "must be 1 to 65535"));
        }
        if !matches!(self.protocol, 1 | 2) {
            return Err(invalid("remote.protocol", "must be 1 or 2"));
        }
        if self.register_token.expose().chars().count() > 256 {
            return Err(invalid(
                "remote.register_token",
                "must be at most 256 characters",
            ));
        }
        let key = self.server_key.as_bytes();
        if !key.is_empty()
            && data_encoding::HEXLOWER_PERMISSIVE
                .decode(key)
                .map_or(true, |k| k.len() != 32)
        {
            return Err(invalid(
                "remote.server_key",
                "must be 64 hexadecimal digits",
            ));
        }
        if !(1..=300).contains(&self.connect_timeout) {
            return Err(invalid(
                "remote.connect_timeout",
                "must be 1 to 300 seconds",
            ));
        }
        Ok(())
    }
}

/// Writes the `[remote]` table back, keeping the rest of the file with its comments. The file is
/// replaced as a whole (mode 0600), so that a crash leaves the old or the new one.
pub fn write_remote(path: &Path, remote: &RemoteConfig) -> Result<(), ConfigError> {
    remote.check()?;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => {
            return Err(ConfigError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let mut document: toml_edit::DocumentMut =
        text.parse()
            .map_err(|error: toml_edit::TomlError| ConfigError::Parse {
                path: path.to_owned(),
                message: error.to_string(),
            })?;
    let table = document.entry("remote").or_insert_with(toml_edit::table);
    let values = [
        ("enable", toml_edit::value(remote.enable)),
        ("server_ip", toml_edit::value(remote.server_ip.as_str())),
        (
            "server_port",
            toml_edit::value(i64::from(remote.server_port)),
        ),
        ("protocol", toml_edit::value(i64::from(remote.protocol))),
        ("server_key", toml_edit::value(remote.server_key.as_str())),
        (
            "register_token",
            toml_edit::value(remote.register_token.expose()),
        ),
        ("challenge_auth", toml_edit::value(remote.challenge_auth)),
    ];
    for (key, value) in values {
        table[key] = value;
    }
    let text = document.to_string();
    AgentConfig::from_text(path, &text)?;
    replace(path, &text).map_err(|source| ConfigError::Write {
        path: path.to_owned(),
        source,
    })
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let dir = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    // Temporary files are made with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_names_file_and_key() {
        let error =
            AgentConfig::from_text(Path::new("agent.toml"), "[remote]\nserver_pi = \"x\"\n")
                .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("agent.toml") && text.contains("server_pi"),
            "{text}"
        );
    }

    #[test]
    fn local_tcp_needs_the_flag() {
        let refused = AgentConfig::from_text(Path::new("a"), "[ipc]\ntransport = \"local_tcp\"\n");
        assert!(refused.is_err());
        let text = "[ipc]\ntransport = \"local_tcp\"\nallow_tcp_fallback = true\n";
        assert!(AgentConfig::from_text(Path::new("a"), text).is_ok());
    }

    #[test]
    fn writing_back_keeps_comments_and_hides_nothing_of_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        std::fs::write(&path, "# mine\n[logging]\nlevel = \"debug\" # loud\n").unwrap();
        let remote = RemoteConfig {
            enable: true,
            server_ip: "10.0.0.5".into(),
            register_token: Secret::new("tok-1"),
            ..RemoteConfig::default()
        };
        write_remote(&path, &remote).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("# mine") && text.contains("# loud"), "{text}");
        let config = AgentConfig::load(&path).unwrap();
        assert_eq!(config.remote, remote);
        assert_eq!(config.logging.level, "debug");
    }
}
