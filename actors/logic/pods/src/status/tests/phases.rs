//! Upstream's TestPodPhase tables.

use PodPhase::{Failed, Pending, Running, Succeeded};

use super::*;

/// Upstream's TestPodPhaseWithRestartAlways, ...Never and ...OnFailure.
#[test]
fn app_containers_make_the_phase_as_upstream() {
    let both = |a: ContainerState, b: ContainerState| vec![said("a", a), said("b", b)];
    let cases = [
        ("waiting", vec![], [Pending; 3]),
        ("all running", both(running(), running()), [Running; 3]),
        (
            "all succeeded",
            both(ended(0), ended(0)),
            [Running, Succeeded, Succeeded],
        ),
        (
            "all failed",
            both(ended(1), ended(1)),
            [Running, Running, Failed],
        ),
        (
            "one failed",
            both(ended(0), ended(1)),
            [Running, Running, Failed],
        ),
        (
            "mixed state #1: running, succeeded",
            both(running(), ended(0)),
            [Running; 3],
        ),
        (
            "mixed state #2: running, missing",
            vec![said("a", running())],
            [Pending; 3],
        ),
        (
            "mixed state #3: running, waiting",
            both(running(), waits()),
            [Pending; 3],
        ),
        (
            "backoff crashloop container",
            vec![said("a", running()), again("b", 1)],
            [Running; 3],
        ),
        (
            "all backing off",
            vec![again("a", 1), again("b", 1)],
            [Running, Running, Failed],
        ),
        (
            "no state",
            both(running(), ContainerState::default()),
            [Pending; 3],
        ),
    ];
    for (name, statuses, phases) in cases {
        for (policy, expected) in ["Always", "OnFailure", "Never"].into_iter().zip(phases) {
            let pod = pod("p").app("a").app("b").policy(policy);
            assert_eq!(
                phase_of(&pod, &statuses, StatusStage::Syncing),
                expected,
                "{name}, {policy}"
            );
        }
    }
}

/// The `podIsTerminal` rows of upstream's TestPodPhaseWithRestartAlways.
#[test]
fn a_terminated_pod_ends_whatever_its_policy_unless_it_is_static() {
    let cases = [
        (vec![said("a", ended(0)), said("b", ended(0))], Succeeded),
        (vec![said("a", ended(0)), said("b", ended(1))], Failed),
        (vec![said("a", running()), said("b", ended(1))], Running),
    ];
    for (statuses, expected) in cases {
        let mut pod = pod("p").app("a").app("b");
        assert_eq!(phase_of(&pod, &statuses, StatusStage::Terminated), expected);
        pod.metadata.annotations = Some(string_map(&[(logic_api::pod::CONFIG_SOURCE, "file")]));
        assert_eq!(phase_of(&pod, &statuses, StatusStage::Terminated), Running);
    }
}

/// Upstream's TestPodPhaseWithRestart...InitContainers.
#[test]
fn init_containers_hold_the_phase_at_pending_as_upstream() {
    let apps = || [said("a", running()), said("b", running())];
    let with_apps = |init: ContainerStatus| [vec![init], apps().to_vec()].concat();
    let cases = [
        ("empty, waiting", vec![], [Pending; 3]),
        ("initializing", vec![said("i", running())], [Pending; 3]),
        ("blocked", vec![said("i", waits())], [Pending; 3]),
        ("init missing", apps().to_vec(), [Pending; 3]),
        (
            "init succeeded, apps missing",
            vec![said("i", ended(0))],
            [Pending; 3],
        ),
        (
            "init failed",
            vec![said("i", ended(1))],
            [Pending, Pending, Failed],
        ),
        (
            "init backing off",
            vec![again("i", 1)],
            [Pending, Pending, Failed],
        ),
        (
            "init waits after success, apps missing",
            vec![again("i", 0)],
            [Pending; 3],
        ),
        (
            "init waits after success",
            with_apps(again("i", 0)),
            [Running; 3],
        ),
        (
            "initialized, running",
            with_apps(said("i", ended(0))),
            [Running; 3],
        ),
        (
            "running, initializing",
            with_apps(said("i", running())),
            [Pending; 3],
        ),
        (
            "init failed beside running apps",
            with_apps(said("i", ended(1))),
            [Running, Running, Failed],
        ),
    ];
    for (name, statuses, phases) in cases {
        for (policy, expected) in ["Always", "OnFailure", "Never"].into_iter().zip(phases) {
            let pod = pod("p").init("i").app("a").app("b").policy(policy);
            assert_eq!(
                phase_of(&pod, &statuses, StatusStage::Syncing),
                expected,
                "{name}, {policy}"
            );
        }
    }
}

/// One row on pods whose init container is the sidecar `i`.
struct Row {
    name: &'static str,
    statuses: Vec<ContainerStatus>,
    initialized: bool,
    /// With restart policy Always, OnFailure and Never.
    phases: [PodPhase; 3],
}

