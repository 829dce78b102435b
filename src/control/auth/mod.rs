//! Who the caller is: accounts, sessions, tickets and API tokens.
//!
//! Credentials are 256 random bits behind a prefix that tells their kind: `wms_` a session, `wmt_` an
//! API token, `wml_` a ticket or login string. Only their SHA-256 is stored. Each request looks its
//! credential up, so a revocation holds from the next request on; streams that are open watch `ended`.

mod first_start;
mod own;
mod passwords;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use first_start::LoginString;
pub use own::NewTicket;

use super::fault::stored;
use super::limits::TryLimits;
use crate::base::ids::{AccountId, SessionId, TokenId, fill_random};
use crate::base::limits::SESSION_LIFE_MS;
use crate::base::{Clock, EpochMillis, Secret};
use crate::store::{Store, accounts};
use crate::wire::messages::auth as messages;
use crate::wire::permission::Role;
use crate::wire::{Code, Fault, Permission};

const SESSION_PREFIX: &str = "wms_";
const TOKEN_PREFIX: &str = "wmt_";
const TICKET_PREFIX: &str = "wml_";
/// `last_seen_at` is written this often at most.
const SEEN_EVERY_MS: i64 = 60_000;
const LABEL_CHARS_MAX: usize = 64;

/// A signed-in account and the credential it came with.
#[derive(Clone, Debug)]
pub struct Identity {
    pub account_id: AccountId,
    pub username: String,
    pub role: Role,
    /// Narrows what the role holds; absent for sessions and unscoped tokens.
    pub scopes: Option<Vec<Permission>>,
    pub credential: Credential,
    pub expires_at: Option<EpochMillis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    Session(SessionId),
    Token(TokenId),
}

impl Credential {
    fn text(&self) -> &str {
        match self {
            Self::Session(id) => id.as_str(),
            Self::Token(id) => id.as_str(),
        }
    }
}

impl Identity {
    /// Whether the account, through this credential, holds the permission.
    pub fn may(&self, permission: Permission) -> bool {
        self.role.holds(permission) && self.scoped_for(permission)
    }

    /// Whether the credential is not narrowed to other permissions than this one.
    pub fn scoped_for(&self, permission: Permission) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_none_or(|scopes| scopes.contains(&permission))
    }

    /// Refuses a credential that holds less than its account does: it may not make wider ones.
    fn whole(&self) -> Result<(), Fault> {
        match self.scopes {
            None => Ok(()),
            Some(_) => Err(Fault::new(
                Code::PermissionDenied,
                "a scoped token cannot do this",
            )),
        }
    }
}

/// A session that was just opened; its text leaves once.
pub struct NewSession {
    pub id: SessionId,
    pub text: Secret,
    pub identity: Identity,
    pub expires_at: EpochMillis,
    pub life_ms: i64,
}

pub struct Auth {
    store: Store,
    clock: Arc<dyn Clock>,
    limits: TryLimits,
    hashing: Arc<Semaphore>,
    /// Credentials that have streams open, with how many.
    open: Mutex<HashMap<Credential, (CancellationToken, usize)>>,
}

