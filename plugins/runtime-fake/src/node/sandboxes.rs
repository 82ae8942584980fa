//! Operations on sandboxes.

use prost::Message;
use proto::cri::{
    ContainerEventType, LinuxContainerResources, NamespaceMode, PodSandboxConfig,
    RunPodSandboxRequest,
};

use crate::node::{CriError, SimulatedNode};
use crate::settings::annotations::SandboxTuning;
use crate::state::{FakeSandbox, JournalRecord, SandboxRecord, Seq};

impl SimulatedNode {
    /// Finds a sandbox by its id.
    pub(crate) fn sandbox(&self, id: &str) -> Result<(Seq, &FakeSandbox), CriError> {
        let found = self.state.find_sandbox(id);
        let found =
            found.and_then(|seq| self.state.sandboxes.get(&seq).map(|sandbox| (seq, sandbox)));
        found.ok_or_else(|| CriError::NotFound {
            what: "sandbox",
            id: id.to_owned(),
        })
    }

    /// Makes a sandbox that is ready; returns its id.
    pub(crate) fn run_sandbox(
        &mut self,
        request: RunPodSandboxRequest,
    ) -> Result<String, CriError> {
        let config = request
            .config
            .ok_or(CriError::Missing { field: "config" })?;
        let name = sandbox_name(&config)?;
        let tuning = SandboxTuning::of(&config.annotations)?;
        if let Some(error) = tuning.error {
            return Err(CriError::Scripted(error));
        }
        let handler = request.runtime_handler;
        if !handler.is_empty() && !self.settings.runtime_handlers.contains(&handler) {
            return Err(CriError::NoHandler(handler));
        }
        if let Some(by) = self.state.named(&name) {
            return Err(CriError::NameTaken {
                name,
                by: self.state.id(by),
            });
        }
        let ip = match on_host_network(&config) || tuning.addressless {
            true => None,
            false => Some(
                self.state
                    .free_address(self.settings.ip_range)
                    .ok_or(CriError::NoAddress)?,
            ),
        };
        let seq = self.state.next;
        self.commit(JournalRecord::Sandbox(SandboxRecord {
            seq,
            created: self.stamp(),
            stopped: None,
            ip,
            handler: handler.into(),
            name: name.into(),
            config: config.encode_to_vec().into(),
        }))?;
        self.tell(seq, Some(seq), ContainerEventType::ContainerCreatedEvent);
        self.tell(seq, Some(seq), ContainerEventType::ContainerStartedEvent);
        Ok(self.state.id(seq))
    }

    /// Kills what runs in a sandbox and ends it. One that is gone or ended is no error.
    pub(crate) fn stop_sandbox(&mut self, id: &str) -> Result<(), CriError> {
        match self.state.find_sandbox(id) {
            Some(seq) => self.end_sandbox(seq),
            None => Ok(()),
        }
    }

    fn end_sandbox(&mut self, seq: Seq) -> Result<(), CriError> {
        let Some(sandbox) = self.state.sandboxes.get(&seq) else {
            return Ok(());
        };
        let tuning = SandboxTuning::of(&sandbox.config().annotations);
        let ends = sandbox.ready() && !tuning.is_ok_and(|tuning| tuning.stays);
        for container in sandbox.containers.clone() {
            self.kill(container);
        }
        if ends {
            self.commit(JournalRecord::SandboxStopped {
                seq,
                at: self.stamp(),
            })?;
            self.tell(seq, Some(seq), ContainerEventType::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Removes a sandbox and everything in it. One that is gone is no error.
    pub(crate) fn remove_sandbox(&mut self, id: &str) -> Result<(), CriError> {
        let Some(seq) = self.state.find_sandbox(id) else {
            return Ok(());
        };
        self.end_sandbox(seq)?;
        let containers = self
            .state
            .sandboxes
            .get(&seq)
            .map(|sandbox| sandbox.containers.clone());
        for container in containers.unwrap_or_default() {
            self.discard(container)?;
        }
        self.commit(JournalRecord::SandboxRemoved { seq })?;
        self.tell(seq, None, ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Replaces the resources that a sandbox was made with.
    pub(crate) fn update_sandbox(
        &mut self,
        id: &str,
        overhead: Option<LinuxContainerResources>,
        resources: Option<LinuxContainerResources>,
    ) -> Result<(), CriError> {
        let (seq, sandbox) = self.sandbox(id)?;
        let mut config = sandbox.config();
        let linux = config.linux.get_or_insert_default();
        linux.overhead = overhead.or(linux.overhead.take());
        linux.resources = resources.or(linux.resources.take());
        Ok(self.commit(JournalRecord::SandboxConfig {
            seq,
            config: config.encode_to_vec(),
        })?)
    }
}

fn sandbox_name(config: &PodSandboxConfig) -> Result<String, CriError> {
    let meta = config.metadata.as_ref().ok_or(CriError::Missing {
        field: "config.metadata",
    })?;
    let fields = [
        ("config.metadata.name", &meta.name),
        ("config.metadata.namespace", &meta.namespace),
        ("config.metadata.uid", &meta.uid),
    ];
    if let Some((field, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
        return Err(CriError::Missing { field });
    }
    Ok(format!(
        "{}_{}_{}_{}",
        meta.name, meta.namespace, meta.uid, meta.attempt
    ))
}

fn on_host_network(config: &PodSandboxConfig) -> bool {
    let context = config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref());
    let options = context.and_then(|context| context.namespace_options.as_ref());
    options.is_some_and(|options| options.network == i32::from(NamespaceMode::Node))
}
