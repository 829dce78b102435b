//! `wingman events`: what happened, from the journal of the server or of the local agent.

use std::time::Duration;

use clap::Args;

use super::Globals;
use super::output::{self, clean};
use crate::base::Kind;
use crate::base::error::exit;
use crate::base::limits;
use crate::client::EventStream;
use crate::wire::event::Record;
use crate::wire::messages::events::FollowParams;
use crate::wire::{Code, Fault};

/// Print events: the last ones, and with --follow each new one.
///
/// A connection that breaks is made anew and goes on after the last event that came.
#[derive(Clone, Debug, Args)]
pub struct EventsArgs {
    /// Go on with new events until Ctrl-C.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Begin this many events before the end; 0 shows only new ones.
    #[arg(long, value_name = "N", default_value_t = 10)]
    tail: u64,
    /// Begin after the event of this number.
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "tail")]
    after: Option<u64>,
    /// Only types that begin with this text, such as execution.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
}

pub(super) async fn run(args: EventsArgs, globals: &Globals) -> Result<u8, Fault> {
    tokio::select! {
        done = show(args, globals) => done,
        signal = tokio::signal::ctrl_c() => {
            signal.map_err(|error| Fault::internal(format!("wait for Ctrl-C: {error}")))?;
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn show(args: EventsArgs, globals: &Globals) -> Result<u8, Fault> {
    let mut params = FollowParams {
        // The wire names the first sequence wanted.
        after: args.after.map(|sequence| sequence.saturating_add(1)),
        tail: args.after.is_none().then_some(args.tail),
        prefix: args.prefix,
        follow: args.follow,
    };
    // The first connection must work; later ones are tried until they do.
    let mut stream = open(&params, globals).await?;
    let mut delay_ms = limits::RECONNECT_FIRST_MS;
    loop {
        let broken = match stream.next().await {
            Some(Ok(record)) => {
                params.after = Some(record.sequence + 1);
                params.tail = None;
                delay_ms = limits::RECONNECT_FIRST_MS;
                print(&record, globals.json);
                continue;
            }
            Some(Err(fault)) if fault.kind() != Kind::Unavailable => return Err(fault),
            None if !args.follow => return Ok(exit::OK),
            Some(Err(fault)) if !args.follow => return Err(fault),
            Some(Err(fault)) => fault,
            None => Fault::new(Code::LinkClosed, "the stream of events ended"),
        };
        output::note(&format!("{}; connecting again", clean(&broken.message)));
        stream = loop {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            delay_ms = (delay_ms * 2).min(limits::RECONNECT_MAX_MS);
            match open(&params, globals).await {
                Ok(stream) => break stream,
                Err(fault) if fault.kind() == Kind::Unavailable => {}
                Err(fault) => return Err(fault),
            }
        };
        output::note("connected again");
    }
}

async fn open(params: &FollowParams, globals: &Globals) -> Result<EventStream, Fault> {
    globals.caller().await?.follow_events(params.clone()).await
}

fn print(record: &Record, json: bool) {
    if json {
        output::json_line(record);
        return;
    }
    let session = if record.session_id.is_empty() {
        String::new()
    } else {
        format!(" {}", clean(&record.session_id))
    };
    output::line(&format!(
        "{} {} {}{session} {}",
        record.sequence,
        record.observed_at.rfc3339(),
        clean(&record.event_type),
        clean(&record.payload.to_string())
    ));
}
