//! Desired pods, orphans, and name reservations.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clients::storage::testing::{FakeStorage, StorageFault};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::testing::{inbox, pass, run_paused};
use kernel::{InjectedFault, Recipient};
use logic_api::pod::CONFIG_SOURCE;
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use logic_pods::api::mirrors::StaticPodSet;

use crate::area::PodListeners;
use crate::pod_manager;
use crate::testing::TestNode;

const WEB: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

fn running(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Running")
}

#[test]
fn a_pod_found_in_the_runtime_that_no_source_desires_is_ended() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        let node = node.restart().await;
        pass(Duration::from_secs(60)).await;
        assert!(
            node.exists(&PodUid::from("web")).await,
            "no source has spoken yet"
        );
        node.desire(&[]);
        node.until_gone("web").await;
    });
}

const DEAF: &str = "
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - name: app
    image: localhost/busybox
    command: [sh, -c, \"trap '' TERM; sleep infinity\"]
    lifecycle: {preStop: {exec: {command: [touch, /ended]}}}
";

/// Upstream's TestContainerAnnotations: what they are read for (restoreSpecsFromContainerLabels).
#[test]
fn a_pod_that_only_the_runtime_knows_has_its_own_grace_and_its_hooks() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(DEAF)]);
        node.until("deaf", running).await;
        let node = node.restart().await;
        let hooks = || {
            let text = metrics::text();
            let count = text
                .lines()
                .find(|line| {
                    line.contains("operation_type=\"exec_sync\"")
                        && line.starts_with("kubelet_runtime_operations_total")
                })
                .and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            count.unwrap_or(0)
        };
        let before = hooks();
        let begun = kernel::now();
        node.desire(&[]);
        node.until_gone("deaf").await;
        let took = (kernel::now() - begun).as_secs();
        assert!((29..34).contains(&took), "{took}");
        assert_eq!(hooks() - before, 1);
    });
}

/// Upstream's TestPodLogDirectoryGC.
#[test]
fn logs_of_pods_that_are_gone_are_removed_once_every_source_has_spoken() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        let logs = |name: &str| node.rules.node.pod_logs_dir.join(name);
        let links = |name: &str| node.rules.node.container_logs_dir.join(name);
        for name in ["789", "name_namespace_654"] {
            std::fs::create_dir_all(logs(name).join("app")).unwrap();
        }
        let own = logs("default_web_web/app/9.log");
        let link = |log: &std::path::Path, name: &str| {
            std::os::unix::fs::symlink(log, links(name)).unwrap();
        };
        link(&logs("name_namespace_654/app/0.log"), "gone.log");
        link(&logs("name_namespace_654/app/0.log"), "gone.txt");
        link(&own, "rotated.log");
        let (before, linked) = (node.files("logs"), node.files("links"));
        let node = node.restart().await;
        pass(Duration::from_secs(120)).await;
        assert_eq!((node.files("logs"), node.files("links")), (before, linked));
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        pass(Duration::from_secs(400)).await;
        assert_eq!((node.files("logs"), node.files("links")), (1, linked - 1));
    });
}

/// Upstream's TestCleanupOrphanedPodDirs, on a node that runs: those of a pod, and what is left of none.
#[test]
fn folders_of_no_pod_are_removed_while_the_node_runs() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        pass(Duration::from_secs(200)).await;
        let pods = node.rules.node.root_dir.join("pods");
        for folder in [
            "gone/volumes/kubernetes.io~csi/pvc/mount",
            "kept/volumes/x/y",
        ] {
            fs::create_dir_all(pods.join(folder)).unwrap();
        }
        fs::write(pods.join("gone/etc-hosts"), "").unwrap();
        fs::write(pods.join("kept/volumes/x/y/data"), "").unwrap();
        fs::write(pods.join("file"), "").unwrap();
        pass(Duration::from_secs(900)).await;
        let mut left: Vec<_> = fs::read_dir(&pods)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["file", "kept", "web"]);
    });
}

/// A pod of DEAF's name that another source or another manifest has.
fn deaf(uid: &str, source: &str) -> Arc<Pod> {
    let mut changed = (*pod(DEAF)).clone();
    changed.metadata.uid = Some(uid.to_owned());
    let source = (CONFIG_SOURCE.to_owned(), source.to_owned());
    changed.metadata.annotations = Some([source].into());
    changed.into()
}

