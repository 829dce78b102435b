//! The permission table: 20 permissions by 3 built-in roles, as data.

use serde::{Deserialize, Serialize};

macro_rules! permissions {
    ($($name:ident = $text:literal, $operator:literal, $viewer:literal;)+) => {
        /// What an account may do; every route and remote method names one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum Permission {
            $(#[serde(rename = $text)] $name,)+
        }

        impl Permission {
            pub const ALL: &'static [Permission] = &[$(Permission::$name),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Permission::$name => $text,)+ }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Permission::$name),)+ _ => None }
            }
        }

        impl Role {
            /// Whether the built-in role holds the permission.
            pub const fn holds(self, permission: Permission) -> bool {
                match self {
                    Role::Admin => true,
                    Role::Operator => match permission { $(Permission::$name => $operator,)+ },
                    Role::Viewer => match permission { $(Permission::$name => $viewer,)+ },
                }
            }
        }
    };
}

/// The built-in roles, re-synchronised at every start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Admin,
    Operator,
    Viewer,
}

impl Role {
    pub const ALL: &'static [Role] = &[Role::Admin, Role::Operator, Role::Viewer];

    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|role| role.as_str() == text)
    }
}

permissions! {
    //                                               operator viewer
    UsersManage = "users:manage",                     false, false;
    RolesManage = "roles:manage",                     false, false;
    AgentsView = "agents:view",                       true,  true;
    AgentsManage = "agents:manage",                   true,  false;
    AgentTokensManage = "agenttokens:manage",         false, false;
    ScriptsView = "scripts:view",                     true,  true;
    ScriptsEdit = "scripts:edit",                     true,  false;
    ScriptsRun = "scripts:run",                       true,  false;
    WorkflowsView = "workflows:view",                 true,  true;
    WorkflowsRun = "workflows:run",                   true,  false;
    MonitorView = "monitor:view",                     true,  true;
    DesktopView = "desktop:view",                     true,  true;
    DesktopControl = "desktop:control",               true,  false;
    AuditView = "audit:view",                         true,  true;
    SettingsView = "settings:view",                   true,  true;
    SettingsEdit = "settings:edit",                   false, false;
    DebuggerUse = "debugger:use",                     false, false;
    SessionsView = "sessions:view",                   true,  true;
    SessionsControl = "sessions:control",             true,  false;
    SessionsManage = "sessions:manage",               true,  false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_the_specification_s() {
        let held = |role: Role| Permission::ALL.iter().filter(|p| role.holds(**p)).count();
        assert_eq!(Permission::ALL.len(), 20);
        assert_eq!(held(Role::Admin), 20);
        assert_eq!(held(Role::Operator), 15);
        assert_eq!(held(Role::Viewer), 8);
        for permission in Permission::ALL {
            let view = permission.as_str().ends_with(":view");
            assert_eq!(
                Role::Viewer.holds(*permission),
                view,
                "{}",
                permission.as_str()
            );
        }
    }
}
