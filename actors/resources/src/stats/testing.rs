//! A machine whose cgroups a test has written, and reads that hang.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use futures_util::FutureExt;
use host::group_stats::GroupReader;
use logic_api::testing::yaml::pod;
use logic_resources::cgroups::{CgroupName, Hierarchy};
use pods::testing::TestNode;

use super::bounded_io::IO_TIMEOUT;
use super::*;

const WEB: &str = "
metadata: {name: web}
spec:
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
";

/// A node with the pod `web`, and the folder of its cgroups.
pub(crate) struct Machine {
    pub(crate) node: TestNode,
    folder: tempfile::TempDir,
}

impl Machine {
    pub(crate) async fn start() -> Machine {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", |status| status.phase.as_deref() == Some("Running"))
            .await;
        let machine = Machine {
            node,
            folder: tempfile::tempdir().unwrap(),
        };
        let listed = machine.node.runtime.pods().await.unwrap();
        machine.write("", 1000);
        machine.write("kubepods", 400);
        for pod in listed.values() {
            machine.write(&format!("kubepods/pod{}", pod.uid), 300);
            for id in pod.ids() {
                machine.write(&format!("kubepods/pod{}/{id}", pod.uid), 100);
            }
        }
        machine
    }

    /// Writes a group that uses this many microseconds and bytes.
    pub(crate) fn write(&self, name: &str, used: u64) {
        let group = self.folder.path().join(name);
        fs::create_dir_all(&group).unwrap();
        let files = [
            ("cpu.stat", format!("usage_usec {used}\n")),
            ("memory.current", format!("{used}\n")),
            (
                "memory.stat",
                format!("anon {used}\nfile 0\ninactive_file 0\n"),
            ),
            ("memory.max", "max\n".to_owned()),
            ("memory.swap.current", "7\n".to_owned()),
            ("memory.swap.max", "70\n".to_owned()),
            ("cgroup.procs", "1\n".to_owned()),
        ];
        for (file, text) in files {
            fs::write(group.join(file), text).unwrap();
        }
    }

    /// The folder of a group.
    pub(crate) fn group(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn provider(&self, source: StatsSource) -> SummaryProvider {
        self.provider_of(Peers {
            source,
            ..peers(&self.node)
        })
    }

    pub(crate) fn provider_of(&self, peers: Peers) -> SummaryProvider {
        let proc = Path::new("/proc").to_owned();
        let reader = GroupReader {
            proc: proc.clone(),
            hierarchy: Hierarchy::V2(self.folder.path().to_owned()),
        };
        let machine = MachineStats {
            proc,
            groups: Some(reader),
            shown: Vec::new(),
            pods: Some(CgroupName::parse("/kubepods")),
            began: None,
        };
        SummaryProvider::of_machine(peers, machine)
    }
}

/// The actors of a node.
pub(crate) fn peers(node: &TestNode) -> Peers {
    Peers {
        root: node.node.root.clone(),
        runtime: node.runtime.clone(),
        pod_manager: node.node.pod_manager.clone(),
        volumes: node.node.volumes.clone(),
        rules: node.rules.clone(),
        groups: SystemGroups::default(),
        source: StatsSource::Groups,
    }
}

/// A read that has hung for so long that nobody waits for it any more; it hangs until the sender is dropped.
///
/// The paused clock stands still meanwhile.
pub(crate) async fn hang(io: &BoundedIo) -> mpsc::Sender<()> {
    let (held, released) = mpsc::channel::<()>();
    let hang = io.run(move || released.recv().unwrap_or_default());
    assert!(hang.now_or_never().is_none(), "it has begun");
    tokio::time::advance(IO_TIMEOUT).await;
    held
}
