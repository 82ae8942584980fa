//! Registration, and the status that is kept true.

use logic_node::node_status::VolumesInUse;
use logic_resources::node::Support;

use super::*;

/// Upstream's TestRegisterWithApiServer, TestFastStatusUpdateOnce.
#[test]
fn a_new_node_is_there_at_once_and_ready_as_soon_as_it_works() {
    run_paused(|| async {
        let mut rig = Rig::new();
        pass(MOMENT).await;
        assert_eq!(rig.ready_state().0, "False");
        let why = rig.ready_state().1;
        assert!(
            why.contains("container runtime status check may not have completed yet"),
            "{why}"
        );
        assert!(why.contains("CSINode is not yet initialized"), "{why}");
        rig.work();
        pass(MOMENT * 4).await;
        assert_eq!(
            rig.ready_state(),
            ("True".into(), "kubelet is posting ready status".into())
        );
        assert!(rig.reasons().contains(&"NodeReady".to_owned()));
        let heard = rig.server.heard();
        assert_eq!(heard[0], "POST /api/v1/nodes");
        assert!(heard.len() <= 3, "{heard:?}");
    });
}

#[test]
fn what_is_known_before_registration_is_in_the_first_object() {
    run_paused(|| async {
        let rig = Rig::new();
        rig.work();
        pass(MOMENT).await;
        assert_eq!(rig.ready_state().0, "True");
        assert_eq!(rig.server.heard(), ["POST /api/v1/nodes"]);
    });
}

/// Upstream's TestUpdateNodeStatusWithLease.
#[test]
fn a_node_at_rest_writes_only_when_its_report_is_due() {
    run_paused(|| async {
        let rig = Rig::ready().await;
        rig.live(3600).await;
        let heard = rig.server.heard();
        // Every five minutes; the first between half and one and a half of it.
        assert!((11..=13).contains(&heard.len()), "{heard:?}");
        assert!(
            heard
                .iter()
                .all(|what| what == "PATCH /api/v1/nodes/edge/status")
        );
        let body = rig.server.last_body();
        let keys: Vec<&String> = body["status"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["$setElementOrder/conditions", "conditions"]);
    });
}

#[test]
fn a_pressure_is_in_the_object_at_once_and_told_once() {
    run_paused(|| async {
        let mut rig = Rig::ready().await;
        rig.tell(NodeFact::Pressures([Pressure::Memory].into()));
        pass(MOMENT).await;
        assert_eq!(rig.condition("MemoryPressure")["status"], "True");
        assert_eq!(rig.reasons(), ["NodeHasInsufficientMemory"]);
        rig.tell(NodeFact::Pressures([Pressure::Memory].into()));
        rig.live(10).await;
        assert_eq!(rig.server.heard().len(), 1);
        assert!(rig.reasons().is_empty());
    });
}

/// Upstream's TestUpdateNodeStatusWithRuntimeStateError.
#[test]
fn a_silent_runtime_is_told_as_down_and_its_return_at_once() {
    run_paused(|| async {
        let mut rig = Rig::ready().await;
        pass(SECOND * 41).await;
        assert_eq!(
            rig.ready_state(),
            ("False".into(), "container runtime is down".into())
        );
        rig.tell(runtime(Support::Yes));
        pass(MOMENT).await;
        assert_eq!(rig.ready_state().0, "True");
        assert_eq!(rig.reasons(), ["NodeNotReady", "NodeReady"]);
    });
}

/// Upstream's TestUpdateNodeStatusError: five attempts, each with the object anew, then the next look.
#[test]
fn a_write_that_fails_is_tried_again_and_its_event_told_once() {
    run_paused(|| async {
        let mut rig = Rig::ready().await;
        for _ in 0..5 {
            rig.server.fail("PATCH", 500);
        }
        rig.tell(NodeFact::Pressures([Pressure::Disk].into()));
        pass(SECOND * 2).await;
        let heard = rig.server.heard();
        let patches = heard
            .iter()
            .filter(|what| what.starts_with("PATCH"))
            .count();
        assert_eq!((patches, heard.len()), (5, 9), "{heard:?}");
        assert_eq!(rig.condition("DiskPressure")["status"], "False");
        rig.live(15).await;
        assert_eq!(rig.condition("DiskPressure")["status"], "True");
        assert_eq!(rig.reasons(), ["NodeHasDiskPressure"]);
    });
}

