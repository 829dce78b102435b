//! What the first start needs: an admin account, a login string to print, and the token of a local record.

use super::{Auth, TICKET_PREFIX, TOKEN_PREFIX, credential, digest, shown_prefix};
use crate::base::ids::{AccountId, TokenId};
use crate::base::{EpochMillis, Secret};
use crate::control::fault::stored;
use crate::store::accounts;
use crate::wire::permission::Role;
use crate::wire::{Code, Fault};

/// The account of first start.
const ADMIN: &str = "admin";
/// How long the login string of first start works.
const LOGIN_STRING_LIFE_MS: i64 = 24 * 60 * 60 * 1000;
/// Ended sessions and tokens are shown for this long.
const ENDED_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1000;

/// What first start prints.
#[derive(Clone, Debug)]
pub struct LoginString {
    /// Works once, with `wingman login` or in `/login?ticket=`.
    pub text: Secret,
    pub username: String,
    pub expires_at: EpochMillis,
}

impl Auth {
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
}
