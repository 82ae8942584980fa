//! The summary provider of a whole node whose runtime is in this process.

use std::time::Duration;

use kernel::testing::{inbox, pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_resources::summary::SummaryScope;
use pods::testing::TestNode;

use super::testing::{hang, peers};
use super::*;

const WEB: &str = "
metadata: {name: web}
spec:
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
  - {name: log, image: localhost/busybox, command: [sleep, infinity]}
  volumes: [{name: scratch, emptyDir: {}}]
";

async fn running() -> (TestNode, SummaryProvider) {
    let node = TestNode::start().await;
    node.desire(&[pod(WEB)]);
    node.until("web", |status| status.phase.as_deref() == Some("Running"))
        .await;
    let summaries = SummaryProvider::new(peers(&node));
    (node, summaries)
}

/// Five thousand bytes.
fn write_log(node: &TestNode) {
    let logs = &node.rules.node.pod_logs_dir;
    let logs = logs.join("default_web_web/app");
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join("0.log"), "line\n".repeat(1000)).unwrap();
}

/// Upstream's TestSummaryProviderGetStatsNoSplitFileSystem.
#[test]
fn a_node_tells_what_it_and_its_pods_take() {
    run_paused(|| async {
        let (_node, summaries) = running().await;
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert_eq!(summary.node.node_name, "node");
        let memory = summary.node.memory.as_ref().unwrap();
        assert!(memory.working_set_bytes > Some(0) && memory.available_bytes > Some(0));
        assert!(summary.node.fs.as_ref().unwrap().capacity_bytes > Some(0));
        let runtime = summary.node.runtime.as_ref().unwrap();
        assert!(runtime.image_fs.is_some() && runtime.container_fs.is_some());
        assert!(summary.node.rlimit.as_ref().unwrap().maxpid > Some(0));
        assert_eq!(summary.pods.len(), 1);
        let pod = &summary.pods[0];
        assert_eq!(
            (pod.pod_ref.name.as_str(), pod.pod_ref.uid.as_str()),
            ("web", "web")
        );
        assert_eq!(pod.containers.len(), 2);
        assert!(pod.memory.is_some() && pod.ephemeral_storage.is_some());
        assert!(pod.containers[0].rootfs.is_some() && pod.containers[0].start_time.is_some());
    });
}

/// Upstream's TestSummaryProviderGetCPUAndMemoryStats.
#[test]
fn cpu_and_memory_alone_come_without_the_rest() {
    run_paused(|| async {
        let (_node, summaries) = running().await;
        let summary = summaries.summary(SummaryScope::CpuAndMemory).await.unwrap();
        let node = &summary.node;
        assert!(node.cpu.is_some() && node.memory.is_some());
        assert!(node.fs.is_none() && node.network.is_none() && node.runtime.is_none());
        let pod = &summary.pods[0];
        assert!(pod.ephemeral_storage.is_none() && pod.containers[0].rootfs.is_none());
        assert!(pod.containers[0].cpu.is_some());
        let text = summaries.resource_metrics().await;
        assert!(text.contains("resource_scrape_error 0\n"));
        for name in [
            "container_memory_working_set_bytes",
            "pod_cpu_usage_seconds_total",
        ] {
            assert!(text.contains(&format!("\n{name}{{")), "{name} in {text}");
        }
    });
}

