//! Metrics of a pod's life. Upstream: pkg/kubelet/kubelet.go (SyncPod), pod_workers.go,
//! kuberuntime_manager.go, 1.36.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::Context;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, ContainerKind, ContainerState, RuntimePod};
use logic_pods::probes::ProbeKind;
use logic_pods::resize::ResizeRefusal;
use logic_pods::status::pod_start::{NetworkNamespace, PodStartup, PullInterval};
use metrics::pods;
use metrics::pods::pod_starts;

use super::{Msg, PodWorker, PodWorkerState};
use crate::prober;

/// The annotation with the time at which the pod's source first saw it.
const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";

/// The intervals of the pod's image pulls, added by the task that runs a plan while it runs.
pub(super) type PullTimings = Rc<RefCell<Vec<PullInterval>>>;

/// The state of a worker's measurements.
#[derive(Debug, Default)]
pub(super) struct WorkerMetrics {
    operation: Option<(Instant, &'static str)>,
    life: WorkerOrigin,
    /// Whether the goal has changed since the last operation.
    changed: bool,
    start: PodStartup,
    pub(super) pulls: PullTimings,
}

/// Whether this worker saw the pod's start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WorkerOrigin {
    /// The pod existed before this worker.
    #[default]
    Adopted,
    New,
    /// The pod was new, and its first operation has begun.
    Begun,
}

impl WorkerMetrics {
    /// Records at the first sync whether the pod is new.
    pub(super) fn register(&mut self, pod: &Pod, is_new: bool) {
        self.start.observe(pod);
        if is_new {
            self.life = WorkerOrigin::New;
        }
    }

    pub(super) fn note_change(&mut self) {
        self.changed = true;
    }

    /// An operation begins.
    pub(super) fn begin(&mut self, stage: PodWorkerState, pod: &Pod, ctx: &Context<Msg>) {
        let changed = std::mem::take(&mut self.changed);
        let operation = match (stage, self.life) {
            (PodWorkerState::Terminating, _) => "kill",
            (PodWorkerState::Terminated, _) => "terminated",
            (PodWorkerState::Syncing, WorkerOrigin::New) => {
                created(pod, ctx.timestamp());
                self.life = WorkerOrigin::Begun;
                "create"
            }
            (PodWorkerState::Syncing, WorkerOrigin::Adopted | WorkerOrigin::Begun) if changed => {
                "update"
            }
            (PodWorkerState::Syncing, WorkerOrigin::Adopted | WorkerOrigin::Begun) => "sync",
        };
        self.operation = Some((ctx.now(), operation));
    }

    /// The operation has ended.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some((began, operation)) = self.operation.take() {
            let took = now.saturating_duration_since(began);
            let duration = pod_starts::WORKER_DURATION.with_label_values(&[operation]);
            duration.observe(took.as_secs_f64());
        }
    }

    /// Records the durations of the start that a new status shows.
    fn publish(
        &mut self,
        pod: &Pod,
        before: Option<&PodStatus>,
        status: &PodStatus,
        now: Timestamp,
    ) {
        let phase = |status: &PodStatus| status.phase.clone().unwrap_or_default();
        let was_running = before.is_some_and(|before| phase(before) == "Running");
        if self.life != WorkerOrigin::Adopted
            && !was_running
            && phase(status) == "Running"
            && let Some(seen) = seen(pod)
        {
            let took = now.duration_since(seen).as_secs_f64();
            pod_starts::START_DURATION.observe(took.max(0.0));
        }
        for pull in self.pulls.borrow_mut().drain(..) {
            self.start.pulled(pull);
        }
        let Some(started) = self.start.running(pod, status, now) else {
            return;
        };
        let total = pod_starts::START_TOTAL_DURATION.with_label_values(NO_LABELS);
        total.observe(started.total.as_secs_f64());
        let Some(own) = started.own.map(|own| own.as_secs_f64()) else {
            return;
        };
        let measured = pod_starts::START_SLI_DURATION.with_label_values(NO_LABELS);
        measured.observe(own);
        let first = &pod_starts::FIRST_NETWORK_POD;
        if started.network == NetworkNamespace::Own && first.get() == 0.0 {
            first.set(own);
        }
    }
}

const NO_LABELS: &[&str] = &[];

fn seen(pod: &Pod) -> Option<Timestamp> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(SEEN_ANNOTATION)?.parse().ok()
}

fn created(pod: &Pod, now: Timestamp) {
    let spec = pod.spec.as_ref();
    let containers = spec.map_or(0, |spec| spec.containers.len());
    pods::CONTAINERS_PER_POD.observe(containers as f64);
    if let Some(seen) = seen(pod) {
        let waited = now.duration_since(seen).as_secs_f64();
        pod_starts::WORKER_START_DURATION.observe(waited.max(0.0));
    }
}

/// Upstream's labels for the containers' lists of the spec.
pub(super) fn container_type(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init => "init_container",
        ContainerKind::App => "container",
        ContainerKind::Ephemeral => "ephemeral_container",
    }
}

/// Counts the ends that the status shows for the first time: of the newest instances alone, and of none that the pod's
/// status in the API has told already, as after the agent lost what it remembers.
pub(super) fn ends(pod: &Pod, seen: &RuntimePod, known: &BTreeMap<ContainerId, Timestamp>) {
    let ended = seen.containers.iter().filter(|container| {
        let newest = seen.newest(&container.name).map(|newest| &newest.id);
        container.state == ContainerState::Exited
            && !container.start_was_cancelled()
            && !known.contains_key(&container.id)
            && newest == Some(&container.id)
            && !is_told(pod, &container.id)
    });
    for container in ended {
        let kind = pod.container(&container.name).map(|(kind, _)| kind);
        let kind = container_type(kind.unwrap_or(ContainerKind::App));
        let code = container.exit_code.to_string();
        let labels = [kind, code.as_str(), container.reason.as_str()];
        let counter = pod_starts::TERMINATED_CONTAINERS.with_label_values(&labels);
        counter.inc();
    }
}

