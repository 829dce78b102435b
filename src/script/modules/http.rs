//! `http`: requests to web servers.
//!
//! A request runs on a thread of its own, so that a stop does not wait for the server: the thread
//! ends with the request, at the latest after its timeout.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::{Module, TEXT, record};
use crate::base::limits;
use crate::script::arguments::{Args, whole};
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::memory;
use crate::script::value::Value;
use crate::wire::{Code, Fault};

/// Between two looks at whether the run was stopped.
const POLL: Duration = Duration::from_millis(10);

const URL: Param = Param::required("url", TEXT, "http:// or https://");
const BODY: Param = Param::optional("body", Type::Bytes, Preset::Absent, "what to send");
const OPTIONS: Param = Param::optional(
    "options",
    Type::Map,
    Preset::Absent,
    "`timeout` (seconds, 30), `headers` (map of strings), `followRedirects` (true), `maxRedirects` (5)",
);
const RESPONSE: Type = Type::Record(&[
    ("status", Type::Int),
    ("body", Type::Bytes),
    ("headers", Type::Map),
    ("elapsed", Type::Float),
    ("success", Type::Bool),
    ("error", Type::Optional(&Type::Text)),
]);

pub const MODULE: Module = Module {
    name: "http",
    doc: "Requests to web servers. `success` is true for a status from 200 to 299; without an answer `status` is 0 and `error` says why. Bodies hold at most 16 MiB; `elapsed` is in milliseconds.",
    functions: &[
        Function {
            module: "http",
            name: "get",
            params: &[URL, OPTIONS],
            reply: RESPONSE,
            capability: None,
            doc: "Sends a GET request.",
            example: Example("$let answer = http.get(\"http://127.0.0.1:9/\", ${timeout$: 1})"),
            handler: |context, args| send(context, args, "GET", None, 1),
        },
        Function {
            module: "http",
            name: "delete",
            params: &[URL, OPTIONS],
            reply: RESPONSE,
            capability: None,
            doc: "Sends a DELETE request.",
            example: Example(
                "$let answer = http.delete(\"http://127.0.0.1:9/item\", ${timeout$: 1})",
            ),
            handler: |context, args| send(context, args, "DELETE", None, 1),
        },
        Function {
            module: "http",
            name: "post",
            params: &[URL, BODY, OPTIONS],
            reply: RESPONSE,
            capability: None,
            doc: "Sends a POST request.",
            example: Example(
                "$let answer = http.post(\"http://127.0.0.1:9/\", \"{}\", ${timeout$: 1, headers$: ${accept$: \"application/json\"}})",
            ),
            handler: |context, args| send(context, args, "POST", body(args)?, 2),
        },
        Function {
            module: "http",
            name: "put",
            params: &[URL, BODY, OPTIONS],
            reply: RESPONSE,
            capability: None,
            doc: "Sends a PUT request.",
            example: Example(
                "$let answer = http.put(\"http://127.0.0.1:9/\", \"x\", ${timeout$: 1})",
            ),
            handler: |context, args| send(context, args, "PUT", body(args)?, 2),
        },
        Function {
            module: "http",
            name: "request",
            params: &[
                Param::required("method", TEXT, "GET, POST, PATCH, …"),
                URL,
                BODY,
                OPTIONS,
            ],
            reply: RESPONSE,
            capability: None,
            doc: "Sends a request of any method.",
            example: Example(
                "$let answer = http.request(\"PATCH\", \"http://127.0.0.1:9/\", \"x\", ${timeout$: 1})",
            ),
            handler: |context, args| {
                let body = args.has(2).then(|| args.bytes(2)).transpose()?;
                request(context, args, args.text(0)?, args.text(1)?, body, 3)
            },
        },
    ],
};

fn body(args: &Args) -> Result<Option<&[u8]>, ScriptFault> {
    args.has(1).then(|| args.bytes(1)).transpose()
}

fn send(
    context: &Context,
    args: &Args,
    method: &str,
    body: Option<&[u8]>,
    options_at: usize,
) -> Result<Value, ScriptFault> {
    request(context, args, method, args.text(0)?, body, options_at)
}

struct Options {
    timeout: Duration,
    headers: Vec<(String, String)>,
    redirects_max: u32,
}