#[test]
fn after_an_outage_the_last_state_is_told_and_nothing_was_asked_in_a_hurry() {
    run_paused(|| async {
        let mut rig = Rig::ready().await;
        rig.server.go_away(true);
        rig.tell(NodeFact::Pressures([Pressure::Memory].into()));
        rig.live(3600).await;
        rig.tell(NodeFact::Pressures(BTreeSet::new()));
        rig.tell(NodeFact::Pressures([Pressure::Pid].into()));
        rig.live(600).await;
        rig.server.go_away(false);
        rig.live(60).await;
        assert_eq!(rig.condition("MemoryPressure")["status"], "False");
        assert_eq!(rig.condition("PIDPressure")["status"], "True");
        assert_eq!(rig.ready_state().0, "True");
        let told = rig.reasons();
        let count = |reason: &str| told.iter().filter(|told| *told == reason).count();
        assert_eq!(count("NodeHasInsufficientMemory"), 1, "{told:?}");
        assert_eq!(count("NodeHasInsufficientPID"), 1, "{told:?}");
    });
}

/// Upstream's TestRegisterWithApiServer: attempts until one succeeds.
#[test]
fn registration_goes_on_until_it_succeeds() {
    run_paused(|| async {
        let rig = Rig::new();
        rig.server.go_away(true);
        pass(SECOND * 60).await;
        rig.server.go_away(false);
        pass(SECOND * 8).await;
        assert!(rig.server.get(NODE).is_some());
    });
}

fn existing() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "edge", "labels": {"kubernetes.io/hostname": "old", "mine": "1"}},
        "spec": {"unschedulable": true},
        "status": {"volumesInUse": ["kubernetes.io/csi/a^1"]},
    })
}

/// Upstream's updateRuntimeUp before the first syncNodeStatus.
#[test]
fn a_ready_node_whose_agent_starts_again_is_told_not_ready_only_by_evidence_or_silence() {
    run_paused(|| async {
        let mut node = existing();
        node["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        for speaks in [true, false] {
            let folder = Arc::new(tempfile::tempdir().unwrap());
            let server = FakeNodeApi::default();
            server.put(NODE, node.clone());
            let rig = Rig::begin(server, folder, |_| {});
            pass(SECOND * 25).await;
            assert_eq!(rig.ready_state().0, "True");
            if speaks {
                rig.work();
            }
            pass(SECOND * 15).await;
            let expected = if speaks { "True" } else { "False" };
            assert_eq!(rig.ready_state().0, expected);
        }
    });
}

/// Upstream's TestTryRegisterWithApiServer: "exists", "forbidden but exists".
#[test]
fn a_node_that_is_there_already_is_put_right_and_kept() {
    for code in [None, Some(403)] {
        run_paused(|| async move {
            let folder = Arc::new(tempfile::tempdir().unwrap());
            let server = FakeNodeApi::default();
            server.put(NODE, existing());
            if let Some(code) = code {
                server.fail("POST", code);
            }
            let mut rig = Rig::begin(server, folder, |_| {});
            rig.work();
            pass(SECOND).await;
            let node = rig.server.get(NODE).unwrap();
            assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "edge");
            assert_eq!(node["metadata"]["labels"]["mine"], "1");
            assert_eq!(
                node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"],
                "true"
            );
            assert_eq!(rig.ready_state().0, "True");
            let heard = rig.server.heard();
            assert_eq!(
                heard[..3],
                [
                    "POST /api/v1/nodes",
                    "GET /api/v1/nodes/edge",
                    "PATCH /api/v1/nodes/edge/status"
                ]
            );
            assert!(rig.reasons().contains(&"NodeNotSchedulable".to_owned()));
        });
    }
}

#[test]
fn a_node_that_others_register_is_waited_for() {
    run_paused(|| async {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let awaited = |policy: &mut Policy| policy.registering = Registering::Awaited;
        let rig = Rig::begin(FakeNodeApi::default(), folder, awaited);
        rig.work();
        rig.live(60).await;
        assert!(rig.server.heard().is_empty());
        rig.server.put(NODE, existing());
        pass(MOMENT).await;
        assert_eq!(rig.ready_state().0, "True");
    });
}

/// Upstream registers at its start alone.
#[test]
fn a_node_that_was_deleted_is_not_made_again_but_one_that_is_put_back_is_kept() {
    run_paused(|| async {
        let rig = Rig::ready().await;
        rig.server.delete(NODE);
        rig.tell(NodeFact::Pressures([Pressure::Disk].into()));
        rig.live(600).await;
        assert!(rig.server.get(NODE).is_none());
        assert!(rig.object.borrow().is_none());
        let asked = rig.server.heard();
        assert!(
            asked.iter().all(|what| !what.starts_with("POST")),
            "{asked:?}"
        );
        rig.server.put(NODE, existing());
        pass(MOMENT).await;
        assert_eq!(rig.ready_state().0, "True");
        assert!(rig.object.borrow().is_some());
    });
}

