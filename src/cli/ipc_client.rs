//! `wingman ipc-client`: the local wire by hand.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Globals, output, screenshot};
use crate::base::error::exit;
use crate::client::{Caller, Wanted, connect, find};
use crate::wire::messages::events::FollowParams;
use crate::wire::method::MethodRow;
use crate::wire::table::METHODS;
use crate::wire::{Code, Fault};

/// Call a method of the agent on this machine and print its answer as JSON.
#[derive(Clone, Debug, Args)]
pub struct IpcClientArgs {
    /// The method, such as system.getStatus.
    #[arg(value_name = "METHOD", required_unless_present_any = ["list", "follow"])]
    method: Option<String>,
    /// Its parameters as a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON")]
    params: Option<String>,
    /// List every method with the schema of its parameters.
    #[arg(long, conflicts_with_all = ["method", "follow"])]
    list: bool,
    /// Print new events as they come, one JSON object a line.
    #[arg(long, conflicts_with = "method")]
    follow: bool,
    /// Write the bytes of the answer to this file instead of printing them as a `data:` URL.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) async fn run(args: IpcClientArgs, globals: &Globals) -> Result<u8, Fault> {
    if args.list {
        list(globals.json);
        return Ok(exit::OK);
    }
    let wanted = Wanted {
        server: Some("local".to_owned()),
        ..Wanted::default()
    };
    let caller = connect(find(&wanted, &globals.paths()?)?).await?;
    match args.method {
        Some(method) => call(&caller, &method, args.params, args.out).await,
        None => follow(&caller).await,
    }
}

async fn call(
    caller: &Caller,
    method: &str,
    params: Option<String>,
    out: Option<PathBuf>,
) -> Result<u8, Fault> {
    let (mut data, blob) = caller.call_named(method, read_params(params)?).await?;
    match (blob, out) {
        (Some(blob), Some(path)) => screenshot::save(&path, &blob.bytes)?,
        (Some(blob), None) => {
            if let (Value::Object(fields), Some(field)) = (&mut data, blob.field) {
                let encoded = data_encoding::BASE64.encode(&blob.bytes);
                let url = format!("data:{};base64,{encoded}", blob.content_type);
                fields.insert(field, Value::String(url));
            }
        }
        (None, Some(_)) => {
            let text = format!("the answer of {method} has no bytes to write");
            return Err(Fault::new(Code::InvalidParams, text));
        }
        (None, None) => {}
    }
    output::json(&data);
    Ok(exit::OK)
}

fn read_params(text: Option<String>) -> Result<Value, Fault> {
    let text = match text.as_deref() {
        None => return Ok(Value::Object(Map::new())),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| {
                    Fault::new(Code::InvalidParams, format!("read standard input: {error}"))
                })?;
            text
        }
        Some(text) => text.to_owned(),
    };
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Fault::new(Code::InvalidParams, format!("parameters: {error}")))?;
    if !value.is_object() {
        let text = "parameters are a JSON object";
        return Err(Fault::new(Code::InvalidParams, text));
    }
    Ok(value)
}

fn on_ipc() -> impl Iterator<Item = &'static MethodRow> {
    METHODS.iter().filter(|row| row.owner.on_ipc())
}

fn list(as_json: bool) {
    if as_json {
        let rows: Vec<Value> = on_ipc().map(describe).collect();
        output::json(&rows);
        return;
    }
    for row in on_ipc() {
        output::line(row.name);
        output::line(&format!("    {}", row.doc.trim().replace('\n', "\n    ")));
        output::line(&format!("    parameters: {}", (row.params_schema)()));
        output::line(&format!("    example:    {}", row.example));
    }
}

fn describe(row: &MethodRow) -> Value {
    json!({
        "method": row.name,
        "aliases": row.aliases,
        "description": row.doc.trim(),
        "capability": row.capability,
        "params": (row.params_schema)(),
        "reply": (row.reply_schema)(),
        "example": serde_json::from_str::<Value>(row.example).unwrap_or_default(),
    })
}

async fn follow(caller: &Caller) -> Result<u8, Fault> {
    let params = FollowParams {
        follow: true,
        ..FollowParams::default()
    };
    let mut stream = caller.follow_events(params).await?;
    loop {
        tokio::select! {
            record = stream.next() => match record {
                Some(record) => output::json_line(&record?),
                None => return Ok(exit::OK),
            },
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(|error| Fault::internal(format!("wait for Ctrl-C: {error}")))?;
                return Ok(exit::INTERRUPTED);
            }
        }
    }
}
