//! Checkpoints: a simulated container has no process to write down, so what is known of it stands in the file.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;

use crate::node::{CriError, SimulatedNode};

impl SimulatedNode {
    /// Describes a running container in a new file, in place of the archive that a real runtime writes.
    pub(crate) fn checkpoint(&self, id: &str, location: &str) -> Result<(), CriError> {
        let (_, container) = self.container(id)?;
        if !container.running() {
            let id = id.to_owned();
            return Err(CriError::WrongState {
                what: "container",
                id,
                state: "not running",
                expected: "running",
            });
        }
        if location.is_empty() {
            return Err(CriError::Missing { field: "location" });
        }
        let record = &container.record;
        let text =
            json!({ "id": id, "name": record.name, "image": record.image, "files": record.files });
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(location);
        let written = opened.and_then(|mut file| file.write_all(text.to_string().as_bytes()));
        written.map_err(|source| CriError::Checkpoint {
            path: Path::new(location).to_owned(),
            source,
        })
    }
}
