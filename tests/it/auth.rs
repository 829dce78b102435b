//! Signing in and out: login strings, tickets, passwords, cookies, tokens, limits, and what of it is
//! written down.

use std::io::Read as _;
use std::time::Duration;

use serde_json::json;
use wingman::base::limits::{LOGIN_TRIES_MAX, TICKET_LIFE_MS};

use crate::control_server::{Reply, TestServer};

fn start() -> (tempfile::TempDir, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    (dir, server)
}

fn redeem(server: &TestServer, ticket: &str) -> Reply {
    let body = json!({"ticket": ticket, "deviceName": "desk"});
    server.request("POST", "/api/auth/redeem", &[], Some(body))
}

fn cookie_of(reply: &Reply) -> String {
    let line = reply.header("set-cookie").expect("a cookie");
    assert!(
        line.contains("HttpOnly") && line.contains("SameSite=Strict"),
        "{line}"
    );
    format!("Cookie: {}", line.split(';').next().unwrap())
}

/// A session's cookie for the admin, by a ticket.
fn browser(server: &TestServer) -> String {
    let made = server
        .ask("POST", "/api/auth/tickets", Some(json!({})))
        .json();
    let url = made["url"].as_str().unwrap();
    let path = url
        .strip_prefix(&format!("http://{}", server.address))
        .unwrap();
    let opened = server.request("GET", path, &[], None);
    assert_eq!(opened.status, 303, "{}", opened.text());
    cookie_of(&opened)
}

