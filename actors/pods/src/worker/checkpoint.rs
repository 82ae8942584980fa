//! The worker's side of its pod's checkpoint.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use kernel::Addr;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod};
use logic_pods::api::take_over;
use logic_pods::pod_actions::PodPlan;
use logic_pods::resize::AllocatedResources;
use state::checkpoints::{self, PodRecord};

/// The checkpoint manager answers from memory.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The pod's record, and which version of it is stored.
#[derive(Debug, Default)]
pub(super) struct PodCheckpoint {
    pub(super) record: PodRecord,
    /// Whether the record says when the pod started.
    has_begun: bool,
    /// The hash of the stored record; a second copy of it would take more memory than the pod's definition.
    kept: Option<u64>,
}

impl PodCheckpoint {
    /// Loads the record that an earlier life left.
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

    /// Sets the pod's start time, unless an earlier life did: from the API's status, which another agent may have
    /// written, else from the first sandbox, else now.
    pub(super) fn begin(&mut self, given: &Pod, pod: Option<&RuntimePod>, now: Timestamp) {
        if self.is_new() {
            let containers = pod.into_iter().flat_map(|pod| &pod.containers);
            containers.for_each(|container| self.take_over(given, container, now));
        }
        let sandboxes = pod.into_iter().flat_map(|pod| &pod.sandboxes);
        // Those of a static pod that has ended and comes back are not the beginning of its new life.
        let counted = sandboxes.filter(|sandbox| sandbox.is_ready() || !given.is_static());
        let first = counted.filter_map(|sandbox| sandbox.created_at).min();
        let started = take_over::start_time(given).or(first).unwrap_or(now);
        self.record.started.get_or_insert(started.min(now));
    }

    /// Takes over from the API's status what another agent reported about this container.
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

    /// Whether no earlier life left a record.
    pub(super) fn is_new(&self) -> bool {
        !self.has_begun
    }

    /// Sets the time of exits that are seen for the first time, and forgets those of removed containers.
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

    /// Stores the resources allocated to the pod.
    pub(super) fn allocate(&mut self, pod: &Pod) {
        let allocated = AllocatedResources::of(pod);
        self.record.allocated = allocated.is_some().then_some(allocated);
    }

    /// Stores the resources that a container was started with or resized to; the default ones are not stored.
    pub(super) fn actuate(&mut self, name: String, resources: ResourceRequirements) {
        if resources == ResourceRequirements::default() {
            self.record.actuated.remove(&name);
        } else {
            self.record.actuated.insert(name, resources);
        }
    }

    /// Stores what instances were made with that are seen running for the first time: the agent may have been killed
    /// before the plan was through that started them. What an earlier life stored with an instance is newer.
    pub(super) fn note_made(&mut self, pod: &RuntimePod) {
        let new: Vec<(String, ResourceRequirements)> = pod
            .containers
            .iter()
            .filter(|container| container.state == ContainerState::Running)
            .filter(|container| !self.record.runs.contains_key(&container.id))
            .filter_map(|container| {
                let resources = serde_json::from_str(&container.resources).ok()?;
                Some((container.name.clone(), resources))
            })
            .collect();
        for (name, resources) in new {
            self.actuate(name, resources);
        }
    }

    /// Stores which of the instances that the plan ends are to be started again; returns whether there are any.
    pub(super) fn replace(&mut self, plan: &PodPlan) -> bool {
        let ended = plan.kills().map(|(id, _)| id);
        let ended: Vec<_> = ended
            .filter(|id| plan.replaced.contains(*id))
            .cloned()
            .collect();
        let replaces = !ended.is_empty();
        self.record.replaced.extend(ended);
        replaces
    }

    /// Remembers what ended in a runtime that the pod leaves: the newest instance of each container, and the newest sandbox.
    pub(super) fn inherit(&mut self, seen: &RuntimePod) {
        let newest = |container: &&RuntimeContainer| {
            let newest = seen.newest(&container.name);
            newest.is_some_and(|newest| newest.id == container.id) && !container.never_ran()
        };
        self.record.inherited = Some(RuntimePod {
            sandboxes: seen.newest_sandbox().cloned().into_iter().collect(),
            containers: seen.containers.iter().filter(newest).cloned().collect(),
            ..seen.clone()
        });
    }

    /// Whether all of this was left in an earlier runtime.
    pub(super) fn is_inherited(&self, seen: &RuntimePod) -> bool {
        let none = RuntimePod::default();
        let inherited = self.record.inherited.as_ref().unwrap_or(&none);
        let mut containers = seen.containers.iter();
        let mut sandboxes = seen.sandboxes.iter();
        containers.all(|own| inherited.containers.iter().any(|old| old.id == own.id))
            && sandboxes.all(|own| inherited.sandboxes.iter().any(|old| old.id == own.id))
    }

    /// What the runtime has of the pod, with what it left in an earlier one.
    pub(super) fn with_inherited(&self, mut runtime: RuntimePod) -> RuntimePod {
        let Some(inherited) = &self.record.inherited else {
            return runtime;
        };
        for old in &inherited.sandboxes {
            if runtime.sandboxes.iter().all(|own| own.id != old.id) {
                runtime.sandboxes.push(old.clone());
            }
        }
        for old in &inherited.containers {
            if runtime.containers.iter().all(|own| own.id != old.id) {
                runtime.containers.push(old.clone());
            }
        }
        runtime.sort();
        runtime
    }

    /// Forgets those inherited instances that are removed.
    pub(super) fn disinherit<'a>(&mut self, removed: impl Iterator<Item = &'a str>) {
        let Some(inherited) = &mut self.record.inherited else {
            return;
        };
        for id in removed {
            inherited.containers.retain(|old| old.id.as_str() != id);
            inherited.sandboxes.retain(|old| old.id.as_str() != id);
        }
        if inherited.containers.is_empty() && inherited.sandboxes.is_empty() {
            self.record.inherited = None;
        }
    }

    /// Forgets the health and messages of removed instances; `pod` is the complete runtime state.
    pub(super) fn forget_gone(&mut self, pod: &RuntimePod) {
        let exists = |id: &ContainerId| pod.containers.iter().any(|container| container.id == *id);
        self.record.runs.retain(|id, _| exists(id));
        self.record.health.retain(|id, _| exists(id));
        self.record.termination_messages.retain(|id, _| exists(id));
        self.record.replaced.retain(exists);
    }

    /// Has the record stored if it differs from the stored one.
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

/// A hash that is equal for equal records.
fn fingerprint(record: &PodRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = serde_json::to_vec(record).expect("a record is texts, times and numbers");
    hasher.write(&text);
    hasher.finish()
}
