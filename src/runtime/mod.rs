//! The node: dispatcher, executions, hosts for scripts, event fan-out.
