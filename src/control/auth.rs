//! Who the caller is: accounts, sessions, tickets and API tokens.
//!
//! Credentials are 256 random bits behind a prefix that tells their kind: `wms_` a session, `wmt_` an
//! API token, `wml_` a ticket or login string. Only their SHA-256 is stored. Each request looks its
//! credential up, so a revocation holds from the next request on; streams that are open watch `ended`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::fault::stored;
use super::limits::TryLimits;
use crate::base::ids::{AccountId, SessionId, TokenId, fill_random};
use crate::base::limits::{SESSION_LIFE_MS, TICKET_LIFE_MS};
use crate::base::{Clock, EpochMillis, Secret};
use crate::store::{Store, accounts};
use crate::wire::messages::auth as messages;
use crate::wire::permission::Role;
use crate::wire::{Code, Fault, Permission};

const SESSION_PREFIX: &str = "wms_";
const TOKEN_PREFIX: &str = "wmt_";
const TICKET_PREFIX: &str = "wml_";
/// How long the login string of first start works.
const LOGIN_STRING_LIFE_MS: i64 = 24 * 60 * 60 * 1000;
/// Live tickets of one account. More: `rate_limited`.
const TICKETS_MAX: u32 = 20;
/// `last_seen_at` is written this often at most.
const SEEN_EVERY_MS: i64 = 60_000;
/// Ended sessions and tokens are shown for this long.
const ENDED_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// argon2id runs at once (19 MiB each). More wait.
const HASHES_AT_ONCE: usize = 2;
const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 8..=256;
const LABEL_CHARS_MAX: usize = 64;
/// The account of first start.
const ADMIN: &str = "admin";

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
        let scoped = self.scopes.as_ref();
        self.role.holds(permission) && scoped.is_none_or(|scopes| scopes.contains(&permission))
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

/// What first start prints.
#[derive(Clone, Debug)]
pub struct LoginString {
    /// Works once, with `wingman login` or in `/login?ticket=`.
    pub text: Secret,
    pub username: String,
    pub expires_at: EpochMillis,
}

/// A ticket as its maker gets it.
pub struct NewTicket {
    pub text: Secret,
    pub expires_at: EpochMillis,
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
            hashing: Arc::new(Semaphore::new(HASHES_AT_ONCE)),
            open: Mutex::default(),
        }
    }

    /// Makes the admin account where there is none.
    pub async fn prepare(&self) -> Result<(), Fault> {
        let now = self.clock.now();
        let admin = accounts::Account {
            account_id: AccountId::random(),
            username: ADMIN.into(),
            role: Role::Admin.as_str().into(),
            password_hash: None,
            active: true,
            created_at: now,
            last_login_at: None,
        };
        self.store
            .call(move |c| {
                accounts::prune(c, now.plus_ms(-ENDED_KEPT_MS))?;
                match accounts::first_of_role(c, Role::Admin.as_str())? {
                    Some(_) => Ok(()),
                    None => accounts::insert_account(c, &admin),
                }
            })
            .await
            .map_err(stored)
    }

    /// A login string while the admin has never signed in; a new one replaces the last.
    pub async fn first_start_login(&self) -> Result<Option<LoginString>, Fault> {
        let text = credential(TICKET_PREFIX);
        let hash = digest(text.expose());
        let expires_at = self.clock.now().plus_ms(LOGIN_STRING_LIFE_MS);
        let username = self
            .store
            .call(move |c| {
                let Some(admin) = accounts::first_of_role(c, Role::Admin.as_str())? else {
                    return Ok(None);
                };
                if admin.last_login_at.is_some() {
                    return Ok(None);
                }
                let ticket = accounts::Ticket {
                    hash,
                    account_id: admin.account_id,
                    expires_at,
                    first_start: true,
                };
                accounts::insert_ticket(c, &ticket)?;
                Ok(Some(admin.username))
            })
            .await
            .map_err(stored)?;
        Ok(username.map(|username| LoginString {
            text,
            username,
            expires_at,
        }))
    }

    /// A token of the admin for the record that `wingman up` leaves for its own user; the last
    /// one's is gone.
    pub async fn mint_local_token(&self) -> Result<Secret, Fault> {
        let text = credential(TOKEN_PREFIX);
        let hash = digest(text.expose());
        let prefix = shown_prefix(&text);
        let now = self.clock.now();
        let made = self
            .store
            .call(move |c| {
                let Some(admin) = accounts::first_of_role(c, Role::Admin.as_str())? else {
                    return Ok(false);
                };
                let token = accounts::Token {
                    token_id: TokenId::random(),
                    account_id: admin.account_id,
                    label: "this machine".into(),
                    prefix,
                    scopes: None,
                    local_record: true,
                    created_at: now,
                    expires_at: None,
                    last_seen_at: None,
                    revoked_at: None,
                };
                accounts::insert_token(c, &token, &hash).map(|()| true)
            })
            .await
            .map_err(stored)?;
        if made {
            Ok(text)
        } else {
            Err(Fault::new(Code::NotFound, "there is no admin account"))
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

    async fn hash(&self, password: Secret) -> Result<String, Fault> {
        self.heavy(move || {
            Argon2::default()
                .hash_password(password.expose().as_bytes())
                .map(|hash| hash.to_string())
                .map_err(|error| Fault::internal(format!("hash a password: {error}")))
        })
        .await?
    }

    /// Compares with a stored hash; without one the same time passes and the answer is no.
    async fn verify(&self, hash: Option<String>, password: Secret) -> Result<bool, Fault> {
        let Some(hash) = hash else {
            self.hash(password).await?;
            return Ok(false);
        };
        self.heavy(move || {
            let parsed = PasswordHash::new(&hash)
                .map_err(|error| Fault::internal(format!("read a password hash: {error}")))?;
            let verdict = Argon2::default().verify_password(password.expose().as_bytes(), &parsed);
            Ok(verdict.is_ok())
        })
        .await?
    }

    async fn heavy<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let permit = Arc::clone(&self.hashing).acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        })
        .await
        .map_err(|error| Fault::internal(format!("hash a password: {error}")))
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
