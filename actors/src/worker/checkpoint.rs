//! What a worker remembers beyond the life of the agent.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use kernel::Addr;
use logic_api::types::{ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod};
use logic_pods::resize::AllocatedResources;
use logic_pods::take_over;

use crate::checkpoints::{self, PodRecord};

/// The keeper answers from memory.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The record, and what of it is already kept.
#[derive(Debug, Default)]
pub(super) struct PodCheckpoint {
    pub(super) record: PodRecord,
    /// The record that was loaded or is kept says when the pod began.
    has_begun: bool,
    /// Of the record that is kept; a second copy of it would weigh more than the pod's definition.
    kept: Option<u64>,
}

impl PodCheckpoint {
    /// Takes up what an earlier life left.
    pub(super) async fn load(&mut self, uid: &PodUid, checkpoints: &Addr<checkpoints::Msg>) {
        let load = |reply| checkpoints::Msg::Load {
            uid: uid.clone(),
            reply,
        };
        match checkpoints.ask(LOAD_TIMEOUT, load).await {
            Ok(record) => self.record = record.unwrap_or_default(),
            Err(error) => tracing::warn!(%uid, "starting without this pod's record: {error}"),
        }
        self.note_kept();
    }

    /// The pod begins now, unless it began in an earlier life. Where that life left no record, the API's status
    /// tells what another agent said of it, or its first sandbox.
    pub(super) fn begin(&mut self, given: &Pod, pod: Option<&RuntimePod>, now: Timestamp) {
        if self.is_new() {
            let containers = pod.into_iter().flat_map(|pod| &pod.containers);
            containers.for_each(|container| self.take_over(given, container, now));
        }
        let sandboxes = pod.into_iter().flat_map(|pod| &pod.sandboxes);
        let first = sandboxes.filter_map(|sandbox| sandbox.created_at).min();
        let started = take_over::start_time(given).or(first).unwrap_or(now);
        self.record.started.get_or_insert(started.min(now));
    }

    /// Another agent has run this container: what it said of it stands.
    fn take_over(&mut self, given: &Pod, container: &RuntimeContainer, now: Timestamp) {
        if let Some(health) = take_over::health(given, container) {
            self.record.health.insert(container.id.clone(), health);
        }
        if let Some(since) = take_over::ran_since(given, container) {
            self.record
                .runs
                .insert(container.id.clone(), since.min(now));
        }
    }

    /// Whether no earlier life left anything.
    pub(super) fn is_new(&self) -> bool {
        !self.has_begun
    }

    /// Dates the exits that are seen for the first time, forgets those of removed containers.
    pub(super) fn note_exits(&mut self, pod: &RuntimePod, now: Timestamp) {
        let exited = pod
            .containers
            .iter()
            .filter(|container| container.state == ContainerState::Exited);
        let noted = exited.map(|container| {
            let at = self.record.exits.get(&container.id).copied();
            (container.id.clone(), at.unwrap_or(now))
        });
        self.record.exits = noted.collect();
        let running = pod
            .containers
            .iter()
            .filter(|c| c.state == ContainerState::Running);
        for container in running {
            self.record.runs.entry(container.id.clone()).or_insert(now);
        }
    }

    /// Remembers what is promised to the pod.
    pub(super) fn allocate(&mut self, pod: &Pod) {
        let allocated = AllocatedResources::of(pod);
        self.record.allocated = allocated.is_some().then_some(allocated);
    }

    /// Remembers what a container was started with or resized to; nothing is what is taken for true anyway.
    pub(super) fn actuate(&mut self, name: String, resources: ResourceRequirements) {
        if resources == ResourceRequirements::default() {
            self.record.actuated.remove(&name);
        } else {
            self.record.actuated.insert(name, resources);
        }
    }

    /// Forgets what was said of instances that are gone; `pod` is the whole picture.
    pub(super) fn forget_gone(&mut self, pod: &RuntimePod) {
        let exists = |id: &ContainerId| pod.containers.iter().any(|container| container.id == *id);
        self.record.runs.retain(|id, _| exists(id));
        self.record.health.retain(|id, _| exists(id));
        self.record.termination_messages.retain(|id, _| exists(id));
    }

    /// Has the record kept, if it differs from what is.
    pub(super) fn save(&mut self, uid: &PodUid, checkpoints: &Addr<checkpoints::Msg>) {
        if self.kept == Some(fingerprint(&self.record)) {
            return;
        }
        let keep = checkpoints::Msg::Keep {
            uid: uid.clone(),
            record: Box::new(self.record.clone()),
        };
        match checkpoints.tell(keep) {
            Ok(()) => self.note_kept(),
            Err(full) => tracing::warn!("record not kept: {full}"),
        }
    }

    fn note_kept(&mut self) {
        self.has_begun = self.record.started.is_some();
        self.kept = Some(fingerprint(&self.record));
    }
}

/// Equal for equal checkpoints.
fn fingerprint(record: &PodRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = serde_json::to_vec(record).expect("a record is texts, times and numbers");
    hasher.write(&text);
    hasher.finish()
}
