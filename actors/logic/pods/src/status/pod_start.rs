//! How long a pod took to start, for the clusters' service level objective: without pulls of images, and without the
//! time of its init containers. Mirrors pkg/kubelet/util/pod_startup_latency_tracker.go (1.36).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use logic_api::pod::{PodView, is_terminal};

/// A stretch of time in which an image was pulled for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullInterval {
    /// When the pull began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
}

/// A start that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartDurations {
    /// Since the pod was made.
    pub total: SignedDuration,
    /// Without pulls and init containers; none where a volume may have held the pod up.
    pub own: Option<SignedDuration>,
    pub network: NetworkNamespace,
}

/// Whether the pod has a network namespace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkNamespace {
    Own,
    Nodes,
}

/// The start of one pod, as long as it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStartup {
    tracked: TrackingState,
    pulls: Vec<PullInterval>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrackingState {
    #[default]
    NotYet,
    Yes,
    /// It started before the agent, waited for the scheduler, or was counted already.
    NoMore,
}

/// More pulls of one pod than this change nothing that anybody would notice.
const MAX_PULLS: usize = 64;

impl PodStartup {
    /// Takes note of the pod as its source gives it: one that had started already, or waited to be scheduled, does not
    /// count.
    pub fn observe(&mut self, pod: &Pod) {
        let status = pod.status.as_ref();
        let begun = status.is_some_and(|status| status.start_time.is_some());
        let (new, waits) = (
            self.tracked == TrackingState::NotYet,
            is_unschedulable(status),
        );
        self.tracked = match self.tracked {
            TrackingState::NotYet | TrackingState::Yes
                if waits || status.is_some_and(is_terminal) =>
            {
                TrackingState::NoMore
            }
            TrackingState::NotYet if begun && new => TrackingState::NoMore,
            TrackingState::NotYet => TrackingState::Yes,
            known @ (TrackingState::Yes | TrackingState::NoMore) => known,
        };
    }

    pub fn pulled(&mut self, pull: PullInterval) {
        if self.tracked == TrackingState::Yes && self.pulls.len() < MAX_PULLS {
            self.pulls.push(pull);
        }
    }

    /// How long it took, once: when every container runs.
    pub fn running(
        &mut self,
        pod: &Pod,
        status: &PodStatus,
        now: Timestamp,
    ) -> Option<StartDurations> {
        if self.tracked != TrackingState::Yes || !has_started(status) {
            return None;
        }
        let made = pod.metadata.creation_timestamp.as_ref()?.0;
        self.tracked = TrackingState::NoMore;
        let total = now.duration_since(made);
        let pulls = pulling(std::mem::take(&mut self.pulls));
        let own = total - pulls - initializing(pod, status);
        Some(StartDurations {
            total,
            own: (!is_stateful(pod)).then_some(own),
            network: match pod.host_network() {
                true => NetworkNamespace::Nodes,
                false => NetworkNamespace::Own,
            },
        })
    }
}