#[test]
fn a_pod_that_cannot_be_measured_costs_its_own_figures_and_no_others() {
    run_paused(|| async {
        let (node, summaries) = running().await;
        let other = WEB.replace("name: web", "name: other");
        node.desire(&[pod(WEB), pod(&other)]);
        node.until("other", |status| status.phase.as_deref() == Some("Running"))
            .await;
        let refusal =
            r#""code": "Unknown", "message": "failed to decode sandbox container metrics""#;
        let list = format!(r#"{{"call": "ListPodSandboxStats", {refusal}}}"#);
        let one =
            format!(r#"{{"call": "PodSandboxStats", "subject": "default/other", {refusal}}}"#);
        node.script(&format!(r#"{{"faults": [{list}, {one}]}}"#));
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        let measured = summary.pods.iter().filter(|pod| pod.memory.is_some());
        let names: Vec<&str> = measured.map(|pod| pod.pod_ref.name.as_str()).collect();
        assert_eq!(names, ["web"]);
        pass(Duration::from_secs(60)).await;
        let text = summaries.resource_metrics().await;
        assert!(text.contains("resource_scrape_error 0\n"), "{text}");
    });
}

#[test]
fn own_metrics_tell_what_the_logs_of_each_container_take() {
    run_paused(|| async {
        let (node, summaries) = running().await;
        write_log(&node);
        let text = summaries.metrics_text().await;
        let series = "kubelet_container_log_filesystem_used_bytes{container=\"app\",namespace=\"default\",pod=\"web\",uid=\"web\"} ";
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
        let bytes: u64 = values.next().unwrap().parse().unwrap();
        assert!(bytes >= 5000, "{bytes}");
    });
}

#[test]
fn questions_that_come_together_share_one_look_and_later_ones_do_not() {
    run_paused(|| async {
        let (_node, summaries) = running().await;
        let all = (0..10).map(|_| summaries.summary(SummaryScope::Everything));
        let all = futures_util::future::try_join_all(all).await.unwrap();
        assert!(all.iter().all(|summary| Rc::ptr_eq(summary, &all[0])));
        let small = summaries.summary(SummaryScope::CpuAndMemory).await.unwrap();
        assert!(small.node.fs.is_none());
        pass(Duration::from_secs(2)).await;
        let later = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert!(!Rc::ptr_eq(&later, &all[0]));
        // Rates need two measurements of the counters.
        let cpu = later.pods[0].containers[0].cpu.as_ref().unwrap();
        assert!(cpu.usage_nano_cores.is_some(), "{cpu:?}");
    });
}

/// What hangs of the node's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    Root,
    Images,
    Logs,
}

#[test]
fn a_disk_that_hangs_costs_its_own_figures_and_no_others() {
    for stuck in [Stuck::Root, Stuck::Images, Stuck::Logs] {
        run_paused(move || async move {
            let (node, summaries) = running().await;
            write_log(&node);
            let state = &summaries.0;
            let reader = &state.file_systems;
            let held = match stuck {
                Stuck::Root => hang(&reader.io(&node.rules.node.root_dir)).await,
                Stuck::Images => {
                    let images = node.runtime.file_systems().await.unwrap().images;
                    hang(&reader.io(Path::new(&images.unwrap().mountpoint))).await
                }
                Stuck::Logs => hang(&state.logs_io).await,
            };
            let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
            let (own, container) = (&summary.node, &summary.pods[0].containers[0]);
            let images = own.runtime.as_ref().unwrap().image_fs.as_ref().unwrap();
            let there = (
                own.fs.is_some(),
                images.capacity_bytes.is_some(),
                container.logs.is_some(),
            );
            let expected = (
                stuck != Stuck::Root,
                stuck != Stuck::Images,
                stuck != Stuck::Logs,
            );
            assert_eq!(there, expected, "{stuck:?}");
            assert!(own.cpu.is_some() && own.memory.is_some() && container.cpu.is_some());
            let text = summaries.resource_metrics().await;
            assert!(text.contains("resource_scrape_error 0\n"), "{text}");
            let text = summaries.metrics_text().await;
            let logs = text.contains("\nkubelet_container_log_filesystem_used_bytes{");
            assert_eq!(logs, stuck != Stuck::Logs, "{stuck:?}");
            assert!(text.contains("\noxlet_actors{state=\"running\"} "));
            drop(held);
        });
    }
}

/// One mount of the many that `/metrics/cadvisor` tells of.
#[test]
fn a_mount_that_hangs_costs_the_summary_nothing_and_the_metrics_of_cgroups_their_disks() {
    run_paused(|| async {
        let (_node, summaries) = running().await;
        let held = hang(&summaries.0.mounts_io).await;
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert!(summary.node.fs.is_some());
        let text = summaries.cadvisor_metrics().await;
        assert!(text.contains("\ncontainer_scrape_error 0\n"), "{text}");
        assert!(!text.contains("\ncontainer_fs_limit_bytes{"), "{text}");
        drop(held);
    });
}

/// A file of the kernel's that hangs: pods take what the runtime says.
#[test]
fn a_machine_that_hangs_costs_its_own_figures_and_is_told() {
    run_paused(|| async {
        let (_node, summaries) = running().await;
        let held = hang(&summaries.0.machine_io).await;
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert!(summary.node.memory.is_none() && summary.node.fs.is_some());
        assert!(summary.pods[0].containers[0].memory.is_some());
        let text = summaries.resource_metrics().await;
        assert!(text.contains("\nresource_scrape_error 1\n"), "{text}");
        assert!(
            text.contains("\ncontainer_memory_working_set_bytes{"),
            "{text}"
        );
        drop(held);
    });
}

#[test]
fn volumes_that_are_not_told_of_cost_their_own_figures_and_no_others() {
    run_paused(|| async {
        let (node, _) = running().await;
        let (volumes, _unanswered) = inbox(8);
        let summaries = SummaryProvider::new(Peers {
            volumes,
            ..peers(&node)
        });
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        let pod = &summary.pods[0];
        assert!(pod.volumes.is_empty() && pod.ephemeral_storage.is_some());
        assert!(summary.node.fs.is_some());
    });
}

#[test]
fn a_runtime_that_does_not_measure_leaves_the_metrics_with_an_error() {
    run_paused(|| async {
        let (node, summaries) = running().await;
        let faults = ["ListPodSandboxStats", "PodSandboxStats"]
            .map(|call| format!(r#"{{"call": "{call}", "code": "Internal", "message": "no"}}"#));
        node.script(&format!(r#"{{"faults": [{}]}}"#, faults.join(", ")));
        let error = summaries
            .summary(SummaryScope::Everything)
            .await
            .unwrap_err();
        assert!(matches!(error, SummaryError::Runtime(_)), "{error}");
        let text = summaries.resource_metrics().await;
        assert!(text.contains("resource_scrape_error 1\n"), "{text}");
    });
}

/// As upstream: stats of containers, where a runtime has none of sandboxes.
#[test]
fn a_runtime_that_measures_only_containers_is_enough() {
    run_paused(|| async {
        let (node, summaries) = running().await;
        let fault = r#"{"call": "ListPodSandboxStats", "code": "Unimplemented", "message": "no"}"#;
        node.script(&format!(r#"{{"faults": [{fault}]}}"#));
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        let pod = &summary.pods[0];
        assert_eq!(pod.containers.len(), 2);
        assert!(pod.memory.as_ref().unwrap().working_set_bytes.is_some() && pod.network.is_none());
        // Sandbox stats are asked for once: lacking them is not the runtime's error.
        pass(Duration::from_secs(5)).await;
        summaries.summary(SummaryScope::Everything).await.unwrap();
        let refused =
            r#"kubelet_runtime_operations_errors_total{operation_type="list_podsandbox_stats"} 1"#;
        assert!(metrics::text().lines().any(|line| line == refused));
    });
}

#[test]
fn who_watches_for_long_takes_what_was_measured_before() {
    run_paused(|| async {
        let (_node, summaries) = running().await;
        let scope = SummaryScope::CpuAndMemory;
        let age = Duration::from_secs(10);
        let first = summaries.summary_within(scope, age).await.unwrap();
        tokio::time::advance(Duration::from_secs(9)).await;
        let second = summaries.summary_within(scope, age).await.unwrap();
        assert!(Rc::ptr_eq(&first, &second), "nothing was measured");
        let asked = summaries.summary(scope).await.unwrap();
        assert!(!Rc::ptr_eq(&first, &asked), "others get new figures");
        tokio::time::advance(Duration::from_secs(2)).await;
        let third = summaries.summary_within(scope, age).await.unwrap();
        assert!(
            Rc::ptr_eq(&asked, &third),
            "and the watcher has them as well"
        );
        tokio::time::advance(age).await;
        let last = summaries.summary_within(scope, age).await.unwrap();
        assert!(!Rc::ptr_eq(&third, &last));
    });
}
