//! `crypto`: hashes, encodings, random bytes.

use data_encoding::{BASE64, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::{digest, hmac};

use super::{Module, TEXT};
use crate::base::ids::fill_random;
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Handler, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::Code;

const DATA: &[Param] = &[Param::required(
    "data",
    Type::Bytes,
    "text (as UTF-8) or bytes",
)];
const KEYED: &[Param] = &[
    Param::required("key", Type::Bytes, "the secret"),
    Param::required("data", Type::Bytes, "text (as UTF-8) or bytes"),
];

const fn function(
    name: &'static str,
    params: &'static [Param],
    reply: Type,
    doc: &'static str,
    example: &'static str,
    handler: Handler,
) -> Function {
    Function {
        module: "crypto",
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
    name: "crypto",
    doc: "Hashes, encodings and random bytes.",
    functions: &[
        function(
            "sha256",
            DATA,
            TEXT,
            "The SHA-256 of data, in lower-case hexadecimal.",
            "$let hash = crypto.sha256(\"abc\")",
            |_, args| hash(args, &digest::SHA256),
        ),
        function(
            "sha512",
            DATA,
            TEXT,
            "The SHA-512 of data, in lower-case hexadecimal.",
            "$let hash = crypto.sha512(\"abc\")",
            |_, args| hash(args, &digest::SHA512),
        ),
        function(
            "hmacSha256",
            KEYED,
            TEXT,
            "The HMAC-SHA-256 of data under a key, in lower-case hexadecimal.",
            "$let mark = crypto.hmacSha256(\"key\", \"data\")",
            |_, args| {
                let key = hmac::Key::new(hmac::HMAC_SHA256, args.bytes(0)?);
                Ok(Value::Text(
                    HEXLOWER.encode(hmac::sign(&key, args.bytes(1)?).as_ref()),
                ))
            },
        ),
        function(
            "base64Encode",
            DATA,
            TEXT,
            "Data in base 64, padded.",
            "$let text = crypto.base64Encode(\"abc\")",
            |_, args| Ok(Value::Text(BASE64.encode(args.bytes(0)?))),
        ),
        function(
            "base64Decode",
            &[Param::required("text", TEXT, "padded base 64")],
            Type::Bytes,
            "The data of a base 64 text; what is no UTF-8 is bytes.",
            "$let data = crypto.base64Decode(\"YWJj\")",
            |_, args| decode(args, &BASE64),
        ),
        function(
            "hexEncode",
            DATA,
            TEXT,
            "Data in lower-case hexadecimal.",
            "$let text = crypto.hexEncode(\"abc\")",
            |_, args| Ok(Value::Text(HEXLOWER.encode(args.bytes(0)?))),
        ),
        function(
            "hexDecode",
            &[Param::required("text", TEXT, "hexadecimal, either case")],
            Type::Bytes,
            "The data of a hexadecimal text; what is no UTF-8 is bytes.",
            "$let data = crypto.hexDecode(\"616263\")",
            |_, args| decode(args, &HEXLOWER_PERMISSIVE),
        ),
        function(
            "randomBytes",
            &[Param::optional(
                "count",
                Type::Int,
                Preset::Int(16),
                "how many, at most 1 MiB",
            )
            .unit("bytes")],
            Type::Bytes,
            "Random bytes that nobody can predict.",
            "$let key = crypto.hexEncode(crypto.randomBytes(8))",
            random,
        ),
    ],
};

fn hash(args: &Args, algorithm: &'static digest::Algorithm) -> Result<Value, ScriptFault> {
    let hash = digest::digest(algorithm, args.bytes(0)?);
    Ok(Value::Text(HEXLOWER.encode(hash.as_ref())))
}

fn decode(args: &Args, encoding: &Encoding) -> Result<Value, ScriptFault> {
    let bytes = encoding
        .decode(args.text(0)?.as_bytes())
        .map_err(|error| ScriptFault::failed(Code::InvalidParams, format!("decode: {error}")))?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Value::Text(text),
        Err(error) => Value::Bytes(error.into_bytes()),
    })
}

fn random(_: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let count = args.int_in(0, 1..=1 << 20)?;
    let mut bytes = vec![0; count as usize];
    fill_random(&mut bytes);
    Ok(Value::Bytes(bytes))
}
