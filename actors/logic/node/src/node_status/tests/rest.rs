//! Drivers, the lease, the schedule, declared features.

use logic_volumes::csi_node::NODE_IDS;

use super::lease::{LeaseHolder, pause};
use super::*;

fn drivers(names: &[&str]) -> RegisteredDrivers {
    let backend = |name: &&str| {
        let backend = RegisteredDriver {
            name: (*name).into(),
            node_id: format!("{name}/node"),
            ..RegisteredDriver::default()
        };
        ((*name).to_owned(), backend)
    };
    RegisteredDrivers {
        there: names.iter().map(backend).collect(),
        labels: string_map(&[("zone", "1")]),
    }
}

/// Upstream's TestInstallCSIDriverExistingAnnotation, TestUninstallCSIDriver.
#[test]
fn a_driver_that_leaves_is_taken_out_and_one_that_has_not_come_stays() {
    let mut facts = well();
    let mut node = Node::default();
    node.metadata.annotations = Some(string_map(&[(NODE_IDS, r#"{"old":"o","a":"before"}"#)]));
    let mut shown = |facts: &NodeStatusFacts| {
        node = set_at(facts, 0, &node).node;
        let annotations = node.metadata.annotations.clone().unwrap_or_default();
        annotations.get(NODE_IDS).cloned().unwrap_or_default()
    };
    assert_eq!(shown(&facts), r#"{"a":"before","old":"o"}"#);
    facts.learn(NodeFact::Drivers(Box::new(drivers(&["a", "b"]))), start());
    assert_eq!(shown(&facts), r#"{"a":"a/node","b":"b/node","old":"o"}"#);
    facts.learn(NodeFact::Drivers(Box::new(drivers(&["b"]))), start());
    assert_eq!(shown(&facts), r#"{"b":"b/node","old":"o"}"#);
    facts.learn(NodeFact::Drivers(Box::new(drivers(&["a", "b"]))), start());
    assert_eq!(shown(&facts), r#"{"a":"a/node","b":"b/node","old":"o"}"#);
    assert_eq!(node.metadata.labels.as_ref().unwrap()["zone"], "1");
    node.metadata.annotations = Some(string_map(&[(NODE_IDS, "{broken")]));
    let annotations = set_at(&facts, 0, &node).node.metadata.annotations.unwrap();
    assert_eq!(annotations[NODE_IDS], r#"{"a":"a/node","b":"b/node"}"#);
}

/// Upstream's TestNewNodeLease.
#[test]
fn a_lease_names_its_holder_its_owner_and_its_time() {
    let holder = LeaseHolder {
        name: "edge".into(),
        seconds: 40,
    };
    let first = holder.lease(None, Some("uid-1"), at(0));
    let spec = first.spec.as_ref().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("edge"));
    assert_eq!(spec.lease_duration_seconds, Some(40));
    assert_eq!(spec.renew_time.as_ref().unwrap().0, at(0));
    assert_eq!(first.metadata.namespace.as_deref(), Some("kube-node-lease"));
    let owner = &first.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (
            owner.api_version.as_str(),
            owner.kind.as_str(),
            owner.name.as_str(),
            owner.uid.as_str()
        ),
        ("v1", "Node", "edge", "uid-1")
    );
    let shorter = LeaseHolder {
        seconds: 20,
        ..holder
    };
    let next = shorter.lease(Some(&first), Some("uid-2"), at(10));
    let spec = next.spec.as_ref().unwrap();
    assert_eq!(
        (
            spec.lease_duration_seconds,
            spec.renew_time.as_ref().unwrap().0
        ),
        (Some(20), at(10))
    );
    assert_eq!(next.metadata, first.metadata);
    // A renewal does not wait for its owner, and gives it one when it can.
    let mut orphan = first.clone();
    orphan.metadata.owner_references = None;
    let owners = |lease: Lease| lease.metadata.owner_references.unwrap_or_default().len();
    assert_eq!(owners(shorter.lease(Some(&orphan), None, at(1))), 0);
    assert_eq!(owners(shorter.lease(Some(&orphan), Some("uid"), at(1))), 1);
}

use k8s_openapi::api::coordination::v1::Lease;

#[test]
fn a_lease_is_renewed_four_times_in_its_life_and_failures_wait_longer_and_longer() {
    let holder = LeaseHolder {
        name: "edge".into(),
        seconds: 40,
    };
    assert_eq!(holder.interval(0.0), Duration::from_secs(10));
    assert_eq!(holder.interval(1.0), Duration::from_millis(10_400));
    let pauses: Vec<u128> = (1..8).map(|n| pause(n).as_millis()).collect();
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 7000]);
}

/// Upstream's TestUpdateNodeStatusWithLease, TestCalculateDelay of the status.
#[test]
fn after_a_change_the_next_report_is_spread_and_then_keeps_its_beat() {
    let every = Duration::from_secs(300);
    let mut schedule = ReportSchedule::new(every);
    let now = start();
    assert!(schedule.is_due(now));
    // A life's first report is spread, whatever it was for.
    schedule.sent(ReportCause::Heartbeat, now, 0.0);
    assert!(schedule.is_due(now + every / 2));
    for (chance, after) in [(0.0, 150), (0.5, 300), (1.0, 450)] {
        schedule.sent(ReportCause::Change, now, chance);
        assert!(!schedule.is_due(now + Duration::from_secs(after - 1)));
        assert!(schedule.is_due(now + Duration::from_secs(after)));
    }
    schedule.sent(ReportCause::Heartbeat, now, 0.9);
    assert!(!schedule.is_due(now + Duration::from_secs(299)));
    assert!(schedule.is_due(now + every));
}

#[test]
fn features_are_declared_by_their_gates() {
    let gates = |on: &'static [&'static str]| move |gate: &str| on.contains(&gate);
    const BASE: &str = "NodeDeclaredFeatures";
    const RESTART: &str = "RestartAllContainersOnContainerExits";
    let none = Vec::<String>::new();
    assert_eq!(declared_features(gates(&[RESTART])), none);
    assert_eq!(declared_features(gates(&[BASE])), none);
    assert_eq!(declared_features(gates(&[BASE, RESTART])), [RESTART]);
    assert_eq!(
        declared_features(|_| true),
        [
            "ExtendWebSocketsToKubelet",
            "InPlacePodLevelResourcesVerticalScaling",
            RESTART
        ]
    );
}

#[test]
fn facts_are_told_at_once_only_when_they_are_new() {
    let mut facts = well();
    let degraded = || NodeFact::Degraded([("a".to_owned(), "b".to_owned())].into());
    assert_eq!(facts.learn(degraded(), start()), ReportUrgency::Now);
    assert_eq!(facts.learn(degraded(), start()), ReportUrgency::Never);
    let addresses = NodeFact::Addresses(NodeAddresses::default());
    assert_eq!(facts.learn(addresses, start()), ReportUrgency::Later);
}
