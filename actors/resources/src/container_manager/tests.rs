//! Laws of the container manager, on a node whose cgroups are plain folders.

use std::fs;
use std::path::PathBuf;

use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{ChildSpec, mailbox};
use logic_api::pod::requests;
use logic_api::testing::quantities;
use logic_api::testing::yaml::pod;
use logic_resources::cgroups::Hierarchy;
use pods::area::PodListeners;
use pods::cgroups::systemd::SystemdConnection;
use pods::pod_manager::PodsChanged;
use pods::testing::TestNode;
use serde_json::Value;

use super::*;

const TREES: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

const WEB: &str = "
metadata: {name: web}
spec:
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity], resources: {requests: {cpu: 500m}}}
";

#[derive(Debug, strum::IntoStaticStr)]
enum NodeMessage {
    Refused(Vec<String>),
}

struct Rig {
    node: TestNode,
    addr: Addr<Msg>,
    condition: Inbox<NodeMessage>,
}

impl Rig {
    /// A node that reserves `/system` as well; `script` is for the fake runtime, from before its first call.
    async fn start(script: &str) -> Rig {
        let (addr, port) = mailbox(MAILBOX);
        let changed = Recipient::new(addr.clone(), |PodsChanged| Msg::PodsChanged);
        let node = TestNode::heard_by(PodListeners {
            changed: Some(changed),
            ..PodListeners::default()
        });
        let node = node.await;
        node.script(script);
        let tree = |name: &str| (name.to_owned(), node.path("cgroup").join(name));
        let trees: BTreeMap<String, PathBuf> = TREES.into_iter().map(tree).collect();
        trees
            .values()
            .for_each(|top| fs::create_dir_all(top).unwrap());
        let driver = (CgroupDriver::Cgroupfs, node.runtime.cgroup_driver());
        let machine = (Some(Hierarchy::V1(trees)), vec![2 << 20]);
        let systemd = SystemdConnection::at("unix:path=/nonexistent/bus");
        let (to_node, condition) = inbox(64);
        let peers = Peers {
            runtime: node.runtime.clone(),
            cgroups: CgroupManager::on(driver, machine, systemd),
            pod_manager: node.node.pod_manager.clone(),
            node: Some(Recipient::new(to_node, NodeMessage::Refused)),
            recorder: node.node.recorder.clone(),
        };
        let spec = ChildSpec::permanent("container-manager");
        node.node.root.spawn(spec, port, move || {
            ContainerManager::new(config(), peers.clone())
        });
        Rig {
            node,
            addr,
            condition,
        }
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.node.path("cgroup").join(file)).ok()
    }

    fn refusals(&mut self) -> Option<Vec<String>> {
        let told = self.condition.drain().into_iter();
        told.map(|NodeMessage::Refused(list)| list).next_back()
    }

    async fn updates(&self) -> Value {
        let tree = self.node.node.root.tree().await;
        let own = tree
            .children
            .iter()
            .find(|child| child.path.ends_with("container-manager"));
        own.unwrap().snapshot["updates"].clone()
    }
}

fn amounts(list: &[(&str, &str)]) -> ResourceAmounts {
    requests::read(Some(&quantities(list)))
}

fn config() -> ContainerManagerConfig {
    ContainerManagerConfig {
        node_name: "node".to_owned(),
        policy: Some(CgroupPolicy {
            driver: CgroupDriver::Cgroupfs,
            root: "/".to_owned(),
            pids: None,
        }),
        node: NodeLimits {
            capacity: amounts(&[("cpu", "4"), ("memory", "8Gi"), ("pid", "1000")]),
            allocatable: amounts(&[("cpu", "3"), ("memory", "6Gi"), ("pid", "900")]),
            pods_enforced: true,
            cpus: Some("0-3".to_owned()),
            page_sizes: vec![2 << 20],
            ..NodeLimits::default()
        },
        reserved: vec![ReservedGroup {
            kind: Enforcement::SystemReserved,
            group: "/system".to_owned(),
            amounts: amounts(&[("cpu", "500m"), ("memory", "1Gi")]),
        }],
        processes: ProcessPlacement::default(),
    }
}

