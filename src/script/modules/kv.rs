//! `kv`: strings, hashes and lists that outlive a run.

use std::collections::BTreeMap;

use super::{Module, TEXT, int, opt_text};
use crate::script::arguments::{Args, whole};
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Handler, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::host::{ListEnd, SetRule};
use crate::script::value::Value;

const KEY: Param = Param::required("key", TEXT, "the key");
const FIELD: Param = Param::required("field", TEXT, "the hash's field");
const VALUE: Param = Param::required(
    "value",
    Type::Any,
    "text; numbers and booleans are stored as text",
);
const HASH_KEY: &[Param] = &[KEY];
const HASH_FIELD: &[Param] = &[KEY, FIELD];
const LIST_VALUE: &[Param] = &[KEY, VALUE];

const fn function(
    name: &'static str,
    params: &'static [Param],
    reply: Type,
    doc: &'static str,
    example: &'static str,
    handler: Handler,
) -> Function {
    Function {
        module: "kv",
        name,
        params,
        reply,
        capability: None,
        doc,
        example: Example(example),
        handler,
    }
}

pub const MODULE: Module = Module {
    name: "kv",
    doc: "Strings, hashes and lists that outlive a run and are shared by the scripts of a node. Each kind is a namespace of its own; every call is atomic.",
    functions: &[
        function(
            "set",
            &[
                KEY,
                VALUE,
                Param::optional(
                    "options",
                    Type::Map,
                    Preset::Absent,
                    "`ttl` (seconds), `nx` (only when absent), `xx` (only when present)",
                ),
            ],
            Type::Bool,
            "Sets a string; whether it was set. Without `ttl` it has no expiry.",
            "kv.set(\"state\", \"ready\", ${ttl$: 60})",
            set,
        ),
        function(
            "get",
            &[
                KEY,
                Param::optional(
                    "fallback",
                    Type::Any,
                    Preset::Absent,
                    "what to answer when there is none",
                ),
            ],
            Type::Any,
            "A string; the default, or nil, when there is none.",
            "$let state = kv.get(\"state\", \"unknown\")",
            |context, args| match context.host().kv().get(args.text(0)?)? {
                Some(text) => Ok(Value::Text(text)),
                None => Ok(args.any(1)?.clone()),
            },
        ),
        function(
            "delete",
            &[Param::required(
                "key",
                Type::Any,
                "a key, or a list of keys",
            )],
            Type::Bool,
            "Removes keys from every namespace; whether there was one.",
            "kv.delete($[\"a\", \"b\"$])",
            delete,
        ),
        function(
            "exists",
            HASH_KEY,
            Type::Bool,
            "Whether there is a string.",
            "$let there = kv.exists(\"state\")",
            |context, args| Ok(Value::Bool(context.host().kv().exists(args.text(0)?)?)),
        ),
        function(
            "expire",
            &[
                KEY,
                Param::required("ttl", Type::Int, "the time left").unit("s"),
            ],
            Type::Bool,
            "Sets a string's expiry; false when there is no such key.",
            "kv.expire(\"state\", 60)",
            |context, args| {
                let seconds = args.int_in(1, 0..=i64::from(u32::MAX))?;
                Ok(Value::Bool(
                    context
                        .host()
                        .kv()
                        .expire(args.text(0)?, seconds.unsigned_abs())?,
                ))
            },
        ),
        function(
            "ttl",
            HASH_KEY,
            Type::Int,
            "Seconds left of a string; -1 without an expiry, -2 without such a key.",
            "$let left = kv.ttl(\"state\")",
            |context, args| Ok(Value::Int(context.host().kv().ttl(args.text(0)?)?)),
        ),
        function(
            "incr",
            &[
                KEY,
                Param::optional("delta", Type::Int, Preset::Int(1), "what to add"),
            ],
            Type::Int,
            "Adds to an integer, from 0 when absent, and answers with the sum; its expiry stays. Text that is no integer is an error.",
            "$let count = kv.incr(\"visits\")",
            |context, args| {
                Ok(Value::Int(
                    context.host().kv().incr(args.text(0)?, args.int(1)?)?,
                ))
            },
        ),
        function(
            "keys",
            &[Param::optional(
                "prefix",
                TEXT,
                Preset::Text(""),
                "how the keys begin",
            )],
            Type::ListOf(&Type::Text),
            "The keys of strings, sorted.",
            "$let all = kv.keys(\"user:\")",
            |context, args| {
                let keys = context.host().kv().keys(args.text(0)?)?;
                Ok(Value::List(keys.into_iter().map(Value::Text).collect()))
            },
        ),
        function(
            "hset",
            &[KEY, FIELD, VALUE],
            Type::Bool,
            "Sets a field of a hash; true.",
            "kv.hset(\"user\", \"name\", \"Ada\")",
            |context, args| {
                context
                    .host()
                    .kv()
                    .hset(args.text(0)?, args.text(1)?, &stored(args, 2)?)?;
                Ok(Value::Bool(true))
            },
        ),
        function(
            "hget",
            HASH_FIELD,
            Type::Optional(&Type::Text),
            "A field of a hash; nil when there is none.",
            "$let name = kv.hget(\"user\", \"name\")",
            |context, args| {
                Ok(opt_text(
                    context.host().kv().hget(args.text(0)?, args.text(1)?)?,
                ))
            },
        ),
        function(
            "hgetall",
            HASH_KEY,
            Type::Map,
            "All fields of a hash; empty when there is none.",
            "$let user = kv.hgetall(\"user\")",
            |context, args| {
                let all = hash(context, args)?;
                Ok(Value::Map(
                    all.into_iter()
                        .map(|(field, text)| (field, Value::Text(text)))
                        .collect(),
                ))
            },
        ),
        function(
            "hdel",
            HASH_FIELD,
            Type::Bool,
            "Removes a field of a hash; whether there was one.",
            "kv.hdel(\"user\", \"name\")",
            |context, args| {
                Ok(Value::Bool(
                    context.host().kv().hdel(args.text(0)?, args.text(1)?)?,
                ))
            },
        ),
        function(
            "hexists",
            HASH_FIELD,
            Type::Bool,
            "Whether a hash has a field.",
            "$let named = kv.hexists(\"user\", \"name\")",
            |context, args| {
                Ok(Value::Bool(
                    context
                        .host()
                        .kv()
                        .hget(args.text(0)?, args.text(1)?)?
                        .is_some(),
                ))
            },
        ),
        function(
            "hkeys",
            HASH_KEY,
            Type::ListOf(&Type::Text),
            "The fields of a hash, sorted.",
            "$let fields = kv.hkeys(\"user\")",
            |context, args| {
                Ok(Value::List(
                    hash(context, args)?.into_keys().map(Value::Text).collect(),
                ))
            },
        ),
        function(
            "lpush",
            LIST_VALUE,
            Type::Int,
            "Adds to a list's left end; its new length.",
            "kv.lpush(\"queue\", \"first\")",
            |context, args| push(context, args, ListEnd::Left),
        ),
        function(
            "rpush",
            LIST_VALUE,
            Type::Int,
            "Adds to a list's right end; its new length.",
            "kv.rpush(\"queue\", \"last\")",
            |context, args| push(context, args, ListEnd::Right),
        ),
        function(
            "lpop",
            HASH_KEY,
            Type::Optional(&Type::Text),
            "Takes from a list's left end; nil when it is empty.",
            "$let next = kv.lpop(\"queue\")",
            |context, args| pop(context, args, ListEnd::Left),
        ),
        function(
            "rpop",
            HASH_KEY,
            Type::Optional(&Type::Text),
            "Takes from a list's right end; nil when it is empty.",
            "$let next = kv.rpop(\"queue\")",
            |context, args| pop(context, args, ListEnd::Right),
        ),
        function(
            "llen",
            HASH_KEY,
            Type::Int,
            "A list's length; 0 when there is none.",
            "$let waiting = kv.llen(\"queue\")",
            |context, args| int(context.host().kv().llen(args.text(0)?)?),
        ),
        function(
            "lrange",
            &[
                KEY,
                Param::optional(
                    "start",
                    Type::Int,
                    Preset::Int(0),
                    "the first, from 0; negative numbers count from the end",
                ),
                Param::optional("stop", Type::Int, Preset::Int(-1), "the last, included"),
            ],
            Type::ListOf(&Type::Text),
            "A part of a list.",
            "$let first = kv.lrange(\"queue\", 0, 9)",
            |context, args| {
                let part = context
                    .host()
                    .kv()
                    .lrange(args.text(0)?, args.int(1)?, args.int(2)?)?;
                Ok(Value::List(part.into_iter().map(Value::Text).collect()))
            },
        ),
    ],
};

