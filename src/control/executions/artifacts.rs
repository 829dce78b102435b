//! The bytes of artifacts: fetched from the workstation, checked against their record, kept as files.
//!
//! `data/artifacts/<execution>/<sha256 of the name>`: a name is the workstation's text and never a
//! path of ours. A file is written beside its place, synced and renamed, so a file that is there is
//! whole; one that does not match its record is moved aside as `<file>.quarantined` and reported.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::{Executions, record};
use crate::base::digest::sha256_hex;
use crate::base::ids::{AgentId, ExecutionId};
use crate::base::limits::ARTIFACT_LEN_MAX;
use crate::control::fault::{file, stored};
use crate::store::executions::{self as table, ArtifactRow};
use crate::wire::messages::executions::{Artifact, ArtifactParams, GetArtifact};
use crate::wire::{Answer, Blob, Call, Code, Fault, Method, Origin};

/// The folder of all artifacts.
#[derive(Clone, Debug)]
pub struct ArtifactFiles {
    dir: PathBuf,
}

impl ArtifactFiles {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn place(&self, id: &ExecutionId, name: &str) -> PathBuf {
        // An identifier may be `.` or `..`; its hash is a plain name.
        self.dir
            .join(sha256_hex(id.as_str().as_bytes()))
            .join(sha256_hex(name.as_bytes()))
    }

    fn write(&self, id: &ExecutionId, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let place = self.place(id, name);
        let dir = place.parent().unwrap_or(&self.dir);
        std::fs::create_dir_all(dir)?;
        let mut part = tempfile::NamedTempFile::new_in(dir)?;
        part.write_all(bytes)?;
        part.as_file().sync_all()?;
        part.persist(&place).map_err(|error| error.error)?;
        Ok(())
    }

    /// The checked bytes; `None` when the file is gone or was moved aside.
    fn read(&self, id: &ExecutionId, row: &ArtifactRow) -> std::io::Result<Option<Bytes>> {
        let place = self.place(id, &row.name);
        let bytes = match std::fs::read(&place) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if fits(row, &bytes) {
            return Ok(Some(bytes.into()));
        }
        let aside = place.with_extension("quarantined");
        std::fs::rename(&place, &aside)?;
        tracing::error!(execution = %id, artifact = row.name, file = %aside.display(),
            "stored artifact was altered and is moved aside");
        Ok(None)
    }

    /// Deletes the files of an execution.
    pub fn remove(&self, id: &ExecutionId) {
        let dir = self.dir.join(sha256_hex(id.as_str().as_bytes()));
        match std::fs::remove_dir_all(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, dir = %dir.display(), "delete artifacts"),
        }
    }
}

impl Executions {
    /// `execution.artifact`: the record and the bytes.
    pub async fn artifact(self: &Arc<Self>, params: ArtifactParams) -> Result<Answer, Fault> {
        let ArtifactParams { execution_id, name } = params;
        let wanted = name.clone();
        let id = execution_id.clone();
        let (row, found) = self
            .store
            .call(move |c| {
                let row = table::get(c, &id)?;
                let all = table::artifacts(c, &id)?;
                Ok((
                    row,
                    all.into_iter().find(|artifact| artifact.name == wanted),
                ))
            })
            .await
            .map_err(stored)?;
        let row = row.ok_or_else(|| super::not_found(&execution_id))?;
        match found {
            Some(artifact) => {
                let bytes = self.bytes(&execution_id, &row.agent_id, &artifact).await?;
                answer(record::shown_artifact(artifact), bytes)
            }
            None => self.synthesised(row, &name).await,
        }
    }

    async fn bytes(
        self: &Arc<Self>,
        id: &ExecutionId,
        agent: &AgentId,
        artifact: &ArtifactRow,
    ) -> Result<Bytes, Fault> {
        if artifact.stored {
            let (files, of, row) = (self.files.clone(), id.clone(), artifact.clone());
            let read = blocking(move || files.read(&of, &row)).await?;
            if let Some(bytes) = read.map_err(|error| file("read the artifact", &error))? {
                return Ok(bytes);
            }
            self.mark(artifact, id.clone(), false).await?;
        }
        self.fetch(id, agent, artifact).await
    }

