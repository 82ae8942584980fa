//! The worker's decisions, one word a step.

mod apps;
mod ending;
mod ephemeral;
mod init;
mod laws;
mod model;
mod resize;
mod restart_all;
mod rules;
mod sidecars;
mod waiting;

use std::time::Duration;

use jiff::Timestamp;
use logic_api::testing::*;
use logic_api::types::{ContainerState, ProbeResult, SandboxState};

use super::kill::{KillReason, kill_grace, termination_grace, termination_plan};
use super::*;

/// Facts with the maps that a test leaves empty.
#[derive(Clone, Debug, Default)]
struct FactsRow {
    exits: BTreeMap<ContainerId, Timestamp>,
    backoffs: BackoffTable,
    log_counts: BTreeMap<String, u32>,
    health: BTreeMap<ContainerId, ContainerHealth>,
    actuated: BTreeMap<String, core::ResourceRequirements>,
    replaced: BTreeSet<ContainerId>,
}

impl FactsRow {
    fn plan(&self, pod: &Pod, runtime: &RuntimePod) -> PodPlan {
        self.plan_at(0, pod, runtime)
    }

    fn plan_at(&self, second: i64, pod: &Pod, runtime: &RuntimePod) -> PodPlan {
        let observed = PodObservation {
            runtime,
            exits: &self.exits,
            backoffs: &self.backoffs,
            log_counts: &self.log_counts,
            health: &self.health,
            actuated: &self.actuated,
            replaced: &self.replaced,
        };
        compute_pod_actions(at(second), pod, &observed, &PodActionPolicy::default())
    }

    /// A probe said something of the first instance of a container.
    fn said(&mut self, name: &str, change: impl FnOnce(&mut ContainerHealth)) {
        let health = self.health.entry(format!("{name}-0").as_str().into());
        change(health.or_insert(ContainerHealth {
            startup: ProbeResult::Success,
            liveness: ProbeResult::Success,
            readiness: ProbeResult::Success,
        }));
    }
}

fn plan(pod: &Pod, runtime: &RuntimePod) -> PodPlan {
    FactsRow::default().plan(pod, runtime)
}

/// One word a step, so that a table row shows a whole plan.
fn steps(plan: &PodPlan) -> Vec<String> {
    let step = |action: &PodAction| match action {
        PodAction::KillContainer { id, .. } => format!("kill {id}"),
        PodAction::StopSandbox { sandbox } => format!("stop {sandbox}"),
        PodAction::RemoveContainer { instance, log } => match log {
            RemovedLog::Removed => format!("remove {}", instance.id),
            RemovedLog::Kept => format!("reset {}", instance.id),
        },
        PodAction::CreateSandbox { attempt } => format!("create {attempt}"),
        PodAction::StartContainer {
            name,
            restart_count,
            ..
        } => format!("start {name} {restart_count}"),
        PodAction::ResizePod => "resize the pod".to_owned(),
        PodAction::ResizeContainer { name, .. } => format!("resize {name}"),
    };
    plan.actions.iter().map(step).collect()
}

type PodChange = fn(&mut Pod, &mut RuntimePod);

struct Row {
    name: &'static str,
    policy: &'static str,
    change: PodChange,
    steps: &'static [&'static str],
}

fn check(rows: &[Row], base: fn() -> (Pod, RuntimePod)) {
    for row in rows {
        let (pod, mut runtime) = base();
        let mut pod = pod.policy(row.policy);
        (row.change)(&mut pod, &mut runtime);
        assert_eq!(
            steps(&plan(&pod, &runtime)),
            row.steps,
            "{} ({})",
            row.name,
            row.policy
        );
    }
}

/// A row that tells what probes said or what was carried out, too.
struct Case {
    name: &'static str,
    policy: &'static str,
    change: fn(&mut Pod, &mut RuntimePod, &mut FactsRow),
    steps: &'static [&'static str],
}

fn check_all(cases: &[Case], base: fn() -> (Pod, RuntimePod, FactsRow)) {
    for case in cases {
        let (pod, mut runtime, mut facts) = base();
        let mut pod = pod.policy(case.policy);
        (case.change)(&mut pod, &mut runtime, &mut facts);
        let plan = facts.plan(&pod, &runtime);
        assert_eq!(steps(&plan), case.steps, "{} ({})", case.name, case.policy);
    }
}

fn sidecar(pod: Pod, name: &str, change: impl FnOnce(&mut core::Container)) -> Pod {
    let mut container = spec_container(name);
    container.restart_policy = Some("Always".into());
    change(&mut container);
    pod.spec_with(|spec| spec.init_containers.get_or_insert_default().push(container))
}

fn ephemeral(pod: Pod, name: &str) -> Pod {
    let container = core::EphemeralContainer {
        name: name.into(),
        image: Some(format!("localhost/{name}:1")),
        ..core::EphemeralContainer::default()
    };
    pod.spec_with(|spec| {
        spec.ephemeral_containers
            .get_or_insert_default()
            .push(container)
    })
}

fn app_spec(pod: &mut Pod, index: usize) -> &mut core::Container {
    &mut pod.spec.as_mut().unwrap().containers[index]
}

fn init_spec(pod: &mut Pod, index: usize) -> &mut core::Container {
    &mut pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap()[index]
}

fn exit_rule(action: &str, operator: &str, codes: &[i32]) -> core::ContainerRestartRule {
    core::ContainerRestartRule {
        action: action.into(),
        exit_codes: Some(core::ContainerRestartRuleOnExitCodes {
            operator: operator.into(),
            values: Some(codes.to_vec()),
        }),
    }
}