/// A value as the text that is stored.
fn stored(args: &Args, at: usize) -> Result<String, ScriptFault> {
    match args.any(at)? {
        Value::Text(text) => Ok(text.clone()),
        Value::Int(n) => Ok(n.to_string()),
        Value::Float(n) => Ok(n.to_string()),
        Value::Bool(b) => Ok(b.to_string()),
        other => Err(args.refuse(at, "string, number or boolean", other.kind())),
    }
}

fn set(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let value = stored(args, 1)?;
    let empty = BTreeMap::new();
    let options = args.map(2)?.unwrap_or(&empty);
    let (mut ttl, mut nx, mut xx) = (None, false, false);
    for (name, option) in options {
        match (name.as_str(), option) {
            (_, Value::Nil) => {}
            ("ttl", option) => {
                let seconds = whole(option).and_then(|n| u64::try_from(n).ok());
                ttl = Some(seconds.ok_or_else(|| {
                    args.refuse(2, "ttl as an integer of at least 0", option.kind())
                })?);
            }
            ("nx", Value::Bool(b)) => nx = *b,
            ("xx", Value::Bool(b)) => xx = *b,
            _ => {
                return Err(args.refuse(
                    2,
                    "ttl (integer), nx or xx (booleans)",
                    format!("{name:?}"),
                ));
            }
        }
    }
    let rule = match (nx, xx) {
        (false, false) => SetRule::Always,
        (true, false) => SetRule::IfAbsent,
        (false, true) => SetRule::IfPresent,
        (true, true) => return Err(args.refuse(2, "one of nx and xx", "both")),
    };
    let done = context.host().kv().set(args.text(0)?, &value, ttl, rule)?;
    Ok(Value::Bool(done))
}

fn delete(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let keys: Vec<&str> = match args.any(0)? {
        Value::Text(key) => vec![key],
        Value::List(list) => list
            .iter()
            .map(|item| match item {
                Value::Text(key) => Ok(key.as_str()),
                other => Err(args.refuse(
                    0,
                    "list of strings",
                    format!("list with a {}", other.kind()),
                )),
            })
            .collect::<Result<_, _>>()?,
        other => return Err(args.refuse(0, "string or list of strings", other.kind())),
    };
    let mut any = false;
    for key in keys {
        any |= context.host().kv().delete(key)?;
    }
    Ok(Value::Bool(any))
}

fn hash(context: &Context, args: &Args) -> Result<BTreeMap<String, String>, ScriptFault> {
    Ok(context.host().kv().hgetall(args.text(0)?)?)
}

fn push(context: &Context, args: &Args, end: ListEnd) -> Result<Value, ScriptFault> {
    int(context
        .host()
        .kv()
        .push(args.text(0)?, end, &stored(args, 1)?)?)
}

fn pop(context: &Context, args: &Args, end: ListEnd) -> Result<Value, ScriptFault> {
    Ok(opt_text(context.host().kv().pop(args.text(0)?, end)?))
}