fn is_unschedulable(status: Option<&PodStatus>) -> bool {
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

/// Every container has been started.
fn has_started(status: &PodStatus) -> bool {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let runs = |container: &ContainerStatus| {
        let running = container.state.as_ref().and_then(|s| s.running.as_ref());
        running.is_some_and(|running| running.started_at.is_some())
    };
    !containers.is_empty() && containers.iter().all(runs)
}

/// All pulls together; what overlaps counts once.
fn pulling(mut pulls: Vec<PullInterval>) -> SignedDuration {
    pulls.sort_by_key(|pull| pull.from);
    let mut sum = SignedDuration::ZERO;
    let mut covered: Option<Timestamp> = None;
    for pull in pulls {
        let from = covered.map_or(pull.from, |covered| covered.max(pull.from));
        if pull.to > from {
            sum += pull.to.duration_since(from);
        }
        covered = covered.max(Some(pull.to));
    }
    sum
}

/// How long the init containers ran that had to end before the others: sidecars do not count.
fn initializing(pod: &Pod, status: &PodStatus) -> SignedDuration {
    let spec = pod.spec.as_ref();
    let specs = spec.and_then(|spec| spec.init_containers.as_deref());
    let is_sidecar = |name: &str| {
        let mut specs = specs.into_iter().flatten();
        specs.any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
    };
    let statuses = status.init_container_statuses.as_deref();
    let ran = statuses
        .into_iter()
        .flatten()
        .filter(|container| !is_sidecar(&container.name));
    let ended = ran.flat_map(|container| [&container.state, &container.last_state]);
    let ended = ended.filter_map(|state| state.as_ref()?.terminated.as_ref());
    let took = ended.filter_map(|ended| {
        let (from, to) = (ended.started_at.as_ref()?, ended.finished_at.as_ref()?);
        Some(to.0.duration_since(from.0).max(SignedDuration::ZERO))
    });
    took.sum()
}

/// A volume whose making takes as long as it takes. A projected one is made of what is none: almost every pod has one,
/// for its token.
fn is_stateful(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    volumes.into_iter().flatten().any(|volume| {
        volume.secret.is_none()
            && volume.config_map.is_none()
            && volume.downward_api.is_none()
            && volume.empty_dir.is_none()
            && volume.projected.is_none()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_577_836_800_000 + milliseconds).unwrap()
    }

    fn pod(spec: &Value, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "pod", "creationTimestamp": at(0).to_string()},
            "spec": spec,
            "status": status,
        }))
        .unwrap()
    }

    fn simple() -> Pod {
        pod(&json!({"containers": []}), &json!({}))
    }

    fn running(init: &Value) -> PodStatus {
        let state = json!({"running": {"startedAt": at(0).to_string()}});
        serde_json::from_value(json!({
            "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state}],
            "initContainerStatuses": init,
        }))
        .unwrap()
    }

    fn pulled(from: i64, to: i64) -> PullInterval {
        PullInterval {
            from: at(from),
            to: at(to),
        }
    }

    fn seconds(started: Option<StartDurations>) -> Option<(f64, Option<f64>)> {
        let started = started?;
        let own = started.own.map(|own| own.as_secs_f64());
        Some((started.total.as_secs_f64(), own))
    }

    /// Upstream's TestSinglePodOneImageDownloadRecorded.
    #[test]
    fn a_pull_does_not_count() {
        let (mut start, pod) = (PodStartup::default(), simple());
        start.observe(&pod);
        start.pulled(pulled(0, 100));
        let none = Value::Null;
        assert_eq!(start.running(&pod, &PodStatus::default(), at(2000)), None);
        let started = start.running(&pod, &running(&none), at(3000));
        assert_eq!(seconds(started), Some((3.0, Some(2.9))));
        // Only once.
        assert_eq!(start.running(&pod, &running(&none), at(9000)), None);
    }

    /// Upstream's TestSinglePodMultipleDownloadsAndRestartsRecorded, TestFirstNetworkPodMetrics.
    #[test]
    fn pulls_that_overlap_count_once() {
        let (mut start, pod) = (PodStartup::default(), simple());
        start.observe(&pod);
        for pull in [(14, 20), (10, 16), (11, 18)] {
            start.pulled(pulled(pull.0 * 1000, pull.1 * 1000));
        }
        let started = start.running(&pod, &running(&Value::Null), at(30_000));
        assert_eq!(
            started.map(|started| started.network),
            Some(NetworkNamespace::Own)
        );
        assert_eq!(seconds(started), Some((30.0, Some(20.0))));
    }

    /// Upstream's TestCalculateImagePullingTime.
    #[test]
    fn the_time_that_any_pull_takes_is_counted_once() {
        let cases: [(&[(i64, i64)], i64); 7] = [
            (&[], 0),
            (&[(0, 3), (10, 12)], 5),
            (&[(0, 2), (5, 8), (10, 15)], 10),
            (&[(0, 5), (3, 8), (7, 12)], 12),
            (&[(0, 10), (2, 8), (3, 5)], 10),
            (&[(0, 10), (2, 5), (3, 7)], 10),
            (&[(0, 8), (2, 6), (3, 5), (15, 20), (16, 18), (17, 21)], 14),
        ];
        for (pulls, expected) in cases {
            let pulls = pulls.iter();
            let pulls = pulls.map(|(from, to)| pulled(from * 1000, to * 1000));
            let took = pulling(pulls.collect());
            assert_eq!(took, SignedDuration::from_secs(expected));
        }
    }

    /// Upstream's TestPodWithInitContainersAndMainContainers.
    #[test]
    fn init_containers_do_not_count_but_sidecars_do() {
        let spec = json!({
            "containers": [],
            "initContainers": [
                {"name": "init-1"}, {"name": "init-2"}, {"name": "sidecar", "restartPolicy": "Always"},
            ],
        });
        let pod = pod(&spec, &json!({}));
        let ended = |name: &str, from: i64, to: i64| {
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated": {
                "exitCode": 0, "startedAt": at(from).to_string(), "finishedAt": at(to).to_string(),
            }}})
        };
        let init = json!([
            ended("init-1", 2000, 4000),
            ended("init-2", 5500, 7000),
            ended("sidecar", 0, 9000),
        ]);
        let mut start = PodStartup::default();
        start.observe(&pod);
        for (from, to) in [(500, 1500), (4200, 5200), (7200, 8200), (7300, 8500)] {
            start.pulled(pulled(from, to));
        }
        let started = start.running(&pod, &running(&init), at(11_000));
        assert_eq!(seconds(started), Some((11.0, Some(4.2))));
    }

    /// Upstream's TestPodsRunningBeforeKubeletStarted, TestImmediatelySchedulablePods.
    #[test]
    fn who_had_begun_or_waited_for_the_scheduler_is_not_measured() {
        let waits = json!({"conditions": [{"type": "PodScheduled", "status": "False"}]});
        let spec = json!({"containers": []});
        for status in [
            json!({"startTime": at(-600_000).to_string()}),
            waits,
            json!({"phase": "Succeeded"}),
        ] {
            let mut start = PodStartup::default();
            start.observe(&pod(&spec, &status));
            // What becomes of it later changes nothing.
            start.observe(&simple());
            let started = start.running(&simple(), &running(&Value::Null), at(3000));
            assert_eq!(started, None, "{status}");
        }
    }

    /// Upstream's TestStatefulPodExclusion and TestIsStatefulPod.
    #[test]
    fn a_pod_with_lasting_volumes_counts_as_a_whole_only() {
        let volumes = |volumes: &[Value]| {
            let spec = json!({"containers": [], "hostNetwork": true, "volumes": volumes});
            pod(&spec, &json!({}))
        };
        let empty_dir = json!({"name": "v", "emptyDir": {}});
        let config_map = json!({"name": "c", "configMap": {}});
        let projected = json!({"name": "p", "projected": {}});
        let secret = json!({"name": "s", "secret": {}});
        let downward_api = json!({"name": "d", "downwardAPI": {}});
        let host_path = json!({"name": "h", "hostPath": {"path": "/"}});
        let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let cases = [
            (vec![], Some(3.0)),
            (vec![empty_dir], Some(3.0)),
            (vec![config_map.clone()], Some(3.0)),
            (vec![projected.clone()], Some(3.0)),
            (vec![secret.clone()], Some(3.0)),
            (vec![downward_api], Some(3.0)),
            (vec![projected.clone(), secret, config_map], Some(3.0)),
            (vec![host_path], None),
            (vec![claim.clone()], None),
            (vec![projected, claim], None),
        ];
        for (volume, own) in cases {
            let pod = volumes(&volume);
            let mut start = PodStartup::default();
            start.observe(&pod);
            let started = start.running(&pod, &running(&Value::Null), at(3000));
            assert_eq!(
                started.map(|started| started.network),
                Some(NetworkNamespace::Nodes)
            );
            assert_eq!(seconds(started), Some((3.0, own)), "{volume:?}");
        }
    }
}
