//! The tokens of protocol-1 agents: `wt_` and 256 random bits, stored as SHA-256, perhaps bound to
//! one agent. (Specification, section 1.7.)
//!
//! Challenge: `hmac = HMAC-SHA256(key = ASCII of sha256hex(token), message = ASCII of the nonce)`.
//! A plain listener without any token lets nobody in.

use ring::hmac;

use super::registry::{Registry, storage};
use crate::base::Secret;
use crate::base::digest::sha256_hex;
use crate::base::ids::{self, AgentId};
use crate::store::agents::{self, TokenRow as StoredToken};
use crate::wire::messages::agents::{TokenList, TokenParams, TokenRow};
use crate::wire::{Code, Fault};

const PREFIX: &str = "wt_";
/// Characters of the token shown in lists, after the prefix.
const SHOWN_CHARS: usize = 6;
const LABEL_CHARS_MAX: usize = 64;
const NONCE_LEN: usize = 32;

/// What a protocol-1 peer shows.
pub(super) enum Proof<'a> {
    Token(&'a Secret),
    /// The answer to a nonce, as hexadecimal.
    Answer {
        nonce: &'a str,
        hmac: &'a str,
    },
}

impl Proof<'_> {
    fn fits(&self, token_hash: &str) -> bool {
        match self {
            Self::Token(token) => Secret::new(sha256_hex(token.expose())).equals(token_hash),
            Self::Answer { nonce, hmac } => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, token_hash.as_bytes());
                data_encoding::HEXLOWER
                    .decode(hmac.as_bytes())
                    .is_ok_and(|tag| hmac::verify(&key, nonce.as_bytes(), &tag).is_ok())
            }
        }
    }
}

impl Registry {
    /// Checks a proof against the configured tokens and the database's. Answers the id of the
    /// database token, if it was one: `token_invalid`.
    pub(super) async fn check_proof(
        &self,
        agent: &AgentId,
        configured: &[Secret],
        proof: &Proof<'_>,
    ) -> Result<Option<String>, Fault> {
        // Every token is compared, so that the time does not tell which one fits.
        let mut fits = false;
        for token in configured.iter().filter(|token| !token.is_empty()) {
            fits |= proof.fits(&sha256_hex(token.expose()));
        }
        let mut found = None;
        for token in agents::tokens(self.store()).await.map_err(storage)? {
            let bound_to = token.agent_id.as_deref();
            let usable =
                token.revoked_at.is_none() && bound_to.is_none_or(|bound| bound == agent.as_str());
            if proof.fits(&token.hash) && usable {
                found = Some(token.id);
            }
        }
        if let Some(id) = &found {
            agents::touch_token(self.store(), id.clone(), self.now())
                .await
                .map_err(storage)?;
        }
        if fits || found.is_some() {
            return Ok(found);
        }
        Err(Fault::new(Code::TokenInvalid, "invalid or missing token"))
    }

    /// All tokens, newest first; none shows its text.
    pub async fn list_tokens(&self) -> Result<TokenList, Fault> {
        let rows = agents::tokens(self.store()).await.map_err(storage)?;
        let items: Vec<TokenRow> = rows
            .into_iter()
            .map(|row| shown(row, None))
            .collect::<Result<_, _>>()?;
        Ok(TokenList {
            total: items.len() as u64,
            items,
        })
    }

    /// Makes a token; its text is in this answer alone.
    pub async fn create_token(&self, params: TokenParams) -> Result<TokenRow, Fault> {
        let count = params.label.chars().count();
        if !(1..=LABEL_CHARS_MAX).contains(&count) || params.label.chars().any(char::is_control) {
            return Err(Fault::invalid_params(
                "agentTokens.create",
                format!("label must have 1 to {LABEL_CHARS_MAX} characters"),
            ));
        }
        let mut random = [0; 32];
        ids::fill_random(&mut random);
        let token = format!("{PREFIX}{}", data_encoding::BASE64URL_NOPAD.encode(&random));
        let row = StoredToken {
            id: ids::random_hex(8),
            label: params.label,
            prefix: token.chars().take(PREFIX.len() + SHOWN_CHARS).collect(),
            hash: sha256_hex(&token),
            agent_id: params.agent_id.map(|agent| agent.to_string()),
            created_at: self.now(),
            last_seen_at: None,
            revoked_at: None,
        };
        agents::add_token(self.store(), row.clone())
            .await
            .map_err(storage)?;
        shown(row, Some(token))
    }

    /// Revokes a token and closes the links that it let in: `not_found`.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Fault> {
        let revoked = agents::revoke_token(self.store(), id.to_owned(), self.now())
            .await
            .map_err(storage)?;
        if !revoked {
            return Err(Fault::new(
                Code::NotFound,
                format!("no token {id} is in force"),
            ));
        }
        let fault = Fault::new(Code::TokenInvalid, "the token was revoked");
        self.close_links_of_token(id, &fault);
        Ok(())
    }
}

fn shown(row: StoredToken, token: Option<String>) -> Result<TokenRow, Fault> {
    let agent_id = row
        .agent_id
        .map(AgentId::parse)
        .transpose()
        .map_err(|error| Fault::internal(format!("stored token: {error}")))?;
    Ok(TokenRow {
        id: row.id,
        label: row.label,
        prefix: row.prefix,
        agent_id,
        created_at: row.created_at,
        last_seen_at: row.last_seen_at,
        revoked_at: row.revoked_at,
        token,
    })
}

/// A fresh nonce: 64 lower-case hexadecimal digits.
pub(super) fn nonce() -> String {
    ids::random_hex(NONCE_LEN)
}
