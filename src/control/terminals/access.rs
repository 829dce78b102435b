//! Who may do what with which session: the role's permission, or a grant to that one session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::{Place, Terminals, is_whole};
use crate::base::ids::{AccountId, TerminalId};
use crate::control::auth::Identity;
use crate::control::fault::stored;
use crate::store::{accounts, terminals as table};
use crate::wire::messages::sessions::{
    Create, Grant, GrantLevel, GrantList, RevokeGrant, SessionRef,
};
use crate::wire::method::{MethodRow, Owner};
use crate::wire::{Code, Fault, Method, Permission};

impl GrantLevel {
    const fn text(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Control => "control",
            Self::Manage => "manage",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::View, Self::Control, Self::Manage]
            .into_iter()
            .find(|level| level.text() == text)
    }

    /// The level that stands for a permission; `None` for one that no grant gives.
    const fn of(permission: Permission) -> Option<Self> {
        match permission {
            Permission::SessionsView => Some(Self::View),
            Permission::SessionsControl => Some(Self::Control),
            Permission::SessionsManage => Some(Self::Manage),
            _ => None,
        }
    }
}

/// Whether a grant to one session can stand for the route's permission, so that its handler decides.
pub fn grants_may_allow(row: &MethodRow) -> bool {
    row.owner == Owner::Each && GrantLevel::of(row.permission).is_some() && row.name != Create::NAME
}

/// On what a right rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    Role,
    /// A grant of at least this level.
    Grant(GrantLevel),
}

/// What an account may see.
pub(super) struct Sight {
    /// The role sees everything.
    all: bool,
    granted: HashMap<TerminalId, GrantLevel>,
}

impl Sight {
    pub fn sees(&self, session: &TerminalId) -> bool {
        self.all || self.granted.contains_key(session)
    }
}

impl Terminals {
    /// What the account may see.
    pub(super) async fn sight(&self, who: &Identity) -> Result<Sight, Fault> {
        let all = who.may(Permission::SessionsView);
        let granted = if all {
            HashMap::new()
        } else {
            self.granted(who, Permission::SessionsView).await?
        };
        Ok(Sight { all, granted })
    }

    /// The grants that count for this credential: a scope that lacks the permission takes them too.
    async fn granted(
        &self,
        who: &Identity,
        permission: Permission,
    ) -> Result<HashMap<TerminalId, GrantLevel>, Fault> {
        if !who.scoped_for(permission) {
            return Ok(HashMap::new());
        }
        let account = who.account_id.clone();
        let found = self.store.call(move |c| table::grants_of(c, &account));
        let level = |row: table::GrantRow| Some((row.session_id, GrantLevel::parse(&row.level)?));
        Ok(found
            .await
            .map_err(stored)?
            .into_iter()
            .filter_map(level)
            .collect())
    }

    /// Refuses at once whom neither role nor any grant allows this anywhere, so that nobody learns
    /// which sessions there are.
    pub(super) async fn may_anywhere(
        &self,
        who: &Identity,
        permission: Permission,
    ) -> Result<(), Fault> {
        if who.may(permission) {
            return Ok(());
        }
        let granted = self.granted(who, permission).await?;
        let enough = |level: &GrantLevel| Some(*level) >= GrantLevel::of(permission);
        if granted.values().any(enough) {
            return Ok(());
        }
        Err(denied(permission))
    }

    /// Checks the right to one session and answers what it rests on.
    pub(super) async fn may(
        &self,
        who: &Identity,
        permission: Permission,
        place: &Place,
    ) -> Result<Basis, Fault> {
        if who.may(permission) {
            return Ok(Basis::Role);
        }
        let needed = GrantLevel::of(permission).ok_or_else(|| denied(permission))?;
        let granted = self.granted(who, permission).await?;
        match granted.get(&place.session.id) {
            Some(level) if *level >= needed => Ok(Basis::Grant(needed)),
            _ => Err(denied(permission)),
        }
    }

    /// `session.grants`.
    pub(super) async fn grants(&self, params: SessionRef) -> Result<GrantList, Fault> {
        let session = self.session_of(&params.id).await?;
        self.grants_to(session).await
    }

