//! The node's methods by family. `all` is the whole table.

mod config;
mod desktop;
mod executions;
mod sessions;
mod system;

use super::dispatcher::Dispatcher;
use super::node::Node;

/// Methods that the local listener answers itself, since they belong to a connection.
#[cfg(test)]
const OF_THE_CONNECTION: &[&str] = &["ipc.hello", "events.drain", "events.follow"];

/// Every method that a node answers.
pub fn all() -> Dispatcher<Node> {
    let dispatcher = Dispatcher::default();
    let dispatcher = system::register(dispatcher);
    let dispatcher = executions::register(dispatcher);
    let dispatcher = desktop::register(dispatcher);
    let dispatcher = sessions::register(dispatcher);
    config::register(dispatcher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::table::METHODS;

    #[test]
    fn every_node_method_has_exactly_one_handler() {
        let handlers = all();
        for row in METHODS {
            let expected = (row.owner.on_ipc() || row.owner.on_link())
                && !OF_THE_CONNECTION.contains(&row.name);
            assert_eq!(handlers.answers(row.name), expected, "{}", row.name);
        }
    }
}