fn row(
    name: &'static str,
    statuses: Vec<ContainerStatus>,
    initialized: bool,
    phases: [PodPhase; 3],
) -> Row {
    Row {
        name,
        statuses,
        initialized,
        phases,
    }
}

fn with_apps(
    sidecar: ContainerStatus,
    a: ContainerState,
    b: ContainerState,
) -> Vec<ContainerStatus> {
    vec![sidecar, said("a", a), said("b", b)]
}

/// Upstream's TestPodPhaseWithRestartAlwaysRestartableInitContainers and ...Never...
#[test]
fn sidecars_hold_the_phase_at_pending_until_the_pod_has_initialized() {
    let runs = || started(said("i", running()));
    let both = |sidecar| with_apps(sidecar, running(), running());
    let done = |sidecar| with_apps(sidecar, ended(0), ended(0));
    let over = [Running, Succeeded, Succeeded];
    let rows = [
        row("empty", vec![], false, [Pending; 3]),
        row("running", vec![said("i", running())], false, [Pending; 3]),
        row("stopped", vec![said("i", ended(0))], false, [Pending; 3]),
        row("again", vec![again("i", 0)], false, [Pending; 3]),
        row("again, failed", vec![again("i", 1)], false, [Pending; 3]),
        row("waits", vec![said("i", waits())], false, [Pending; 3]),
        row(
            "one app missing",
            vec![runs(), said("a", running())],
            true,
            [Pending; 3],
        ),
        row("all run", both(runs()), true, [Running; 3]),
        row(
            "runs again, not yet started",
            both(said("i", running())),
            true,
            [Running; 3],
        ),
        row(
            "has stopped beside apps",
            both(said("i", ended(0))),
            true,
            [Running; 3],
        ),
        row(
            "backs off beside apps",
            both(again("i", 1)),
            true,
            [Running; 3],
        ),
        row(
            "a new sandbox",
            both(said("i", running())),
            false,
            [Pending; 3],
        ),
        row(
            "still runs when apps are done",
            done(runs()),
            true,
            [Running; 3],
        ),
        row(
            "runs again when apps are done",
            done(said("i", running())),
            true,
            [Running; 3],
        ),
        row("all done", done(said("i", ended(0))), true, over),
        row("failed, apps done", done(said("i", ended(1))), true, over),
        row("backs off, apps done", done(again("i", 0)), true, over),
        row(
            "backs off badly, apps done",
            done(again("i", 1)),
            true,
            over,
        ),
    ];
    for row in rows {
        let statuses: Vec<_> = row.statuses.iter().collect();
        for (policy, expected) in ["Always", "OnFailure", "Never"].into_iter().zip(row.phases) {
            let pod = with_sidecar(pod("p"), "i").app("a").app("b").policy(policy);
            let found = phase::phase(&pod, &statuses, syncing(row.initialized));
            assert_eq!(found, expected, "{}, {policy}", row.name);
        }
    }
}

#[test]
fn a_terminated_pod_has_succeeded_whatever_its_sidecar_did() {
    for exit_code in [0, 1] {
        let pod = with_sidecar(pod("p"), "i").app("a").app("b");
        let statuses = with_apps(said("i", ended(exit_code)), ended(0), ended(0));
        assert_eq!(
            phase_of(&pod, &statuses, StatusStage::Terminated),
            Succeeded
        );
    }
}

/// Upstream's TestPodPhaseWithRestartAlwaysAndPodHasRun.
#[test]
fn a_pod_that_initializes_again_in_a_new_sandbox_is_pending() {
    let pod = with_sidecar(pod("p").init("x"), "y").app("a");
    let cases = [
        (running(), running(), false, Pending),
        (running(), ended(0), false, Pending),
        (ended(0), ended(0), false, Pending),
        (ended(0), ended(0), true, Running),
        (ended(0), running(), true, Running),
    ];
    for (init, app, initialized, expected) in cases {
        let statuses = [said("x", init), said("y", running()), said("a", app)];
        let statuses: Vec<_> = statuses.iter().collect();
        let found = phase::phase(&pod, &statuses, syncing(initialized));
        assert_eq!(found, expected, "{statuses:?}");
    }
}

#[test]
fn only_app_containers_of_the_ready_sandbox_prove_that_the_pod_has_initialized() {
    let pod = with_sidecar(pod("p"), "y").app("a");
    let mut known = runtime(&pod).running(&pod, "y");
    assert!(!phase::has_initialized(&pod, &known));
    known = known.exited(&pod, "a", 1);
    assert!(phase::has_initialized(&pod, &known));
    assert!(!phase::has_initialized(
        &pod,
        &known.clone().with_sandbox(SandboxState::NotReady)
    ));
    known.sandboxes.insert(0, sandbox(1, SandboxState::Ready));
    assert!(!phase::has_initialized(&pod, &known));
}

