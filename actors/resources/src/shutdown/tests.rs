//! The shutdown manager with inboxes as neighbours, without a bus.

use std::fs;

use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{ChildSpec, Intensity, Supervisor, mailbox};
use state::events;
use tempfile::TempDir;

use super::steps::{DELIVERY_PERIOD, POLL_INTERVAL};
use super::*;

#[derive(Debug, strum::IntoStaticStr)]
enum NodeReport {
    State(NodeShutdown),
}

/// A node without pods.
struct Rig {
    shutdown: Addr<Msg>,
    pod_manager: Inbox<pod_manager::Msg>,
    volumes: Inbox<volumes::Msg>,
    node: Inbox<NodeReport>,
    folder: TempDir,
    _recorded: Inbox<events::Msg>,
    _root: Supervisor,
}

impl Rig {
    fn new(folder: TempDir) -> Rig {
        let (to_directory, pod_manager) = inbox(64);
        let (to_volumes, volumes) = inbox(64);
        let (to_node, node) = inbox(64);
        let (to_events, recorded) = inbox(64);
        let policy = Policy {
            order: logic_node::shutdown::ShutdownPolicy::new(
                vec![],
                Duration::from_secs(30),
                Duration::ZERO,
            ),
            node_name: "node".to_owned(),
            logind_folder: folder.path().join("logind"),
            record: Some(folder.path().join(record::NAME)),
        };
        let peers = Peers {
            pod_manager: to_directory,
            volumes: to_volumes,
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
            pod_manager,
            volumes,
            node,
            folder,
            _recorded: recorded,
            _root: root,
        }
    }

    /// Lets time pass, answering that there are no pods and no volumes.
    async fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / POLL_INTERVAL.as_millis() {
            pass(POLL_INTERVAL).await;
            for msg in self.pod_manager.drain() {
                if let pod_manager::Msg::Query(pod_manager::PodQuery::Active { reply }) = msg {
                    reply.send(Vec::new());
                }
            }
            for msg in self.volumes.drain() {
                if let volumes::Msg::Query(volumes::VolumeQuery::Stats { reply }) = msg {
                    reply.send(std::collections::BTreeMap::new());
                }
            }
        }
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