fn options(args: &Args, at: usize) -> Result<Options, ScriptFault> {
    let mut options = Options {
        timeout: Duration::from_secs(30),
        headers: Vec::new(),
        redirects_max: 5,
    };
    let empty = BTreeMap::new();
    let mut follow = true;
    for (name, value) in args.map(at)?.unwrap_or(&empty) {
        let wrong =
            |expected: &str| args.refuse(at, &format!("{name} as {expected}"), value.kind());
        match (name.as_str(), value) {
            (_, Value::Nil) => {}
            ("timeout", Value::Int(n)) if (1..=3600).contains(n) => {
                options.timeout = Duration::from_secs(n.unsigned_abs());
            }
            ("timeout", Value::Float(n)) if *n > 0.0 && *n <= 3600.0 => {
                options.timeout = Duration::from_secs_f64(*n);
            }
            ("timeout", _) => return Err(wrong("a number of seconds up to 3600")),
            ("headers", Value::Map(map)) => {
                for (header, text) in map {
                    let Value::Text(text) = text else {
                        return Err(wrong("a map of strings"));
                    };
                    options.headers.push((header.clone(), text.clone()));
                }
            }
            ("headers", _) => return Err(wrong("a map of strings")),
            ("followRedirects" | "follow_redirects", Value::Bool(b)) => follow = *b,
            ("maxRedirects" | "max_redirects", value) => {
                let count = whole(value).filter(|n| (0..=20).contains(n));
                let count = count.ok_or_else(|| wrong("an integer from 0 to 20"))?;
                options.redirects_max = count as u32;
            }
            _ => {
                let known = "timeout, headers, followRedirects or maxRedirects";
                return Err(args.refuse(at, known, format!("{name:?}")));
            }
        }
    }
    if !follow {
        options.redirects_max = 0;
    }
    Ok(options)
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn request(
    context: &Context,
    args: &Args,
    method: &str,
    url: &str,
    body: Option<&[u8]>,
    options_at: usize,
) -> Result<Value, ScriptFault> {
    let options = options(args, options_at)?;
    let request = build(method, url, body, &options)?;
    let started = Instant::now();
    let (sender, receiver) = sync_channel(1);
    std::thread::Builder::new()
        .name("script-http".to_owned())
        .spawn(move || {
            // The run may have gone; then nobody wants the reply.
            let _ = sender.send(perform(request, &options));
        })
        .map_err(|error| Fault::internal(format!("start a request: {error}")))?;
    let reply = loop {
        match receiver.recv_timeout(POLL) {
            Ok(reply) => break reply,
            Err(RecvTimeoutError::Timeout) => context.watch().check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::internal("the request's thread died").into());
            }
        }
    };
    Ok(response(reply, started.elapsed()))
}

fn build(
    method: &str,
    url: &str,
    body: Option<&[u8]>,
    options: &Options,
) -> Result<ureq::http::Request<Vec<u8>>, ScriptFault> {
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, text) in &options.headers {
        request = request.header(name, text);
    }
    request
        .body(body.unwrap_or_default().to_vec())
        .map_err(|error| ScriptFault::failed(Code::InvalidParams, format!("the request: {error}")))
}

fn perform(request: ureq::http::Request<Vec<u8>>, options: &Options) -> Result<Reply, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(options.timeout))
        .max_redirects(options.redirects_max)
        .max_redirects_will_error(options.redirects_max > 0)
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .build()
        .into();
    let mut response = if request.body().is_empty() {
        agent.run(request.map(|_| ()))
    } else {
        agent.run(request)
    }
    .map_err(|error| error.to_string())?;
    let headers = response.headers().iter().map(|(name, text)| {
        let text = String::from_utf8_lossy(text.as_bytes()).into_owned();
        (name.as_str().to_owned(), text)
    });
    let headers = headers.collect();
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(limits::SCRIPT_HTTP_BODY_LEN_MAX as u64)
        .read_to_vec()
        .map_err(|error| error.to_string())?;
    Ok(Reply {
        status,
        headers,
        body,
    })
}

fn response(reply: Result<Reply, String>, elapsed: Duration) -> Value {
    let elapsed = Value::Float(elapsed.as_secs_f64() * 1000.0);
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            return record([
                ("status", Value::Int(0)),
                ("body", Value::Text(String::new())),
                ("headers", Value::Map(BTreeMap::new())),
                ("elapsed", elapsed),
                ("success", Value::Bool(false)),
                ("error", Value::Text(error)),
            ]);
        }
    };
    // The request's thread allocated it; this thread will free it.
    memory::adopt(reply.body.len());
    let body = match String::from_utf8(reply.body) {
        Ok(text) => Value::Text(text),
        Err(error) => Value::Bytes(error.into_bytes()),
    };
    let mut headers: BTreeMap<String, Value> = BTreeMap::new();
    for (name, text) in reply.headers {
        match headers.get_mut(&name) {
            Some(Value::Text(all)) => {
                all.push_str(", ");
                all.push_str(&text);
            }
            _ => {
                headers.insert(name, Value::Text(text));
            }
        }
    }
    record([
        ("status", Value::Int(reply.status.into())),
        ("body", body),
        ("headers", Value::Map(headers)),
        ("elapsed", elapsed),
        ("success", Value::Bool((200..300).contains(&reply.status))),
        ("error", Value::Nil),
    ])
}
