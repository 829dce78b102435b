//! One way for every request: host, verb, who, permission, parameters, answer, audit, metrics.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, header};
use axum::response::Response;
use axum::routing::any;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};

use super::answer;
use super::audit::Subject;
use super::auth::Identity;
use super::methods::{Ask, Caller, Reply};
use super::routes::{Access, Answerer, PathGroup, Route, by_path};
use super::server::{App, Shared};
use super::special::cookie_name;
use super::{audit, params, terminals};
use crate::base::ids::{AgentId, RequestId};
use crate::base::limits::HTTP_BODY_LEN_MAX;
use crate::wire::method::Verb;
use crate::wire::{Call, Code, Fault, Origin};

/// From the first byte of a body to its last.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What the connection knows about its other end.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: IpAddr,
    pub secure: bool,
}

/// The router of the whole table.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for (path, group) in by_path() {
        let app = Arc::clone(app);
        router = router.route(
            path,
            any(move |request: Request<Body>| {
                let (app, group) = (Arc::clone(&app), Arc::clone(&group));
                async move { answer_request(&app, Some(group), request).await }
            }),
        );
    }
    router = router.merge(terminals::router(&app.shared));
    let app = Arc::clone(app);
    router.fallback(move |request: Request<Body>| {
        let app = Arc::clone(&app);
        async move { answer_request(&app, None, request).await }
    })
}

async fn answer_request(app: &App, group: Option<PathGroup>, request: Request<Body>) -> Response {
    let shared = &app.shared;
    let request_id = RequestId::random();
    let (mut parts, body) = request.into_parts();
    let verb = verb_of(&parts.method);
    let route = group
        .as_ref()
        .and_then(|group| group.iter().find(|route| Some(route.rest.verb) == verb));
    let outcome = match (route, &group) {
        (Some(route), _) => match host(shared, &parts) {
            Ok(host) => {
                let handled = handle(app, route, &host, &request_id, &mut parts, body);
                // A panic in a handler is a defect of ours; it must not take the connection along.
                AssertUnwindSafe(handled)
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|_| Err(Fault::internal("the handler panicked")))
            }
            Err(fault) => Err(fault),
        },
        (None, Some(_)) => Err(Fault::new(
            Code::MethodNotAllowed,
            format!("{} is not for {}", parts.uri.path(), parts.method),
        )),
        (None, None) => Err(Fault::new(
            Code::RouteNotFound,
            format!("no route {}", parts.uri.path()),
        )),
    };
    let mut response = outcome.unwrap_or_else(|fault| answer::fault(&fault, &request_id));
    if let (None, Some(group)) = (route, &group) {
        response.headers_mut().insert(header::ALLOW, allow(group));
    }
    answer::common_headers(response.headers_mut(), &request_id);
    let path = group.as_ref().and_then(|group| group.first());
    shared.metrics.request(
        verb.map_or("other", Verb::as_str),
        path.map_or("none", |route| route.rest.path),
        response.status().as_u16(),
    );
    tracing::debug!(
        request_id = request_id.as_str(),
        route = path.map_or("none", |route| route.rest.path),
        status = response.status().as_u16(),
        "request"
    );
    response
}

async fn handle(
    app: &App,
    route: &'static Route,
    host: &str,
    request_id: &RequestId,
    parts: &mut Parts,
    body: Body,
) -> Result<Response, Fault> {
    let shared = &app.shared;
    let mut caller = stranger(parts, host, request_id);
    let public = route.access == Access::Public;
    let strict = route.is_unsafe();
    caller.identity = identify(shared, public, strict, &caller, &parts.headers).await?;
    let ask = match read_ask(route, caller.clone(), parts, body).await {
        Ok(ask) => ask,
        Err(fault) => {
            let subject = Subject::of(&caller, &Map::new());
            finish(shared, route, &caller, subject, Err(&fault)).await?;
            return Err(fault);
        }
    };
    let mut subject = Subject::of(&caller, &ask.params);
    let outcome = match permitted(route, &caller) {
        Ok(()) => call(app, route, ask).await,
        Err(fault) => Err(fault),
    };
    match &outcome {
        Ok(Reply::Answer(answer)) => {
            if let Some(name) = answer.data["me"]["username"].as_str() {
                subject.told(name);
            }
            subject.answered(&answer.data);
        }
        Ok(Reply::Http(response)) => {
            if let Some(actor) = response.extensions().get::<answer::SignedIn>() {
                subject.told(&actor.0);
            }
        }
        Err(_) => {}
    }
    finish(
        shared,
        route,
        &caller,
        subject,
        outcome.as_ref().map(|_| ()),
    )
    .await?;
    answer::render(route.rest.body, outcome?, &parts.headers)
}

