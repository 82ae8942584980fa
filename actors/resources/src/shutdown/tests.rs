//! The shutdown manager with inboxes as neighbours, without a bus.

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{ChildSpec, Intensity, Supervisor, mailbox};
use logic_api::pod::PodView;
use logic_api::testing::{PodBuilder, pod};
use logic_api::types::PodUid;
use logic_node::shutdown::{ShutdownGroup, ShutdownPolicy};
use state::events;
use tempfile::TempDir;

use super::steps::{DELIVERY_PERIOD, POLL_INTERVAL};
use super::*;

#[derive(Debug, strum::IntoStaticStr)]
enum NodeReport {
    State(NodeShutdown),
}

/// A node whose pods are those that the test says.
struct Rig {
    shutdown: Addr<Msg>,
    active: Vec<Arc<Pod>>,
    unmounting: Vec<PodUid>,
    /// Who was told to end, with its grace in seconds.
    failed: Vec<(String, u64)>,
    pod_manager: Inbox<pod_manager::Msg>,
    node: Inbox<NodeReport>,
    folder: TempDir,
    _recorded: Inbox<events::Msg>,
    _root: Supervisor,
}

impl Rig {
    fn new(folder: TempDir) -> Rig {
        let order = ShutdownPolicy::new(vec![], Duration::from_secs(30), Duration::ZERO);
        Rig::with(order, folder)
    }

    fn with(order: ShutdownPolicy, folder: TempDir) -> Rig {
        let (to_directory, pod_manager) = inbox(64);
        let (to_node, node) = inbox(64);
        let (to_events, recorded) = inbox(64);
        let policy = Policy {
            order,
            node_name: "node".to_owned(),
            logind_folder: folder.path().join("logind"),
            record: Some(folder.path().join(record::NAME)),
        };
        let peers = Peers {
            pod_manager: to_directory,
            node: Some(Recipient::new(to_node, NodeReport::State)),
            recorder: Recorder::new(to_events),
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (shutdown, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("shutdown"), port, move || {
            ShutdownManager::new(policy.clone(), peers.clone())
        });
        Rig {
            shutdown,
            active: Vec::new(),
            unmounting: Vec::new(),
            failed: Vec::new(),
            pod_manager,
            node,
            folder,
            _recorded: recorded,
            _root: root,
        }
    }

    /// Lets time pass, answering which pods there are.
    async fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / POLL_INTERVAL.as_millis() {
            pass(POLL_INTERVAL).await;
            for msg in self.pod_manager.drain() {
                if let pod_manager::Msg::Fail { uid, grace, .. } = msg {
                    self.failed.push((uid.as_str().to_owned(), grace.as_secs()));
                } else if let pod_manager::Msg::Query(pod_manager::PodQuery::Active { reply }) = msg
                {
                    reply.send(self.active.clone());
                } else if let pod_manager::Msg::Query(pod_manager::PodQuery::Unfinished { reply }) =
                    msg
                {
                    let active = self.active.iter().map(|pod| pod.uid());
                    reply.send(active.chain(self.unmounting.iter().cloned()).collect());
                }
            }
        }
    }

    /// Whether the machine may go down: the end is on record.
    fn is_over(&self) -> bool {
        !self.record().is_empty() && !self.record().contains("0001-01-01")
    }

    fn told(&mut self) -> Vec<NodeShutdown> {
        let told = self.node.drain().into_iter();
        told.map(|NodeReport::State(state)| state).collect()
    }

    fn record(&self) -> String {
        fs::read_to_string(self.folder.path().join(record::NAME)).unwrap_or_default()
    }
}

/// Upstream's TestManager and TestLocalStorage, as far as they measure.
#[test]
fn when_the_node_went_down_is_noted_and_known_to_the_next_life() {
    run_paused(|| async {
        let mut rig = Rig::new(tempfile::tempdir().unwrap());
        rig.shutdown.tell(Msg::Logind(LogindEvent::Down)).unwrap();
        rig.pass(POLL_INTERVAL * 3).await;
        assert!(
            rig.record()
                .ends_with("\"endTime\":\"0001-01-01T00:00:00Z\"}")
        );
        assert!(metrics::node::SHUTDOWN_BEGAN.get() > 1e9);
        assert!(metrics::node::SHUTDOWN_ENDED.get() < 1.0);
        rig.pass(DELIVERY_PERIOD * 2).await;
        assert!(!rig.record().contains("0001-01-01"), "{}", rig.record());
        let both = [
            metrics::node::SHUTDOWN_BEGAN.get(),
            metrics::node::SHUTDOWN_ENDED.get(),
        ];
        assert!(both[1] >= both[0]);

        let Rig { folder, .. } = rig;
        ShutdownRecord::default().show();
        let mut rig = Rig::new(folder);
        rig.pass(POLL_INTERVAL * 3).await;
        assert_eq!(metrics::node::SHUTDOWN_BEGAN.get(), both[0]);
        assert_eq!(metrics::node::SHUTDOWN_ENDED.get(), both[1]);
    });
}