/// Whether the pod's status in the API shows the end of this instance.
fn is_told(pod: &Pod, id: &ContainerId) -> bool {
    let status = pod.status.as_ref();
    let lists = status.map(|status| {
        [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ]
    });
    let mut told = lists.into_iter().flatten().flatten().flatten();
    told.any(|container| {
        let states = [&container.state, &container.last_state];
        let mut ends = states.into_iter().flatten();
        ends.any(|state| {
            let end = state.terminated.as_ref();
            let full = end.and_then(|end| end.container_id.as_deref());
            let own = full.and_then(|full| full.split_once("://"));
            own.is_some_and(|(_, own)| own == id.as_str())
        })
    })
}

/// Removes the metrics of the probes of a pod that is gone.
pub(super) fn forget_probes(pod: &Pod) {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref());
    let apps = spec.map(|spec| spec.containers.as_slice());
    let containers = [init, apps].into_iter().flatten().flatten();
    for container in containers {
        for kind in ProbeKind::ALL
            .iter()
            .filter(|kind| kind.of(container).is_some())
        {
            prober::metric_labels(pod, &container.name, *kind).forget();
        }
    }
}

/// The part of a worker's snapshot that metrics of pods are made from.
#[derive(Debug, Default, serde::Serialize)]
pub struct WorkerCounts {
    /// Upstream's words: `desired`, `orphan` for one that no source has any more, `runtime_only` for one that none had.
    pub config: &'static str,
    pub is_static: bool,
    pub sandbox_ready: bool,
    /// The number of containers in each state.
    pub states: BTreeMap<&'static str, usize>,
    pub ephemeral: usize,
    /// Why a resize is not allocated, in upstream's word; none if no resize is pending.
    pub resize_waits: Option<&'static str>,
    /// Whether an allocated resize is in progress.
    pub resizing: bool,
}

impl PodWorker {
    pub(super) fn count_publish(&mut self, pod: &Pod, status: &PodStatus, ctx: &Context<Msg>) {
        let before = self.published.status.as_deref();
        self.metrics.publish(pod, before, status, ctx.timestamp());
    }

    pub(super) fn worker_counts(&self) -> WorkerCounts {
        let desired = self.updates.goal.borrow();
        let pod = &desired.allocated;
        let spec = pod.spec.as_ref();
        let containers = spec.map(|spec| spec.containers.as_slice());
        // A pod made from the runtime's lists has no images.
        let outlined = |c: &k8s_openapi::api::core::v1::Container| c.image.is_none();
        let config = if !desired.is_end() || pod.metadata.deletion_timestamp.is_some() {
            "desired"
        } else if containers.is_some_and(|all| all.iter().any(outlined)) {
            "runtime_only"
        } else {
            "orphan"
        };
        let runtime = self.observed.pod();
        let mut states = BTreeMap::new();
        for container in runtime.into_iter().flat_map(|pod| &pod.containers) {
            *states.entry(container.state.as_str()).or_default() += 1;
        }
        let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_ref());
        WorkerCounts {
            config,
            is_static: pod.is_static(),
            sandbox_ready: runtime.is_some_and(|pod| pod.sandboxes.iter().any(|s| s.is_ready())),
            states,
            ephemeral: ephemeral.map_or(0, Vec::len),
            resize_waits: desired.pending.as_ref().map(|(refusal, _)| match refusal {
                ResizeRefusal::Deferred => "deferred",
                ResizeRefusal::Infeasible => "infeasible",
            }),
            resizing: self.published.resize.in_progress,
        }
    }
}

#[cfg(test)]
mod tests {
    use logic_api::testing::{ObservationBuilder, PodBuilder, instance, pod, runtime};

    use super::*;

    /// Upstream's `checkAndRecordTerminations` (status_manager.go).
    #[test]
    fn an_end_counts_once_and_not_when_the_api_was_told_of_it() {
        // A reason of its own keeps the counter apart from those of other tests.
        let ended = |id: &str, attempt: u32| {
            let given = pod("p").app("c");
            let mut container = instance(&given, "c", ContainerState::Exited);
            (container.id, container.attempt) = (id.into(), attempt);
            container.reason = "CountedOnce".to_owned();
            container
        };
        let count = || {
            let labels = ["container", "0", "CountedOnce"];
            pod_starts::TERMINATED_CONTAINERS
                .with_label_values(&labels)
                .get()
        };
        let mut given = pod("p").app("c");
        let mut seen = runtime(&given).with(ended("c-0", 0)).with(ended("c-1", 1));
        let none = BTreeMap::new();
        ends(&given, &seen, &none);
        assert_eq!(count(), 1, "the instance before shows as the last state");
        let known = BTreeMap::from([(ContainerId::from("c-1"), Timestamp::UNIX_EPOCH)]);
        ends(&given, &seen, &known);
        assert_eq!(count(), 1);
        let told = serde_json::json!({"containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"terminated": {"exitCode": 0, "containerID": "containerd://c-1"}},
        }]});
        given.status = serde_json::from_value(told).unwrap();
        ends(&given, &seen, &none);
        assert_eq!(count(), 1);
        seen = seen.with(ended("c-2", 2));
        ends(&given, &seen, &none);
        assert_eq!(count(), 2);
    }
}