/// Upstream's TestStaticPodExclusion and Test_allowPodStart.
#[test]
fn a_pod_of_the_api_waits_for_no_name() {
    run_paused(|| async {
        for source in ["api", "file"] {
            let node = TestNode::start().await;
            node.desire(&[deaf("old", source)]);
            node.until("old", running).await;
            // The old one takes half a minute to end.
            node.desire(&[deaf("new", "api")]);
            node.until("new", running).await;
            assert!(node.exists(&PodUid::from("old")).await, "{source}");
            let first = node.pods().await.remove(0);
            assert_eq!(first.metadata.uid.as_deref(), Some("new"), "{source}");
            node.until_gone("old").await;
            node.until("new", running).await;
        }
    });
}

/// Upstream's TestStaticPodExclusion and Test_allowPodStart.
#[test]
fn a_static_pod_of_a_taken_name_waits_until_the_name_is_free() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[deaf("web", "file")]);
        node.until("web", running).await;
        node.desire(&[deaf("web-2", "file")]);
        // The old one takes half a minute to end.
        pass(Duration::from_secs(20)).await;
        assert!(!node.exists(&PodUid::from("web-2")).await);
        node.until("web-2", running).await;
    });
}

/// Upstream's TestPodsByCreationTimeLess: of two pods that come together and do not both fit, the older one is admitted,
/// whether the runtime has been looked at already or not.
#[test]
fn of_pods_that_come_together_the_oldest_is_admitted_first() {
    run_paused(|| async {
        let asking = |name: &str, made: &str| {
            pod(&format!(
                "
metadata: {{name: {name}, creationTimestamp: '{made}'}}
spec: {{containers: [{{name: app, image: localhost/busybox, command: [sleep, infinity], resources: {{requests: {{cpu: 3}}}}}}]}}
"
            ))
        };
        let refused = |status: &PodStatus| status.reason.as_deref() == Some("OutOfcpu");
        for wait in [Duration::ZERO, Duration::from_secs(60)] {
            let node = TestNode::start().await;
            pass(wait).await;
            node.desire(&[
                asking("a", "2026-01-01T00:00:02Z"),
                asking("b", "2026-01-01T00:00:01Z"),
            ]);
            node.until("b", running).await;
            node.until("a", refused).await;
        }
    });
}

#[test]
fn a_directory_that_dies_finds_its_workers_again_and_ends_what_was_dropped_meanwhile() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let web = pod(WEB);
        node.desire(std::slice::from_ref(&web));
        let before = node.until("web", running).await;
        node.node
            .root
            .inject("oxlet/pods/pod-manager", InjectedFault::Panic)
            .unwrap();
        node.desire(&[]);
        node.desire(std::slice::from_ref(&web));
        pass(Duration::from_secs(5)).await;
        let after = node.until("web", running).await;
        assert_eq!(before.container_statuses, after.container_statuses);
        node.desire(&[]);
        node.until_gone("web").await;
    });
}

#[derive(Debug, strum::IntoStaticStr)]
enum ReceivedMessages {
    Statics(StaticPodSet),
    Over(PodUid),
}

const FIXED: &str = "
metadata: {name: fixed, annotations: {kubernetes.io/config.source: file}}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: app, image: localhost/busybox, command: [sh, -c, 'trap : TERM; sleep infinity']}]
";

/// Upstream's IsPodForMirrorPodTerminatingByFullName, and what HandlePodCleanups makes of it.
#[test]
fn a_static_pod_that_ends_is_told_as_ending_until_it_is_over() {
    run_paused(|| async {
        let (addr, mut heard) = inbox(64);
        let node = TestNode::heard_by(PodListeners {
            mirrors: Some(Recipient::new(addr, ReceivedMessages::Statics)),
            ..PodListeners::default()
        })
        .await;
        node.desire(&[pod(FIXED)]);
        node.until("fixed", running).await;
        node.desire(&[]);
        node.until_gone("fixed").await;
        pass(Duration::from_secs(1)).await;
        let told: Vec<(usize, usize)> = heard
            .drain()
            .into_iter()
            .filter_map(|heard| match heard {
                ReceivedMessages::Statics(statics) => {
                    Some((statics.pods.len(), statics.ending.len()))
                }
                ReceivedMessages::Over(_) => None,
            })
            .collect();
        assert_eq!(told, [(1, 0), (0, 1), (0, 0)]);
    });
}

const DONE: &str = "
metadata: {name: done}
spec:
  restartPolicy: Never
  containers: [{name: app, image: localhost/busybox, command: ['true']}]
";