#[test]
fn whoever_asks_again_is_told_whether_the_node_goes_down() {
    run_paused(|| async {
        let mut rig = Rig::new(tempfile::tempdir().unwrap());
        rig.shutdown.tell(Msg::Resync).unwrap();
        rig.pass(POLL_INTERVAL).await;
        assert_eq!(rig.told(), [NodeShutdown::No]);
        rig.shutdown.tell(Msg::Logind(LogindEvent::Down)).unwrap();
        rig.pass(POLL_INTERVAL).await;
        assert_eq!(rig.told(), [NodeShutdown::Yes]);
        rig.shutdown.tell(Msg::Resync).unwrap();
        rig.pass(POLL_INTERVAL).await;
        assert_eq!(rig.told(), [NodeShutdown::Yes]);
    });
}

fn of_priority(name: &str, priority: i32) -> Arc<Pod> {
    pod(name)
        .spec_with(|spec| {
            spec.priority = Some(priority);
            spec.termination_grace_period_seconds = None;
        })
        .into()
}

fn groups(groups: &[(i32, u64)]) -> ShutdownPolicy {
    let groups = groups.iter().map(|(priority, seconds)| ShutdownGroup {
        priority: *priority,
        grace: Duration::from_secs(*seconds),
    });
    ShutdownPolicy::new(groups.collect(), Duration::ZERO, Duration::ZERO)
}

/// Upstream's Test_managerImpl_processShutdownEvent: pods that do not end.
#[test]
fn pods_that_do_not_end_hold_up_the_machine_for_their_time_and_no_longer() {
    run_paused(|| async {
        let order = groups(&[(1, 10), (2, 20)]);
        let mut rig = Rig::with(order, tempfile::tempdir().unwrap());
        rig.active = vec![of_priority("normal", 1), of_priority("critical", 2)];
        rig.shutdown.tell(Msg::Logind(LogindEvent::Down)).unwrap();
        rig.pass(Duration::from_secs(9)).await;
        assert_eq!(rig.failed, [("normal-uid".to_owned(), 10)]);
        rig.pass(Duration::from_secs(2)).await;
        assert_eq!(rig.failed[1..], [("critical-uid".to_owned(), 20)]);
        rig.pass(Duration::from_secs(18)).await;
        assert!(!rig.is_over());
        rig.pass(Duration::from_secs(2) + DELIVERY_PERIOD).await;
        assert!(rig.is_over());
        assert_eq!(rig.failed.len(), 2);
    });
}

/// Upstream's Test_processShutdownEvent_VolumeUnmountTimeout.
#[test]
fn volumes_that_are_not_unmounted_hold_up_the_machine_for_the_groups_time() {
    run_paused(|| async {
        let mut rig = Rig::with(groups(&[(1, 4)]), tempfile::tempdir().unwrap());
        rig.active = vec![of_priority("test", 1)];
        rig.unmounting = vec![PodUid::from("test-uid")];
        rig.shutdown.tell(Msg::Logind(LogindEvent::Down)).unwrap();
        rig.pass(Duration::from_secs(1)).await;
        rig.active.clear();
        rig.pass(Duration::from_secs(2)).await;
        assert!(!rig.is_over(), "its volumes are still mounted");
        rig.pass(Duration::from_secs(2) + DELIVERY_PERIOD).await;
        assert!(rig.is_over());
        assert_eq!(rig.failed, [("test-uid".to_owned(), 4)]);
    });
}

/// Upstream's TestRestart.
#[test]
fn the_bus_is_connected_to_again_however_often_it_is_lost() {
    run_paused(|| async {
        let connects = Rc::new(Cell::new(0));
        let counted = Rc::clone(&connects);
        kernel::testing::observe(Some(Box::new(move |_, message| {
            counted.set(counted.get() + u32::from(message == "Connect"));
        })));
        let rig = Rig::new(tempfile::tempdir().unwrap());
        for _ in 0..3 {
            let before = connects.get();
            rig.shutdown.tell(Msg::Logind(LogindEvent::Ended)).unwrap();
            pass(RECONNECT_MAX_PERIOD).await;
            assert!(connects.get() > before);
        }
        kernel::testing::observe(None);
    });
}
