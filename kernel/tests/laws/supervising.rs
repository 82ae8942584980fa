//! Who is restarted, with whom, how often, and who gives up.

use std::time::Duration;

use kernel::observe::TreeNodeState;
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, Intensity, Strategy, Supervisor};

use crate::probe::{Msg, Rig, SOON, Temper, count};

const TWICE: Intensity = Intensity {
    restarts: 2,
    within: Duration::from_secs(10),
};

/// Three siblings under a strategy, the middle one failing.
async fn fail_the_middle(strategy: Strategy) -> Vec<String> {
    let rig = Rig::new();
    let group = rig.root.supervisor("group", strategy, TWICE);
    let [_, b, _] = ["a", "b", "c"].map(|name| rig.beneath(&group, name));
    pass(SOON).await;
    rig.lines();
    b.tell(Msg::Fail).unwrap();
    pass(SOON).await;
    rig.lines()
}

#[test]
fn one_for_one_restarts_the_failed_child_alone() {
    let lines = run_paused(|| fail_the_middle(Strategy::OneForOne));
    assert_eq!(lines, ["b dies", "b starts"]);
}

#[test]
fn rest_for_one_restarts_the_younger_siblings_too() {
    let lines = run_paused(|| fail_the_middle(Strategy::RestForOne));
    assert_eq!(lines, ["b dies", "c dies", "b starts", "c starts"]);
}

#[test]
fn one_for_all_restarts_everyone_ending_with_the_oldest_and_starting_with_it() {
    let lines = run_paused(|| fail_the_middle(Strategy::OneForAll));
    assert_eq!(
        lines,
        [
            "b dies", "c dies", "a dies", "a starts", "b starts", "c starts"
        ]
    );
}

#[test]
fn siblings_that_share_a_fate_keep_their_mail() {
    run_paused(|| async {
        let rig = Rig::new();
        let group = rig.root.supervisor("group", Strategy::OneForAll, TWICE);
        let [a, b] = ["a", "b"].map(|name| rig.beneath(&group, name));
        pass(SOON).await;
        a.tell(Msg::Take(SOON)).unwrap();
        a.tell(Msg::Note("kept")).unwrap();
        b.tell(Msg::Fail).unwrap();
        assert_eq!(count(&a).await, Ok(1));
    });
}

#[test]
fn a_transient_child_that_is_done_leaves_the_tree() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.spawn(&rig.root, ChildSpec::transient("a"), "a", Temper::Well);
        addr.tell(Msg::Fail).unwrap();
        assert_eq!(count(&addr).await, Ok(0), "an error restarts it");
        addr.tell(Msg::Finish).unwrap();
        pass(SOON).await;
        assert!(rig.root.tree().await.children.is_empty());
        assert_eq!(rig.lines(), ["a starts", "a dies", "a starts", "a dies"]);
    });
}

#[test]
fn a_temporary_child_is_never_restarted_and_a_permanent_one_always() {
    run_paused(|| async {
        let rig = Rig::new();
        let temporary = rig.spawn(&rig.root, ChildSpec::temporary("t"), "t", Temper::Well);
        let permanent = rig.permanent("p");
        temporary.tell(Msg::Boom).unwrap();
        permanent.tell(Msg::Finish).unwrap();
        pass(SOON).await;
        let tree = rig.root.tree().await;
        assert!(tree.find("root/t").is_none());
        assert_eq!(tree.find("root/p").unwrap().restarts, 1);
    });
}

#[test]
fn a_temporary_sibling_does_not_survive_a_restart_of_the_group() {
    run_paused(|| async {
        let rig = Rig::new();
        let group = rig.root.supervisor("group", Strategy::OneForAll, TWICE);
        let a = rig.beneath(&group, "a");
        rig.spawn(&group, ChildSpec::temporary("t"), "t", Temper::Well);
        pass(SOON).await;
        a.tell(Msg::Fail).unwrap();
        pass(SOON).await;
        let tree = rig.root.tree().await;
        assert!(tree.find("root/group/t").is_none());
        assert_eq!(tree.find("root/group/a").unwrap().restarts, 1);
    });
}

