//! The node's persistent state: sandboxes, containers and images.
//!
//! State changes only by [`JournalRecord`]s, the same ones that the journal keeps, so what is read back is
//! what was. CRI's own messages are kept encoded: a container costs its configuration's bytes.

pub(crate) mod address;
pub(crate) mod convert;
pub(crate) mod id;
pub(crate) mod image;
pub(crate) mod journal;
mod record;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub(crate) use id::Seq;
pub(crate) use image::{ImageRecord, ImageStore};
use prost::Message;
use proto::cri::{ContainerConfig, PodSandboxConfig};
pub(crate) use record::{ContainerPhase, ContainerRecord, JournalRecord, SandboxRecord};

use crate::program::Program;
use crate::program::interpreter::Interpreter;
use crate::settings::annotations::ContainerTuning;
use crate::state::address::{AddressPool, AddressRange};

/// The label that a kubelet finds its own by: known without decoding a configuration, because every
/// look at one pod would otherwise decode those of all.
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";

/// A pod sandbox.
#[derive(Debug)]
pub(crate) struct FakeSandbox {
    pub(crate) record: SandboxRecord,
    /// Its label [`POD_UID`].
    pub(crate) pod_uid: Option<Box<str>>,
    pub(crate) containers: Vec<Seq>,
}

impl FakeSandbox {
    pub(crate) fn config(&self) -> PodSandboxConfig {
        PodSandboxConfig::decode(&*self.record.config).unwrap_or_default()
    }

    pub(crate) fn ready(&self) -> bool {
        self.record.stopped.is_none()
    }
}

/// A container.
#[derive(Debug)]
pub(crate) struct FakeContainer {
    pub(crate) record: ContainerRecord,
    /// Its label [`POD_UID`].
    pub(crate) pod_uid: Option<Box<str>>,
    pub(crate) program: Program,
    /// When its program goes on, as the node's timer knows it.
    pub(crate) due: Option<i64>,
}

impl FakeContainer {
    pub(crate) fn config(&self) -> ContainerConfig {
        ContainerConfig::decode(&*self.record.config).unwrap_or_default()
    }

    pub(crate) fn machine(&mut self) -> Option<&mut Interpreter> {
        match &mut self.record.phase {
            ContainerPhase::Running { machine, .. } => Some(machine),
            ContainerPhase::Created | ContainerPhase::Exited { .. } => None,
        }
    }

    pub(crate) fn running(&self) -> bool {
        matches!(self.record.phase, ContainerPhase::Running { .. })
    }
}

/// The node's state.
#[derive(Debug, Default)]
pub(crate) struct FakeState {
    /// Makes ids this folder's own; zero until it was born.
    pub(crate) salt: u64,
    pub(crate) next: Seq,
    /// The latest time that was recorded.
    pub(crate) latest: i64,
    pub(crate) sandboxes: BTreeMap<Seq, FakeSandbox>,
    pub(crate) containers: BTreeMap<Seq, FakeContainer>,
    pub(crate) images: ImageStore,
    pub(crate) addresses: AddressPool,
    names: BTreeMap<Box<str>, Seq>,
}

impl FakeState {
    /// Returns the id of a sandbox or container.
    pub(crate) fn id(&self, seq: Seq) -> String {
        id::id(self.salt, seq)
    }

    /// Returns the sandbox or container that has this name reserved.
    pub(crate) fn named(&self, name: &str) -> Option<Seq> {
        self.names.get(name).copied()
    }

    /// Finds a sandbox by its id, or by a prefix of it that no other one has.
    pub(crate) fn find_sandbox(&self, id: &str) -> Option<Seq> {
        match id::seq(self.salt, id) {
            Some(seq) => self.sandboxes.contains_key(&seq).then_some(seq),
            None => self.by_prefix(id, self.sandboxes.keys()),
        }
    }

    /// Finds a container by its id, or by a prefix of it that no other one has.
    pub(crate) fn find_container(&self, id: &str) -> Option<Seq> {
        match id::seq(self.salt, id) {
            Some(seq) => self.containers.contains_key(&seq).then_some(seq),
            None => self.by_prefix(id, self.containers.keys()),
        }
    }

