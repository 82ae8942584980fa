//! What holds for every plan, whatever the pod and the runtime.

use logic_api::types::ContainerKind;
use proptest::prelude::*;

use super::*;

const STATES: [ContainerState; 4] = [
    ContainerState::Created,
    ContainerState::Running,
    ContainerState::Exited,
    ContainerState::Unknown,
];

#[derive(Clone, Debug)]
struct Seed {
    policy: usize,
    inits: usize,
    apps: usize,
    sandboxes: Vec<bool>,
    address: bool,
    /// name, attempt, state, exit code, definition changed, sandbox
    containers: Vec<(usize, u32, usize, i32, bool, u32)>,
}

fn seeds() -> impl Strategy<Value = Seed> {
    let container = (
        0_usize..6,
        0_u32..3,
        0_usize..4,
        0_i32..2,
        prop::bool::weighted(0.1),
        0_u32..2,
    );
    (
        (
            0_usize..3,
            0_usize..3,
            1_usize..4,
            prop::bool::weighted(0.9),
        ),
        prop::collection::vec(prop::bool::weighted(0.7), 0..3),
        prop::collection::vec(container, 0..8),
    )
        .prop_map(
            |((policy, inits, apps, address), sandboxes, containers)| Seed {
                policy,
                inits,
                apps,
                sandboxes,
                address,
                containers,
            },
        )
}

fn names(seed: &Seed) -> Vec<String> {
    let inits = (0..seed.inits).map(|n| format!("init{n}"));
    inits
        .chain((0..seed.apps).map(|n| format!("app{n}")))
        .collect()
}

fn build(seed: &Seed) -> (Pod, RuntimePod) {
    let mut pod = pod("p").policy(["Always", "OnFailure", "Never"][seed.policy]);
    for name in names(seed) {
        pod = if name.starts_with("init") {
            pod.init(&name)
        } else {
            pod.app(&name)
        };
    }
    let mut known = runtime(&pod);
    let ready = |ready: bool| {
        if ready {
            SandboxState::Ready
        } else {
            SandboxState::NotReady
        }
    };
    known.sandboxes = (0..)
        .zip(&seed.sandboxes)
        .map(|(n, r)| sandbox(n, ready(*r)))
        .collect();
    if !seed.address {
        known.sandboxes.iter_mut().for_each(|s| s.ips.clear());
    }
    let names = names(seed);
    for (index, attempt, state, exit_code, changed, sandbox) in &seed.containers {
        let name = names.get(*index).map_or("stray", String::as_str);
        let mut container = instance(&pod, name, STATES[*state]);
        container.id = format!("{name}-{attempt}").into();
        if known.containers.iter().any(|c| c.id == container.id) {
            continue;
        }
        // Sandboxes may have been removed, but none is from the future.
        let oldest_first = known.sandboxes.iter().rev().map(|s| s.id.clone());
        container.sandbox = oldest_first
            .clone()
            .cycle()
            .nth(*sandbox as usize)
            .unwrap_or("gone".into());
        container.attempt = *attempt;
        container.restart_count = *attempt;
        container.exit_code = *exit_code;
        if *changed {
            container.hash = Some(1);
        }
        known.containers.push(container);
    }
    known.sort();
    (pod, known)
}

/// Carries a plan out on a runtime where everything works.
fn apply(pod: &Pod, plan: &PodPlan, runtime: &mut RuntimePod) {
    let mut current = plan.sandbox.clone();
    for action in &plan.actions {
        match action {
            PodAction::ResizePod | PodAction::ResizeContainer { .. } => {}
            PodAction::KillContainer { id, .. } => {
                let container = runtime.containers.iter_mut().find(|c| c.id == *id).unwrap();
                container.state = ContainerState::Exited;
                container.exit_code = 137;
            }
            PodAction::StopSandbox { sandbox } => {
                runtime
                    .sandboxes
                    .iter_mut()
                    .find(|s| s.id == *sandbox)
                    .unwrap()
                    .state = SandboxState::NotReady;
            }
            PodAction::RemoveContainer { instance: gone, .. } => {
                runtime.containers.retain(|c| c.id != gone.id)
            }
            PodAction::CreateSandbox { attempt } => {
                let sandbox = sandbox(*attempt, SandboxState::Ready);
                current = Some(sandbox.id.clone());
                runtime.sandboxes.push(sandbox);
            }
            PodAction::StartContainer {
                name,
                restart_count,
                ..
            } => {
                let mut container = instance(pod, name, ContainerState::Running);
                container.id = format!("{name}-{restart_count}").into();
                container.attempt = *restart_count;
                container.restart_count = *restart_count;
                container.sandbox = current.clone().unwrap();
                runtime.containers.push(container);
            }
        }
    }
    runtime.sort();
}

