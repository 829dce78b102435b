//! The audit trail: every unsafe request and every sign-in, with who, where from, what and how it
//! ended. Never a secret.

use serde_json::{Map, Value};

use super::fault::stored;
use super::methods::Caller;
use super::routes::Route;
use crate::base::EpochMillis;
use crate::base::limits::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX};
use crate::store::{Store, audit};
use crate::wire::messages::auth::{AuditParams, AuditReply, AuditRow};
use crate::wire::{Code, Fault};

/// Parameters that say what a request was about, best first.
const TARGETS: &[&str] = &["executionId", "agentId", "captureId", "id"];
/// Parameters that are told besides; all of them are names, none holds a secret.
const DETAILS: &[&str] = &["name", "path", "label", "tags", "keepInstance", "handle"];
/// A parameter longer than this is left out, in bytes of JSON.
const DETAIL_LEN_MAX: usize = 512;

/// What a request was about, taken before its handler consumes the parameters.
pub struct Subject {
    actor: String,
    target: Option<String>,
    detail: Map<String, Value>,
}

impl Subject {
    pub fn of(caller: &Caller, params: &Map<String, Value>) -> Self {
        let text = |name: &str| {
            params
                .get(name)
                .and_then(Value::as_str)
                .map(super::auth::cut)
        };
        let actor = match &caller.identity {
            Some(identity) => identity.username.clone(),
            None => text("username").unwrap_or_default(),
        };
        let mut detail = Map::new();
        for name in DETAILS {
            if let Some(value) = params.get(*name)
                && value.to_string().len() <= DETAIL_LEN_MAX
            {
                detail.insert((*name).to_owned(), value.clone());
            }
        }
        if let Some(typed) = params.get("text").and_then(Value::as_str) {
            detail.insert("textBytes".into(), typed.len().into());
        }
        detail.insert("requestId".into(), caller.request_id.as_str().into());
        Self {
            actor,
            target: TARGETS.iter().find_map(|name| text(name)),
            detail,
        }
    }

    /// Names the account where the request itself found out who it is.
    pub fn told(&mut self, actor: &str) {
        self.actor = actor.to_owned();
    }

    /// Adds what the answer tells: the execution that a request started.
    pub fn answered(&mut self, data: &Value) {
        if let Some(id) = data["executionId"].as_str() {
            self.detail.insert("executionId".into(), id.into());
        }
    }
}

/// Writes a row when the route is audited; waits until it is on disk.
pub async fn write(
    store: &Store,
    now: EpochMillis,
    route: &Route,
    caller: &Caller,
    subject: Subject,
    outcome: Result<(), &Fault>,
) -> Result<(), Fault> {
    let Some(mut kind) = route.audit else {
        return Ok(());
    };
    if kind == "login" && outcome.is_err() {
        kind = "login_fail";
    }
    // A blocked guesser must not be able to fill the trail.
    if outcome.is_err_and(|fault| fault.code == Code::RateLimited) {
        return Ok(());
    }
    let row = audit::AuditRow {
        id: 0,
        at: now,
        kind: kind.to_owned(),
        actor: subject.actor,
        address: Some(caller.address.to_string()),
        target: subject.target,
        outcome: outcome.map_or_else(|fault| fault.code_text().to_owned(), |()| "ok".into()),
        detail: Value::Object(subject.detail),
    };
    store
        .call(move |c| audit::insert(c, &row))
        .await
        .map_err(stored)
}

/// Writes a row of something that is no request of its own, such as an attached console.
pub async fn note(
    store: &Store,
    now: EpochMillis,
    kind: &str,
    caller: &Caller,
    target: &str,
    outcome: &str,
    detail: Value,
) -> Result<(), Fault> {
    let row = audit::AuditRow {
        id: 0,
        at: now,
        kind: kind.to_owned(),
        actor: caller.identity()?.username.clone(),
        address: Some(caller.address.to_string()),
        target: Some(target.to_owned()),
        outcome: outcome.to_owned(),
        detail,
    };
    let written = store.call(move |c| audit::insert(c, &row));
    written.await.map_err(stored)
}

/// `audit.list`.
pub async fn list(store: &Store, params: AuditParams) -> Result<AuditReply, Fault> {
    let (offset, limit) = page(params.page, params.page_size);
    let found = store.call(move |c| {
        let (actor, kind) = (params.actor.as_deref(), params.kind.as_deref());
        audit::list(c, actor, kind, offset, limit)
    });
    let (rows, total) = found.await.map_err(stored)?;
    let events = rows.into_iter().map(|row| AuditRow {
        id: row.id,
        at: row.at,
        kind: row.kind,
        actor: row.actor,
        address: row.address,
        target: row.target,
        outcome: row.outcome,
        detail: row.detail,
    });
    Ok(AuditReply {
        events: events.collect(),
        total,
    })
}

/// Offset and length of a page, counted from 1.
pub fn page(page: Option<u32>, size: Option<u32>) -> (u64, u32) {
    let size = size.unwrap_or(PAGE_SIZE_DEFAULT).clamp(1, PAGE_SIZE_MAX);
    let before = page.unwrap_or(1).max(1) - 1;
    (u64::from(before) * u64::from(size), size)
}
