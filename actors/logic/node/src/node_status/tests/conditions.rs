//! The node's conditions.

use super::*;

/// Upstream's TestMemoryPressureCondition, TestDiskPressureCondition, TestPIDPressureCondition.
#[test]
fn a_pressure_is_told_when_it_comes_and_goes_and_beats_meanwhile() {
    let rows = [
        (
            Pressure::Memory,
            "MemoryPressure",
            (
                "NodeHasInsufficientMemory",
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ),
            (
                "NodeHasSufficientMemory",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
        ),
        (
            Pressure::Disk,
            "DiskPressure",
            (
                "NodeHasDiskPressure",
                "KubeletHasDiskPressure",
                "kubelet has disk pressure",
            ),
            (
                "NodeHasNoDiskPressure",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
            ),
        ),
        (
            Pressure::Pid,
            "PIDPressure",
            (
                "NodeHasInsufficientPID",
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
            ),
            (
                "NodeHasSufficientPID",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
        ),
    ];
    for (pressure, name, yes, no) in rows {
        let mut facts = well();
        let mut node = Node::default();
        let steps = [
            (0, false, "False", no, true, 0),
            (10, false, "False", no, false, 0),
            (20, true, "True", yes, true, 20),
            (30, true, "True", yes, false, 20),
            (40, false, "False", no, true, 40),
        ];
        for (second, pressed, state, (event, reason, message), told, since) in steps {
            let pressures = pressed.then_some(pressure).into_iter().collect();
            facts.learn(NodeFact::Pressures(pressures), start());
            let outcome = set_at(&facts, second, &node);
            assert_eq!(
                reasons(&outcome).contains(&event),
                told,
                "{name} at {second}"
            );
            let condition = found(&outcome.node, name);
            assert_eq!(condition.status, state);
            assert_eq!(condition.reason.as_deref(), Some(reason));
            assert_eq!(condition.message.as_deref(), Some(message));
            let times = [
                &condition.last_heartbeat_time,
                &condition.last_transition_time,
            ];
            let times = times.map(|time| time.as_ref().unwrap().0);
            assert_eq!(times, [at(second.into()), at(since)]);
            node = outcome.node;
        }
    }
}

fn ready(facts: &NodeStatusFacts, second: u32) -> (String, String, String) {
    let outcome = set_at(facts, second, &Node::default());
    let condition = found(&outcome.node, "Ready").clone();
    (
        condition.status,
        condition.reason.unwrap(),
        condition.message.unwrap(),
    )
}

/// Upstream's TestReadyCondition.
#[test]
fn the_node_is_ready_when_nothing_is_in_the_way_and_else_says_all_that_is() {
    let bad = |name: &str| Some(condition(name, Support::No));
    type FactsChange = fn(&mut NodeStatusFacts);
    let rows: [(FactsChange, &str); 9] = [
        (|_| {}, "kubelet is posting ready status"),
        (
            |facts| facts.runtime = None,
            "[container runtime status check may not have completed yet, network state unknown]",
        ),
        (
            |facts| {
                let mut runtime = runtime();
                runtime.ready = None;
                facts.learn(NodeFact::Runtime(Box::new(runtime)), start());
            },
            "container runtime not ready: <nil>",
        ),
        (
            |facts| {
                facts.runtime = None;
                let mut runtime = runtime();
                runtime.ready = Some(condition("RuntimeReady", Support::No));
                facts.learn(NodeFact::Runtime(Box::new(runtime)), start());
            },
            // Who has not been ready yet is no better than who has not answered.
            "[container runtime status check may not have completed yet, container runtime not ready: RuntimeReady=false reason:why message:what]",
        ),
        (
            |facts| facts.shutdown = Some("node is shutting down".into()),
            "node is shutting down",
        ),
        (
            |facts| facts.storage = Some("CSINode is not yet initialized".into()),
            "CSINode is not yet initialized",
        ),
        (
            |facts| {
                let why = "pleg was last seen active 3m0s ago".to_owned();
                let problem = PartProblem::Failing(why);
                facts.unhealthy.insert("PLEG".into(), problem);
            },
            "PLEG is not healthy: pleg was last seen active 3m0s ago",
        ),
        (
            |facts| facts.resources.capacity.retain(|name, _| name == "cpu"),
            "missing node capacity for resources: memory, pods, ephemeral-storage",
        ),
        (
            |facts| {
                facts.storage = Some("same".into());
                facts.shutdown = Some("same".into());
            },
            "same",
        ),
    ];
    for (change, message) in rows {
        let mut facts = well();
        change(&mut facts);
        let found = ready(&facts, 0);
        let expected = match message.starts_with("kubelet is") {
            true => ("True", "KubeletReady"),
            false => ("False", "KubeletNotReady"),
        };
        assert_eq!((found.0.as_str(), found.1.as_str()), expected);
        assert_eq!(found.2, message);
    }
    let mut facts = well();
    let runtime = RuntimeStatus {
        ready: bad("RuntimeReady"),
        network: bad("NetworkReady"),
        ..runtime()
    };
    facts.learn(NodeFact::Runtime(Box::new(runtime)), start());
    assert_eq!(
        ready(&facts, 0).2,
        "[container runtime not ready: RuntimeReady=false reason:why message:what, container runtime network not ready: NetworkReady=false reason:why message:what]"
    );
}

/// The agent starts again on a node that was ready, or was not.
#[test]
fn what_an_earlier_life_said_stands_until_there_is_evidence_or_half_a_minute_has_passed() {
    let node_that_was = |state: &str| Node {
        status: Some(NodeStatus {
            conditions: Some(vec![NodeCondition {
                type_: "Ready".into(),
                status: state.into(),
                ..NodeCondition::default()
            }]),
            ..NodeStatus::default()
        }),
        ..Node::default()
    };
    let state_at = |facts: &NodeStatusFacts, second, before: &Node| {
        let outcome = set_at(facts, second, before);
        let is_told = reasons(&outcome).contains(&"NodeNotReady");
        (found(&outcome.node, "Ready").status.clone(), is_told)
    };
    let stands = ("True".to_owned(), false);
    let ends = ("False".to_owned(), true);
    let yet = PartProblem::NotYet("pleg has yet to be successful".into());
    let mut new = facts();
    let ready = node_that_was("True");
    new.learn(NodeFact::Unhealthy([("PLEG".into(), yet)].into()), start());
    assert_eq!(state_at(&new, 0, &ready), stands);
    assert_eq!(state_at(&new, 29, &ready), stands);
    assert_eq!(state_at(&new, 30, &ready), ends, "nothing came");
    for state in ["False", "Unknown"] {
        let before = node_that_was(state);
        assert_eq!(state_at(&new, 0, &before).0, "False", "it was {state}");
    }
    let ill = RuntimeStatus {
        network: Some(condition("NetworkReady", Support::No)),
        ..runtime()
    };
    let failing = PartProblem::Failing("pleg was last seen active 3m0s ago".into());
    let evidence = [
        NodeFact::Runtime(Box::new(ill)),
        NodeFact::Unhealthy([("PLEG".into(), failing)].into()),
        NodeFact::Shutdown(Some("node is shutting down".into())),
    ];
    for fact in evidence {
        let mut facts = new.clone();
        facts.learn(fact.clone(), start());
        assert_eq!(state_at(&facts, 1, &ready), ends, "{fact:?}");
    }
    let mut well = new.clone();
    well.learn(NodeFact::Runtime(Box::new(runtime())), start());
    assert_eq!(state_at(&well, 1, &ready), stands, "its CSINode comes");
}

/// Upstream's TestUpdateNodeStatusWithRuntimeStateError.
#[test]
fn a_runtime_that_is_silent_for_half_a_minute_is_down_until_it_speaks() {
    let mut facts = well();
    assert_eq!(ready(&facts, 29).0, "True");
    assert_eq!(ready(&facts, 30).2, "container runtime is down");
    let learn = |facts: &mut NodeStatusFacts, second| {
        facts.learn(NodeFact::Runtime(Box::new(runtime())), moment(second).now)
    };
    assert_eq!(learn(&mut facts, 31), ReportUrgency::Now);
    assert_eq!(learn(&mut facts, 36), ReportUrgency::Never);
    assert_eq!(ready(&facts, 60).0, "True");
    // One that answers without being ready is down all the same, and may lose its handlers meanwhile.
    let mut ill = runtime();
    ill.ready = Some(condition("RuntimeReady", Support::No));
    let ill = |facts: &mut NodeStatusFacts, second| {
        facts.learn(NodeFact::Runtime(Box::new(ill.clone())), moment(second).now)
    };
    assert_eq!(ill(&mut facts, 61), ReportUrgency::Now);
    assert_eq!(ill(&mut facts, 65), ReportUrgency::Never);
    let words = "container runtime not ready: RuntimeReady=false reason:why message:what";
    assert_eq!(ready(&facts, 65).2, words);
    assert_eq!(
        ready(&facts, 66).2,
        format!("[container runtime is down, {words}]")
    );
}

/// Upstream's TestReadyCondition.
#[test]
fn room_that_is_not_counted_out_is_not_missed() {
    let mut facts = well();
    let capacity = &mut facts.resources.capacity;
    capacity.retain(|name, _| name != "ephemeral-storage");
    for (local_storage, status) in [
        (LocalStorage::Counted, "False"),
        (LocalStorage::Uncounted, "True"),
    ] {
        let policy = NodeStatusPolicy {
            local_storage,
            ..policy()
        };
        let set = set(&policy, &facts, moment(0), &Node::default());
        assert_eq!(found(&set.node, "Ready").status, status);
    }
}

/// Upstream's TestReadyCondition, its events.
#[test]
fn ready_is_told_when_it_changes_and_not_when_the_node_is_new() {
    let mut facts = well();
    let first = set_at(&facts, 0, &Node::default());
    assert!(!reasons(&first).contains(&"NodeReady"));
    facts.learn(
        NodeFact::Shutdown(Some("node is shutting down".into())),
        start(),
    );
    let down = set_at(&facts, 10, &first.node);
    assert_eq!(reasons(&down), ["NodeNotReady"]);
    assert_eq!(
        down.told[0].message,
        "Node edge status is now: NodeNotReady"
    );
    facts.learn(NodeFact::Shutdown(Some("another reason".into())), start());
    let still = set_at(&facts, 20, &down.node);
    assert!(reasons(&still).is_empty());
    let condition = found(&still.node, "Ready");
    assert_eq!(condition.message.as_deref(), Some("another reason"));
    assert_eq!(condition.last_transition_time.as_ref().unwrap().0, at(10));
    facts.learn(NodeFact::Shutdown(None), start());
    assert_eq!(reasons(&set_at(&facts, 25, &still.node)), ["NodeReady"]);
}

#[test]
fn our_own_conditions_name_what_is_wrong_and_come_only_when_something_is() {
    let mut facts = well();
    let first = set_at(&facts, 0, &Node::default());
    let types = |node: &Node| {
        let all = status(node).conditions.iter().flatten();
        all.map(|condition| condition.type_.clone())
            .collect::<Vec<_>>()
    };
    let upstream = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    assert_eq!(types(&first.node), upstream);
    facts.learn(
        NodeFact::Degraded([("eviction".to_owned(), "panicked".to_owned())].into()),
        start(),
    );
    facts.learn(
        NodeFact::Stuck(vec!["nfs/a: no answer".into(), "x".repeat(2000)]),
        start(),
    );
    let bad = set_at(&facts, 10, &first.node);
    let degraded = found(&bad.node, "OxletDegraded");
    assert_eq!(
        (degraded.status.as_str(), degraded.message.as_deref()),
        ("True", Some("eviction: panicked"))
    );
    let stuck = found(&bad.node, "VolumesStuck").message.clone().unwrap();
    assert!(stuck.starts_with("nfs/a: no answer; x") && stuck.len() == 1024);
    facts.learn(NodeFact::Degraded(BTreeMap::new()), start());
    facts.learn(NodeFact::Stuck(Vec::new()), start());
    let good = set_at(&facts, 20, &bad.node);
    assert_eq!(found(&good.node, "OxletDegraded").status, "False");
    assert_eq!(found(&good.node, "VolumesStuck").status, "False");
    assert_eq!(found(&good.node, "Ready").status, "True");
}