#[test]
fn first_start_login_works_once_and_ends_with_the_first_sign_in() {
    let (_dir, server) = start();
    let first = server
        .block_on(server.server.first_start_login())
        .unwrap()
        .unwrap();
    let login = server
        .block_on(server.server.first_start_login())
        .unwrap()
        .unwrap();
    assert_eq!(login.username, "admin");
    // The newer string replaced the older one.
    assert_eq!(redeem(&server, first.text.expose()).status, 401);
    let reply = redeem(&server, login.text.expose()).json();
    let token = reply["data"]["token"].as_str().unwrap().to_owned();
    assert_eq!(reply["data"]["me"]["role"], "admin");
    assert_eq!(
        redeem(&server, login.text.expose()).fault(),
        (401, "unauthenticated".into())
    );
    let bearer = format!("Authorization: Bearer {token}");
    let me = server
        .request("GET", "/api/auth/me", &[&bearer], None)
        .json();
    assert_eq!(me["data"]["username"], "admin");
    let held = me["data"]["permissions"].as_array().unwrap().len();
    assert_eq!(held, wingman::wire::Permission::ALL.len());
    assert!(
        server
            .block_on(server.server.first_start_login())
            .unwrap()
            .is_none()
    );
    // It is a session like any other: listed, without its text, and ended by its id.
    let listed = server.ask("GET", "/api/auth/sessions", None);
    assert!(!listed.text().contains(&token));
    let session = &listed.json()[0];
    assert_eq!(session["device_name"], "desk");
    assert!(session["revoked_at"].is_null());
    let path = format!("/api/auth/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &path, None).status, 200);
    let after = server.request("GET", "/api/auth/me", &[&bearer], None);
    assert_eq!(after.fault(), (401, "unauthenticated".into()));
    assert_eq!(
        server.ask("DELETE", &path, None).fault(),
        (404, "not_found".into())
    );
}

#[test]
fn ticket_is_single_use_and_expires() {
    let (_dir, server) = start();
    let ticket = || {
        let made = server
            .ask("POST", "/api/auth/tickets", Some(json!({})))
            .json();
        let url = made["url"].as_str().unwrap().to_owned();
        url.split_once("ticket=").unwrap().1.to_owned()
    };
    let late = ticket();
    server.clock.advance_ms(TICKET_LIFE_MS);
    assert_eq!(redeem(&server, &late).status, 401);
    let good = ticket();
    assert_eq!(redeem(&server, &good).status, 200);
    assert_eq!(redeem(&server, &good).status, 401);
}

#[test]
fn cookie_alone_changes_nothing_for_other_sites() {
    let (_dir, server) = start();
    let cookie = browser(&server);
    let own = format!("Origin: http://{}", server.address);
    assert_eq!(
        server
            .request("GET", "/api/auth/me", &[&cookie], None)
            .status,
        200
    );
    let post =
        |headers: &[&str]| server.request("POST", "/api/auth/tickets", headers, Some(json!({})));
    assert_eq!(post(&[&cookie, &own]).status, 200);
    let longer = format!("{own}.evil.example");
    let secure = own.replace("http:", "https:");
    for headers in [
        vec![cookie.as_str()],
        vec![&cookie, "Origin: http://evil.example"],
        vec![&cookie, "Origin: null"],
        vec![&cookie, &longer],
        vec![&cookie, &secure],
    ] {
        assert_eq!(
            post(&headers).fault(),
            (403, "origin_denied".into()),
            "{headers:?}"
        );
    }
    // A form's content type is no JSON, whatever it carries.
    let headers = [
        cookie.clone(),
        own.clone(),
        "Content-Type: text/plain".into(),
    ];
    let reply = server.raw("POST", "/api/auth/tickets", &headers, b"{}");
    assert_eq!(reply.fault(), (400, "invalid_message".into()));
    let out = server.request(
        "POST",
        "/api/auth/logout",
        &[&cookie, &own],
        Some(json!({})),
    );
    assert_eq!(out.status, 200);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(
        server
            .request("GET", "/api/auth/me", &[&cookie], None)
            .status,
        401
    );
}

#[test]
fn foreign_host_names_are_refused_before_anything_else() {
    let (_dir, server) = start();
    for host in ["evil.example", "127.0.0.1.evil.example", "10.1.2.3"] {
        let headers = [format!("Host: {host}"), server.bearer()];
        let reply = server.raw("GET", "/api/agents", &headers, b"");
        assert_eq!(reply.fault(), (403, "origin_denied".into()), "{host}");
    }
    let headers = [
        format!("Host: localhost:{}", server.address.port()),
        server.bearer(),
    ];
    assert_eq!(server.raw("GET", "/api/agents", &headers, b"").status, 200);
}

#[test]
fn password_signs_in_and_guessing_is_blocked() {
    let (_dir, server) = start();
    let cookie = browser(&server);
    let own = format!("Origin: http://{}", server.address);
    let set = |body| server.request("PUT", "/api/auth/password", &[&cookie, &own], Some(body));
    assert_eq!(
        set(json!({"new": "short"})).fault(),
        (400, "invalid_params".into())
    );
    let other = browser(&server);
    assert_eq!(set(json!({"new": "correct horse"})).status, 200);
    // Other sessions ended, this one did not.
    assert_eq!(
        server
            .request("GET", "/api/auth/me", &[&other], None)
            .status,
        401
    );
    assert_eq!(
        server
            .request("GET", "/api/auth/me", &[&cookie], None)
            .status,
        200
    );
    let wrong = set(json!({"current": "wrong one", "new": "correct horse 2"}));
    assert_eq!(wrong.fault(), (403, "permission_denied".into()));

    let login = |name: &str, password: &str| {
        let body = json!({"username": name, "password": password});
        server.request("POST", "/api/auth/login", &[], Some(body))
    };
    let good = login("Admin", "correct horse");
    assert_eq!(good.status, 200, "{}", good.text());
    assert!(!good.text().contains("wms_"));
    let session = cookie_of(&good);
    assert_eq!(
        server
            .request("GET", "/api/auth/me", &[&session], None)
            .status,
        200
    );
    for _ in 0..LOGIN_TRIES_MAX - 1 {
        assert_eq!(
            login("nobody", "x").fault(),
            (401, "unauthenticated".into())
        );
    }
    // The wrong current password above counted for this address as well.
    let blocked = login("admin", "correct horse");
    assert_eq!(blocked.fault(), (429, "rate_limited".into()));
    assert!(blocked.header("retry-after").is_some());
    server.clock.advance_ms(31 * 60 * 1000);
    assert_eq!(login("admin", "correct horse").status, 200);

    let trail = server.data("GET", "/api/audit?pageSize=100", None);
    let kinds: Vec<_> = trail["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["kind"].as_str().unwrap(),
                row["outcome"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(kinds.contains(&("login", "ok")));
    assert!(kinds.contains(&("login_fail", "unauthenticated")));
    assert!(kinds.contains(&("auth.setPassword", "permission_denied")));
    let text = trail.to_string();
    for secret in ["correct horse", "wrong one", "wms_", "wml_", "wmt_"] {
        assert!(!text.contains(secret), "{secret} in the trail");
    }
}

#[test]
fn audit_is_filtered_and_paged() {
    let (_dir, server) = start();
    for n in 0..3 {
        let body = json!({"label": format!("t{n}")});
        assert_eq!(
            server.ask("POST", "/api/auth/tokens", Some(body)).status,
            200
        );
    }
    let page = server.data(
        "GET",
        "/api/audit?kind=auth.createToken&pageSize=2&page=2",
        None,
    );
    assert_eq!(page["total"], 3);
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["events"][0]["detail"]["label"], "t0");
    assert_eq!(page["events"][0]["actor"], "admin");
    assert_eq!(page["events"][0]["address"], "127.0.0.1");
    let none = server.data("GET", "/api/audit?actor=nobody", None);
    assert_eq!(none["total"], 0);
}

#[test]
fn revoked_token_ends_its_open_stream() {
    let (_dir, server) = start();
    let made = server
        .ask("POST", "/api/auth/tokens", Some(json!({"label": "s"})))
        .json();
    let bearer = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    let mut stream = server.send(
        "GET",
        "/api/events?follow=true",
        std::slice::from_ref(&bearer),
        b"",
    );
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let path = format!("/api/auth/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &path, None).status, 200);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the stream ends");
    assert_eq!(
        server
            .request("GET", "/api/auth/me", &[&bearer], None)
            .status,
        401
    );
}