    /// `session.grant`.
    pub(super) async fn add_grant(&self, params: Grant) -> Result<GrantList, Fault> {
        let session = self.session_of(params.id.as_str()).await?;
        let account = self.account(&params.username).await?;
        let (id, of, now) = (session.clone(), account.clone(), self.clock.now());
        let level = params.level;
        let put = self
            .store
            .call(move |c| table::put_grant(c, &id, &of, level.text(), now));
        if !put.await.map_err(stored)? {
            return Err(Fault::new(
                Code::Conflict,
                "the session has as many grants as it may have",
            ));
        }
        self.attachments.grant_is(&session, &account, Some(level));
        self.grants_to(session).await
    }

    /// `session.revoke_grant`.
    pub(super) async fn revoke_grant(&self, params: RevokeGrant) -> Result<GrantList, Fault> {
        let session = self.session_of(&params.id).await?;
        let account = self.account(&params.username).await?;
        let (id, of) = (session.clone(), account.clone());
        let dropped = self.store.call(move |c| table::drop_grant(c, &id, &of));
        if !dropped.await.map_err(stored)? {
            let text = format!("{} has no grant to this session", params.username);
            return Err(Fault::new(Code::NotFound, text));
        }
        self.attachments.grant_is(&session, &account, None);
        self.grants_to(session).await
    }

    async fn grants_to(&self, session: TerminalId) -> Result<GrantList, Fault> {
        let found = self.store.call(move |c| table::grants_to(c, &session));
        let grant = |row: table::GrantRow| {
            Some(Grant {
                level: GrantLevel::parse(&row.level)?,
                id: row.session_id,
                username: row.username,
            })
        };
        let grants = found.await.map_err(stored)?.into_iter().filter_map(grant);
        Ok(GrantList {
            grants: grants.collect(),
        })
    }

    /// A whole id stands for itself, even where its workstation is away.
    async fn session_of(&self, id: &str) -> Result<TerminalId, Fault> {
        match TerminalId::parse(id) {
            Ok(whole) if is_whole(&whole) => Ok(whole),
            _ => Ok(self.find(id, None).await?.session.id),
        }
    }

    async fn account(&self, username: &str) -> Result<AccountId, Fault> {
        let name = username.to_owned();
        let found = self.store.call(move |c| accounts::account_named(c, &name));
        let account = found.await.map_err(stored)?;
        let missing = || Fault::new(Code::NotFound, format!("there is no account {username:?}"));
        Ok(account.ok_or_else(missing)?.account_id)
    }
}

fn denied(permission: Permission) -> Fault {
    let text = format!(
        "this needs {} or a grant to the session",
        permission.as_str()
    );
    Fault::new(Code::PermissionDenied, text)
}

/// The open attachments, so that those whose grant is taken back end.
#[derive(Default)]
pub(super) struct Attachments {
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    next: u64,
    all: HashMap<u64, Attached>,
}

struct Attached {
    session: TerminalId,
    account: AccountId,
    basis: Basis,
    ended: CancellationToken,
}

/// An attachment's entry; dropping it takes it out.
pub(super) struct Entry {
    number: u64,
    /// Fires when the grant that it rests on is gone.
    pub ended: CancellationToken,
    open: Arc<Mutex<Open>>,
}

impl Attachments {
    fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
        open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, session: TerminalId, account: AccountId, basis: Basis) -> Entry {
        let ended = CancellationToken::new();
        let mut open = Self::lock(&self.open);
        open.next += 1;
        let number = open.next;
        let attached = Attached {
            session,
            account,
            basis,
            ended: ended.clone(),
        };
        open.all.insert(number, attached);
        drop(open);
        Entry {
            number,
            ended,
            open: Arc::clone(&self.open),
        }
    }

    fn grant_is(&self, session: &TerminalId, account: &AccountId, level: Option<GrantLevel>) {
        for attached in Self::lock(&self.open).all.values() {
            let hit = attached.session == *session && attached.account == *account;
            if hit && matches!(attached.basis, Basis::Grant(needed) if level < Some(needed)) {
                attached.ended.cancel();
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        Attachments::lock(&self.open).all.remove(&self.number);
    }
}
