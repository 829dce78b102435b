//! Enrolment: a join string becomes a key that the server knows, and an agent.toml that names it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::dial::{self, Connection};
use super::identity;
use crate::base::ids::AgentId;
use crate::base::limits;
use crate::config::{RemoteConfig, write_remote};
use crate::wire::frame::{Frame, FrameType};
use crate::wire::join::{JoinString, split_address};
use crate::wire::link::{ENROLL, Enroll, EnrollReply, LinkError, Response, object};
use crate::wire::rawkey::{AGENT_KEY_FILE, LinkKey, PublicKey};
use crate::wire::{Code, Fault};

/// What an enrolment has put in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Enrolled {
    pub agent_id: AgentId,
    pub remote: RemoteConfig,
}

/// Joins the server that issued `join`: makes a fresh key, enrols it, then writes key, id and the
/// `[remote]` table. Nothing is written when the server refuses.
///
/// Errors: `join_string_invalid`, `pin_mismatch`, `invite_*`, `rate_limited`,
/// `endpoint_unavailable`, `timed_out`, `storage_failed`, `config_not_writable`.
pub async fn join(
    join: &str,
    data_dir: &Path,
    config_path: &Path,
    current: &RemoteConfig,
) -> Result<Enrolled, Fault> {
    let join = JoinString::parse(join)?;
    let (host, port) = split_address(&join.address)?;
    let wish = identity::load_or_create(data_dir)?;
    let key = LinkKey::generate();
    let pin = PublicKey(join.pin);
    let time = Duration::from_secs(current.connect_timeout);
    let mut connection = dial::within(time, "connect", dial::tls(&host, port, &key, pin)).await?;
    let message = Enroll {
        invite_id: join.invite.clone(),
        secret: join.secret.clone(),
        agent_id: wish,
        hostname: identity::hostname(),
        platform: std::env::consts::OS.to_owned(),
    };
    let time = Duration::from_millis(limits::ENROLL_TIMEOUT_MS);
    let reply = dial::within(time, "enrol", ask(&mut connection, &message)).await?;
    // The key first: a crash after it leaves a key that is enrolled and a configuration to repeat.
    key.save(&data_dir.join(AGENT_KEY_FILE))?;
    identity::save(data_dir, &reply.agent_id)?;
    let remote = RemoteConfig {
        enable: true,
        server_ip: host,
        server_port: port,
        protocol: 2,
        server_key: pin.to_hex(),
        ..current.clone()
    };
    write_remote(config_path, &remote)
        .map_err(|error| Fault::new(Code::ConfigNotWritable, error.to_string()))?;
    Ok(Enrolled {
        agent_id: reply.agent_id,
        remote,
    })
}

async fn ask(connection: &mut Connection, message: &Enroll) -> Result<EnrollReply, Fault> {
    let invalid = |error: serde_json::Error| Fault::new(Code::InvalidMessage, error.to_string());
    let body = json!({"type": ENROLL, "method": ENROLL, "sequence": 0, "params": message});
    connection
        .write(&Frame::new(FrameType::Request, 0, body.to_string()))
        .await?;
    loop {
        let frame = connection.read().await?;
        match frame.frame_type {
            FrameType::Response => {
                let fields = Value::Object(object(&frame.body)?);
                let response: Response = serde_json::from_value(fields).map_err(invalid)?;
                return serde_json::from_value(response.into_result()?).map_err(invalid);
            }
            FrameType::Error => {
                let fields = Value::Object(object(&frame.body)?);
                let error: LinkError = serde_json::from_value(fields).map_err(invalid)?;
                return Err(error.into_fault());
            }
            FrameType::Request | FrameType::Notify | FrameType::Data => {}
        }
    }
}