fn messages(plan: &PodPlan) -> Vec<String> {
    let killing = plan.why.iter().filter(|why| why.reason == "Killing");
    killing.map(|why| why.message.clone()).collect()
}

fn of<'a>(runtime: &'a mut RuntimePod, name: &str) -> &'a mut RuntimeContainer {
    runtime
        .containers
        .iter_mut()
        .find(|c| c.name == name)
        .unwrap()
}

fn exit(runtime: &mut RuntimePod, name: &str, exit_code: i32) {
    let container = of(runtime, name);
    container.state = ContainerState::Exited;
    container.exit_code = exit_code;
}

/// As a runtime leaves a container whose start was broken off with the call.
fn break_off_start(runtime: &mut RuntimePod, name: &str) {
    exit(runtime, name, 128);
    let container = of(runtime, name);
    container.started_at = None;
    container.reason = "StartError".to_owned();
    container.message = "failed to get task pid: context canceled: unknown".to_owned();
}

/// Three app containers, all running.
fn apps() -> (Pod, RuntimePod) {
    let pod = pod("foo").app("foo1").app("foo2").app("foo3");
    let known = runtime(&pod)
        .running(&pod, "foo1")
        .running(&pod, "foo2")
        .running(&pod, "foo3");
    (pod, known)
}

#[test]
fn a_crashing_container_waits_out_its_backoff_and_says_so() {
    let pod = pod("p").app("c").app("d");
    let runtime = runtime(&pod).exited(&pod, "c", 1).running(&pod, "d");
    let key = logic_api::backoff::container_key(&pod, &pod.app_containers()[0]);

    let first = plan(&pod, &runtime);
    let Some(PodAction::StartContainer {
        backoff: Some(step),
        ..
    }) = first.actions.first()
    else {
        panic!("the first crash is followed by a start: {first:?}");
    };
    assert_eq!(
        (&step.key, step.since),
        (&key, at(0)),
        "an exit not seen before is seen now"
    );

    let mut facts = FactsRow::default();
    facts.exits.insert("c-0".into(), at(-4));
    facts
        .backoffs
        .next(&key, at(-20), at(-20), &BackoffPolicy::default());
    let waits = facts.plan(&pod, &runtime);
    assert_eq!(steps(&waits), [""; 0]);
    assert_eq!(waits.retry_at, Some(at(6)));
    let waiting = &waits.waiting["c"];
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(
        waiting.message,
        "back-off 10s restarting failed container=c pod=p_default(p-uid)"
    );
    let event = waits
        .why
        .iter()
        .find(|why| why.reason == "BackOff")
        .unwrap();
    assert_eq!(
        event.message,
        "Back-off restarting failed container c in pod p_default(p-uid)"
    );
    assert_eq!(
        (event.weight, event.object.as_deref()),
        (EventLevel::Warning, Some("c"))
    );

    facts.exits.insert("c-0".into(), at(-10));
    assert_eq!(steps(&facts.plan(&pod, &runtime)), ["start c 1"]);
}

#[test]
fn runtime_times_do_not_matter_to_backoff() {
    let pod = pod("p").app("c");
    let key = logic_api::backoff::container_key(&pod, &pod.app_containers()[0]);
    let mut facts = FactsRow::default();
    facts.exits.insert("c-0".into(), at(-4));
    facts
        .backoffs
        .next(&key, at(-20), at(-20), &BackoffPolicy::default());
    for finished in [None, Some(at(-4_000_000)), Some(at(4_000_000))] {
        let mut runtime = runtime(&pod).exited(&pod, "c", 1);
        runtime.containers[0].finished_at = finished;
        assert_eq!(
            facts.plan(&pod, &runtime).retry_at,
            Some(at(6)),
            "{finished:?}"
        );
    }
}

#[test]
fn restart_count_goes_on_from_the_logs_when_the_runtime_forgot() {
    let pod = pod("p").app("c");
    let facts = FactsRow {
        log_counts: BTreeMap::from([("c".into(), 7)]),
        ..FactsRow::default()
    };
    assert_eq!(steps(&facts.plan(&pod, &runtime(&pod))), ["start c 7"]);
    let known = runtime(&pod).exited(&pod, "c", 1);
    assert_eq!(steps(&facts.plan(&pod, &known)), ["start c 1"]);
}

#[test]
fn reasons_are_worded_as_upstream_events() {
    let (pod, mut runtime) = apps();
    of(&mut runtime, "foo1").hash = Some(1);
    of(&mut runtime, "foo2").state = ContainerState::Unknown;
    let mut messages: Vec<_> = plan(&pod, &runtime)
        .why
        .into_iter()
        .map(|w| (w.reason, w.message))
        .collect();
    messages.sort();
    let expected = [
        (
            "Killing",
            "Container foo1 definition changed, will be restarted",
        ),
        (
            "Killing",
            "Container is in \"unknown\" state, try killing it before restart",
        ),
    ];
    assert_eq!(
        messages,
        expected.map(|(r, m)| (r.to_owned(), m.to_owned()))
    );

    runtime.sandboxes[0].state = SandboxState::NotReady;
    let plan = plan(&pod, &runtime);
    let changed = plan
        .why
        .iter()
        .find(|why| why.reason == "SandboxChanged")
        .unwrap();
    assert_eq!(
        changed.message,
        "Pod sandbox changed, it will be killed and re-created."
    );
    assert!(
        plan.why
            .iter()
            .any(|why| why.message == "Stopping container foo1")
    );
}