impl Auth {
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            limits: TryLimits::default(),
            hashing: Arc::new(Semaphore::new(passwords::HASHES_AT_ONCE)),
            open: Mutex::default(),
        }
    }

    /// The account behind a credential: a session's text or an API token.
    pub async fn identify(&self, text: &str) -> Result<Identity, Fault> {
        let refused = || Fault::new(Code::Unauthenticated, "the session or token is not valid");
        let hash = digest(text);
        let now = self.clock.now();
        if text.starts_with(SESSION_PREFIX) {
            let found = self.store.call(move |c| {
                let Some((session, account)) = accounts::session_of(c, &hash)? else {
                    return Ok(None);
                };
                let live = session.revoked_at.is_none() && session.expires_at > now;
                if live && is_due(session.last_seen_at, now) {
                    accounts::touch_session(c, &session.session_id, now)?;
                }
                Ok(live.then_some((session, account)))
            });
            let (session, account) = found.await.map_err(stored)?.ok_or_else(refused)?;
            let credential = Credential::Session(session.session_id);
            identity(account, None, credential, Some(session.expires_at))
        } else if text.starts_with(TOKEN_PREFIX) {
            let found = self.store.call(move |c| {
                let Some((token, account)) = accounts::token_of(c, &hash)? else {
                    return Ok(None);
                };
                let ended = token.expires_at.is_some_and(|at| at <= now);
                let live = token.revoked_at.is_none() && !ended;
                if live && is_due(token.last_seen_at, now) {
                    accounts::touch_token(c, &token.token_id, now)?;
                }
                Ok(live.then_some((token, account)))
            });
            let (token, account) = found.await.map_err(stored)?.ok_or_else(refused)?;
            let credential = Credential::Token(token.token_id);
            identity(account, token.scopes, credential, token.expires_at)
        } else {
            Err(refused())
        }
    }

    /// Opens a session by password.
    pub async fn login(
        &self,
        username: &str,
        password: Secret,
        address: IpAddr,
        device: &str,
    ) -> Result<NewSession, Fault> {
        let account_name = format!("account {}", cut(username).to_lowercase());
        let address_name = format!("address {address}");
        let names = [account_name.as_str(), address_name.as_str()];
        self.limits.check(&names, self.clock.now())?;
        let name = username.to_owned();
        let account = self
            .store
            .call(move |c| accounts::account_named(c, &name))
            .await
            .map_err(stored)?;
        let hash = account.as_ref().and_then(|a| a.password_hash.clone());
        let good = self.verify(hash, password).await?;
        match account.filter(|account| good && account.active) {
            Some(account) => {
                self.limits.succeeded(&account_name);
                self.open_session(account, device).await
            }
            None => {
                self.limits.failed(&names, self.clock.now());
                let text = "the name or the password is wrong";
                Err(Fault::new(Code::Unauthenticated, text))
            }
        }
    }

    /// Opens a session by a ticket or login string, which is gone afterwards.
    pub async fn redeem(
        &self,
        ticket: &str,
        address: IpAddr,
        device: &str,
    ) -> Result<NewSession, Fault> {
        let name = format!("ticket {address}");
        let now = self.clock.now();
        self.limits.check(&[&name], now)?;
        let hash = digest(ticket);
        let account = self
            .store
            .call(move |c| accounts::take_ticket(c, &hash, now))
            .await
            .map_err(stored)?;
        match account.filter(|account| account.active) {
            Some(account) => self.open_session(account, device).await,
            None => {
                self.limits.failed(&[&name], now);
                let text = "the ticket is unknown, used or expired";
                Err(Fault::new(Code::Unauthenticated, text))
            }
        }
    }

    /// Watches a credential for a stream that it opens.
    pub fn watch(self: &Arc<Self>, identity: &Identity) -> Watched {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = open.entry(identity.credential.clone()).or_default();
        entry.1 += 1;
        Watched {
            ended: entry.0.clone(),
            auth: Arc::clone(self),
            credential: identity.credential.clone(),
        }
    }

    fn end(&self, id: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|credential, (ended, _)| {
            let hit = credential.text() == id;
            if hit {
                ended.cancel();
            }
            !hit
        });
    }

    async fn open_session(
        &self,
        account: accounts::Account,
        device: &str,
    ) -> Result<NewSession, Fault> {
        let text = credential(SESSION_PREFIX);
        let hash = digest(text.expose());
        let now = self.clock.now();
        let session = accounts::Session {
            session_id: SessionId::random(),
            account_id: account.account_id.clone(),
            device_name: cut(device),
            created_at: now,
            expires_at: now.plus_ms(SESSION_LIFE_MS),
            last_seen_at: Some(now),
            revoked_at: None,
        };
        let row = session.clone();
        self.store
            .call(move |c| accounts::insert_session(c, &row, &hash))
            .await
            .map_err(stored)?;
        let credential = Credential::Session(session.session_id.clone());
        Ok(NewSession {
            identity: identity(account, None, credential, Some(session.expires_at))?,
            id: session.session_id,
            text,
            expires_at: session.expires_at,
            life_ms: SESSION_LIFE_MS,
        })
    }
}

/// A stream's hold on its credential.
pub struct Watched {
    /// Fires when the credential is revoked.
    pub ended: CancellationToken,
    auth: Arc<Auth>,
    credential: Credential,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let open = &self.auth.open;
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, streams)) = open.get_mut(&self.credential) {
            *streams -= 1;
            if *streams == 0 {
                open.remove(&self.credential);
            }
        }
    }
}

/// The caller as `auth.me` tells it.
pub fn me(identity: &Identity) -> messages::Me {
    let all = Permission::ALL.iter().copied();
    messages::Me {
        account_id: identity.account_id.to_string(),
        username: identity.username.clone(),
        role: identity.role,
        permissions: all.filter(|p| identity.may(*p)).collect(),
    }
}

fn identity(
    account: accounts::Account,
    scopes: Option<Vec<String>>,
    credential: Credential,
    expires_at: Option<EpochMillis>,
) -> Result<Identity, Fault> {
    let role = Role::parse(&account.role).filter(|_| account.active);
    let role = role.ok_or_else(|| Fault::new(Code::Unauthenticated, "the account is closed"))?;
    // A scope that this version does not know grants nothing.
    let scopes = scopes.map(|all| {
        all.iter()
            .filter_map(|text| Permission::parse(text))
            .collect()
    });
    Ok(Identity {
        account_id: account.account_id,
        username: account.username,
        role,
        scopes,
        credential,
        expires_at,
    })
}

fn credential(prefix: &str) -> Secret {
    let mut bytes = [0; 32];
    fill_random(&mut bytes);
    let text = data_encoding::BASE64URL_NOPAD.encode(&bytes);
    Secret::new(format!("{prefix}{text}"))
}

fn digest(text: &str) -> accounts::Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref());
    hash
}

/// The part of a token that may be shown: its kind and six characters.
fn shown_prefix(text: &Secret) -> String {
    text.expose().chars().take(10).collect()
}

fn is_due(last: Option<EpochMillis>, now: EpochMillis) -> bool {
    last.is_none_or(|last| now.since(last) >= SEEN_EVERY_MS)
}

/// Text from outside as it may be kept: printable, at most 64 characters.
pub fn cut(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(LABEL_CHARS_MAX)
        .collect()
}

fn found(hit: bool, otherwise: &'static str) -> Result<(), Fault> {
    if hit {
        Ok(())
    } else {
        Err(Fault::new(Code::NotFound, otherwise))
    }
}
