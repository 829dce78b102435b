//! `session.*`, `debug.view` and `footprint.get`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::{EpochMillis, limits};
use crate::runtime::dispatcher::{Context, Dispatcher};
use crate::runtime::node::Node;
use crate::terminal::{Session, Sessions};
use crate::wire::messages::Empty;
use crate::wire::messages::sessions::{
    Attach, AttachParams, AttachReply, Create, CreateParams, Debug, DebugParams, DebugReply,
    Detach, DetachParams, DetachReply, Explain, ExplainReply, Footprint, Get, GetFootprint, Kill,
    Lease, LeaseParams, List, ListParams, Picture, Read, ReadParams, ReadReply, Record,
    RecordParams, RecordReply, Rename, RenameParams, Resize, ResizeParams, Restore, RestoreReply,
    Search, SearchParams, SearchReply, Send, SendParams, Session as SessionRecord, SessionList,
    SessionRef, SetLease, View, Wait, WaitParams,
};
use crate::wire::{Blob, Code, Fault, StreamEnd};

pub(super) fn register(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<List, _, _>(list)
        .on::<Create, _, _>(create)
        .on::<Get, _, _>(get)
        .on::<Resize, _, _>(resize)
        .on::<Rename, _, _>(rename)
        .on::<Kill, _, _>(kill)
        .on::<Send, _, _>(send)
        .on::<Read, _, _>(read)
        .on_blob::<Picture, _, _>(picture)
        .on::<Search, _, _>(search)
        .on::<Wait, _, _>(wait)
        .on::<Explain, _, _>(explain)
        .on::<SetLease, _, _>(lease)
        .on::<Detach, _, _>(detach)
        .on::<Record, _, _>(record)
        .on_stream::<Attach, _, _>(attach)
        .on::<Restore, _, _>(restore)
        .on::<Debug, _, _>(debug)
        .on::<GetFootprint, _, _>(footprint)
}

fn find(node: &Node, id: &str) -> Result<Arc<Session>, Fault> {
    node.sessions.find(id)
}

async fn blocking<T: std::marker::Send + 'static>(
    node: &Arc<Node>,
    work: impl FnOnce(&Sessions) -> Result<T, Fault> + std::marker::Send + 'static,
) -> Result<T, Fault> {
    let sessions = Arc::clone(&node.sessions);
    crate::runtime::blocking(move || work(&sessions)).await
}

async fn list(node: Arc<Node>, _: ListParams, _: Context) -> Result<SessionList, Fault> {
    Ok(SessionList {
        sessions: node
            .sessions
            .list()
            .iter()
            .map(|session| session.record())
            .collect(),
        machines: None,
    })
}

async fn create(node: Arc<Node>, params: CreateParams, _: Context) -> Result<SessionRecord, Fault> {
    blocking(&node, move |sessions| {
        Ok(sessions.create(&params)?.record())
    })
    .await
}

async fn get(node: Arc<Node>, params: SessionRef, _: Context) -> Result<SessionRecord, Fault> {
    Ok(find(&node, &params.id)?.record())
}

async fn resize(node: Arc<Node>, params: ResizeParams, _: Context) -> Result<SessionRecord, Fault> {
    let session = find(&node, &params.id)?;
    session
        .set_size(params.cols, params.rows, params.generation)
        .await?;
    Ok(session.record())
}

async fn rename(node: Arc<Node>, params: RenameParams, _: Context) -> Result<SessionRecord, Fault> {
    let session = find(&node, &params.id)?;
    blocking(&node, move |sessions| {
        sessions.rename(&session, &params.name)?;
        Ok(session.record())
    })
    .await
}

async fn kill(node: Arc<Node>, params: SessionRef, _: Context) -> Result<SessionRecord, Fault> {
    let session = find(&node, &params.id)?;
    node.sessions.kill(&session).await?;
    Ok(session.record())
}

async fn send(node: Arc<Node>, params: SendParams, _: Context) -> Result<SessionRecord, Fault> {
    let session = find(&node, &params.id)?;
    session.send(&params).await?;
    Ok(session.record())
}

async fn read(node: Arc<Node>, params: ReadParams, _: Context) -> Result<ReadReply, Fault> {
    let session = find(&node, &params.id)?;
    blocking(&node, move |_| Ok(session.read(&params))).await
}

async fn picture(node: Arc<Node>, params: SessionRef, _: Context) -> Result<(Empty, Blob), Fault> {
    let session = find(&node, &params.id)?;
    blocking(&node, move |_| {
        let bytes = session.picture()?;
        let blob = Blob {
            content_type: "image/png".to_owned(),
            bytes: bytes.into(),
            field: "image",
        };
        Ok((Empty {}, blob))
    })
    .await
}

async fn search(node: Arc<Node>, params: SearchParams, _: Context) -> Result<SearchReply, Fault> {
    let session = find(&node, &params.id)?;
    blocking(&node, move |_| Ok(session.search(&params))).await
}

