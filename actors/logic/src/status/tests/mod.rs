//! Statuses as a whole, step after step; tables of the parts beside.

mod conditions;
mod containers;
mod health;
mod phases;
mod resources;
mod restart_all;

use k8s_openapi::api::core::v1::{
    self as core, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, PodCondition,
};

use super::*;
use crate::resize::ResizeState;
use crate::testing::*;
use crate::types::{ContainerState as Seen, SandboxState};

fn with_init(pod: Pod, name: &str, change: impl FnOnce(&mut core::Container)) -> Pod {
    let mut container = spec_container(name);
    change(&mut container);
    pod.spec_with(|spec| spec.init_containers.get_or_insert_default().push(container))
}

fn with_sidecar(pod: Pod, name: &str) -> Pod {
    with_init(pod, name, |c| c.restart_policy = Some("Always".into()))
}

/// Has the whole pod start over when it exits with 42.
fn with_rule(container: &mut core::Container) {
    let codes = core::ContainerRestartRuleOnExitCodes {
        operator: "In".into(),
        values: Some(vec![42]),
    };
    container.restart_policy_rules = Some(vec![core::ContainerRestartRule {
        action: "RestartAllContainers".into(),
        exit_codes: Some(codes),
    }]);
    container
        .restart_policy
        .get_or_insert_with(|| "Never".into());
}

fn running() -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning::default()),
        ..ContainerState::default()
    }
}

fn ended(exit_code: i32) -> ContainerState {
    let end = ContainerStateTerminated {
        exit_code,
        ..ContainerStateTerminated::default()
    };
    ContainerState {
        terminated: Some(end),
        ..ContainerState::default()
    }
}

fn waits() -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting::default()),
        ..ContainerState::default()
    }
}

fn said(name: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.into(),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

/// Waits after an earlier instance ended.
fn again(name: &str, exit_code: i32) -> ContainerStatus {
    ContainerStatus {
        last_state: Some(ended(exit_code)),
        ..said(name, waits())
    }
}

fn with_ready(mut status: ContainerStatus) -> ContainerStatus {
    status.ready = true;
    status
}

fn started(mut status: ContainerStatus) -> ContainerStatus {
    status.started = Some(true);
    status
}

fn phase_of(pod: &Pod, statuses: &[ContainerStatus], stage: Stage) -> Phase {
    phase::phase(pod, &statuses.iter().collect::<Vec<_>>(), stage, false)
}

/// A status with everything that a test does not set left empty.
struct Scene {
    pod: Pod,
    runtime: RuntimePod,
    waiting: BTreeMap<String, Waiting>,
    previous: Option<PodStatus>,
    host_ips: Vec<String>,
    stage: Stage,
    failure: Option<Failure>,
    health: BTreeMap<ContainerId, Health>,
    resize: ResizeState,
    last_words: BTreeMap<ContainerId, String>,
    handler: HandlerFeatures,
    now: Timestamp,
}

fn scene(pod: Pod) -> Scene {
    Scene {
        runtime: runtime(&pod),
        pod,
        waiting: BTreeMap::new(),
        previous: None,
        host_ips: vec!["192.168.0.1".into()],
        stage: Stage::Syncing,
        failure: None,
        health: BTreeMap::new(),
        resize: ResizeState::default(),
        last_words: BTreeMap::new(),
        handler: HandlerFeatures::default(),
        now: at(0),
    }
}

impl Scene {
    fn status(&self) -> PodStatus {
        pod_status(&StatusInput {
            now: self.now,
            pod: &self.pod,
            runtime: &self.runtime,
            runtime_name: "containerd",
            handler: self.handler,
            waiting: &self.waiting,
            previous: self.previous.as_ref(),
            host_ips: &self.host_ips,
            stage: self.stage,
            failure: self.failure.as_ref(),
            health: &self.health,
            resize: &self.resize,
            last_words: &self.last_words,
        })
    }

    /// Makes the status, and lets the next one follow it.
    fn step(&mut self) -> PodStatus {
        let status = self.status();
        self.previous = Some(status.clone());
        status
    }
}

fn init<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let list = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    list.iter().find(|s| s.name == name).unwrap()
}

fn app<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let list = status.container_statuses.as_deref().unwrap_or_default();
    list.iter().find(|s| s.name == name).unwrap()
}

fn state(status: &ContainerStatus) -> &ContainerState {
    status.state.as_ref().unwrap()
}

