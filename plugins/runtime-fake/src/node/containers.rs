//! Operations on containers.

use std::path::Path;

use cri_server::LogWriter;
use prost::Message;
use proto::cri::{
    ContainerConfig, ContainerEventType, CreateContainerRequest, LinuxContainerResources,
    UpdateContainerResourcesRequest,
};
use tokio::sync::oneshot;

use crate::node::{CriError, SimulatedNode};
use crate::program::environment::ContainerFiles;
use crate::program::interpreter::Interpreter;
use crate::program::signal;
use crate::settings::annotations::ContainerTuning;
use crate::state::{ContainerPhase, ContainerRecord, FakeContainer, JournalRecord, Seq};

impl SimulatedNode {
    /// Finds a container by its id.
    pub(crate) fn container(&self, id: &str) -> Result<(Seq, &FakeContainer), CriError> {
        let found = self.state.find_container(id);
        let found = found.and_then(|seq| {
            self.state
                .containers
                .get(&seq)
                .map(|container| (seq, container))
        });
        found.ok_or_else(|| CriError::NotFound {
            what: "container",
            id: id.to_owned(),
        })
    }

    /// Returns what annotations say about a container.
    pub(crate) fn tuning(&self, container: &FakeContainer) -> ContainerTuning {
        let sandbox = self.state.sandboxes.get(&container.record.sandbox);
        let pod = sandbox
            .map(|sandbox| sandbox.config().annotations)
            .unwrap_or_default();
        ContainerTuning::of(&pod, &container.config()).unwrap_or_default()
    }

    /// Makes a container; returns its id.
    pub(crate) fn create(&mut self, request: CreateContainerRequest) -> Result<String, CriError> {
        let (sandbox, _) = self.sandbox(&request.pod_sandbox_id)?;
        let record = self.new_container(request)?;
        let seq = record.seq;
        self.commit(JournalRecord::Container(record))?;
        self.tell(
            seq,
            Some(sandbox),
            ContainerEventType::ContainerCreatedEvent,
        );
        Ok(self.state.id(seq))
    }

    /// The record of a container that may be made.
    fn new_container(&self, request: CreateContainerRequest) -> Result<ContainerRecord, CriError> {
        let (sandbox_seq, sandbox) = self.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.ready() {
            let id = request.pod_sandbox_id;
            return Err(CriError::WrongState {
                what: "sandbox",
                id,
                state: "not ready",
                expected: "ready",
            });
        }
        let mut config = request
            .config
            .ok_or(CriError::Missing { field: "config" })?;
        let sandbox_config = sandbox.config();
        if let Some(error) = ContainerTuning::of(&sandbox_config.annotations, &config)?.create_error
        {
            return Err(CriError::Scripted(error));
        }
        let name = container_name(&config, &sandbox.record.name)?;
        let wanted = config
            .image
            .as_ref()
            .map(|image| image.image.clone())
            .unwrap_or_default();
        let image = self
            .state
            .images
            .find(&wanted)
            .ok_or(CriError::NoImage(wanted))?;
        let image_id = image.id.as_str().into();
        if config.command.is_empty() && config.args.is_empty() {
            config.args.clone_from(&image.command);
        }
        if let Some(by) = self.state.named(&name) {
            return Err(CriError::NameTaken {
                name,
                by: self.state.id(by),
            });
        }
        let given = request.sandbox_config.map(|config| config.log_directory);
        let log = log_path(given, sandbox_config.log_directory, &config.log_path);
        Ok(ContainerRecord {
            seq: self.state.next,
            sandbox: sandbox_seq,
            created: self.stamp(),
            name: name.into(),
            image: image_id,
            log: log.into(),
            config: config.encode_to_vec().into(),
            files: ContainerFiles::new(),
            phase: ContainerPhase::Created,
        })
    }

