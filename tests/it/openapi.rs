//! The description of the API as a client gets it.

use wingman::control::routes::{Access, ROUTES};

use crate::control_server::TestServer;

#[test]
fn served_document_names_every_route_its_operation_and_its_security() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let reply = server.ask("GET", "/api/openapi.json", None);
    assert_eq!(reply.status, 200);
    let document = reply.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = std::collections::HashSet::new();
    for route in ROUTES.iter() {
        let verb = route.rest.verb.as_str().to_ascii_lowercase();
        let operation = &document["paths"][route.rest.path][&verb];
        let id = operation["operationId"].as_str().expect(route.row.name);
        assert_eq!(id, route.row.name);
        assert!(operations.insert(id.to_owned()), "{id} twice");
        assert!(operation["responses"]["200"]["content"].is_object());
        assert!(operation["responses"]["default"].is_object());
        let open = operation["security"].as_array().unwrap().is_empty();
        assert_eq!(open, route.access == Access::Public, "{id}");
    }
    let paths = document["paths"].as_object().unwrap();
    let described: usize = paths
        .values()
        .map(|item| item.as_object().unwrap().len())
        .sum();
    assert_eq!(described, ROUTES.len());
}

#[test]
fn document_needs_a_signed_in_account() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let (status, code) = server
        .request("GET", "/api/openapi.json", &[], None)
        .fault();
    assert_eq!((status, code.as_str()), (401, "unauthenticated"));
}