fn waiting_reason(status: &ContainerStatus) -> Option<&str> {
    state(status).waiting.as_ref()?.reason.as_deref()
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    let list = status.conditions.as_deref().unwrap_or_default();
    list.iter().find(|c| c.type_ == kind).unwrap()
}

#[test]
fn a_new_pod_is_pending_and_its_containers_are_being_created() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = RuntimePod::default();
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(waiting_reason(app(&status, "c")), Some("ContainerCreating"));
    assert_eq!(app(&status, "c").image, "localhost/c:1");
    assert_eq!(app(&status, "c").started, Some(false));
    let kinds: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("PodReadyToStartContainers", "False"),
            ("Initialized", "True"),
            ("Ready", "False"),
            ("ContainersReady", "False"),
            ("PodScheduled", "True"),
        ]
    );
    assert_eq!(status.start_time, Some(Time(at(0))));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(status.host_ip.as_deref(), Some("192.168.0.1"));
    assert_eq!((status.pod_ip, status.observed_generation), (None, Some(1)));
}

#[test]
fn a_running_pod_shows_what_the_runtime_says() {
    let mut scene = scene(pod("p").app("b").app("a"));
    scene.runtime = scene
        .runtime
        .running(&scene.pod, "a")
        .running(&scene.pod, "b");
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let names: Vec<_> = status
        .container_statuses
        .iter()
        .flatten()
        .map(|s| s.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"], "app containers by name");
    let a = app(&status, "a");
    assert_eq!(a.container_id.as_deref(), Some("containerd://a-0"));
    assert_eq!(a.image_id, "localhost/a@sha256:1");
    assert_eq!((a.ready, a.started, a.restart_count), (true, Some(true), 0));
    assert_eq!(
        state(a).running.as_ref().unwrap().started_at,
        Some(Time(at(-89)))
    );
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(condition(&status, "Ready").observed_generation, Some(1));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.1"));
}

#[test]
fn app_containers_wait_for_initialisation_and_init_statuses_keep_the_specs_order() {
    let mut scene = scene(pod("p").init("z").init("y").app("c"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "z", 0)
        .running(&scene.pod, "y");
    let status = scene.status();
    assert_eq!(waiting_reason(app(&status, "c")), Some("PodInitializing"));
    let inits: Vec<_> = status.init_container_statuses.iter().flatten().collect();
    assert_eq!(
        inits
            .iter()
            .map(|s| (s.name.as_str(), s.ready))
            .collect::<Vec<_>>(),
        [("z", true), ("y", false)]
    );
    assert_eq!(
        condition(&status, "Initialized").reason.as_deref(),
        Some("ContainersNotInitialized")
    );
    assert_eq!(
        condition(&status, "Initialized").message.as_deref(),
        Some("containers with incomplete status: [y]")
    );
    assert_eq!(status.phase.as_deref(), Some("Pending"));
}

/// Upstream's TestGenerateAPIPodStatusWithReasonCache, its rows in one.
#[test]
fn a_container_that_cannot_start_waits_and_remembers_its_end() {
    let reason = |reason: &str| Waiting {
        reason: reason.into(),
        message: "why".into(),
    };
    let mut scene = scene(pod("p").app("never-ran").app("crashed").app("runs"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "crashed", 3)
        .running(&scene.pod, "runs");
    for name in ["never-ran", "crashed", "runs"] {
        scene
            .waiting
            .insert(name.into(), reason("CrashLoopBackOff"));
    }
    let status = scene.status();
    assert_eq!(
        waiting_reason(app(&status, "never-ran")),
        Some("CrashLoopBackOff")
    );
    assert_eq!(
        waiting_reason(app(&status, "crashed")),
        Some("CrashLoopBackOff")
    );
    let last = app(&status, "crashed")
        .last_state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert!(
        state(app(&status, "runs")).running.is_some(),
        "a running container does not wait"
    );

    scene.pod = scene.pod.clone().policy("Never");
    let status = scene.status();
    assert!(
        state(app(&status, "crashed")).terminated.is_some(),
        "what will not start again does not wait"
    );
}

#[test]
fn a_succeeded_init_container_never_waits() {
    let mut scene = scene(pod("p").init("i").app("c"));
    scene.runtime = scene.runtime.exited(&scene.pod, "i", 0);
    scene.waiting.insert(
        "i".into(),
        Waiting {
            reason: "ErrImagePull".into(),
            message: String::new(),
        },
    );
    let status = scene.status();
    let init = &status.init_container_statuses.as_ref().unwrap()[0];
    assert!(init.state.as_ref().unwrap().terminated.is_some() && init.ready);
}

#[test]
fn the_last_state_is_the_instance_before() {
    let mut scene = scene(pod("p").app("c"));
    let mut newer = instance(&scene.pod, "c", Seen::Running);
    (newer.id, newer.attempt, newer.restart_count) = ("c-1".into(), 1, 1);
    scene.runtime = scene.runtime.exited(&scene.pod, "c", 137).with(newer);
    let status = scene.status();
    let c = app(&status, "c");
    assert_eq!(
        (c.restart_count, c.container_id.as_deref()),
        (1, Some("containerd://c-1"))
    );
    let last = c.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (last.exit_code, last.container_id.as_deref()),
        (137, Some("containerd://c-0"))
    );
}

/// The rows of upstream's Test_generateAPIPodStatus and TestConvertToAPIContainerStatuses on containers
/// that the runtime lost.
#[test]
fn a_container_that_the_runtime_lost_has_ended_in_an_unknown_way() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.step();
    scene.runtime.containers.clear();
    let status = scene.status();
    let c = app(&status, "c");
    let last = c.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (last.exit_code, last.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        last.message.as_deref(),
        Some(
            "The container could not be located when the pod was deleted.  The container used to be Running"
        )
    );
    assert_eq!(
        (c.restart_count, waiting_reason(c)),
        (1, Some("ContainerCreating"))
    );
    assert_eq!(
        status.phase.as_deref(),
        Some("Running"),
        "it is not put back to Pending"
    );

    scene.pod.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(
        app(&scene.status(), "c").restart_count,
        0,
        "a deleted pod restarts nothing"
    );

    scene.runtime = scene.runtime.with(instance(&scene.pod, "c", Seen::Unknown));
    let status = scene.status();
    let end = state(app(&status, "c")).terminated.as_ref().unwrap();
    assert_eq!(
        (end.exit_code, end.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        end.message.as_deref(),
        Some("The container could not be located when the pod was terminated")
    );
}

#[test]
fn an_end_that_was_reported_stays_when_the_container_is_removed() {
    let mut scene = scene(pod("p").app("c").policy("Never"));
    scene.runtime = scene.runtime.exited(&scene.pod, "c", 4);
    let before = scene.step();
    scene.runtime.containers.clear();
    assert_eq!(app(&scene.status(), "c"), app(&before, "c"));
}

#[test]
fn a_condition_keeps_its_time_while_its_status_is_the_same() {
    let mut scene = scene(pod("p").app("c"));
    scene.step();
    scene.now = at(10);
    let same = scene.step();
    assert_eq!(
        condition(&same, "Ready").last_transition_time,
        Some(Time(at(0)))
    );
    scene.runtime = scene.runtime.clone().running(&scene.pod, "c");
    scene.now = at(20);
    let changed = scene.step();
    assert_eq!(
        condition(&changed, "Ready").last_transition_time,
        Some(Time(at(20)))
    );
    assert_eq!(
        condition(&changed, "PodScheduled").last_transition_time,
        Some(Time(at(0)))
    );
    assert_eq!(changed.start_time, Some(Time(at(0))));
}

#[test]
fn an_unchanged_pod_has_an_unchanged_status() {
    let mut scene = scene(pod("p").init("i").app("c"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "i", 0)
        .running(&scene.pod, "c");
    let before = scene.step();
    scene.now = at(3600);
    assert_eq!(scene.status(), before);
}

/// Upstream's TestGenerateAPIPodStatus... rows on phases that go back.
#[test]
fn a_terminal_phase_is_never_left() {
    for (from_previous, phase) in [
        (true, "Failed"),
        (false, "Failed"),
        (true, "Succeeded"),
        (false, "Succeeded"),
    ] {
        let mut scene = scene(pod("p").app("c"));
        scene.runtime = scene.runtime.running(&scene.pod, "c");
        let ended = PodStatus {
            phase: Some(phase.into()),
            reason: Some("Evicted".into()),
            ..PodStatus::default()
        };
        if from_previous {
            scene.previous = Some(ended);
        } else {
            scene.pod.status = Some(ended);
        }
        let status = scene.status();
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(
            status.reason.as_deref(),
            Some("Evicted"),
            "the reason stays with its phase"
        );
    }
}

#[test]
fn a_failure_by_decree_fails_the_pod_with_its_reason() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.failure = Some(Failure {
        reason: "DeadlineExceeded".into(),
        message: "Pod was active on the node longer than the specified deadline".into(),
        disruption: None,
    });
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodFailed")
    );
}

/// Upstream's TestGenerateAPIPodStatus row on the disruption condition, and what its eviction, preemption
/// and shutdown say.
#[test]
fn a_pod_that_the_node_ends_is_a_disruption_target_until_it_is_gone() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    scene.failure = Some(Failure {
        reason: "Preempting".into(),
        message: "Preempted in order to admit critical pod".into(),
        disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".into()),
    });
    let status = scene.step();
    let said = condition(&status, "DisruptionTarget").clone();
    assert_eq!(
        (
            said.status.as_str(),
            said.reason.as_deref(),
            said.observed_generation
        ),
        ("True", Some("TerminationByKubelet"), Some(1))
    );
    assert_eq!(
        said.message.as_deref(),
        Some("Pod was preempted by Kubelet to accommodate a critical pod.")
    );
    (scene.failure, scene.now) = (None, at(60));
    assert_eq!(*condition(&scene.status(), "DisruptionTarget"), said);
}

