//! The eviction manager and a pod manager that has no room, or does not do what it is told.

use kernel::testing::{Inbox, inbox, pass, run_paused};
use logic_resources::eviction::MemoryNotification;
use pods::testing::TestNode;

use super::tests::{always_short, policy, snapshot, spawn_among, with_guests};
use super::*;
use crate::stats::testing::{Machine, peers};
use crate::stats::{StatsSource, SummaryProvider};

/// The eviction manager of a node, whose orders go to an inbox with this much room.
fn spawn(
    node: &TestNode,
    summaries: SummaryProvider,
    policy: EvictionPolicy,
    room: usize,
) -> (Addr<Msg>, Inbox<pod_manager::Msg>) {
    let (pod_manager, orders) = inbox(room);
    let peers = Peers {
        pod_manager,
        node: None,
        recorder: node.node.recorder.clone(),
        collectors: Collectors::default(),
    };
    (spawn_among(node, summaries, policy, peers), orders)
}

/// The pods that are to go, in order.
fn failed(orders: &mut Inbox<pod_manager::Msg>) -> Vec<String> {
    let uid = |order| {
        if let pod_manager::Msg::Fail { uid, .. } = order {
            return Some(uid.to_string());
        }
        None
    };
    orders.drain().into_iter().filter_map(uid).collect()
}

#[test]
fn an_order_that_finds_no_room_is_given_by_the_next_round_and_not_counted_before() {
    run_paused(|| async {
        let node = with_guests(&["guest"]).await;
        let summaries = SummaryProvider::new(peers(&node));
        let (_, mut orders) = spawn(&node, summaries, always_short(), 1);
        pass(MONITORING_PERIOD * 3).await;
        assert_eq!(failed(&mut orders), [""; 0], "the pressures have the room");
        assert_eq!(snapshot(&node).await["evicted"], 0);
        pass(MONITORING_PERIOD * 2).await;
        assert_eq!(failed(&mut orders), ["guest"]);
        assert_eq!(snapshot(&node).await["evicted"], 1);
    });
}

/// Pods whose containers do not end are waited for, and then others go in their stead; none is ordered to go twice.
#[test]
fn an_evicted_pod_that_does_not_end_shields_nobody() {
    run_paused(|| async {
        let node = with_guests(&["guest", "other"]).await;
        let summaries = SummaryProvider::new(peers(&node));
        let (_, mut orders) = spawn(&node, summaries, always_short(), 64);
        pass(MONITORING_PERIOD + Duration::from_secs(20)).await;
        let first = failed(&mut orders);
        assert_eq!(first.len(), 1, "it is waited for");
        pass(Duration::from_secs(600)).await;
        let mut all = failed(&mut orders);
        all.extend(first);
        all.sort();
        assert_eq!(all, ["guest", "other"]);
        let told = snapshot(&node).await["last_error"].to_string();
        assert!(told.contains("unable to evict any pods"), "{told}");
    });
}

/// A group that the kernel does not report on is sampled all the same.
#[test]
fn where_the_kernel_does_not_report_memory_is_polled() {
    run_paused(|| async {
        let machine = Machine::start().await;
        machine.write("", 1 << 40);
        machine.write("kubepods", 1 << 40);
        std::fs::write(machine.group("kubepods/memory.max"), "1\n").unwrap();
        let of_pods = [("allocatableMemory.available", "1Mi")];
        let policy = EvictionPolicy {
            notification: MemoryNotification::On,
            ..policy(&of_pods)
        };
        let summaries = machine.provider(StatsSource::Groups);
        let (_, mut orders) = spawn(&machine.node, summaries, policy, 64);
        pass(MONITORING_PERIOD * 4).await;
        assert_eq!(failed(&mut orders), ["web"]);
        let refused = snapshot(&machine.node).await["notification_refused"].to_string();
        assert!(refused.contains("memory.pressure"), "{refused}");
    });
}

#[test]
fn a_node_that_is_short_from_the_start_acts_within_two_seconds() {
    run_paused(|| async {
        let node = with_guests(&["guest"]).await;
        let summaries = SummaryProvider::new(peers(&node));
        let (_, mut orders) = spawn(&node, summaries, always_short(), 64);
        pass(Duration::from_secs(2)).await;
        assert_eq!(failed(&mut orders), ["guest"]);
    });
}

/// The kernel counts what can be reclaimed as well, so that its first report may come too early.
#[test]
fn a_pod_that_runs_short_right_after_a_report_that_came_too_early_is_met_before_a_second_is_over() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let uses = |bytes| {
            machine.write("kubepods", bytes);
            std::fs::write(machine.group("kubepods/memory.max"), "1048576\n").unwrap();
        };
        uses(1000);
        let policy = policy(&[("allocatableMemory.available", "1Ki")]);
        let summaries = machine.provider(StatsSource::Groups);
        let (eviction, mut orders) = spawn(&machine.node, summaries, policy, 64);
        pass(Duration::from_secs(3)).await;
        eviction.tell(Msg::MemoryThresholdCrossed).unwrap();
        pass(Duration::from_millis(10)).await;
        assert_eq!(failed(&mut orders), [""; 0], "there is enough");
        uses(1 << 20);
        eviction.tell(Msg::MemoryThresholdCrossed).unwrap();
        pass(Duration::from_millis(300)).await;
        assert_eq!(failed(&mut orders), ["web"]);
    });
}