/// The caller before it is known who that is.
fn stranger(parts: &Parts, host: &str, request_id: &RequestId) -> Caller {
    let peer = peer(parts);
    let scheme = if peer.secure { "https" } else { "http" };
    Caller {
        identity: None,
        address: peer.address,
        request_id: request_id.clone(),
        base_url: format!("{scheme}://{host}"),
        secure: peer.secure,
        user_agent: super::auth::cut(text(&parts.headers, header::USER_AGENT).unwrap_or("unknown")),
    }
}

/// Who opens a WebSocket, with the checks of an unsafe request: other sites may open them too.
pub(super) async fn socket_caller(
    shared: &Shared,
    parts: &Parts,
    request_id: &RequestId,
) -> Result<Caller, Fault> {
    let host = host(shared, parts)?;
    let mut caller = stranger(parts, &host, request_id);
    caller.identity = identify(shared, false, true, &caller, &parts.headers).await?;
    Ok(caller)
}

/// The audit row of a request; a request whose row cannot be written is not answered as done.
async fn finish(
    shared: &Shared,
    route: &Route,
    caller: &Caller,
    subject: Subject,
    outcome: Result<(), &Fault>,
) -> Result<(), Fault> {
    let now = shared.clock.now();
    audit::write(&shared.store, now, route, caller, subject, outcome).await
}

async fn read_ask(
    route: &'static Route,
    caller: Caller,
    parts: &mut Parts,
    body: Body,
) -> Result<Ask, Fault> {
    let path = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|error| Fault::new(Code::RouteNotFound, error.to_string()))?
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect::<Vec<_>>();
    let agent = path
        .iter()
        .find(|(name, _)| name == "agentId")
        .map(|(_, text)| AgentId::parse(text.as_str()))
        .transpose()
        .map_err(|error| Fault::invalid_params(route.row.name, format!("agentId: {error}")))?;
    let body = read_body(route, &parts.headers, body).await?;
    let params = params::merge(route, path, parts.uri.query(), &body)?;
    Ok(Ask {
        caller,
        agent,
        params,
    })
}

async fn read_body(route: &Route, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    if !route.is_unsafe() {
        return Ok(Bytes::new());
    }
    let read = Limited::new(body, HTTP_BODY_LEN_MAX).collect();
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let text = format!("the body is longer than {HTTP_BODY_LEN_MAX} bytes");
            return Err(Fault::new(Code::BodyTooLarge, text));
        }
        Ok(Err(error)) => {
            return Err(Fault::new(
                Code::InvalidMessage,
                format!("read the body: {error}"),
            ));
        }
        Err(_) => return Err(Fault::new(Code::TimedOut, "the body did not come in time")),
    };
    // Forms of other sites can send text and form types without asking first, but not JSON.
    let kind = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !bytes.is_empty() && !kind.eq_ignore_ascii_case("application/json") {
        return Err(Fault::new(
            Code::InvalidMessage,
            "the body must be application/json",
        ));
    }
    Ok(bytes)
}