/// What has to wait: sandboxes, and the starts of containers whose number is in the list.
fn waits(sandbox: bool, starts: &[bool; 3]) -> impl Fn(ActionGate<'_>) -> bool {
    move |wait| match wait {
        ActionGate::End => false,
        ActionGate::Sandbox => sandbox,
        ActionGate::Start(name) => (0..)
            .zip(starts)
            .any(|(n, waits)| *waits && name.ends_with(&format!("{n}"))),
        ActionGate::Resize(_) => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_keep_their_promises(seed in seeds()) {
        let (pod, runtime) = build(&seed);
        let plan = plan(&pod, &runtime);
        prop_assert_eq!(plan.broken_promise(&pod, &runtime), None);
    }

    #[test]
    fn plans_do_not_depend_on_the_order_of_lists(seed in seeds()) {
        let (pod, mut runtime) = build(&seed);
        let sorted = plan(&pod, &runtime);
        runtime.containers.reverse();
        runtime.sandboxes.reverse();
        prop_assert_eq!(sorted, plan(&pod, &runtime));
    }

    #[test]
    fn a_plan_carried_out_leaves_nothing_to_do(seed in seeds()) {
        let (pod, mut runtime) = build(&seed);
        let first = plan(&pod, &runtime);
        apply(&pod, &first, &mut runtime);
        let second = plan(&pod, &runtime);
        prop_assert_eq!(&second.actions, &[][..], "after {:?}", first.actions);
    }

    #[test]
    fn no_container_ever_has_two_running_instances(seed in seeds()) {
        let (pod, mut runtime) = build(&seed);
        let first = plan(&pod, &runtime);
        apply(&pod, &first, &mut runtime);
        for (_, container) in pod.all_containers() {
            let alive = runtime.instances(&container.name).filter(|c| c.may_run()).count();
            prop_assert!(alive <= 1, "{} has {alive}: {:?}", container.name, first.actions);
        }
    }

    #[test]
    fn what_the_policy_forbids_is_not_started(seed in seeds()) {
        let (pod, runtime) = build(&seed);
        let replaced = runtime.newest_sandbox().is_none_or(|s| plan(&pod, &runtime).sandbox != Some(s.id.clone()));
        for action in plan(&pod, &runtime).actions {
            let PodAction::StartContainer { name, kind: ContainerKind::App, .. } = action else { continue };
            let Some(newest) = runtime.newest(&name) else { continue };
            let ended = newest.state == ContainerState::Exited;
            let allowed = pod.restart_policy().restarts(newest.exit_code);
            prop_assert!(!ended || allowed || (replaced && pod.restart_policy() == RestartPolicy::Never), "{}", name);
        }
    }

    #[test]
    fn app_containers_start_only_after_every_init_container_is_done(seed in seeds()) {
        let (pod, runtime) = build(&seed);
        let plan = plan(&pod, &runtime);
        let starts_app = plan.actions.iter().any(|a| matches!(a, PodAction::StartContainer { kind: ContainerKind::App, .. }));
        let Some(last) = pod.init_containers().last() else { return Ok(()) };
        if starts_app {
            let succeeded = runtime.newest(&last.name).is_some_and(RuntimeContainer::succeeded);
            let began = pod.app_containers().iter().any(|c| runtime.newest(&c.name).is_some());
            prop_assert!(succeeded || began);
        }
    }

    #[test]
    fn whatever_has_to_wait_what_is_left_of_plans_comes_to_an_end(seed in seeds(), sandbox: bool, starts: [bool; 3]) {
        let (pod, mut runtime) = build(&seed);
        let waits = waits(sandbox, &starts);
        for _ in 0..5 {
            let left = plan(&pod, &runtime).due(&runtime, &waits);
            prop_assert_eq!(left.broken_promise(&pod, &runtime), None);
            apply(&pod, &left, &mut runtime);
        }
        let left = plan(&pod, &runtime).due(&runtime, &waits);
        prop_assert_eq!(&left.actions, &[][..]);
    }
}
