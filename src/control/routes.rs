//! The routes table: every method row that has an HTTP face, plus the short list of `special`.
//! Permission, audit, OpenAPI and metrics read this table; nothing else declares a route.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::special;
use crate::wire::Permission;
use crate::wire::method::{MethodRow, Owner, Rest, Verb};
use crate::wire::table::METHODS;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Public,
    /// A signed-in account that holds this.
    Held(Permission),
}

/// Who answers a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// The workstation that `{agentId}` names, over its link.
    Node,
    /// A handler of this server.
    Server,
}

pub struct Route {
    pub row: &'static MethodRow,
    pub rest: Rest,
    pub access: Access,
    pub answerer: Answerer,
    /// The kind under which each request is written to the audit trail; absent for views.
    pub audit: Option<&'static str>,
    /// What the query and the path carry as text, by parameter name.
    pub scalars: BTreeMap<String, Scalar>,
}

/// How a parameter's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Text,
    Integer,
    Number,
    Boolean,
    /// Repeated names, or one.
    List,
}

/// Every route.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    METHODS
        .iter()
        .chain(special::ROWS)
        .filter_map(|row| row.rest.map(|rest| Route::new(row, rest)))
        .collect()
});

/// The routes of one path, by verb.
pub type PathGroup = Arc<Vec<&'static Route>>;

/// The routes grouped by path.
pub fn by_path() -> BTreeMap<&'static str, PathGroup> {
    let mut groups = BTreeMap::<&str, Vec<&'static Route>>::new();
    for route in ROUTES.iter() {
        groups.entry(route.rest.path).or_default().push(route);
    }
    groups
        .into_iter()
        .map(|(path, group)| (path, Arc::new(group)))
        .collect()
}

impl Route {
    fn new(row: &'static MethodRow, rest: Rest) -> Self {
        let node = matches!(row.owner, Owner::Node | Owner::NodeRemote);
        Self {
            row,
            rest,
            access: if special::PUBLIC.contains(&row.name) {
                Access::Public
            } else {
                Access::Held(row.permission)
            },
            answerer: if node {
                Answerer::Node
            } else {
                Answerer::Server
            },
            audit: audit_kind(row.name, rest.verb),
            scalars: scalars(&(row.params_schema)()),
        }
    }

    /// Whether the route may change something.
    pub fn is_unsafe(&self) -> bool {
        self.rest.verb != Verb::Get
    }
}

fn audit_kind(name: &'static str, verb: Verb) -> Option<&'static str> {
    match name {
        "auth.login" | "auth.openTicket" | "auth.redeem" => Some("login"),
        "agents.revoke" => Some("agent.revoke"),
        "agents.setTags" => Some("agent.set_tags"),
        "agents.split" => Some("agent.split"),
        "agents.invite" => Some("agent.invite"),
        "system.shutdown" => Some("agent.shutdown"),
        "agentTokens.create" => Some("agenttoken.create"),
        "agentTokens.revoke" => Some("agenttoken.revoke"),
        name => (verb != Verb::Get).then_some(name),
    }
}

fn scalars(schema: &serde_json::Value) -> BTreeMap<String, Scalar> {
    let mut found = BTreeMap::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(name.clone(), scalar(schema, property, 0));
    }
    found
}

/// What a property's schema asks for, `null` and references looked through.
fn scalar(root: &serde_json::Value, property: &serde_json::Value, depth: u8) -> Scalar {
    // References of our own types never nest this deep.
    if depth > 8 {
        return Scalar::Text;
    }
    if let Some(reference) = property["$ref"].as_str() {
        let target = reference.trim_start_matches('#');
        return root
            .pointer(target)
            .map_or(Scalar::Text, |schema| scalar(root, schema, depth + 1));
    }
    let kinds = match &property["type"] {
        serde_json::Value::String(kind) => vec![kind.as_str()],
        serde_json::Value::Array(kinds) => kinds.iter().filter_map(|kind| kind.as_str()).collect(),
        _ => Vec::new(),
    };
    for kind in kinds {
        match kind {
            "integer" => return Scalar::Integer,
            "number" => return Scalar::Number,
            "boolean" => return Scalar::Boolean,
            "array" => return Scalar::List,
            _ => {}
        }
    }
    property["anyOf"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|schema| scalar(root, schema, depth + 1))
        .find(|kind| *kind != Scalar::Text)
        .unwrap_or(Scalar::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_row_with_a_face_is_a_route_and_verbs_are_unique_per_path() {
        let faces = METHODS.iter().filter(|row| row.rest.is_some()).count();
        assert_eq!(ROUTES.len(), faces + special::ROWS.len());
        for (path, group) in by_path() {
            let mut verbs: Vec<_> = group.iter().map(|route| route.rest.verb).collect();
            verbs.sort();
            verbs.dedup();
            assert_eq!(verbs.len(), group.len(), "{path}");
        }
    }

    #[test]
    fn routes_of_nodes_name_the_agent() {
        for route in ROUTES.iter() {
            if route.answerer == Answerer::Node {
                assert!(route.rest.path.contains("{agentId}"), "{}", route.row.name);
            }
        }
    }

    #[test]
    fn every_unsafe_route_is_audited() {
        for route in ROUTES.iter().filter(|route| route.is_unsafe()) {
            assert!(route.audit.is_some(), "{}", route.row.name);
        }
    }

    #[test]
    fn public_routes_are_the_short_list() {
        let public: Vec<_> = ROUTES
            .iter()
            .filter(|route| route.access == Access::Public)
            .map(|route| route.row.name)
            .collect();
        assert_eq!(public.len(), special::PUBLIC.len());
        assert!(METHODS.iter().all(|row| !public.contains(&row.name)));
    }

    #[test]
    fn optional_numbers_of_the_query_are_numbers() {
        let list = ROUTES
            .iter()
            .find(|route| route.row.name == "execution.list")
            .unwrap();
        assert_eq!(list.scalars["pageSize"], Scalar::Integer);
        assert_eq!(list.scalars["status"], Scalar::Text);
    }
}