#[test]
fn an_exhausted_child_restarts_its_whole_group_which_counts_in_the_groups_parent() {
    run_paused(|| async {
        let rig = Rig::new();
        let group = rig.root.supervisor("group", Strategy::OneForOne, TWICE);
        let [a, _] = ["a", "b"].map(|name| rig.beneath(&group, name));
        pass(SOON).await;
        rig.lines();
        for _ in 0..3 {
            a.tell(Msg::Fail).unwrap();
        }
        pass(SOON).await;
        let lines = rig.lines();
        let escalated = ["a dies", "b dies", "a starts", "b starts"];
        assert_eq!(lines[lines.len() - 4..], escalated, "{lines:?}");
        let tree = rig.root.tree().await;
        let node = tree.find("root/group").unwrap();
        assert_eq!(node.restarts, 1);
        let why = "failed: root/group/a used up its restarts, failed: the probe was told to";
        assert_eq!(node.last_exit.as_deref(), Some(why));
        assert!(rig.root.degraded().is_empty());
    });
}

#[test]
fn an_exhausted_manager_is_degraded_at_the_root_while_its_siblings_go_on() {
    run_paused(|| async {
        let rig = Rig::with(TWICE);
        let sibling = rig.permanent("sibling");
        let spec = ChildSpec::permanent("manager");
        let _addr = rig.spawn(&rig.root, spec, "manager", Temper::FailsAtStart);
        pass(SOON).await;
        let [degraded] = rig.root.degraded().try_into().unwrap();
        assert_eq!(degraded.id, "root/manager");
        assert_eq!(degraded.why, "failed: the probe was told to");
        let tree = rig.root.tree().await;
        assert_eq!(
            tree.find("root/manager").unwrap().state,
            TreeNodeState::Degraded
        );

        rig.lines();
        pass(Duration::from_secs(300)).await;
        let tries = rig
            .lines()
            .iter()
            .filter(|line| *line == "manager starts")
            .count();
        assert_eq!(tries, 10, "one every thirty seconds, for ever");
        assert_eq!(rig.root.degraded().len(), 1);
        assert_eq!(count(&sibling).await, Ok(0));
        assert_eq!(rig.restarts("root/sibling").await, 0);
    });
}

#[test]
fn a_degraded_group_is_tried_again_as_a_whole_and_is_well_when_it_holds_out() {
    run_paused(|| async {
        let rig = Rig::with(Intensity {
            restarts: 0,
            ..TWICE
        });
        let never = Intensity {
            restarts: 0,
            ..TWICE
        };
        let group = rig.root.supervisor("group", Strategy::OneForAll, never);
        let [a, _] = ["a", "b"].map(|name| rig.beneath(&group, name));
        pass(SOON).await;
        rig.lines();
        a.tell(Msg::Fail).unwrap();
        pass(SOON).await;
        assert_eq!(rig.root.degraded().len(), 1);
        assert_eq!(rig.lines(), ["a dies", "b dies"]);
        pass(Duration::from_secs(30)).await;
        assert_eq!(rig.lines(), ["a starts", "b starts"]);
        assert_eq!(rig.root.degraded().len(), 1, "not trusted yet");
        pass(TWICE.within + SOON).await;
        assert!(rig.root.degraded().is_empty());
    });
}

#[test]
fn back_off_forgets_after_a_run_longer_than_the_window() {
    run_paused(|| async {
        let rig = Rig::with(TWICE);
        let addr = rig.permanent("a");
        for _ in 0..20 {
            pass(TWICE.within + SOON).await;
            addr.tell(Msg::Fail).unwrap();
            let before = kernel::now();
            assert_eq!(count(&addr).await, Ok(0));
            assert_eq!(kernel::now(), before, "restarted at once");
        }
        assert!(rig.root.degraded().is_empty());
    });
}

#[test]
fn a_stopped_child_says_goodbye_after_its_present_message_and_frees_its_name() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::Take(SOON)).unwrap();
        addr.tell(Msg::Note("dropped")).unwrap();
        pass(SOON / 2).await;
        rig.root.stop_child("a");
        assert!(addr.tell(Msg::Note("refused")).is_err());
        let successor = rig.permanent("a");
        assert_eq!(count(&successor).await, Ok(0));
        pass(SOON).await;
        assert_eq!(rig.lines(), ["a starts", "a starts", "a stops", "a dies"]);
        assert_eq!(rig.root.tree().await.children.len(), 1);
    });
}

