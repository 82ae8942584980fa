//! Statuses as a whole, step after step; tables of the parts beside.

mod addresses;
mod conditions;
mod containers;
mod ends;
mod health;
mod over;
mod phases;
mod resources;
mod restart_all;

use k8s_openapi::api::core::v1::{
    self as core, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, PodCondition,
};
use logic_api::testing::*;
use logic_api::types::{ContainerState as Seen, SandboxState};

use super::*;
use crate::resize::ResizeState;

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

fn phase_of(pod: &Pod, statuses: &[ContainerStatus], stage: StatusStage) -> PodPhase {
    let facts = PhaseFacts {
        stage,
        ..syncing(false)
    };
    phase::phase(pod, &statuses.iter().collect::<Vec<_>>(), facts)
}

fn syncing(initialized: bool) -> PhaseFacts<'static> {
    const NONE: &BTreeSet<ContainerId> = &BTreeSet::new();
    PhaseFacts {
        stage: StatusStage::Syncing,
        initialized,
        replaced: NONE,
    }
}

/// A status with everything that a test does not set left empty.
struct StatusCase {
    pod: Pod,
    runtime: RuntimePod,
    waiting: BTreeMap<String, WaitingReason>,
    previous: Option<PodStatus>,
    host_ips: Vec<String>,
    stage: StatusStage,
    failure: Option<PodFailure>,
    health: BTreeMap<ContainerId, ContainerHealth>,
    replaced: BTreeSet<ContainerId>,
    resize: ResizeState,
    last_words: BTreeMap<ContainerId, String>,
    handler: HandlerFeatures,
    now: Timestamp,
}

fn scene(pod: Pod) -> StatusCase {
    StatusCase {
        runtime: runtime(&pod),
        pod,
        waiting: BTreeMap::new(),
        previous: None,
        host_ips: vec!["192.168.0.1".into()],
        stage: StatusStage::Syncing,
        failure: None,
        health: BTreeMap::new(),
        replaced: BTreeSet::new(),
        resize: ResizeState::default(),
        last_words: BTreeMap::new(),
        handler: HandlerFeatures::default(),
        now: at(0),
    }
}

impl StatusCase {
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
            replaced: &self.replaced,
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

/// As upstream, whose statuses leave it out: the pod is where it was to be.
#[test]
fn a_nomination_ends_with_the_first_status() {
    let mut scene = scene(pod("p").app("c"));
    scene.pod.status = Some(PodStatus {
        nominated_node_name: Some("edge".into()),
        ..PodStatus::default()
    });
    assert_eq!(scene.status().nominated_node_name, None);
}

/// Upstream's TestStatusNormalizeTimeStamp and TestStatusNormalizationEnforcesMaxBytes.
#[test]
fn every_kind_of_container_has_whole_seconds_and_its_share_of_the_words() {
    let odd = || Some(Time(Timestamp::from_millisecond(NOW * 1000 + 999).unwrap()));
    let running = ContainerState {
        running: Some(ContainerStateRunning { started_at: odd() }),
        ..ContainerState::default()
    };
    let over = |words: usize| ContainerState {
        terminated: Some(ContainerStateTerminated {
            started_at: odd(),
            finished_at: odd(),
            message: Some("abcdefgh".repeat(words)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let list = |kind: &str| -> Vec<ContainerStatus> {
        let status = |index: usize| ContainerStatus {
            last_state: Some(over(24 + index % 3 + 16 * (index % 2))),
            ..said(
                &format!("{kind}{index}"),
                match index % 2 {
                    0 => running.clone(),
                    _ => over(1000),
                },
            )
        };
        (0..16).map(status).collect()
    };
    let with = |pod: Pod, index: usize| {
        let pod = pod
            .init(&format!("init{index}"))
            .app(&format!("app{index}"));
        pod.spec_with(|spec| {
            let debug = core::EphemeralContainer {
                name: format!("debug{index}"),
                ..core::EphemeralContainer::default()
            };
            spec.ephemeral_containers
                .get_or_insert_default()
                .push(debug);
        })
    };
    let pod = (0..16).fold(pod("p"), with);
    let mut status = PodStatus {
        init_container_statuses: Some(list("init")),
        container_statuses: Some(list("app")),
        ephemeral_container_statuses: Some(list("debug")),
        ..PodStatus::default()
    };
    finish::normalize(&pod, &mut status);
    let [inits, apps, debug] = [
        status.init_container_statuses,
        status.container_statuses,
        status.ephemeral_container_statuses,
    ];
    let all = [inits, apps, debug].into_iter().flatten().flatten();
    let states = all.flat_map(|one| [one.state, one.last_state]).flatten();
    let (mut seen, mut words) = (0, 0);
    for state in states {
        let ends = state.terminated.clone().unwrap_or_default();
        let begun = state.running.and_then(|running| running.started_at);
        for time in [begun, ends.started_at, ends.finished_at]
            .into_iter()
            .flatten()
        {
            assert_eq!(time, Time(at(0)));
            seen += 1;
        }
        let message = ends.message.unwrap_or_default();
        assert!(message.is_empty() || (192..=256).contains(&message.len()));
        words = words.max(message.len());
    }
    assert_eq!(
        (seen, words),
        (24 + 2 * (24 + 48), 256),
        "of 12 KiB, a part each"
    );
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
