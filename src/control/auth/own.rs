//! What an account does with its own credentials: tickets, sessions, tokens, password.

use std::net::IpAddr;

use super::{
    Auth, Credential, Identity, LABEL_CHARS_MAX, TICKET_PREFIX, TOKEN_PREFIX, credential, digest,
    found, shown_prefix,
};
use crate::base::ids::TokenId;
use crate::base::limits::TICKET_LIFE_MS;
use crate::base::{EpochMillis, Secret};
use crate::control::fault::stored;
use crate::store::accounts;
use crate::wire::messages::auth as messages;
use crate::wire::permission::Role;
use crate::wire::{Code, Fault, Permission};

/// Live tickets of one account. More: `rate_limited`.
const TICKETS_MAX: u32 = 20;
const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 8..=256;

/// A ticket as its maker gets it.
pub struct NewTicket {
    pub text: Secret,
    pub expires_at: EpochMillis,
}

impl Auth {
    /// A single-use ticket of the caller's own account.
    pub async fn make_ticket(&self, identity: &Identity) -> Result<NewTicket, Fault> {
        identity.whole()?;
        let text = credential(TICKET_PREFIX);
        let now = self.clock.now();
        let ticket = accounts::Ticket {
            hash: digest(text.expose()),
            account_id: identity.account_id.clone(),
            expires_at: now.plus_ms(TICKET_LIFE_MS),
            first_start: false,
        };
        let expires_at = ticket.expires_at;
        let made = self.store.call(move |c| {
            if accounts::count_tickets(c, &ticket.account_id, now)? >= TICKETS_MAX {
                return Ok(false);
            }
            accounts::insert_ticket(c, &ticket).map(|()| true)
        });
        if !made.await.map_err(stored)? {
            return Err(Fault::new(
                Code::RateLimited,
                "too many open tickets, wait 60 s",
            ));
        }
        Ok(NewTicket { text, expires_at })
    }

    /// Ends the credential that the caller came with.
    pub async fn sign_out(&self, identity: &Identity) -> Result<(), Fault> {
        match &identity.credential {
            Credential::Session(id) => self.revoke_session(identity, id.as_str()).await,
            Credential::Token(_) => Err(Fault::new(
                Code::Conflict,
                "a token is revoked, not signed out",
            )),
        }
    }

    /// The caller's own sessions, newest first.
    pub async fn sessions(&self, identity: &Identity) -> Result<Vec<messages::Session>, Fault> {
        let id = identity.account_id.clone();
        let rows = self.store.call(move |c| accounts::sessions(c, &id));
        Ok(rows
            .await
            .map_err(stored)?
            .into_iter()
            .map(|row| messages::Session {
                id: row.session_id.to_string(),
                device_name: row.device_name,
                created_at: row.created_at.rfc3339(),
                expires_at: row.expires_at.rfc3339(),
                last_seen_at: row.last_seen_at.map(EpochMillis::rfc3339),
                revoked_at: row.revoked_at.map(EpochMillis::rfc3339),
            })
            .collect())
    }

    /// Ends one of the caller's own sessions at once.
    pub async fn revoke_session(&self, identity: &Identity, id: &str) -> Result<(), Fault> {
        identity.whole()?;
        let (account, session) = (identity.account_id.clone(), id.to_owned());
        let now = self.clock.now();
        let ended = self
            .store
            .call(move |c| accounts::revoke_session(c, &account, &session, now))
            .await
            .map_err(stored)?;
        self.end(id);
        found(ended, "no live session of that id")
    }

    /// The caller's own tokens, newest first, without their texts.
    pub async fn tokens(&self, identity: &Identity) -> Result<Vec<messages::Token>, Fault> {
        let id = identity.account_id.clone();
        let rows = self.store.call(move |c| accounts::tokens(c, &id));
        let role = identity.role;
        Ok(rows
            .await
            .map_err(stored)?
            .into_iter()
            .map(|row| shown_token(row, role, None))
            .collect())
    }

