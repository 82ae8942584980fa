//! Upstream's TestPodPhase tables.

use super::*;
use Phase::{Failed, Pending, Running, Succeeded};

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
                phase_of(&pod, &statuses, Stage::Syncing),
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
        assert_eq!(phase_of(&pod, &statuses, Stage::Terminated), expected);
        pod.metadata.annotations = Some(words(&[(crate::pod::CONFIG_SOURCE, "file")]));
        assert_eq!(phase_of(&pod, &statuses, Stage::Terminated), Running);
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
                phase_of(&pod, &statuses, Stage::Syncing),
                expected,
                "{name}, {policy}"
            );
        }
    }
}