#[test]
fn the_groups_are_there_before_any_pod_and_follow_the_pods_at_once() {
    run_paused(|| async {
        let rig = Rig::start("{}").await;
        pass(Duration::from_secs(1)).await;
        for (file, expected) in [
            ("cpu/kubepods/cpu.shares", "3072"),
            ("memory/kubepods/memory.limit_in_bytes", "6442450944"),
            ("pids/kubepods/pids.max", "900"),
            ("cpuset/kubepods/cpuset.cpus", "0-3"),
            (
                "hugetlb/kubepods/hugetlb.2MB.limit_in_bytes",
                "4611686018427387904",
            ),
            ("cpu/kubepods/burstable/cpu.shares", "2"),
            ("cpu/kubepods/besteffort/cpu.shares", "2"),
        ] {
            assert_eq!(rig.text(file).as_deref(), Some(expected), "{file}");
        }
        assert_eq!(
            rig.text("memory/kubepods/burstable/memory.limit_in_bytes"),
            None
        );
        rig.node.desire(&[pod(WEB)]);
        pass(Duration::from_secs(1)).await;
        let shares = || rig.text("cpu/kubepods/burstable/cpu.shares");
        assert_eq!(shares().as_deref(), Some("512"));
        rig.node.desire(&[]);
        pass(Duration::from_secs(60)).await;
        assert_eq!(shares().as_deref(), Some("2"));
    });
}

#[test]
fn what_has_not_changed_is_not_written_again() {
    run_paused(|| async {
        let rig = Rig::start("{}").await;
        rig.node.desire(&[pod(WEB)]);
        pass(Duration::from_secs(10)).await;
        let before = rig.updates().await;
        for _ in 0..20 {
            rig.addr.tell(Msg::PodsChanged).unwrap();
            pass(Duration::from_millis(300)).await;
        }
        pass(RETRY_PERIOD * 3).await;
        assert_eq!(rig.updates().await, before);
    });
}

#[test]
fn no_group_is_made_before_the_runtime_has_told_its_driver() {
    run_paused(|| async {
        let rig = Rig::start(r#"{"delays": {"RuntimeConfig": "3s"}}"#).await;
        pass(Duration::from_secs(2)).await;
        assert_eq!(rig.text("cpu/kubepods/cpu.shares"), None);
        pass(Duration::from_secs(5)).await;
        assert_eq!(rig.text("cpu/kubepods/cpu.shares").as_deref(), Some("3072"));
    });
}

#[test]
fn what_cannot_be_enforced_is_told_of_and_tried_again_and_holds_up_nothing_else() {
    run_paused(|| async {
        let mut rig = Rig::start("{}").await;
        pass(Duration::from_secs(2)).await;
        let refused = "system reserved /system: cgroup /system does not exist";
        assert_eq!(rig.refusals().unwrap(), [refused]);
        assert!(rig.text("cpu/kubepods/cpu.shares").is_some());
        let reasons = rig.node.reasons().await;
        let count = |reason: &str| reasons.iter().filter(|found| *found == reason).count();
        assert_eq!((count(FAILED), count(ENFORCED)), (1, 1), "{reasons:?}");
        rig.addr.tell(Msg::Resync).unwrap();
        pass(Duration::from_secs(1)).await;
        assert_eq!(
            rig.refusals().unwrap(),
            [refused],
            "the node's object was lost"
        );

        for tree in TREES {
            fs::create_dir_all(rig.node.path("cgroup").join(tree).join("system")).unwrap();
        }
        pass(RETRY_PERIOD * 2).await;
        assert_eq!(rig.refusals().unwrap(), Vec::<String>::new());
        let limit = rig.text("memory/system/memory.limit_in_bytes");
        assert_eq!(limit.as_deref(), Some("1073741824"));
        assert!(
            rig.node
                .reasons()
                .await
                .iter()
                .filter(|found| *found == ENFORCED)
                .count()
                >= 2
        );
    });
}

#[test]
fn without_systemd_on_its_bus_the_slices_are_refused_and_the_agent_goes_on() {
    run_paused(|| async {
        let mut rig = Rig::start(r#"{"cgroup_driver": "systemd"}"#).await;
        pass(Duration::from_secs(5)).await;
        let refused = rig.refusals().unwrap();
        assert!(refused[0].contains("no systemd"), "{refused:?}");
        assert_eq!(rig.text("cpu/kubepods/cpu.shares"), None);
    });
}