#[test]
fn whoever_looks_sees_the_object_change_but_no_beats() {
    run_paused(|| async {
        let rig = Rig::ready().await;
        let mut seen = rig.object.subscribe();
        seen.mark_unchanged();
        rig.live(1200).await;
        assert!(!seen.has_changed().unwrap());
        rig.server
            .change(NODE, |node| node["metadata"]["labels"]["zone"] = json!("1"));
        pass(MOMENT).await;
        assert!(seen.has_changed().unwrap());
        let node = seen.borrow_and_update().clone().unwrap();
        assert_eq!(node.metadata.labels.as_ref().unwrap()["zone"], "1");
        // The labels of the machine are put back.
        rig.server.change(NODE, |node| {
            node["metadata"]["labels"]["kubernetes.io/arch"] = json!("z80")
        });
        pass(MOMENT * 4).await;
        assert_eq!(
            rig.server.get(NODE).unwrap()["metadata"]["labels"]["kubernetes.io/arch"],
            "amd64"
        );
    });
}

#[test]
fn what_another_wrote_meanwhile_outlives_the_answer_to_an_earlier_write() {
    run_paused(|| async {
        let rig = Rig::ready().await;
        rig.server.delay_patches(SECOND);
        rig.tell(NodeFact::VolumesInUse(VolumesInUse::Exactly(ids(&["a"]))));
        pass(MOMENT).await;
        let attached = json!([{ "name": "a", "devicePath": "" }]);
        rig.server
            .change(NODE, |node| node["status"]["volumesAttached"] = attached);
        let seen = || {
            let object = rig.object.borrow().clone().unwrap();
            object.status.as_ref().unwrap().volumes_attached.is_some()
        };
        pass(MOMENT).await;
        assert!(seen());
        pass(SECOND * 2).await;
        assert!(seen());
    });
}

fn ids(names: &[&str]) -> BTreeSet<VolumeId> {
    names
        .iter()
        .map(|name| VolumeId((*name).to_owned()))
        .collect()
}

fn told(inbox: &mut Inbox<NodeNeighbourMsg>) -> Vec<BTreeSet<VolumeId>> {
    let set = |heard| match heard {
        NodeNeighbourMsg::Reported(set) => set,
        NodeNeighbourMsg::TellAgain => panic!("not asked here"),
    };
    inbox.drain().into_iter().map(set).collect()
}

/// Upstream's TestUpdateNodeStatusAndVolumesInUseWithNodeLease.
#[test]
fn a_volume_counts_as_reported_when_the_api_server_knows_it_and_not_before() {
    run_paused(|| async {
        let mut rig = Rig::ready().await;
        assert_eq!(told(&mut rig.reported), [ids(&[])]);
        rig.tell(NodeFact::VolumesInUse(VolumesInUse::Exactly(ids(&["a"]))));
        pass(world::ROUND_TRIP / 2).await;
        assert!(told(&mut rig.reported).is_empty());
        pass(MOMENT).await;
        assert_eq!(told(&mut rig.reported), [ids(&["a"])]);
        rig.server.go_away(true);
        rig.tell(NodeFact::VolumesInUse(VolumesInUse::Exactly(ids(&[
            "a", "b",
        ]))));
        rig.live(60).await;
        assert!(told(&mut rig.reported).is_empty());
        rig.server.go_away(false);
        rig.live(60).await;
        assert_eq!(told(&mut rig.reported), [ids(&["a", "b"])]);
    });
}

#[test]
fn a_volume_that_was_reported_is_so_still_when_the_agent_starts_without_the_api_server() {
    run_paused(|| async {
        let rig = Rig::ready().await;
        rig.tell(NodeFact::VolumesInUse(VolumesInUse::Exactly(ids(&["a"]))));
        pass(SECOND * 3).await;
        let folder = rig.folder.clone();
        rig.root.shutdown().await;
        let alone = FakeNodeApi::default();
        alone.go_away(true);
        let mut rig = Rig::begin(alone, folder, |_| {});
        pass(MOMENT).await;
        assert_eq!(told(&mut rig.reported), [ids(&["a"])]);
    });
}

#[test]
fn a_successor_asks_for_the_facts_and_goes_on() {
    run_paused(|| async {
        let mut rig = Rig::ready().await;
        rig.reporters.drain();
        rig.root.inject("test/node", InjectedFault::Panic).unwrap();
        pass(SECOND).await;
        assert!(matches!(
            rig.reporters.drain()[..],
            [NodeNeighbourMsg::TellAgain]
        ));
        rig.work();
        pass(SECOND).await;
        assert_eq!(rig.ready_state().0, "True");
    });
}

#[test]
fn many_changes_make_few_writes() {
    run_paused(|| async {
        let rig = Rig::ready().await;
        for n in 0..200 {
            let degraded = [("manager".to_owned(), format!("failed {n} times"))];
            rig.tell(NodeFact::Degraded(degraded.into()));
        }
        pass(SECOND).await;
        assert!(rig.server.heard().len() <= 3);
        assert_eq!(
            rig.condition("OxletDegraded")["message"],
            "manager: failed 199 times"
        );
    });
}
