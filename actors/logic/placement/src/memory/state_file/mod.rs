//! `memory_manager_state`: what pods hold, in the form in which the kubelet keeps it.
//!
//! Two forms are in use: one with pods' own memory (`podEntries`), written under the gate `PodLevelResourceManagers`, and
//! one without. Each ends with a checksum. Mirrors upstream's memorymanager/state/checkpoint.go and state_checkpoint.go,
//! and `validateState` of policy_static.go, at v1.36.

mod checksum;
mod content;
mod convert;

use std::sync::Arc;

use thiserror::Error;

use self::checksum::{FileForm, is_intact, seal};
use self::content::StateFile;
use super::manager::{MemoryManager, MemoryPolicy};
use crate::topology::{HeldAssignments, PodLevelManagers};

/// The file's name in the agent's root folder.
pub const STATE_FILE: &str = "memory_manager_state";

/// Why the file is of no use.
#[derive(Debug, Error)]
pub enum StateFileError {
    #[error("unexpected end of JSON input")]
    Truncated,
    #[error("it does not read as a memory manager's state")]
    Json(#[source] serde_json::Error),
    #[error("checkpoint is corrupted")]
    Corrupt,
    #[error(
        "[memorymanager] configured policy {configured:?} differs from state checkpoint policy {found:?}"
    )]
    OtherPolicy {
        configured: &'static str,
        found: String,
    },
    #[error("[memorymanager] machine state can not be empty when it has memory assignments")]
    NoMachine,
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses the NUMA that does not exist"
    )]
    NoSuchNode { pod: String, container: String },
    #[error(
        "[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses memory resource that does \
         not exist"
    )]
    NoSuchResource { pod: String, container: String },
    #[error("[memorymanager] the expected machine state is different from the real one")]
    OtherMachine,
}

impl StateFileError {
    /// What an operator is told about the file at this path, in upstream's words.
    pub fn advice(&self, path: &str) -> String {
        match self {
            Self::Truncated | Self::Json(_) | Self::Corrupt | Self::OtherPolicy { .. } => format!(
                "could not restore state from checkpoint: {self}, please drain this node and delete the memory manager \
                 checkpoint file {path:?} before restarting Kubelet"
            ),
            Self::NoMachine
            | Self::NoSuchNode { .. }
            | Self::NoSuchResource { .. }
            | Self::OtherMachine => self.to_string(),
        }
    }
}

impl MemoryManager {
    /// The file's content when pods hold this.
    pub fn save(&self, held: &HeldAssignments) -> Vec<u8> {
        let state = self.state(held.values().map(Arc::as_ref));
        let mut file = StateFile {
            policy_name: self.policy().as_str().to_owned(),
            machine_state: Some(convert::machine_state(&state)),
            ..StateFile::default()
        };
        if self.policy() == MemoryPolicy::Static {
            file.entries = Some(convert::entries(held));
        }
        let form = match self.pod_level() {
            PodLevelManagers::On => {
                file.pod_entries = Some(convert::pod_entries(held));
                FileForm::WithPods
            }
            PodLevelManagers::Off => FileForm::WithoutPods,
        };
        seal(&mut file, form);
        serde_json::to_vec(&file).expect("texts and numbers are plain data")
    }

    /// What pods held when the file was written.
    ///
    /// # Errors
    ///
    /// The file is damaged, of another policy or of another machine.
    pub fn restore(&self, bytes: &[u8]) -> Result<HeldAssignments, StateFileError> {
        let file = self.read(bytes)?;
        if file.policy_name != self.policy().as_str() {
            return Err(StateFileError::OtherPolicy {
                configured: self.policy().as_str(),
                found: file.policy_name,
            });
        }
        let is_static = self.policy() == MemoryPolicy::Static;
        match file
            .machine_state
            .as_ref()
            .is_none_or(|nodes| nodes.is_empty())
        {
            true if is_static && file.has_entries() => Err(StateFileError::NoMachine),
            true => Ok(HeldAssignments::new()),
            false if is_static => self.restore_static(&file),
            false => Ok(HeldAssignments::new()),
        }
    }

    fn restore_static(&self, file: &StateFile) -> Result<HeldAssignments, StateFileError> {
        let held = convert::held(file, &self.state([]))?;
        let expected = self.state(held.values().map(Arc::as_ref));
        match convert::is_same_machine(file, &expected) {
            true => Ok(held),
            false => Err(StateFileError::OtherMachine),
        }
    }

    /// The content of an intact file. Without the gate pods' own memory is not read, and a checksum that covers it is
    /// wrong.
    fn read(&self, bytes: &[u8]) -> Result<StateFile, StateFileError> {
        let file = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
            true => StateFileError::Truncated,
            false => StateFileError::Json(error),
        });
        let mut file: StateFile = file?;
        if self.pod_level() == PodLevelManagers::On && is_intact(&file, FileForm::WithPods) {
            return Ok(file);
        }
        file.pod_entries = Some(content::PodEntries::new());
        // Upstream accepts its own name of the older form, which it never writes, without the gate alone.
        let forms: &[FileForm] = match self.pod_level() {
            PodLevelManagers::On => &[FileForm::WithoutPods],
            PodLevelManagers::Off => &[FileForm::WithoutPods, FileForm::NamedV1],
        };
        let is_unsealed = file.checksum == 0;
        match is_unsealed || forms.iter().any(|form| is_intact(&file, *form)) {
            true => Ok(file),
            false => Err(StateFileError::Corrupt),
        }
    }
}