/// Upstream's TestHandlePortConflicts and its kin: `rejectPod`.
#[test]
fn a_pod_that_was_not_admitted_has_failed_with_a_reason_and_nothing_else() {
    let pod = pod("p").app("c");
    let failure = Failure {
        reason: "NodePorts".into(),
        message: "Predicate NodePorts failed".into(),
        disruption: None,
    };
    let status = rejected(at(0), &pod, &failure);
    let expected = PodStatus {
        phase: Some("Failed".into()),
        reason: Some("NodePorts".into()),
        message: Some("Pod was rejected: Predicate NodePorts failed".into()),
        qos_class: Some("BestEffort".into()),
        observed_generation: Some(1),
        start_time: Some(Time(at(0))),
        ..PodStatus::default()
    };
    assert_eq!(status, expected);
}

/// Upstream's TestTerminatePod.
#[test]
fn a_terminated_pod_has_no_open_containers() {
    let mut scene = scene(pod("p").init("i").init("j").app("a").app("b"));
    scene.runtime = scene
        .runtime
        .exited(&scene.pod, "i", 0)
        .exited(&scene.pod, "j", 0)
        .exited(&scene.pod, "a", 0);
    scene.stage = Stage::Terminated;
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let b = state(app(&status, "b")).terminated.as_ref().unwrap();
    assert_eq!(
        (b.exit_code, b.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        state(app(&status, "a"))
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        0
    );
}

/// Upstream's TestTerminatePodWaiting.
#[test]
fn a_pod_terminated_during_initialisation_leaves_its_app_containers_waiting() {
    let mut scene = scene(pod("p").init("i").init("j").app("a"));
    scene.stage = Stage::Terminated;
    let status = scene.status();
    let inits = status.init_container_statuses.as_ref().unwrap();
    assert!(
        state(&inits[0]).terminated.is_some(),
        "the first is taken as tried"
    );
    assert_eq!(waiting_reason(&inits[1]), Some("PodInitializing"));
    assert_eq!(waiting_reason(app(&status, "a")), Some("PodInitializing"));
}

/// The sidecar rows of upstream's TestTerminatePodWaiting.
#[test]
fn a_started_sidecar_as_last_init_container_means_that_the_pod_was_initialized() {
    let mut scene = scene(with_sidecar(pod("p"), "s").app("a"));
    scene.runtime = scene.runtime.running(&scene.pod, "s");
    scene.stage = Stage::Terminated;
    let status = scene.status();
    for closed in [init(&status, "s"), app(&status, "a")] {
        let end = state(closed).terminated.as_ref().unwrap();
        assert_eq!(
            end.reason.as_deref(),
            Some("ContainerStatusUnknown"),
            "{}",
            closed.name
        );
    }
    let slow = |c: &mut core::Container| c.startup_probe = Some(core::Probe::default());
    let spec = scene.pod.spec.as_mut().unwrap();
    slow(&mut spec.init_containers.as_mut().unwrap()[0]);
    assert_eq!(
        waiting_reason(app(&scene.status(), "a")),
        Some("PodInitializing")
    );
}

/// Upstream's TestGenerateAPIPodStatusPodIPs, TestSortPodIPs and
/// TestGenerateAPIPodStatusHostNetworkPodIPs.
#[test]
fn addresses_are_one_a_family_and_the_nodes_on_its_network() {
    let list = |ips: &[&str]| ips.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    let cases = [
        (list(&["10.0.0.1"]), list(&["1.1.1.1"]), list(&["10.0.0.1"])),
        (
            list(&["fd00::1", "10.0.0.1"]),
            list(&["1.1.1.1"]),
            list(&["10.0.0.1", "fd00::1"]),
        ),
        (
            list(&["10.0.0.1", "fd00::1"]),
            list(&["fe80::1"]),
            list(&["fd00::1", "10.0.0.1"]),
        ),
        (
            list(&["10.0.0.1", "10.0.0.2", "fd00::1"]),
            list(&[]),
            list(&["10.0.0.1", "fd00::1"]),
        ),
        (list(&[""]), list(&["1.1.1.1"]), list(&[])),
        (
            list(&["10.0.0.1"]),
            list(&["fd00::5678"]),
            list(&["10.0.0.1"]),
        ),
        (list(&["fd01::1234"]), list(&[]), list(&["fd01::1234"])),
        (
            list(&["010.000.000.001", "fd01:0:0:0:0:0:0:1234"]),
            list(&[]),
            list(&["10.0.0.1", "fd01::1234"]),
        ),
    ];
    for (ips, host, expected) in cases {
        assert_eq!(pod_addresses(&ips, &host), expected, "{ips:?} on {host:?}");
    }
    let mut scene = scene(
        pod("p")
            .app("c")
            .spec_with(|spec| spec.host_network = Some(true)),
    );
    scene.runtime.sandboxes[0].host_network = true;
    scene.runtime.sandboxes[0].ips.clear();
    let status = scene.status();
    assert_eq!(status.pod_ip.as_deref(), Some("192.168.0.1"));
    assert_eq!(
        condition(&status, "PodReadyToStartContainers").status,
        "True"
    );
    // A second address that the node gets later becomes the pod's, too; what the runtime says comes first.
    scene.host_ips = list(&["10.0.0.1", "fd01::1234"]);
    let ips = |status: PodStatus| -> Vec<String> {
        status
            .pod_ips
            .into_iter()
            .flatten()
            .map(|ip| ip.ip)
            .collect()
    };
    assert_eq!(ips(scene.status()), ["10.0.0.1", "fd01::1234"]);
    scene.runtime.sandboxes[0].ips = list(&["192.168.0.1"]);
    assert_eq!(ips(scene.status()), ["192.168.0.1", "fd01::1234"]);
    scene.runtime.sandboxes[0].ips = list(&["2001:db8::2", "192.168.0.1"]);
    assert_eq!(ips(scene.status()), ["192.168.0.1", "2001:db8::2"]);
    scene.runtime = scene.runtime.with_sandbox(SandboxState::NotReady);
    assert_eq!(
        condition(&scene.status(), "PodReadyToStartContainers").status,
        "False"
    );
}

#[test]
fn conditions_of_others_stay() {
    let mut scene = scene(pod("p").app("c"));
    let theirs = |kind: &str| PodCondition {
        type_: kind.into(),
        status: "True".into(),
        ..PodCondition::default()
    };
    scene.pod.status = Some(PodStatus {
        conditions: Some(vec![theirs("example.org/gate"), theirs("Ready")]),
        ..PodStatus::default()
    });
    scene.previous = Some(PodStatus {
        conditions: Some(vec![theirs("DisruptionTarget")]),
        ..PodStatus::default()
    });
    let status = scene.status();
    let kinds: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| c.type_.as_str())
        .collect();
    assert_eq!(kinds[..2], ["example.org/gate", "DisruptionTarget"]);
    assert_eq!(kinds.iter().filter(|kind| **kind == "Ready").count(), 1);
    assert_eq!(condition(&status, "Ready").status, "False");
}

#[test]
fn times_are_whole_seconds_and_last_words_are_cut() {
    let mut scene = scene(pod("p").app("c").app("d"));
    scene.runtime = scene.runtime.exited(&scene.pod, "c", 1);
    let ended = scene.runtime.containers.first_mut().unwrap();
    ended.message = "é".repeat(10_000);
    ended.finished_at = Some(Timestamp::from_millisecond(NOW * 1000 + 999).unwrap());
    let status = scene.status();
    let end = state(app(&status, "c")).terminated.as_ref().unwrap();
    assert_eq!(end.message.as_ref().unwrap().len(), 6 * 1024);
    assert_eq!(end.finished_at, Some(Time(at(0))));
}