    /// Starts a container that was created and never started.
    pub(crate) fn start(&mut self, id: &str) -> Result<(), CriError> {
        let (seq, container) = self.container(id)?;
        let state = match container.record.phase {
            ContainerPhase::Created => None,
            ContainerPhase::Running { .. } => Some("running"),
            ContainerPhase::Exited { .. } => Some("exited"),
        };
        if let Some(state) = state {
            return Err(CriError::WrongState {
                what: "container",
                id: id.to_owned(),
                state,
                expected: "created",
            });
        }
        let sandbox = container.record.sandbox;
        if !self
            .state
            .sandboxes
            .get(&sandbox)
            .is_some_and(|sandbox| sandbox.ready())
        {
            let id = self.state.id(sandbox);
            return Err(CriError::WrongState {
                what: "sandbox",
                id,
                state: "not ready",
                expected: "ready",
            });
        }
        if let Some(error) = self.tuning(container).start_error {
            return self.fail_start(seq, error);
        }
        self.open_log(seq)?;
        let started = self.clock.now();
        self.commit(JournalRecord::Phase {
            seq,
            at: started,
            phase: ContainerPhase::Running {
                started,
                machine: Interpreter::new(started),
            },
        })?;
        self.tell(
            seq,
            Some(sandbox),
            ContainerEventType::ContainerStartedEvent,
        );
        self.turn(seq, started);
        Ok(())
    }

    /// Ends a container that could not start, as containerd does: exit code 128 and why.
    fn fail_start(&mut self, seq: Seq, why: String) -> Result<(), CriError> {
        let finished = self.clock.now();
        let message = why.as_str().into();
        let phase = ContainerPhase::Exited {
            started: 0,
            finished,
            code: 128,
            reason: "StartError".into(),
            message,
        };
        self.commit(JournalRecord::Phase {
            seq,
            at: finished,
            phase,
        })?;
        self.ended(seq);
        Err(CriError::Scripted(why))
    }

    /// Makes the log file, and keeps it open for a container that may write to it.
    fn open_log(&mut self, seq: Seq) -> Result<(), CriError> {
        let Some(container) = self.state.containers.get(&seq) else {
            return Ok(());
        };
        let path = Path::new(&*container.record.log);
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let log = LogWriter::open(path).map_err(|source| CriError::Log {
            path: path.to_owned(),
            source,
        })?;
        if container.program.speaks() {
            self.logs.insert(seq, log);
        }
        Ok(())
    }

    /// Opens the log of a running container anew, at its path.
    pub(crate) fn reopen_log(&mut self, id: &str) -> Result<(), CriError> {
        let (seq, container) = self.container(id)?;
        if !container.running() {
            let id = id.to_owned();
            return Err(CriError::WrongState {
                what: "container",
                id,
                state: "not running",
                expected: "running",
            });
        }
        self.open_log(seq)
    }

    /// Sends a container the signal that it is stopped by; returns what resolves when it has ended.
    /// One that does not run, or is gone, has ended.
    pub(crate) fn begin_stop(&mut self, id: &str) -> Option<(Seq, oneshot::Receiver<()>)> {
        let (seq, container) = self
            .container(id)
            .ok()
            .filter(|(_, container)| container.running())?;
        let number = signal::of_cri(container.config().stop_signal());
        let ending = self.ending(seq);
        self.signal(seq, number);
        Some((seq, ending))
    }

    /// Kills a container at once.
    pub(crate) fn kill(&mut self, seq: Seq) {
        self.signal(seq, signal::KILL);
    }

    /// Sends a signal to a container's first process.
    pub(crate) fn signal(&mut self, seq: Seq, number: u8) {
        let now = self.clock.now();
        let Some(container) = self.state.containers.get_mut(&seq) else {
            return;
        };
        let behavior = container.program.behavior.clone();
        if !container
            .machine()
            .is_some_and(|machine| machine.receive(number, now, behavior.as_deref()))
        {
            return;
        }
        self.turn(seq, now);
        if let Err(error) = self.record_progress(seq) {
            tracing::error!(%error, "a signal to a container cannot be recorded");
        }
    }