async fn wait(
    node: Arc<Node>,
    params: WaitParams,
    context: Context,
) -> Result<SessionRecord, Fault> {
    let session = find(&node, &params.id)?;
    let waiting = session.wait_for(&params.what);
    let late = async {
        match params.timeout_ms {
            0 => std::future::pending().await,
            ms => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    };
    tokio::select! {
        came = waiting => came?,
        () = late => return Err(Fault::new(Code::TimedOut, format!("it did not come within {} ms", params.timeout_ms))),
        () = context.cancel.cancelled() => return Err(Fault::new(Code::Cancelled, "the caller gave up")),
    }
    Ok(session.record())
}

async fn explain(node: Arc<Node>, params: SessionRef, _: Context) -> Result<ExplainReply, Fault> {
    Ok(find(&node, &params.id)?.explain())
}

async fn lease(node: Arc<Node>, params: LeaseParams, _: Context) -> Result<Lease, Fault> {
    find(&node, &params.id)?.change_lease(params.action, params.console.as_ref())
}

async fn detach(node: Arc<Node>, params: DetachParams, _: Context) -> Result<DetachReply, Fault> {
    let sessions = match params.id.is_empty() {
        true => node.sessions.list(),
        false => vec![find(&node, &params.id)?],
    };
    let detached = sessions
        .iter()
        .map(|session| session.detach(params.console.as_ref()))
        .sum();
    Ok(DetachReply { detached })
}

async fn record(node: Arc<Node>, params: RecordParams, _: Context) -> Result<RecordReply, Fault> {
    let session = find(&node, &params.id)?;
    blocking(&node, move |_| session.record_to_file(params.on)).await
}

async fn attach(
    node: Arc<Node>,
    params: AttachParams,
    _: Context,
) -> Result<(AttachReply, StreamEnd), Fault> {
    find(&node, &params.session_id)?.attach(params).await
}

async fn restore(node: Arc<Node>, Empty {}: Empty, _: Context) -> Result<RestoreReply, Fault> {
    blocking(&node, |sessions| {
        let (restored, failed) = sessions.restore();
        Ok(RestoreReply {
            restored: restored.iter().map(|session| session.record()).collect(),
            failed,
        })
    })
    .await
}

async fn footprint(node: Arc<Node>, _: ListParams, _: Context) -> Result<Footprint, Fault> {
    blocking(&node, |sessions| {
        Ok(Footprint {
            rows: Vec::new(),
            pty: sessions
                .list()
                .iter()
                .filter_map(|session| session.footprint())
                .collect(),
        })
    })
    .await
}

async fn debug(node: Arc<Node>, params: DebugParams, _: Context) -> Result<DebugReply, Fault> {
    let sessions = match &params.id {
        Some(id) => vec![find(&node, id)?],
        None => node.sessions.list(),
    };
    let rows = match params.view {
        View::Sessions => sessions.iter().map(|session| session.debug_row()).collect(),
        View::Consoles => {
            let consoles = sessions.iter().flat_map(|session| session.consoles());
            let rows: Result<Vec<_>, _> = consoles
                .map(|console| serde_json::to_value(&console))
                .collect();
            rows.map_err(Fault::internal)?
        }
        View::Attention => sessions
            .iter()
            .map(|session| session.attention_row())
            .collect(),
        View::Links => vec![link_row(&node)],
        View::Events => event_rows(&node, params.id.as_ref().map(|_| sessions[0].id().as_str()))?,
    };
    Ok(DebugReply { rows })
}

fn link_row(node: &Node) -> serde_json::Value {
    let (state, server) = match node.remote.get() {
        Some(remote) => {
            let (state, why) = remote.state();
            (serde_json::to_value(state).unwrap_or_default(), why)
        }
        None => (serde_json::Value::from("in_process"), None),
    };
    serde_json::json!({
        "link": "server", "state": state, "detail": server,
        "localClients": node.local_clients.load(Ordering::Relaxed),
        "uptimeMs": u64::try_from(node.started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// The last events of sessions and consoles.
fn event_rows(node: &Node, session: Option<&str>) -> Result<Vec<serde_json::Value>, Fault> {
    let range = node.journal.range();
    let from = range
        .next_seq
        .saturating_sub(limits::DEBUG_EVENTS_SEARCH_MAX)
        .max(range.first_seq);
    let records = node
        .journal
        .read(from, limits::DEBUG_EVENTS_SEARCH_MAX as usize)?;
    let wanted = records.into_iter().filter(|record| {
        record.stream == "sessions" && session.is_none_or(|id| record.session_id == id)
    });
    let mut rows: Vec<_> = wanted
        .map(|record| {
            serde_json::json!({
                "seq": record.sequence, "at": EpochMillis::rfc3339(record.observed_at),
                "session": record.session_id, "type": record.event_type, "payload": record.payload,
            })
        })
        .collect();
    let surplus = rows.len().saturating_sub(limits::DEBUG_EVENTS_MAX);
    rows.drain(..surplus);
    Ok(rows)
}
