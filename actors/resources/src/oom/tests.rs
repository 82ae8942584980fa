//! Laws of the OOM watcher, on a pipe in the place of the kernel's messages.

use std::fs::{File, OpenOptions};
use std::io::Write;

use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, mailbox};
use pods::testing::TestNode;
use rustix::fs::{CWD, FileType, Mode};

use super::*;

const SOON: Duration = Duration::from_secs(1);

struct Rig {
    node: TestNode,
    kernel: File,
    sequence: u64,
}

fn config(node: &TestNode, kmsg: PathBuf, boot_id: &str) -> OomConfig {
    OomConfig {
        node_name: "node".to_owned(),
        kmsg,
        checkpoint: node.path("oom.checkpoint"),
        boot_id: boot_id.to_owned(),
    }
}

fn watch(node: &TestNode, config: OomConfig) {
    let (_, port) = mailbox(MAILBOX);
    let recorder = node.node.recorder.clone();
    let spec = ChildSpec::permanent("oom-watcher");
    node.node.root.spawn(spec, port, move || {
        OomWatcher::new(config.clone(), recorder.clone())
    });
}

impl Rig {
    async fn start() -> Rig {
        Rig::on(TestNode::start().await, "this boot", 0)
    }

    fn on(node: TestNode, boot_id: &str, sequence: u64) -> Rig {
        let kmsg = node.path("kmsg");
        drop(std::fs::remove_file(&kmsg));
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &kmsg, FileType::Fifo, mode, 0).unwrap();
        // Opened for both, so that opening does not wait.
        let kernel = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&kmsg)
            .unwrap();
        watch(&node, config(&node, kmsg, boot_id));
        Rig {
            node,
            kernel,
            sequence,
        }
    }

    /// A pipe keeps no records apart, so each is read before the next is written.
    async fn write(&mut self, message: &str) {
        self.sequence += 1;
        let record = format!("3,{},1000,-;{message}\n", self.sequence);
        self.kernel.write_all(record.as_bytes()).unwrap();
        pass(SOON).await;
    }

    async fn kill(&mut self, victim: &str) {
        self.write("fakeProcess invoked oom-killer: gfp_mask=0xcc0, order=0")
            .await;
        self.write("usb 1-1: new device").await;
        if victim == "/" {
            self.write("Out of memory: Killed process 1000 (fakeProcess) total-vm:1kB")
                .await;
        } else {
            let told = format!(
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={victim},task_memcg={victim}/c,task=fakeProcess,pid=1000,uid=0"
            );
            self.write(&told).await;
        }
    }

    async fn told(&self) -> Vec<(String, String)> {
        let events = self.node.events().await.into_iter();
        let named = events.filter(|event| event.reason == SYSTEM_OOM);
        let count = |event: state::events::Event| (event.object.kind, event.message);
        named.map(count).collect()
    }

    async fn snapshot(&self) -> serde_json::Value {
        let tree = self.node.node.root.tree().await;
        let mut children = tree.children.iter();
        let own = children.find(|child| child.path.ends_with("oom-watcher"));
        own.unwrap().snapshot.clone()
    }
}

/// Upstream's TestWatcherRecordsEventsForOomEvents and TestWatcherRecordsEventsForOomEventsWithAdditionalInfo.
#[test]
fn a_process_killed_for_want_of_the_machines_memory_is_an_event_of_the_node() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        rig.kill("/").await;
        let expected = "System OOM encountered, victim process: fakeProcess, pid: 1000";
        assert_eq!(rig.told().await, [("Node".to_owned(), expected.to_owned())]);
    });
}

/// Upstream's TestWatcherRecordsEventsForOomEventsCorrectContainerName.
#[test]
fn a_process_killed_for_want_of_its_groups_memory_is_none() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        rig.kill("/kubepods").await;
        rig.kill("/").await;
        rig.kill("/kubepods/burstable/podu1").await;
        assert_eq!(rig.told().await.len(), 1);
        let snapshot = rig.snapshot().await;
        assert_eq!(
            (&snapshot["system"], &snapshot["groups"]),
            (&1.into(), &2.into())
        );
        assert_eq!(snapshot["last"]["victim"], "/kubepods/burstable/podu1");
    });
}

#[test]
fn a_restart_tells_no_kill_twice_and_another_boot_counts_anew() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        rig.kill("/").await;
        assert_eq!(rig.told().await.len(), 1);
        let node = rig.node.restart().await;
        let mut rig = Rig::on(node, "this boot", 0);
        rig.kill("/").await;
        assert_eq!(rig.told().await, [], "the messages that were there before");
        rig.kill("/").await;
        assert_eq!(rig.told().await.len(), 1);
        let node = rig.node.restart().await;
        let mut rig = Rig::on(node, "next boot", 0);
        rig.kill("/").await;
        assert_eq!(rig.told().await.len(), 1);
    });
}

#[test]
fn a_machine_that_keeps_its_messages_to_itself_is_said_once_and_stops_nothing() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let regular = node.path("regular");
        std::fs::write(&regular, "").unwrap();
        for kmsg in [node.path("absent"), regular] {
            watch(&node, config(&node, kmsg, "this boot"));
        }
        pass(RETRY_PERIOD * 10).await;
        let tree = node.node.root.tree().await;
        let watchers = tree
            .children
            .iter()
            .filter(|child| child.path.ends_with("oom-watcher"));
        for watcher in watchers {
            assert!(watcher.snapshot["error"].is_string(), "{watcher:?}");
        }
    });
}

#[test]
fn messages_that_end_are_opened_again() {
    run_paused(|| async {
        let rig = Rig::start().await;
        pass(SOON).await;
        let kmsg = rig.node.path("kmsg");
        drop(rig.kernel);
        pass(SOON).await;
        let kernel = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&kmsg)
            .unwrap();
        let mut rig = Rig { kernel, ..rig };
        pass(RETRY_PERIOD * 2).await;
        rig.kill("/").await;
        assert_eq!(rig.told().await.len(), 1);
    });
}