#[test]
fn a_pod_that_has_ended_for_good_is_told_to_need_nothing_while_it_is_still_desired() {
    run_paused(|| async {
        let (addr, mut heard) = inbox(64);
        let node = TestNode::heard_by(PodListeners {
            over: Some(Recipient::new(addr, ReceivedMessages::Over)),
            ..PodListeners::default()
        })
        .await;
        node.desire(&[pod(DONE), pod(WEB)]);
        node.until("web", running).await;
        let over = |status: &PodStatus| status.phase.as_deref() == Some("Succeeded");
        node.until("done", over).await;
        pass(Duration::from_secs(60)).await;
        let told: Vec<PodUid> = heard
            .drain()
            .into_iter()
            .filter_map(|heard| match heard {
                ReceivedMessages::Over(uid) => Some(uid),
                ReceivedMessages::Statics(_) => None,
            })
            .collect();
        assert_eq!(told, [PodUid::from("done")]);
    });
}

/// Upstream's `getHostIPsAnyWay`: what TestGenerateAPIPodStatusHostNetworkPodIPs is given.
#[test]
fn pods_are_where_the_nodes_object_says_that_the_node_is() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        let object = serde_json::json!({"status": {"addresses": [
            {"type": "Hostname", "address": "node"},
            {"type": "InternalIP", "address": "10.9.9.9"},
            {"type": "InternalIP", "address": "fd00::9"},
        ]}});
        let seen = |object: serde_json::Value| {
            pod_manager::Msg::Node(pod_manager::NodeChange::Object(Some(Arc::new(
                serde_json::from_value(object).unwrap(),
            ))))
        };
        node.node.pod_manager.tell(seen(object)).unwrap();
        let is_at = |status: &PodStatus| status.host_ip.as_deref() == Some("10.9.9.9");
        let status = node.until("web", is_at).await;
        assert_eq!(status.host_ips.as_ref().unwrap()[1].ip, "fd00::9");
        // A node object without addresses changes nothing, and a worker that starts later gets the same ones.
        let nothing = seen(serde_json::json!({"status": {}}));
        node.node.pod_manager.tell(nothing).unwrap();
        let mut other = (*pod(WEB)).clone();
        (other.metadata.uid, other.metadata.name) = (Some("b".into()), Some("b".into()));
        node.desire(&[pod(WEB), other.into()]);
        node.until("b", |status| running(status) && is_at(status))
            .await;
        assert!(is_at(&node.statuses().await[&PodUid::from("web")]));
    });
}

fn restarts(status: &PodStatus) -> i32 {
    status
        .container_statuses
        .iter()
        .flatten()
        .map(|c| c.restart_count)
        .sum()
}

/// Upstream's node suite: "should successfully recreate when file is removed and recreated".
#[test]
fn a_static_pod_whose_manifest_comes_back_goes_on_with_its_restarts() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(FIXED)]);
        node.until("fixed", running).await;
        node.desire(&[]);
        node.desire(&[pod(FIXED)]);
        assert_eq!(node.pods().await.len(), 1, "the same pod is listed once");
        let again = |status: &PodStatus| running(status) && restarts(status) == 1;
        node.until("fixed", again).await;
        // And once more, when nothing of it is desired for a while.
        node.desire(&[]);
        pass(Duration::from_secs(30)).await;
        assert!(!node.statuses().await.contains_key(&"fixed".into()));
        node.desire(&[pod(FIXED)]);
        node.until("fixed", |status| running(status) && restarts(status) == 2)
            .await;
    });
}

/// Upstream's garbage collection looks once a minute: what collects logs has that long for the last lines.
#[test]
fn the_logs_of_a_pod_outlive_it_by_a_minute() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        let logs = |node: &TestNode| (node.files("logs/default_web_web/app"), node.files("links"));
        assert_eq!(logs(&node), (1, 1));
        node.desire(&[]);
        node.until_gone("web").await;
        assert_eq!(node.files("root/pods"), 0);
        pass(Duration::from_secs(50)).await;
        assert_eq!(logs(&node), (1, 1));
        pass(Duration::from_secs(15)).await;
        assert_eq!((node.files("logs"), node.files("links")), (0, 0));
    });
}

#[test]
fn the_dead_containers_of_a_static_pod_are_removed_when_its_manifest_stays_away() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(FIXED)]);
        node.until("fixed", running).await;
        node.desire(&[]);
        pass(Duration::from_secs(30)).await;
        let left = node.runtime.pod(&"fixed".into()).await.unwrap();
        assert!(left.is_stopped() && !left.containers.is_empty(), "{left:?}");
        pass(Duration::from_secs(60)).await;
        assert!(!node.exists(&"fixed".into()).await);
        assert_eq!(node.files("logs"), 0);
        node.desire(&[pod(FIXED)]);
        let status = node.until("fixed", running).await;
        assert_eq!(restarts(&status), 0);
    });
}

