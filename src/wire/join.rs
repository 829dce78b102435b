//! The join string that one person hands to another: everything a workstation needs to enrol.
//!
//! ```text
//! wm1- base64url( | n:u8 | address: n bytes UTF-8 | pin: 32 | invite: 16 | secret: 16 | crc32: u32 LE | )
//! ```
//!
//! `pin` is the server's Ed25519 public key. The checksum finds typing errors; it protects nothing.
//! (Protocols page, section 1.)

use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};

use super::codes::{Code, Fault};
use crate::base::Secret;
use crate::base::ids::{self, InviteId};

const PREFIX: &str = "wm1-";
const PIN_LEN: usize = 32;
const INVITE_LEN: usize = 16;
/// 128 bits.
const SECRET_LEN: usize = 16;
const CRC_LEN: usize = 4;
const FIXED_LEN: usize = 1 + PIN_LEN + INVITE_LEN + SECRET_LEN + CRC_LEN;

/// Why a text is no join string; offsets count decoded bytes, or characters of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("a join string starts with {PREFIX}")]
    Prefix,
    #[error("the join string has a wrong character at position {0}")]
    Character(usize),
    #[error("the join string ends after {have} of {need} bytes")]
    Truncated { have: usize, need: usize },
    #[error("the join string has {0} bytes too many")]
    TooLong(usize),
    #[error("the join string is misspelt: its checksum at byte {0} does not fit")]
    Checksum(usize),
    #[error("the join string's address is not a host and a port")]
    Address,
}

impl From<JoinError> for Fault {
    fn from(error: JoinError) -> Self {
        Fault::new(Code::JoinStringInvalid, error.to_string())
    }
}

/// The parts of a join string. Its text holds a secret: `to_text` is the only way to it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinString {
    /// Host and port, such as `10.0.0.5:8888` or `[::1]:8888`.
    pub address: String,
    /// The server's Ed25519 public key.
    pub pin: [u8; PIN_LEN],
    pub invite: InviteId,
    /// 128 random bits as hexadecimal.
    pub secret: Secret,
}

impl fmt::Debug for JoinString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinString")
            .field("address", &self.address)
            .field("pin", &HEXLOWER.encode(&self.pin))
            .field("invite", &self.invite)
            .finish_non_exhaustive()
    }
}

impl JoinString {
    /// A new invitation to `address` with a fresh id and secret.
    pub fn create(address: &str, pin: [u8; PIN_LEN]) -> Result<Self, JoinError> {
        split_address(address)?;
        Ok(Self {
            address: address.to_owned(),
            pin,
            invite: InviteId::random(),
            secret: Secret::new(ids::random_hex(SECRET_LEN)),
        })
    }

    pub fn to_text(&self) -> Result<Secret, JoinError> {
        let length = u8::try_from(self.address.len()).map_err(|_| JoinError::Address)?;
        let hex = |text: &str| HEXLOWER.decode(text.as_bytes());
        let invite = hex(self.invite.as_str()).map_err(|e| JoinError::Character(e.position))?;
        let secret = hex(self.secret.expose()).map_err(|e| JoinError::Character(e.position))?;
        let mut bytes = vec![length];
        bytes.extend_from_slice(self.address.as_bytes());
        bytes.extend_from_slice(&self.pin);
        bytes.extend_from_slice(&invite);
        bytes.extend_from_slice(&secret);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Ok(Secret::new(format!(
            "{PREFIX}{}",
            BASE64URL_NOPAD.encode(&bytes)
        )))
    }

    /// Reads a text; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, JoinError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(JoinError::Prefix)?;
        let bytes = BASE64URL_NOPAD
            .decode(encoded.as_bytes())
            .map_err(|error| JoinError::Character(PREFIX.len() + error.position))?;
        let address_len = usize::from(bytes.first().copied().unwrap_or(0));
        let need = FIXED_LEN + address_len;
        if bytes.len() < need {
            return Err(JoinError::Truncated {
                have: bytes.len(),
                need,
            });
        }
        if bytes.len() > need {
            return Err(JoinError::TooLong(bytes.len() - need));
        }
        let (content, checksum) = bytes.split_at(need - CRC_LEN);
        if crc32fast::hash(content).to_le_bytes() != checksum {
            return Err(JoinError::Checksum(need - CRC_LEN));
        }
        // INVARIANT: the length was checked above, so every split lies inside.
        let (address, rest) = content[1..].split_at(address_len);
        let (pin, rest) = rest.split_at(PIN_LEN);
        let (invite, secret) = rest.split_at(INVITE_LEN);
        let address = std::str::from_utf8(address).map_err(|_| JoinError::Address)?;
        split_address(address)?;
        let mut key = [0; PIN_LEN];
        key.copy_from_slice(pin);
        Ok(Self {
            address: address.to_owned(),
            pin: key,
            // INVARIANT: 32 hexadecimal digits are an identifier.
            invite: InviteId::parse(HEXLOWER.encode(invite)).map_err(|_| JoinError::Address)?,
            secret: Secret::new(HEXLOWER.encode(secret)),
        })
    }
}

/// Splits `host:port`; an IPv6 host stands in brackets and loses them.
pub fn split_address(address: &str) -> Result<(String, u16), JoinError> {
    let (host, port) = address.rsplit_once(':').ok_or(JoinError::Address)?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or(JoinError::Address)?,
        None => host,
    };
    let port = port.parse().map_err(|_| JoinError::Address)?;
    let clean = |c: char| !c.is_whitespace() && !c.is_control();
    if host.is_empty() || address.len() > 255 || port == 0 || !host.chars().all(clean) {
        return Err(JoinError::Address);
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> JoinString {
        JoinString::create("10.0.0.5:8888", [7; 32]).unwrap()
    }

    #[test]
    fn round_trip_keeps_every_part() {
        for address in ["10.0.0.5:8888", "[::1]:8888", "desk.lan:1"] {
            let join = JoinString::create(address, [9; 32]).unwrap();
            let text = join.to_text().unwrap();
            assert_eq!(
                JoinString::parse(&format!(" {}\n", text.expose())).unwrap(),
                join
            );
        }
    }

    #[test]
    fn debug_print_hides_the_secret() {
        let join = sample();
        assert!(!format!("{join:?}").contains(join.secret.expose()));
    }

    #[test]
    fn every_misspelt_character_is_found() {
        let text = sample().to_text().unwrap().expose().to_owned();
        for at in 0..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert!(JoinString::parse(&wrong).is_err(), "at {at}");
        }
        for cut in 0..text.len() {
            assert!(JoinString::parse(&text[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn addresses_without_host_or_port_are_refused() {
        for bad in ["", "host", ":1", "h:0", "h:99999", "[::1:5", "a b:1"] {
            assert!(JoinString::create(bad, [0; 32]).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "(wm1-)?[A-Za-z0-9_-]{0,200}") {
            let _ = JoinString::parse(&text);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = JoinString::parse(&format!("wm1-{}", BASE64URL_NOPAD.encode(&bytes)));
        }
    }
}