    /// Takes the bytes over the link, checks and keeps them.
    async fn fetch(
        self: &Arc<Self>,
        id: &ExecutionId,
        agent: &AgentId,
        artifact: &ArtifactRow,
    ) -> Result<Bytes, Fault> {
        let _turn = self.fetches.acquire().await;
        let params = ArtifactParams {
            execution_id: id.clone(),
            name: artifact.name.clone(),
        };
        let mut call = Call::of::<GetArtifact>(&params, Origin::Server { epoch: 0 })?;
        call.timeout_ms = GetArtifact::TIMEOUT_MS;
        let answer = self.links()?.call(agent, call).await?;
        let bytes = answer
            .blob
            .map(|blob| blob.bytes)
            .ok_or_else(|| Fault::new(Code::ArtifactCorrupt, "the workstation sent no bytes"))?;
        if !fits(artifact, &bytes) {
            tracing::error!(execution = %id, artifact = artifact.name, agent = %agent,
                "artifact from the workstation does not match its record");
            let text = "the bytes from the workstation do not match the artifact's record";
            return Err(Fault::new(Code::ArtifactCorrupt, text));
        }
        let (files, to, name, kept) = (
            self.files.clone(),
            id.clone(),
            artifact.name.clone(),
            bytes.clone(),
        );
        blocking(move || files.write(&to, &name, &kept))
            .await?
            .map_err(|error| file("store the artifact", &error))?;
        self.mark(artifact, id.clone(), true).await?;
        Ok(bytes)
    }

    async fn mark(&self, artifact: &ArtifactRow, id: ExecutionId, held: bool) -> Result<(), Fault> {
        let (name, sha256) = (artifact.name.clone(), artifact.sha256.clone());
        self.store
            .call(move |c| table::set_stored(c, &id, &name, &sha256, held))
            .await
            .map_err(stored)
    }

    /// Fetches in the background what an event announced; what fails is fetched when asked for.
    pub(super) fn fetch_later(
        self: &Arc<Self>,
        agent: &AgentId,
        wanted: Vec<(ExecutionId, String)>,
    ) {
        if wanted.is_empty() {
            return;
        }
        let (this, agent) = (Arc::clone(self), agent.clone());
        self.spawn(async move {
            for (id, name) in wanted {
                let (of, wanted) = (id.clone(), name.clone());
                let found = this.store.call(move |c| {
                    let all = table::artifacts(c, &of)?;
                    Ok(all.into_iter().find(|artifact| artifact.name == wanted))
                });
                let outcome = match found.await.map_err(stored) {
                    Ok(Some(artifact)) if !artifact.stored => {
                        this.fetch(&id, &agent, &artifact).await.map(drop)
                    }
                    Ok(_) => Ok(()),
                    Err(fault) => Err(fault),
                };
                if let Err(fault) = outcome {
                    tracing::info!(execution = %id, artifact = name, error = %fault,
                        "artifact stays on the workstation for now");
                    if fault.code == Code::AgentOffline {
                        return;
                    }
                }
            }
        });
    }

    /// `stdout`, `stderr` and `result.json` of runs that stored no such file.
    async fn synthesised(&self, row: table::ExecutionRow, name: &str) -> Result<Answer, Fault> {
        let (content_type, bytes) = match name {
            "stdout" | "stderr" => {
                let (id, stream) = (row.execution_id.clone(), name.to_owned());
                let lines = self
                    .store
                    .call(move |c| table::stream_lines(c, &id, &stream));
                let lines = lines.await.map_err(stored)?;
                ("text/plain; charset=utf-8", joined(name, &lines))
            }
            "result.json" => match &row.result {
                Some(result) => ("application/json", result.to_string()),
                None => return Err(no_artifact(&row.execution_id, name)),
            },
            _ => return Err(no_artifact(&row.execution_id, name)),
        };
        let bytes = Bytes::from(bytes);
        let artifact = Artifact {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            size: bytes.len() as u64,
            sha256: sha256_hex(&bytes),
            created_at: row.finished_at.unwrap_or(row.created_at),
        };
        answer(artifact, bytes)
    }
}

/// Lines as the workstation's own file has them: those of `stderr` name their level.
fn joined(stream: &str, lines: &[(String, String)]) -> String {
    let mut text = String::new();
    for (level, line) in lines {
        if stream == "stderr" {
            text.push('[');
            text.push_str(level);
            text.push_str("] ");
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Whether a record of an artifact may be kept at all.
pub fn acceptable(artifact: &Artifact) -> bool {
    let hash = &artifact.sha256;
    let name = &artifact.name;
    hash.len() == 64
        && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && artifact.size <= ARTIFACT_LEN_MAX as u64
        && !name.is_empty()
        && name.len() <= 255
        && !name.contains(|c: char| c.is_control() || matches!(c, '/' | '\\'))
        && artifact.content_type.len() <= 255
}

fn fits(row: &ArtifactRow, bytes: &[u8]) -> bool {
    bytes.len() as u64 == row.size && sha256_hex(bytes) == row.sha256
}

fn no_artifact(id: &ExecutionId, name: &str) -> Fault {
    let name = crate::control::auth::cut(name);
    Fault::new(
        Code::ArtifactNotFound,
        format!("execution {id} has no artifact {name:?}"),
    )
}

fn answer(artifact: Artifact, bytes: Bytes) -> Result<Answer, Fault> {
    let blob = Blob {
        content_type: artifact.content_type.clone(),
        bytes,
        field: "content",
    };
    let mut answer = Answer::of(&artifact)?;
    answer.blob = Some(blob);
    Ok(answer)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Fault::internal(format!("file work: {error}")))
}
