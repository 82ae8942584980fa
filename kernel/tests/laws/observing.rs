//! What can be seen from outside.

use std::time::{Duration, SystemTime};

use kernel::observe::{TreeNode, TreeNodeKind, TreeNodeState};
use kernel::testing::{SIMULATED_START, pass, run_paused};
use kernel::{Intensity, Strategy};

use crate::probe::{Msg, ROOM, Rig, count};

#[test]
fn the_tree_shows_every_node_with_its_mailbox_and_snapshot() {
    run_paused(|| async {
        let rig = Rig::new();
        let pods = rig
            .root
            .supervisor("pods", Strategy::OneForOne, Intensity::UNLIMITED);
        let addr = rig.beneath(&pods, "pod-1");
        rig.permanent("cluster");
        addr.tell(Msg::Note("x")).unwrap();
        count(&addr).await.unwrap();
        let tree = rig.root.tree().await;
        let ids: Vec<&str> = tree
            .children
            .iter()
            .map(|child| child.id.as_str())
            .collect();
        assert_eq!(ids, ["pods", "cluster"]);
        assert_eq!(tree.children[0].kind, TreeNodeKind::Supervisor);
        let node = tree.find("root/pods/pod-1").unwrap();
        assert_eq!(
            (node.kind, node.state, node.handled),
            (TreeNodeKind::Actor, TreeNodeState::Running, 2)
        );
        assert_eq!((node.mailbox.len, node.mailbox.capacity), (0, ROOM));
        assert_eq!(node.snapshot, serde_json::json!({ "notes": 1 }));
    });
}

#[test]
fn the_tree_travels_as_json() {
    run_paused(|| async {
        let rig = Rig::new();
        rig.permanent("a");
        let tree = rig.root.tree().await;
        let text = serde_json::to_string(&tree).unwrap();
        assert_eq!(serde_json::from_str::<TreeNode>(&text).unwrap(), tree);
    });
}

#[test]
fn an_actor_that_backs_off_shows_it_and_delays_nobodys_view() {
    run_paused(|| async {
        let rig = Rig::with(Intensity::UNLIMITED);
        let addr = rig.permanent("a");
        for _ in 0..4 {
            addr.send(Msg::Boom, Duration::from_secs(5)).await.unwrap();
            pass(Duration::from_secs(1)).await;
        }
        pass(Duration::from_millis(300)).await;
        addr.tell(Msg::Boom).unwrap();
        pass(Duration::from_millis(10)).await;
        let before = kernel::now();
        let tree = rig.root.tree().await;
        assert_eq!(kernel::now(), before);
        assert_eq!(
            tree.find("root/a").unwrap().state,
            TreeNodeState::BackingOff
        );
    });
}

#[test]
fn the_wall_clock_follows_the_paused_clock() {
    run_paused(|| async {
        let start = SystemTime::UNIX_EPOCH + SIMULATED_START;
        assert_eq!(kernel::wall(), start);
        pass(Duration::from_secs(86_400)).await;
        assert_eq!(kernel::wall(), start + Duration::from_secs(86_400));
    });
}

#[test]
fn the_wall_clock_is_the_systems_outside_of_paused_tests() {
    let simulated = SystemTime::UNIX_EPOCH + SIMULATED_START;
    run_paused(|| async {});
    assert!(kernel::wall() > simulated + Duration::from_secs(86_400));
}