    /// Makes a token that holds no more than the credential that asks for it.
    pub async fn create_token(
        &self,
        identity: &Identity,
        params: messages::TokenParams,
    ) -> Result<messages::Token, Fault> {
        let label = params.label.trim();
        if label.is_empty() || label.chars().count() > LABEL_CHARS_MAX {
            return Err(Fault::invalid_params(
                "auth.createToken",
                format!("label must be 1 to {LABEL_CHARS_MAX} characters"),
            ));
        }
        let scopes = params.scopes.or_else(|| identity.scopes.clone());
        let wider = scopes.iter().flatten().find(|p| !identity.may(**p));
        if let Some(permission) = wider {
            return Err(Fault::new(
                Code::PermissionDenied,
                format!("you do not hold {}", permission.as_str()),
            ));
        }
        let text = credential(TOKEN_PREFIX);
        let now = self.clock.now();
        let life = params.days.map(|days| i64::from(days) * 86_400_000);
        let token = accounts::Token {
            token_id: TokenId::random(),
            account_id: identity.account_id.clone(),
            label: label.to_owned(),
            prefix: shown_prefix(&text),
            scopes: scopes.map(|all| all.iter().map(|p| p.as_str().to_owned()).collect()),
            local_record: false,
            created_at: now,
            expires_at: life.map(|ms| now.plus_ms(ms)),
            last_seen_at: None,
            revoked_at: None,
        };
        let (row, hash) = (token.clone(), digest(text.expose()));
        self.store
            .call(move |c| accounts::insert_token(c, &row, &hash))
            .await
            .map_err(stored)?;
        Ok(shown_token(token, identity.role, Some(text)))
    }

    /// Ends one of the caller's own tokens at once.
    pub async fn revoke_token(&self, identity: &Identity, id: &str) -> Result<(), Fault> {
        identity.whole()?;
        let (account, token) = (identity.account_id.clone(), id.to_owned());
        let now = self.clock.now();
        let ended = self
            .store
            .call(move |c| accounts::revoke_token(c, &account, &token, now))
            .await
            .map_err(stored)?;
        self.end(id);
        found(ended, "no live token of that id")
    }

    /// Sets the caller's own password; their other sessions end.
    pub async fn set_password(
        &self,
        identity: &Identity,
        current: Option<Secret>,
        new: Secret,
        address: IpAddr,
    ) -> Result<(), Fault> {
        identity.whole()?;
        if !PASSWORD_CHARS.contains(&new.expose().chars().count()) {
            let why = "new must be 8 to 256 characters";
            return Err(Fault::invalid_params("auth.setPassword", why));
        }
        let id = identity.account_id.clone();
        let account = self
            .store
            .call(move |c| accounts::account(c, &id))
            .await
            .map_err(stored)?;
        if let Some(hash) = account.and_then(|account| account.password_hash) {
            let account = format!("account {}", identity.username.to_lowercase());
            let address = format!("address {address}");
            let names = [account.as_str(), address.as_str()];
            self.limits.check(&names, self.clock.now())?;
            if !self.verify(Some(hash), current.unwrap_or_default()).await? {
                self.limits.failed(&names, self.clock.now());
                return Err(Fault::new(
                    Code::PermissionDenied,
                    "the current password is wrong",
                ));
            }
        }
        let hash = self.hash(new).await?;
        let id = identity.account_id.clone();
        let keep = match &identity.credential {
            Credential::Session(session) => Some(session.to_string()),
            Credential::Token(_) => None,
        };
        let now = self.clock.now();
        let ended = self
            .store
            .call(move |c| {
                accounts::set_password(c, &id, &hash)?;
                accounts::revoke_other_sessions(c, &id, keep.as_deref(), now)
            })
            .await
            .map_err(stored)?;
        for id in ended {
            self.end(&id);
        }
        Ok(())
    }
}

fn shown_token(row: accounts::Token, role: Role, text: Option<Secret>) -> messages::Token {
    let scopes = match &row.scopes {
        Some(texts) => texts.iter().filter_map(|t| Permission::parse(t)).collect(),
        None => Permission::ALL
            .iter()
            .copied()
            .filter(|p| role.holds(*p))
            .collect(),
    };
    messages::Token {
        id: row.token_id.to_string(),
        label: row.label,
        prefix: row.prefix,
        scopes,
        created_at: row.created_at.rfc3339(),
        expires_at: row.expires_at.map(EpochMillis::rfc3339),
        last_seen_at: row.last_seen_at.map(EpochMillis::rfc3339),
        revoked_at: row.revoked_at.map(EpochMillis::rfc3339),
        token: text,
    }
}
