//! Pods that are handed over from one containerd to another: at no moment does a pod run in both.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use integration::agent::{Cri, Node};
use integration::containerd::Containerd;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tempfile::TempDir;

use crate::suite::node_rig::*;

/// Between two looks at both runtimes.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// The grace period of the pod that does not mind SIGTERM, in seconds.
const GRACE: u64 = 3;

struct Rig {
    node: Node,
    old: Containerd,
    new: Containerd,
    _folders: [TempDir; 2],
}

fn manifest(name: &str, policy: &str, command: &str, more: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: {GRACE}
{more}  containers:
  - {{name: app, image: 'localhost/oxlet/busybox:1', command: [sh, -c, '{command}']}}
"
    )
}

impl Rig {
    async fn start() -> Option<Rig> {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let old = Containerd::for_test(folders[0].path()).await?;
        let new = Containerd::for_test(folders[1].path()).await?;
        let pods = [
            // It has a port of the node: a second one of it would end at once.
            (
                "port",
                "Always",
                "httpd -f -p 127.0.0.1:18471",
                "  hostNetwork: true\n",
            ),
            (
                "stubborn",
                "Always",
                "trap \"\" TERM; while true; do sleep 1; done",
                "",
            ),
            ("once", "Never", "sleep 1000", ""),
            ("done", "Never", "true", ""),
        ];
        let mut builder = Node::builder()
            .runtime(&old)
            .other(&new)
            .config(&json!({ "cgroupRoot": old.cgroup() }));
        for (name, policy, command, more) in pods {
            let text = manifest(name, policy, command, more);
            builder = builder.manifest(&format!("{name}.yaml"), &text);
        }
        let node = builder
            .start()
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
        Some(Rig {
            node,
            old,
            new,
            _folders: folders,
        })
    }

    async fn until(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) {
        let waited = self
            .node
            .until(name, CONVERGENCE_TIMEOUT, what, holds)
            .await;
        waited.unwrap_or_else(|error| panic!("{error:#}"));
    }

    async fn until_all(&self, restarts: i32) {
        for name in ["port", "stubborn"] {
            self.until(name, "runs", |pod| {
                let app = container(pod, "app");
                is_ready(pod) && app.is_some_and(|app| app.restart_count == restarts)
            })
            .await;
        }
        self.until("done", "has finished", |pod| phase(pod) == "Succeeded")
            .await;
    }
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Looks at both runtimes all the time; returns the pods that were seen to run in both.
fn watch(rig: &Rig, end: Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<String>> {
    let (old, new) = (Cri::over(rig.old.channel()), Cri::over(rig.new.channel()));
    tokio::spawn(async move {
        let mut both = Vec::new();
        while !end.load(Ordering::Relaxed) {
            let (in_old, in_new) = tokio::join!(old.running(), new.running());
            let (in_old, in_new) = (in_old.unwrap(), in_new.unwrap());
            both.extend(in_old.into_keys().filter(|name| in_new.contains_key(name)));
            tokio::time::sleep(LOOK_PERIOD).await;
        }
        both.into_iter().map(|(pod, _)| pod).collect()
    })
}

async fn is_empty(containerd: &Containerd) -> bool {
    let cri = Cri::over(containerd.channel());
    cri.sandboxes().await.unwrap().is_empty() && cri.containers().await.unwrap().is_empty()
}

/// How many instances of the pod's container there were in either runtime: each has a log of its own, and logs outlive runtimes.
fn starts(node: &Node, pod: &str) -> usize {
    let logs = node.dir().join("logs");
    let folders = std::fs::read_dir(logs).unwrap().flatten();
    let of_pod = folders.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().contains(&format!("_{pod}-node_"))
    });
    let files = |folder: &Path| std::fs::read_dir(folder.join("app")).map_or(0, Iterator::count);
    of_pod.map(|entry| files(&entry.path())).sum()
}

#[tokio::test]
async fn pods_are_handed_over_to_another_containerd_and_back_and_never_run_in_both() {
    let Some(mut rig) = Rig::start().await else {
        return;
    };
    rig.until_all(0).await;
    rig.until("once", "runs", |pod| phase(pod) == "Running")
        .await;
    let over = Arc::new(AtomicBool::new(false));
    let watched = watch(&rig, over.clone());

    let swap = ["plugin", "swap", "runtime", "other"];
    let refused = rig.node.oxctl(&swap).await.unwrap_err().to_string();
    assert!(refused.contains("other does not know the"), "{refused}");
    // It is asked for, and the agent is killed while the stubborn pod takes its time.
    let swap = ["plugin", "swap", "runtime", "other", "--end-pods"];
    let asked = tokio::time::timeout(Duration::from_secs(GRACE) / 2, rig.node.oxctl(&swap));
    assert!(asked.await.is_err(), "the stubborn pod has not ended yet");
    rig.node.kill9().unwrap();
    rig.node.begin().await.unwrap();

    rig.until_all(1).await;
    rig.until("once", "has failed", |pod| phase(pod) == "Failed")
        .await;
    assert!(is_empty(&rig.old).await, "nothing is left in the old one");
    let why = rig.node.oxctl(&["why", "port"]).await.unwrap();
    assert!(why.contains("other"), "{why}");

    let back = ["plugin", "swap", "runtime", "containerd", "--end-pods"];
    let told = rig.node.oxctl(&back).await.unwrap();
    assert!(
        told.contains("default/stubborn-node") && told.contains("starts on containerd"),
        "{told}"
    );
    rig.until_all(2).await;
    assert!(is_empty(&rig.new).await, "nothing is left in the new one");
    assert_eq!(
        (starts(&rig.node, "once"), starts(&rig.node, "done")),
        (1, 1)
    );
    over.store(true, Ordering::Relaxed);
    assert_eq!(watched.await.unwrap(), Vec::<String>::new());

    for name in ["port", "stubborn", "once", "done"] {
        rig.node.remove_manifest(&format!("{name}.yaml")).unwrap();
    }
    wait_until(CONVERGENCE_TIMEOUT, "both runtimes are empty", async || {
        is_empty(&rig.old).await && is_empty(&rig.new).await
    })
    .await
    .unwrap();
}