#[test]
fn a_child_that_does_not_stop_in_time_is_dropped() {
    run_paused(|| async {
        let rig = Rig::new();
        let spec = ChildSpec::permanent("a").shutdown(SOON);
        rig.spawn(&rig.root, spec, "a", Temper::SticksAtStop);
        pass(SOON).await;
        rig.root.stop_child("a");
        pass(SOON / 2).await;
        assert_eq!(rig.lines(), ["a starts", "a stops"]);
        pass(SOON).await;
        assert_eq!(rig.lines(), ["a dies"]);
        assert!(rig.root.tree().await.children.is_empty());
    });
}

#[test]
fn a_child_stopped_while_it_backs_off_is_gone_at_once() {
    run_paused(|| async {
        let rig = Rig::with(Intensity::UNLIMITED);
        let addr = rig.spawn(
            &rig.root,
            ChildSpec::permanent("a"),
            "a",
            Temper::FailsAtStart,
        );
        pass(SOON * 10).await;
        rig.root.stop_child("a");
        assert_eq!(count(&addr).await, Err(kernel::AskError::Gone));
        pass(Duration::from_millis(1)).await;
        assert!(rig.root.tree().await.children.is_empty());
    });
}

#[test]
fn shutdown_stops_the_youngest_first_through_the_whole_tree() {
    run_paused(|| async {
        let rig = Rig::new();
        rig.permanent("a");
        let group = rig.root.supervisor("group", Strategy::OneForOne, TWICE);
        rig.beneath(&group, "b");
        rig.beneath(&group, "c");
        rig.permanent("d");
        pass(SOON).await;
        rig.lines();
        rig.root.shutdown().await;
        let expected =
            ["d", "c", "b", "a"].map(|name| [format!("{name} stops"), format!("{name} dies")]);
        assert_eq!(rig.lines(), expected.concat());
        let late = rig.permanent("late");
        assert_eq!(count(&late).await, Err(kernel::AskError::Gone));
    });
}

#[test]
fn a_stopped_group_leaves_the_tree_with_its_children() {
    run_paused(|| async {
        let rig = Rig::new();
        let group = rig.root.supervisor("group", Strategy::OneForAll, TWICE);
        let addr = rig.beneath(&group, "a");
        pass(SOON).await;
        rig.root.stop_child("group");
        assert_eq!(count(&addr).await, Err(kernel::AskError::Gone));
        pass(SOON).await;
        assert!(rig.root.tree().await.children.is_empty());
    });
}

#[test]
fn a_name_taken_twice_stops_the_older_child() {
    run_paused(|| async {
        let rig = Rig::new();
        let older = rig.permanent("a");
        let newer = rig.permanent("a");
        pass(SOON).await;
        assert!(older.tell(Msg::Note("x")).is_err());
        assert_eq!(count(&newer).await, Ok(0));
        assert_eq!(rig.root.tree().await.children.len(), 1);
    });
}

#[test]
fn thousands_of_children_come_and_go() {
    run_paused(|| async {
        let rig = Rig::new();
        let workers = rig
            .root
            .supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED);
        let spawn = |group: &Supervisor, n: usize| {
            let spec = ChildSpec::permanent(format!("worker-{n}"));
            rig.spawn(group, spec, "w", Temper::Well)
        };
        let addrs: Vec<_> = (0..5_000).map(|n| spawn(&workers, n)).collect();
        for addr in &addrs {
            assert_eq!(count(addr).await, Ok(0));
        }
        for n in 0..5_000 {
            workers.stop_child(&format!("worker-{n}"));
        }
        pass(SOON).await;
        assert!(
            rig.root
                .tree()
                .await
                .find("root/workers")
                .unwrap()
                .children
                .is_empty()
        );
        assert!(addrs.iter().all(|addr| addr.tell(Msg::Note("x")).is_err()));
    });
}
