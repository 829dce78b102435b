//! Identifiers are newtypes over short, printable ASCII text.

use std::fmt;

use ring::rand::SecureRandom;

use super::limits;

/// Fills a buffer from the operating system's random source.
///
/// Panics if that source fails, since no identifier or key may be predictable.
pub fn fill_random(buffer: &mut [u8]) {
    // INVARIANT: getrandom(2) and BCryptGenRandom fail only on a broken system.
    ring::rand::SystemRandom::new()
        .fill(buffer)
        .expect("the system random source works");
}

/// `bytes` random bytes as lower-case hexadecimal.
pub fn random_hex(bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    fill_random(&mut buffer);
    data_encoding::HEXLOWER.encode(&buffer)
}

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("identifier must be 1 to {max} characters of letters, digits, '.', '_', ':' or '-'", max = limits::ID_LEN_MAX)]
pub struct InvalidId;

fn check(text: &str) -> Result<(), InvalidId> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    if text.is_empty() || text.len() > limits::ID_LEN_MAX || !text.bytes().all(good) {
        return Err(InvalidId);
    }
    Ok(())
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// 128 random bits as 32 hexadecimal digits.
            pub fn random() -> Self {
                Self(random_hex(16))
            }

            /// Checks and wraps a text.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(de)?).map_err(serde::de::Error::custom)
            }
        }
    )+};
}

ids! {
    /// A workstation's identity; kept for life in its data folder.
    AgentId,
    /// One start of an agent process.
    InstanceId,
    /// One attempt at a piece of work.
    ExecutionId,
    /// A command's identity, repeated when the command is sent again.
    CommandId,
    /// A stored capture.
    CaptureId,
    /// One grabbed frame.
    FrameId,
    /// A journal record.
    EventId,
    /// An HTTP request.
    RequestId,
    /// An invitation of the server.
    InviteId,
    /// An account.
    AccountId,
    /// A browser or command-line session of an account.
    SessionId,
    /// An API token.
    TokenId,
    /// A terminal session.
    TerminalId,
    /// One attachment of a console to a terminal session.
    ConsoleId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_no_identifier() {
        assert!(AgentId::parse("agent_host-1.lan:2").is_ok());
        for bad in [
            "",
            "a b",
            "../x",
            "a/b",
            "ä",
            "a\n",
            &"x".repeat(limits::ID_LEN_MAX + 1),
        ] {
            assert_eq!(AgentId::parse(bad), Err(InvalidId), "{bad:?}");
        }
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(ExecutionId::random(), ExecutionId::random());
        assert_eq!(ExecutionId::random().as_str().len(), 32);
    }
}
