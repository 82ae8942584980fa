//! What is counted of decisions: what the topology manager says of the last one.

use logic_placement::testing::static_cpus;
use logic_placement::topology::testing::counted;

use super::*;

/// A guaranteed pod of whole CPUs.
fn exclusive(name: &str, cpus: &str) -> Pod {
    pod(name).app_with("c", |c| {
        let amounts = Some(quantities(&[("cpu", cpus), ("memory", "1")]));
        c.resources = Some(ResourceRequirements {
            requests: amounts.clone(),
            limits: amounts,
            ..ResourceRequirements::default()
        });
    })
}

/// A node with so many CPUs for pods.
fn node_with(cpus: &str) -> NodeFacts {
    let mut node = node();
    node.allocatable.extend(list(&[("cpu", cpus)]));
    node
}

const ADMITTED: &str = "1 admission, 1 cpu request, 1 container uncore_cache alignment";

#[test]
fn a_pod_counts_as_the_managers_decide_whatever_is_decided_after_them() {
    let topology = static_cpus(4).topology;
    let (small, large) = (node_with("1"), node_with("9"));
    for (cpus, node, decided, expected) in [
        ("2", &large, "", ADMITTED),
        (
            "4",
            &large,
            "UnexpectedAdmissionError",
            "1 admission, 1 cpu request, 1 cpu error",
        ),
        // The managers come before the node's room.
        ("2", &small, "OutOfcpu", ADMITTED),
    ] {
        let pod = exclusive("p", cpus);
        let AdmissionOutcome { decision, counts } = super::super::admit(&Admission {
            topology: &topology,
            ..input(&pod, &[], node)
        });
        let reason = match &decision {
            AdmissionDecision::Reject(failure) => &failure.reason,
            AdmissionDecision::Admit(_)
            | AdmissionDecision::Ask(_)
            | AdmissionDecision::Defer { .. }
            | AdmissionDecision::Preempt { .. } => "",
        };
        assert_eq!((reason, &*counted(&counts)), (decided, expected), "{cpus}");
    }
}

#[test]
fn a_pod_that_waits_or_is_refused_before_counts_nothing() {
    let topology = static_cpus(4).topology;
    let pressures = BTreeSet::from([Signal::MemoryAvailable]);
    let (pod, node) = (exclusive("p", "2"), node_with("2"));
    let ask = |pod: &Pod, node: &NodeFacts, others: &[&Pod], pressures: &BTreeSet<Signal>| {
        let outcome = super::super::admit(&Admission {
            topology: &topology,
            pressures,
            ..input(pod, others, node)
        });
        (outcome.decision, outcome.counts)
    };
    let best_effort = super::pod("b").app("c");
    let (decision, counts) = ask(&best_effort, &node, &[], &pressures);
    assert_eq!((refused(&decision).0, counts), ("Evicted", vec![]));

    let mut without_devices = node.clone();
    without_devices.awaited.insert("cpu".into());
    let (decision, counts) = ask(&pod, &without_devices, &[], &BTreeSet::new());
    assert!(matches!(decision, AdmissionDecision::Defer { .. }));
    assert_eq!(counts, []);

    // Those in its way end first; then it is asked for again.
    let critical = pod
        .clone()
        .spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
    let beside = asking("o", &[("cpu", "1")]);
    let (decision, counts) = ask(&critical, &node, &[&beside], &BTreeSet::new());
    assert!(
        matches!(decision, AdmissionDecision::Preempt { .. }),
        "{decision:?}"
    );
    assert_eq!(counts, []);
    let (_, counts) = ask(&critical, &node, &[], &BTreeSet::new());
    assert_eq!(counted(&counts), ADMITTED);
}

#[test]
fn a_running_pod_counts_what_it_keeps_as_asked_for_again() {
    let topology = static_cpus(4).topology;
    let (pod, node) = (exclusive("p", "2"), node_with("2"));
    let ask = |held: &HeldAssignments, standing| {
        super::super::admit(&Admission {
            topology: &topology,
            held,
            standing,
            ..input(&pod, &[], &node)
        })
    };
    let first = ask(&HeldAssignments::new(), PodPresence::New);
    let held = holding("p", first.decision);
    for standing in [PodPresence::New, PodPresence::Running] {
        let counts = ask(&held, standing).counts;
        assert_eq!(counted(&counts), "1 admission, 1 cpu request");
    }
}
