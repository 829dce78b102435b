//! One method, declared once. From a row come the local call, the agent request, the REST route
//! with its permission, the command's help, OpenAPI and the reference.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::permission::Permission;

/// Who answers a method, and on which of the node's wires it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The node, on local IPC and over the link.
    Node,
    /// The node, on local IPC alone.
    NodeLocal,
    /// The node, over the link alone (what only a server may ask).
    NodeRemote,
    /// Each side answers for what it knows: the node on local IPC and over the link, the server over
    /// HTTP from its own rows. Callers need not know which one they talk to.
    Each,
    /// The server, over HTTP alone.
    Server,
}

impl Owner {
    pub const fn on_ipc(self) -> bool {
        matches!(self, Self::Node | Self::NodeLocal | Self::Each)
    }

    pub const fn on_link(self) -> bool {
        matches!(self, Self::Node | Self::NodeRemote | Self::Each)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// How an HTTP answer is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `{"success":true,"data":…}`.
    Enveloped,
    /// The reply itself (families of seed 003).
    Bare,
    /// One JSON object a line, streamed.
    Ndjson,
    /// The blob's bytes with its content type.
    Bytes,
}

/// A method's HTTP face. `{agentId}` in the path names the node that answers; other names in
/// braces, the query and the JSON body fill the parameters.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    pub verb: Verb,
    pub path: &'static str,
    pub body: Body,
}

/// A method of a node or of the server.
pub trait Method: 'static {
    const NAME: &'static str;
    /// Names that protocol 1 and old local clients use.
    const ALIASES: &'static [&'static str] = &[];
    type Params: DeserializeOwned + Serialize + JsonSchema + Send + 'static;
    type Reply: DeserializeOwned + Serialize + JsonSchema + Send + 'static;
    const OWNER: Owner;
    const PERMISSION: Permission;
    const CAPABILITY: Option<&'static str> = None;
    const REST: Option<Rest> = None;
    /// Default patience in milliseconds over the link; `None` waits for ever.
    const TIMEOUT_MS: Option<u64> = Some(crate::base::limits::COMMAND_TIMEOUT_MS);
    /// What it does, in full sentences.
    const DOC: &'static str;
    /// Valid parameters, as JSON.
    const EXAMPLE: &'static str;
}

/// A method as data.
#[derive(Clone, Copy)]
pub struct MethodRow {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub owner: Owner,
    pub permission: Permission,
    pub capability: Option<&'static str>,
    pub rest: Option<Rest>,
    pub timeout_ms: Option<u64>,
    pub doc: &'static str,
    pub example: &'static str,
    pub params_schema: fn() -> Value,
    pub reply_schema: fn() -> Value,
    /// Reads parameters as the method would; the text says what is wrong.
    pub check_params: fn(Value) -> Result<(), String>,
}

impl MethodRow {
    pub const fn of<M: Method>() -> Self {
        Self {
            name: M::NAME,
            aliases: M::ALIASES,
            owner: M::OWNER,
            permission: M::PERMISSION,
            capability: M::CAPABILITY,
            rest: M::REST,
            timeout_ms: M::TIMEOUT_MS,
            doc: M::DOC,
            example: M::EXAMPLE,
            params_schema: || schemars::schema_for!(M::Params).to_value(),
            reply_schema: || schemars::schema_for!(M::Reply).to_value(),
            check_params: |value| {
                serde_json::from_value::<M::Params>(value)
                    .map(drop)
                    .map_err(|e| e.to_string())
            },
        }
    }
}

/// Declares a method: the doc comment is its reference text.
#[macro_export]
macro_rules! method {
    (
        $(#[doc = $doc:literal])+
        $type:ident = $name:literal $(| $alias:literal)* ($params:ty) -> $reply:ty;
        $owner:ident, $permission:ident;
        $(capability $capability:expr;)?
        $(rest $verb:ident $path:literal $body:ident;)?
        $(timeout $timeout:expr;)?
        example $example:literal;
    ) => {
        $(#[doc = $doc])+
        pub struct $type;

        impl $crate::wire::method::Method for $type {
            const NAME: &'static str = $name;
            const ALIASES: &'static [&'static str] = &[$($alias),*];
            type Params = $params;
            type Reply = $reply;
            const OWNER: $crate::wire::method::Owner = $crate::wire::method::Owner::$owner;
            const PERMISSION: $crate::wire::Permission = $crate::wire::Permission::$permission;
            $(const CAPABILITY: Option<&'static str> = Some($capability);)?
            $(const REST: Option<$crate::wire::method::Rest> = Some($crate::wire::method::Rest {
                verb: $crate::wire::method::Verb::$verb,
                path: $path,
                body: $crate::wire::method::Body::$body,
            });)?
            $(const TIMEOUT_MS: Option<u64> = $timeout;)?
            const DOC: &'static str = concat!($($doc, "\n"),+);
            const EXAMPLE: &'static str = $example;
        }
    };
}
