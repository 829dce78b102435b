//! The short list of routes beside the method table: signing in and out, health, metrics, and the
//! description of the API.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use std::sync::Arc;

use super::answer::SignedIn;
use super::auth::{Identity, NewSession};
use super::methods::{Caller, Methods, Reply};
use super::server::Shared;
use super::{auth, openapi};
use crate::wire::messages::Empty;
use crate::wire::messages::http::{
    GetHealth, GetMetrics, GetOpenApi, Health, Login, Logout, OpenTicket, Redeem, Redeemed,
    SetPassword,
};
use crate::wire::method::MethodRow;
use crate::wire::{Fault, Method};

/// The routes of this list, declared like methods so that permission, audit and OpenAPI read one table.
pub const ROWS: &[MethodRow] = &[
    MethodRow::of::<GetHealth>(),
    MethodRow::of::<GetMetrics>(),
    MethodRow::of::<GetOpenApi>(),
    MethodRow::of::<Login>(),
    MethodRow::of::<Logout>(),
    MethodRow::of::<OpenTicket>(),
    MethodRow::of::<Redeem>(),
    MethodRow::of::<SetPassword>(),
];

/// The routes that need no credential; all others name a permission.
pub const PUBLIC: &[&str] = &[GetHealth::NAME, Login::NAME, OpenTicket::NAME, Redeem::NAME];

/// Where a browser goes once it has its session.
const AFTER_LOGIN: &str = "/api/auth/me";

/// Registers the handlers of this list.
pub fn register(methods: &mut Methods, shared: &Arc<Shared>) {
    let server = Arc::clone(shared);
    methods.typed::<GetHealth, _, _>(move |_, Empty {}| {
        let health = Health {
            status: "ok".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime: server.metrics.uptime_seconds(),
        };
        std::future::ready(Ok(health))
    });
    let server = Arc::clone(shared);
    methods.special::<GetMetrics, _, _>(move |_, Empty {}| {
        let server = Arc::clone(&server);
        async move {
            let text = server.metrics_text().await?;
            Ok(Reply::Http(with_type(
                Body::from(text),
                "text/plain; version=0.0.4; charset=utf-8",
            )))
        }
    });
    methods
        .typed::<GetOpenApi, _, _>(|_, Empty {}| std::future::ready(Ok(openapi::DOCUMENT.clone())));
    register_login(methods, shared);
}

fn register_login(methods: &mut Methods, shared: &Arc<Shared>) {
    let server = Arc::clone(shared);
    methods.special::<Login, _, _>(move |caller, params| {
        let server = Arc::clone(&server);
        async move {
            let device = params
                .device_name
                .unwrap_or_else(|| caller.user_agent.clone());
            let session = server
                .auth
                .login(&params.username, params.password, caller.address, &device)
                .await?;
            let me = auth::me(&session.identity);
            let body = serde_json::json!({"success": true, "data": me});
            let mut response = with_type(Body::from(body.to_string()), "application/json");
            set_cookie(&mut response, &caller, &session)?;
            Ok(Reply::Http(response))
        }
    });
    let server = Arc::clone(shared);
    methods.special::<Logout, _, _>(move |caller, Empty {}| {
        let server = Arc::clone(&server);
        async move {
            let identity: &Identity = caller.identity()?;
            server.auth.sign_out(identity).await?;
            let mut response = with_type(
                Body::from(r#"{"success":true,"data":{}}"#),
                "application/json",
            );
            clear_cookie(&mut response, &caller);
            Ok(Reply::Http(response))
        }
    });
    let server = Arc::clone(shared);
    methods.special::<OpenTicket, _, _>(move |caller, params| {
        let server = Arc::clone(&server);
        async move {
            let session = server
                .auth
                .redeem(params.ticket.expose(), caller.address, &caller.user_agent)
                .await?;
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::SEE_OTHER;
            response
                .headers_mut()
                .insert(header::LOCATION, HeaderValue::from_static(AFTER_LOGIN));
            set_cookie(&mut response, &caller, &session)?;
            Ok(Reply::Http(response))
        }
    });
    let server = Arc::clone(shared);
    methods.typed::<Redeem, _, _>(move |caller, params| {
        let server = Arc::clone(&server);
        async move {
            let device = params
                .device_name
                .unwrap_or_else(|| caller.user_agent.clone());
            let session = server
                .auth
                .redeem(params.ticket.expose(), caller.address, &device)
                .await?;
            Ok(Redeemed {
                me: auth::me(&session.identity),
                session_id: session.id.to_string(),
                expires_at: session.expires_at,
                token: session.text,
            })
        }
    });
    let server = Arc::clone(shared);
    methods.typed::<SetPassword, _, _>(move |caller, params| {
        let server = Arc::clone(&server);
        async move {
            let identity = caller.identity()?;
            server
                .auth
                .set_password(identity, params.current, params.new, caller.address)
                .await?;
            Ok(Empty {})
        }
    });
}

fn with_type(body: Body, content_type: &'static str) -> Response {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `__Host-` needs TLS; browsers refuse it on plain HTTP, which is loopback alone.
pub const fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-wingman" } else { "wingman" }
}

fn set_cookie(response: &mut Response, caller: &Caller, session: &NewSession) -> Result<(), Fault> {
    let text = format!(
        "{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}",
        cookie_name(caller.secure),
        session.text.expose(),
        session.life_ms / 1000,
        if caller.secure { "; Secure" } else { "" },
    );
    let signed_in = SignedIn(session.identity.username.clone());
    response.extensions_mut().insert(signed_in);
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| Fault::internal("a cookie that is no header value"))?;
    value.set_sensitive(true);
    response.headers_mut().insert(header::SET_COOKIE, value);
    Ok(())
}

fn clear_cookie(response: &mut Response, caller: &Caller) {
    let text = if caller.secure {
        "__Host-wingman=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure"
    } else {
        "wingman=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    };
    response
        .headers_mut()
        .insert(header::SET_COOKIE, HeaderValue::from_static(text));
}