/// The caller's identity, with the checks that keep other sites from using its cookie: `strict` asks
/// for an origin. Without a credential `public` answers nobody.
async fn identify(
    shared: &Shared,
    public: bool,
    strict: bool,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Option<Identity>, Fault> {
    let origin = text(headers, header::ORIGIN);
    let foreign = || Fault::new(Code::OriginDenied, "the request comes from another site");
    if let Some(bearer) = bearer(headers) {
        return shared.auth.identify(bearer).await.map(Some);
    }
    if strict && origin.is_some_and(|origin| origin != caller.base_url) {
        return Err(foreign());
    }
    match cookie(headers, cookie_name(caller.secure)) {
        // A public route does not fail because of an old cookie.
        Some(text) if public => Ok(shared.auth.identify(text).await.ok()),
        Some(text) => {
            if strict && origin.is_none() {
                return Err(foreign());
            }
            shared.auth.identify(text).await.map(Some)
        }
        None if public => Ok(None),
        None => Err(Fault::new(Code::Unauthenticated, "sign in or send a token")),
    }
}

fn permitted(route: &Route, caller: &Caller) -> Result<(), Fault> {
    let Access::Held(permission) = route.access else {
        return Ok(());
    };
    // A grant to one session may allow what the role does not; the handler looks.
    if caller.identity()?.may(permission) || terminals::grants_may_allow(route.row) {
        return Ok(());
    }
    Err(Fault::new(
        Code::PermissionDenied,
        format!("{} needs {}", route.row.name, permission.as_str()),
    ))
}

async fn call(app: &App, route: &'static Route, ask: Ask) -> Result<Reply, Fault> {
    if route.answerer == Answerer::Server {
        let handler = app.handlers.get(route.row.name);
        let handler = handler.ok_or_else(|| Fault::internal("a route without a handler"))?;
        return handler(ask).await;
    }
    forward(&app.shared, route, ask).await
}

/// Hands a call to the workstation that the path names.
async fn forward(shared: &Shared, route: &Route, ask: Ask) -> Result<Reply, Fault> {
    let name = route.row.name;
    let agent = ask
        .agent
        .ok_or_else(|| Fault::invalid_params(name, "the path names no agent"))?;
    let mut params = ask.params;
    params.remove("agentId");
    let params = Value::Object(params);
    (route.row.check_params)(params.clone()).map_err(|why| Fault::invalid_params(name, why))?;
    let call = Call::new(name, params, Origin::Server { epoch: 0 });
    // A caller that hangs up drops this future, and with it the call on the workstation.
    let _cancel = call.cancel.clone().drop_guard();
    shared.links.call(&agent, call).await.map(Reply::Answer)
}

/// The host that the request names, once it is one of ours.
fn host(shared: &Shared, parts: &Parts) -> Result<String, Fault> {
    let named = text(&parts.headers, header::HOST);
    let named = named.or_else(|| parts.uri.authority().map(|authority| authority.as_str()));
    match named {
        Some(host) if shared.hosts.allow(host) => Ok(host.to_owned()),
        Some(_) => Err(Fault::new(
            Code::OriginDenied,
            "this host name is not one of http.allowed_hosts",
        )),
        None => Err(Fault::new(Code::OriginDenied, "the request names no host")),
    }
}

fn peer(parts: &Parts) -> Peer {
    // INVARIANT: `server::serve` puts a Peer into every request; without one nothing is trusted.
    parts.extensions.get::<Peer>().copied().unwrap_or(Peer {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        secure: false,
    })
}

fn verb_of(method: &HttpMethod) -> Option<Verb> {
    match *method {
        HttpMethod::GET | HttpMethod::HEAD => Some(Verb::Get),
        HttpMethod::POST => Some(Verb::Post),
        HttpMethod::PUT => Some(Verb::Put),
        HttpMethod::DELETE => Some(Verb::Delete),
        _ => None,
    }
}

fn allow(group: &PathGroup) -> HeaderValue {
    let verbs: Vec<_> = group.iter().map(|route| route.rest.verb.as_str()).collect();
    HeaderValue::from_str(&verbs.join(", ")).unwrap_or_else(|_| HeaderValue::from_static("GET"))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, text) = text(headers, header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(text.trim())
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}
