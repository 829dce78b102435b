//! The permission table is in force: every route by every role, views included.

use serde_json::{Value, json};
use wingman::control::routes::{Access, ROUTES, Route};
use wingman::wire::Permission;
use wingman::wire::permission::Role;

use crate::control_server::TestServer;

/// The route's path with the values of its example in the braces.
fn path_of(route: &Route, example: &Value) -> String {
    let parts = route.rest.path.split('/').map(|part| {
        match part
            .strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'))
        {
            Some("agentId") => "desk".to_owned(),
            Some(name) => match &example[name] {
                Value::String(text) => text.clone(),
                Value::Null => "x".to_owned(),
                other => other.to_string(),
            },
            None => part.to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_asks_for_its_permission_of_every_role() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    for role in Role::ALL {
        let token = server.token_of(*role);
        let bearer = format!("Authorization: Bearer {token}");
        for route in ROUTES.iter() {
            let Access::Held(permission) = route.access else {
                continue;
            };
            // These end or replace the credential under test; they need no more than to be signed in.
            if matches!(route.row.name, "auth.logout" | "auth.setPassword") {
                assert_eq!(permission, Permission::AgentsView);
                continue;
            }
            let example: Value = serde_json::from_str(route.row.example).unwrap();
            let verb = route.rest.verb.as_str();
            let path = path_of(route, &example);
            let body = route.is_unsafe().then(|| example.clone());
            let path = match route.row.name {
                // The example waits; the permission does not.
                "execution.wait" => format!("{path}?waitMs=1"),
                _ => path,
            };
            let reply = server.request(verb, &path, &[&bearer], body);
            let denied =
                reply.status == 403 && reply.json()["error"]["code"] == "permission_denied";
            assert_eq!(
                denied,
                !role.holds(permission),
                "{} as {}: {} {}",
                route.row.name,
                role.as_str(),
                reply.status,
                reply.text()
            );
        }
    }
}

#[test]
fn every_route_but_the_short_list_refuses_strangers() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    for route in ROUTES.iter() {
        let example: Value = serde_json::from_str(route.row.example).unwrap();
        let body = route.is_unsafe().then(|| example.clone());
        let verb = route.rest.verb.as_str();
        let reply = server.request(verb, &path_of(route, &example), &[], body);
        // The short list refuses wrong passwords and tickets with the same status, in words of its own.
        let stranger = reply.status == 401 && reply.text().contains("sign in or send a token");
        assert_eq!(
            stranger,
            route.access != Access::Public,
            "{}",
            route.row.name
        );
    }
}

#[test]
fn scoped_token_holds_its_scopes_and_can_make_nothing_wider() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let made = server.ask(
        "POST",
        "/api/auth/tokens",
        Some(json!({"label": "narrow", "scopes": ["agents:view"]})),
    );
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("wmt_"));
    let bearer = format!("Authorization: Bearer {token}");
    let ask = |verb: &str, path: &str, body| server.request(verb, path, &[&bearer], body);
    assert_eq!(ask("GET", "/api/agents", None).status, 200);
    for (verb, path, body) in [
        ("GET", "/api/executions", None),
        ("POST", "/api/auth/tickets", Some(json!({}))),
        (
            "PUT",
            "/api/auth/password",
            Some(json!({"new": "correct horse"})),
        ),
        (
            "POST",
            "/api/auth/tokens",
            Some(json!({"label": "wide", "scopes": ["scripts:run"]})),
        ),
    ] {
        assert_eq!(
            ask(verb, path, body).fault(),
            (403, "permission_denied".into()),
            "{path}"
        );
    }
    // A token made by it without scopes is as narrow as itself.
    let child = ask("POST", "/api/auth/tokens", Some(json!({"label": "child"}))).json();
    assert_eq!(child["scopes"], json!(["agents:view"]));
    // Lists never show the text.
    let listed = server.ask("GET", "/api/auth/tokens", None).text();
    assert!(!listed.contains(&token));
}