#[test]
fn a_dead_static_pod_of_an_earlier_life_is_removed_at_once() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(FIXED)]);
        node.until("fixed", running).await;
        node.desire(&[]);
        pass(Duration::from_secs(10)).await;
        let node = node.restart().await;
        node.desire(&[]);
        pass(Duration::from_secs(10)).await;
        assert!(!node.exists(&"fixed".into()).await);
    });
}

#[test]
fn a_pod_that_leaves_one_source_goes_on_while_another_has_it() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        let of_api = |pods| pod_manager::Msg::SetPods {
            source: pod_manager::PodSource::Api,
            pods,
        };
        node.node.pod_manager.tell(of_api(vec![pod(WEB)])).unwrap();
        let before = node.until("web", running).await;
        node.desire(&[]);
        pass(Duration::from_secs(30)).await;
        let after = node.until("web", running).await;
        assert_eq!(before.container_statuses, after.container_statuses);
        node.node.pod_manager.tell(of_api(Vec::new())).unwrap();
        node.until_gone("web").await;
    });
}

/// Upstream's cleanupOrphanedPodCgroups: memory of volumes that are mounted still would count for the groups above.
#[test]
fn the_cgroup_of_a_pod_that_is_gone_stays_with_the_least_cpu_until_its_volumes_are_unmounted() {
    run_paused(|| async {
        const SHARES: &str = "cgroup/cpu/kubepods/burstable/podold/cpu.shares";
        const ID: &str = "kubernetes.io/empty-dir/old-e";
        let world = |folder: &Path, storage: &FakeStorage| {
            for uid in ["old", "bare"] {
                let group = folder.join("cgroup/cpu/kubepods/burstable/pod".to_owned() + uid);
                fs::create_dir_all(&group).unwrap();
            }
            fs::write(folder.join(SHARES), "512").unwrap();
            storage.plant((ID, "empty-dir"), "old", "/there/old/e");
            storage.fault("unmount", ID, StorageFault::Held);
        };
        let node = TestNode::with_cgroups(world).await;
        let has = |uid: &str| {
            node.path("cgroup/cpu/kubepods/burstable")
                .join(uid)
                .exists()
        };
        pass(Duration::from_secs(120)).await;
        assert!(has("podold") && has("podbare"), "no source has spoken yet");
        node.desire(&[]);
        pass(Duration::from_secs(120)).await;
        assert!(has("podold") && !has("podbare"));
        assert_eq!(fs::read_to_string(node.path(SHARES)).unwrap(), "2");
        // A file in a directory has the effect of a process in a cgroup.
        fs::remove_file(node.path(SHARES)).unwrap();
        node.storage.release();
        pass(Duration::from_secs(120)).await;
        assert!(!has("podold"));
    });
}

/// Regular files below a folder, but for what is not the agent's own.
fn own_files(top: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            // As with the kubelet, the assignments of CPUs and memory are refused by name.
            let is_others = [
                "fake",
                "logs",
                "links",
                "cpu_manager_state",
                "memory_manager_state",
            ]
            .contains(&entry.file_name().to_str().unwrap());
            if kind.is_dir() && !is_others {
                folders.push(entry.path());
            } else if kind.is_file() && !is_others {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

/// Each file that the agent leaves, emptied, cut short, and with a tail: none costs a pod, or makes a second instance.
#[test]
fn a_damaged_file_of_the_agent_costs_no_container() {
    run_paused(|| async {
        let mut node = TestNode::start().await;
        node.desire(&[pod(WEB)]);
        node.until("web", running).await;
        pass(Duration::from_secs(120)).await;
        let container = async |node: &TestNode| {
            let statuses = node.statuses().await;
            let status = &statuses[&PodUid::from("web")];
            status.container_statuses.as_ref().unwrap()[0]
                .container_id
                .clone()
        };
        let first = container(&node).await;
        let files = own_files(&node.path(""));
        let names = |name: &str| files.iter().any(|file| file.ends_with(name));
        assert!(names("pods.checkpoint"), "{files:?}");
        for file in files {
            for damage in 0..3 {
                let Ok(whole) = fs::read(&file) else {
                    continue;
                };
                let damaged = match damage {
                    0 => Vec::new(),
                    1 => whole[..whole.len() / 2].to_vec(),
                    _ => [&whole[..], b"tail"].concat(),
                };
                fs::write(&file, damaged).unwrap();
                node = node.restart().await;
                node.desire(&[pod(WEB)]);
                node.until("web", running).await;
                pass(Duration::from_secs(120)).await;
                let now = container(&node).await;
                assert_eq!(now, first, "{}: {damage}", file.display());
            }
        }
    });
}