    /// Removes a container, killed first if it runs. One that is gone is no error.
    pub(crate) fn remove(&mut self, id: &str) -> Result<(), CriError> {
        let Some(seq) = self.state.find_container(id) else {
            return Ok(());
        };
        self.kill(seq);
        self.discard(seq)
    }

    pub(super) fn discard(&mut self, seq: Seq) -> Result<(), CriError> {
        let sandbox = self
            .state
            .containers
            .get(&seq)
            .map(|container| container.record.sandbox);
        self.await_turn(seq, None);
        self.commit(JournalRecord::ContainerRemoved { seq })?;
        self.logs.remove(&seq);
        self.waiting.remove(&seq);
        self.tell(seq, sandbox, ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Changes the resources of a container that has not ended; what is not named stays.
    pub(crate) fn update(
        &mut self,
        request: UpdateContainerResourcesRequest,
    ) -> Result<(), CriError> {
        let (seq, container) = self.container(&request.container_id)?;
        if matches!(container.record.phase, ContainerPhase::Exited { .. }) {
            let id = request.container_id;
            return Err(CriError::WrongState {
                what: "container",
                id,
                state: "exited",
                expected: "created or running",
            });
        }
        let Some(new) = request.linux else {
            return Ok(());
        };
        let mut config = container.config();
        merge(
            config
                .linux
                .get_or_insert_default()
                .resources
                .get_or_insert_default(),
            new,
        );
        Ok(self.commit(JournalRecord::ContainerConfig {
            seq,
            config: config.encode_to_vec(),
        })?)
    }
}

fn merge(old: &mut LinuxContainerResources, new: LinuxContainerResources) {
    let numbers = [
        (&mut old.cpu_period, new.cpu_period),
        (&mut old.cpu_quota, new.cpu_quota),
        (&mut old.cpu_shares, new.cpu_shares),
        (&mut old.memory_limit_in_bytes, new.memory_limit_in_bytes),
        (&mut old.oom_score_adj, new.oom_score_adj),
        (
            &mut old.memory_swap_limit_in_bytes,
            new.memory_swap_limit_in_bytes,
        ),
    ];
    numbers
        .into_iter()
        .filter(|(_, new)| *new != 0)
        .for_each(|(old, new)| *old = new);
    let texts = [
        (&mut old.cpuset_cpus, new.cpuset_cpus),
        (&mut old.cpuset_mems, new.cpuset_mems),
    ];
    texts
        .into_iter()
        .filter(|(_, new)| !new.is_empty())
        .for_each(|(old, new)| *old = new);
    if !new.hugepage_limits.is_empty() {
        old.hugepage_limits = new.hugepage_limits;
    }
    old.unified.extend(new.unified);
}

fn container_name(config: &ContainerConfig, sandbox: &str) -> Result<String, CriError> {
    let meta = config.metadata.as_ref().ok_or(CriError::Missing {
        field: "config.metadata",
    })?;
    if meta.name.is_empty() {
        return Err(CriError::Missing {
            field: "config.metadata.name",
        });
    }
    // Without the sandbox's own attempt: a container of a pod is one of a kind over all its sandboxes.
    let pod = sandbox.rsplit_once('_').map_or(sandbox, |(pod, _)| pod);
    Ok(format!("{}_{pod}_{}", meta.name, meta.attempt))
}

/// Returns where a container's log is: below the folder that the request gives, else below the sandbox's.
fn log_path(given: Option<String>, of_sandbox: String, path: &str) -> String {
    let given = given.filter(|folder| !folder.is_empty());
    let folder = given.unwrap_or(of_sandbox);
    match folder.is_empty() || path.is_empty() {
        true => String::new(),
        false => Path::new(&folder).join(path).display().to_string(),
    }
}
