//! CheckpointContainer: the state of a running container, written by CRIU through its OCI runtime, as one archive.
//!
//! The archive's parts have the names by which CRI-O and containerd write them and `checkpointctl` reads them:
//! `checkpoint/` (CRIU's images), `config.dump` and `spec.dump` (the container's and its OCI configuration),
//! `rootfs-diff.tar` (what it has written), `container.log`, and CRIU's own `dump.log` and `stats-dump`. The container runs
//! on; it isn't paused while its files are read, so these may be younger than its memory.

mod archive;
mod written;

use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use monitor::{MonitorError, RUNTIME_PATH, Refusal, RefusalKind};
use proto::cri::CheckpointContainerRequest;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::CallError;
use crate::node::Node;
use crate::record::ContainerRecord;

/// Without a word of the caller, for CRIU and the archive together.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// How much of CRIU's log is looked through for errors, in bytes.
const MAX_CRIU_LOG_BYTES: u64 = 4 << 20;

impl Node {
    /// Writes the archive at the request's `location`, whole or not at all. Without CRIU on the node it is unsupported.
    pub(crate) async fn checkpoint_container(
        self: &Arc<Node>,
        request: CheckpointContainerRequest,
    ) -> Result<(), CallError> {
        let location = PathBuf::from(&request.location);
        if !location.is_absolute() || location.file_name().is_none() {
            return Err(CallError::Invalid {
                field: "location",
                found: request.location,
                expected: "the absolute path of a file",
            });
        }
        let id = self.container(&request.container_id)?.id;
        let _alone = self.lock(&id).await?;
        let record = self.running(&id)?;
        if !is_installed(RUNTIME_PATH) {
            return Err(CallError::Unsupported(
                "without the program criu on the node, checkpoints are",
            ));
        }
        let (seconds, allowed) = match u64::try_from(request.timeout) {
            Ok(0) | Err(_) => (DEFAULT_TIMEOUT.as_secs(), DEFAULT_TIMEOUT),
            Ok(seconds) => (seconds, Duration::from_secs(seconds)),
        };
        let folder = self.parts.layout.container(&id).join("checkpoint");
        let written = timeout(allowed, self.dump(&record, folder.clone(), location)).await;
        // What is left of them is removed with the container, or before its next checkpoint.
        drop(self.discard(folder, format!("{id}-checkpoint")).await);
        written.map_err(|_| CallError::TooSlow {
            command: "checkpoint".to_owned(),
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        })?
    }

    async fn dump(
        self: &Arc<Node>,
        record: &ContainerRecord,
        folder: PathBuf,
        location: PathBuf,
    ) -> Result<(), CallError> {
        let images = folder.join("checkpoint");
        self.discard(folder.clone(), format!("{}-checkpoint", record.id))
            .await?;
        let made = images.clone();
        self.blocking("making a checkpoint's folder", move || {
            let mut private = DirBuilder::new();
            let made_now = private.recursive(true).mode(0o700).create(&made);
            made_now.map_err(CallError::file("make", made))
        })
        .await?;
        let sandbox = self.sandbox(&record.sandbox)?;
        let monitor = self.launch(&sandbox).await?;
        let dumped = monitor.checkpoint(&record.id, images, folder.clone()).await;
        dumped.map_err(|error| {
            if let MonitorError::Refused(Refusal {
                kind: RefusalKind::Runtime,
                message,
            }) = &error
            {
                return CallError::NotCheckpointed {
                    message: message.clone(),
                    log: last_errors(&folder.join("dump.log")),
                };
            }
            error.into()
        })?;
        let parts = archive::Parts {
            config: self.config_dump(record, &sandbox.handler),
            bundle: self.parts.layout.bundle(&record.id),
            upper: self.parts.layout.container(&record.id).join("upper"),
            log: (!record.log.is_empty()).then(|| {
                let logs = &sandbox.config.0.log_directory;
                let log = &record.config.0.log_path;
                (PathBuf::from(logs), PathBuf::from(log))
            }),
            folder,
        };
        self.blocking("writing a checkpoint's archive", move || {
            let written = archive::write(&parts, &location);
            written.map_err(CallError::file("write the checkpoint", &location))
        })
        .await
    }

    /// What `config.dump` says, in `checkpointctl`'s names.
    fn config_dump(&self, record: &ContainerRecord, handler: &str) -> Value {
        let config = &record.config.0;
        let name = config.metadata.as_ref().map(|metadata| &metadata.name);
        let image = config.image.as_ref();
        json!({
            "id": record.id,
            "name": name,
            "rootfsImage": image.map(|image| &image.user_specified_image),
            "rootfsImageRef": record.image,
            "rootfsImageName": image.map(|image| &image.image),
            "runtime": handler,
            "createdTime": timestamp(record.created),
            "checkpointedTime": timestamp(crate::clock::now()),
            "restored": false,
        })
    }
}

/// What CRIU's log has of errors, at most four lines; the log goes with the folder.
fn last_errors(log: &Path) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|log| log.take(MAX_CRIU_LOG_BYTES).read_to_end(&mut text));
    // Without a log the OCI runtime's own words are all there is.
    drop(read);
    let text = String::from_utf8_lossy(&text);
    let errors: Vec<&str> = text.lines().filter(|line| line.contains("Error")).collect();
    errors[errors.len().saturating_sub(4)..].join("; ")
}

/// A time in RFC 3339; empty where the nanoseconds are out of range.
fn timestamp(nanoseconds: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanoseconds.into());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// Whether CRIU is in one of the folders of `path`.
fn is_installed(path: &str) -> bool {
    path.split(':').any(|folder| {
        fs::metadata(Path::new(folder).join("criu"))
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}