/// Upstream's TestPodPhaseWithContainerRestartPolicy and ...InitContainers.
#[test]
fn a_containers_own_restart_policy_counts_before_the_pods() {
    let own = |name: &str, policy: &str| {
        let mut container = spec_container(name);
        container.restart_policy = Some(policy.into());
        container
    };
    let apps = |policy: &str, containers: Vec<core::Container>| {
        pod("p")
            .policy(policy)
            .spec_with(|spec| spec.containers = containers)
    };
    let two = || vec![own("a", "Never"), own("b", "OnFailure")];
    let cases = [
        (
            apps("Always", vec![own("a", "Never")]),
            vec![said("a", ended(1))],
            Failed,
        ),
        (
            apps("Always", vec![own("a", "OnFailure")]),
            vec![said("a", ended(1))],
            Running,
        ),
        (
            apps("Always", vec![own("a", "Always")]),
            vec![said("a", ended(1))],
            Running,
        ),
        (
            apps("Never", vec![own("a", "Always"), spec_container("b")]),
            vec![said("a", ended(0)), said("b", ended(1))],
            Running,
        ),
        (
            apps("Always", two()),
            vec![said("a", ended(1)), said("b", ended(0))],
            Failed,
        ),
        (
            apps("Always", two()),
            vec![said("a", ended(0)), said("b", ended(0))],
            Succeeded,
        ),
    ];
    for (pod, statuses, expected) in cases {
        assert_eq!(
            phase_of(&pod, &statuses, StatusStage::Syncing),
            expected,
            "{statuses:?}"
        );
    }
    let inits = [
        ("Always", "Never", Failed),
        ("Never", "OnFailure", Pending),
        ("Never", "Always", Pending),
    ];
    for (policy, of_init, expected) in inits {
        let pod = pod("p").policy(policy).app("a");
        let pod = with_init(pod, "i", |c| c.restart_policy = Some(of_init.into()));
        let statuses = [said("i", ended(1))];
        assert_eq!(
            phase_of(&pod, &statuses, StatusStage::Syncing),
            expected,
            "{of_init}"
        );
    }
}

/// Upstream's TestPodPhaseWithRestartAllContainers.
#[test]
fn a_pod_that_starts_over_has_not_ended() {
    let over = |name: &str| {
        let mut status = again(name, 137);
        let end = status
            .last_state
            .as_mut()
            .unwrap()
            .terminated
            .as_mut()
            .unwrap();
        end.reason = Some("RestartingAllContainers".into());
        status
    };
    let never = || pod("p").policy("Never");
    let app = || never().app_with("c", with_rule);
    let init = || with_init(never(), "c", with_rule).app("a");
    let sidecar = || {
        let change = |c: &mut core::Container| {
            c.restart_policy = Some("Always".into());
            with_rule(c);
        };
        with_init(never(), "c", change).app("a")
    };
    let waits = |name| said(name, waits());
    let cases = [
        (app(), vec![said("c", ended(42))], Running),
        (init(), vec![said("c", ended(42)), waits("a")], Pending),
        (sidecar(), vec![said("c", ended(42)), waits("a")], Pending),
        (
            sidecar().init("i"),
            vec![said("c", ended(42)), waits("i"), waits("a")],
            Pending,
        ),
        (app(), vec![over("c")], Running),
        (init(), vec![over("c"), waits("a")], Pending),
        (sidecar(), vec![over("c"), waits("a")], Pending),
        (
            sidecar().init("i"),
            vec![over("c"), over("i"), waits("a")],
            Pending,
        ),
        (
            app().init("i"),
            vec![said("i", ended(0)), over("c")],
            Running,
        ),
        (
            app().init("i"),
            vec![said("i", ended(1)), over("c")],
            Failed,
        ),
        (init(), vec![said("c", ended(0)), waits("a")], Pending),
        (sidecar(), vec![over("c"), over("a")], Running),
        (sidecar(), vec![said("c", running()), over("a")], Running),
        (
            sidecar().init("i"),
            vec![said("c", running()), over("i"), waits("a")],
            Pending,
        ),
    ];
    for (pod, statuses, expected) in cases {
        let list: Vec<_> = statuses.iter().collect();
        let found = phase::phase(&pod, &list, syncing(true));
        assert_eq!(found, expected, "{statuses:?}");
    }
}

/// The exit of a container that was ended for its definition or a failed probe is followed by a start, whatever the
/// exit code and the policy.
#[test]
fn a_container_that_was_ended_to_be_started_again_leaves_its_pod_running() {
    for (policy, exit_code) in [("Never", 0), ("Never", 137), ("OnFailure", 0)] {
        let mut scene = scene(pod("p").app("a").policy(policy));
        scene.runtime = scene.runtime.exited(&scene.pod, "a", exit_code);
        assert!(
            scene.status().phase.is_some_and(|phase| phase != "Running"),
            "{policy}"
        );
        scene.replaced.insert("a-0".into());
        assert_eq!(
            scene.status().phase.as_deref(),
            Some("Running"),
            "{policy} {exit_code}"
        );
    }
}