    fn by_prefix<'a>(&self, prefix: &str, all: impl Iterator<Item = &'a Seq>) -> Option<Seq> {
        if prefix.is_empty() || prefix.len() >= 64 {
            return None;
        }
        let mut found = all.filter(|seq| self.id(**seq).starts_with(prefix));
        found.next().copied().filter(|_| found.next().is_none())
    }

    /// Carries out a record. One that speaks of what is not there changes nothing.
    pub(crate) fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Born { salt } => self.salt = salt,
            JournalRecord::Reached { next, latest } => {
                self.next = self.next.max(next);
                self.see(latest);
            }
            JournalRecord::Sandbox(sandbox) => self.add_sandbox(sandbox),
            JournalRecord::SandboxStopped { seq, at } => {
                self.see(at);
                if let Some(sandbox) = self.sandboxes.get_mut(&seq) {
                    sandbox.record.stopped.get_or_insert(at);
                }
            }
            JournalRecord::SandboxConfig { seq, config } => {
                if let Some(sandbox) = self.sandboxes.get_mut(&seq) {
                    sandbox.record.config = config.into();
                }
            }
            JournalRecord::SandboxRemoved { seq } => self.remove_sandbox(seq),
            JournalRecord::Container(container) => self.add_container(container),
            JournalRecord::Phase { seq, at, phase } => {
                self.see(at);
                if let Some(container) = self.containers.get_mut(&seq) {
                    container.record.phase = phase;
                }
            }
            JournalRecord::Files { seq, files } => {
                if let Some(container) = self.containers.get_mut(&seq) {
                    container.record.files = files;
                }
            }
            JournalRecord::ContainerConfig { seq, config } => {
                if let Some(container) = self.containers.get_mut(&seq) {
                    container.record.config = config.into();
                }
            }
            JournalRecord::ContainerRemoved { seq } => self.remove_container(seq),
            JournalRecord::Image(image) => self.images.add(image),
            JournalRecord::ImageRemoved { id } => self.images.remove(&id),
        }
    }

    fn see(&mut self, at: i64) {
        self.latest = self.latest.max(at);
    }

    fn add_sandbox(&mut self, record: SandboxRecord) {
        self.next = self.next.max(record.seq.saturating_add(1));
        self.see(record.created);
        if let Some(ip) = record.ip {
            self.addresses.take(ip);
        }
        self.names.insert(record.name.clone(), record.seq);
        let mut sandbox = FakeSandbox {
            record,
            pod_uid: None,
            containers: Vec::new(),
        };
        sandbox.pod_uid = sandbox.config().labels.remove(POD_UID).map(Into::into);
        self.sandboxes.insert(sandbox.record.seq, sandbox);
    }

    fn remove_sandbox(&mut self, seq: Seq) {
        let Some(sandbox) = self.sandboxes.remove(&seq) else {
            return;
        };
        self.names.remove(&sandbox.record.name);
        if let Some(ip) = sandbox.record.ip {
            self.addresses.release(ip);
        }
        for container in sandbox.containers {
            self.remove_container(container);
        }
    }

    fn add_container(&mut self, record: ContainerRecord) {
        self.next = self.next.max(record.seq.saturating_add(1));
        self.see(record.created);
        let Some(sandbox) = self.sandboxes.get_mut(&record.sandbox) else {
            return;
        };
        let config = ContainerConfig::decode(&*record.config).unwrap_or_default();
        let tuning =
            ContainerTuning::of(&sandbox.config().annotations, &config).unwrap_or_default();
        sandbox.containers.push(record.seq);
        self.names.insert(record.name.clone(), record.seq);
        let program = tuning.program(&config);
        let pod_uid = config.labels.get(POD_UID).map(|uid| uid.as_str().into());
        self.containers.insert(
            record.seq,
            FakeContainer {
                record,
                pod_uid,
                program,
                due: None,
            },
        );
    }

    fn remove_container(&mut self, seq: Seq) {
        let Some(container) = self.containers.remove(&seq) else {
            return;
        };
        self.names.remove(&container.record.name);
        if let Some(sandbox) = self.sandboxes.get_mut(&container.record.sandbox) {
            sandbox.containers.retain(|other| *other != seq);
        }
    }

    /// Returns records that make this state again from nothing.
    pub(crate) fn records(&self) -> impl Iterator<Item = JournalRecord> {
        let head = [
            JournalRecord::Born { salt: self.salt },
            JournalRecord::Reached {
                next: self.next,
                latest: self.latest,
            },
        ];
        let sandboxes = self
            .sandboxes
            .values()
            .map(|sandbox| JournalRecord::Sandbox(sandbox.record.clone()));
        let containers = self
            .containers
            .values()
            .map(|container| JournalRecord::Container(container.record.clone()));
        let images = self.images.records();
        head.into_iter()
            .chain(sandboxes)
            .chain(containers)
            .chain(images)
    }

    /// Returns an address for a new pod.
    pub(crate) fn free_address(&self, range: AddressRange) -> Option<Ipv4Addr> {
        self.addresses.next(range)
    }
}
