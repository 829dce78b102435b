//! Held keys: they stay over calls of one caller, and go up with their owner, however it ends.

use serde_json::json;
use wingman::ipc::{Client, Endpoint};
use x11rb::protocol::xproto::ConnectionExt;

use crate::support::{Host, TestDisplay, wait_for};

/// Whether any key is down on the display.
fn any_key_down(display: &TestDisplay) -> bool {
    let (connection, _) = display.connect();
    let keys = connection.query_keymap().unwrap().reply().unwrap().keys;
    keys.iter().any(|byte| *byte != 0)
}

fn wait_for_keys(display: &TestDisplay, down: bool) {
    let what = if down {
        "a key to be down"
    } else {
        "every key to be up"
    };
    wait_for(what, || (any_key_down(display) == down).then_some(()));
}

const HOLDING: &str = "input.keyDown(0x10)\nprint('held')\nutil.sleep(600000)";

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_s_key_stays_down_over_calls_and_goes_up_when_it_disconnects() {
    let display = TestDisplay::start(320, 240);
    let host = Host::with_display(display.name());
    let _agent = host.start_agent();
    let config = wingman::config::IpcConfig::default();
    let endpoint = Endpoint::resolve(&config, &host.data_dir().join("agent")).unwrap();
    let client = Client::connect(&endpoint).await.unwrap();
    client
        .call("input.keyDown", json!({ "keys": "shift" }))
        .await
        .unwrap();
    client
        .call("input.scroll", json!({ "deltaY": 1 }))
        .await
        .unwrap();
    assert!(
        any_key_down(&display),
        "the key is still down after another call"
    );
    drop(client);
    wait_for_keys(&display, false);
}

#[test]
fn a_stopped_script_s_key_goes_up() {
    let display = TestDisplay::start(320, 240);
    let host = Host::with_display(display.name());
    let _agent = host.start_agent();
    let params = json!({ "source": HOLDING, "language": "lua" }).to_string();
    let run = host.ipc("script.run", &params).unwrap();
    wait_for_keys(&display, true);
    let id = run["executionId"].as_str().unwrap();
    host.ipc(
        "execution.cancel",
        &json!({ "executionId": id }).to_string(),
    )
    .unwrap();
    wait_for_keys(&display, false);
}

#[test]
fn keys_go_up_when_the_agent_is_killed() {
    let display = TestDisplay::start(320, 240);
    let host = Host::with_display(display.name());
    let agent = host.start_agent();
    let params = json!({ "source": HOLDING, "language": "lua" }).to_string();
    host.ipc("script.run", &params).unwrap();
    wait_for_keys(&display, true);
    agent.kill();
    wait_for_keys(&display, false);
}
