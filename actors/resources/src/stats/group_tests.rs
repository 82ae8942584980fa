//! The summary provider on a machine whose cgroups a test has written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use host::group_stats::GroupReader;
use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_resources::cgroups::{CgroupName, Hierarchy};
use logic_resources::summary::SummaryScope;
use pods::testing::TestNode;

use super::*;

const WEB: &str = "
metadata: {name: web}
spec:
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
";

/// A node with the pod `web`, and the folder of its cgroups.
struct Machine {
    node: TestNode,
    folder: tempfile::TempDir,
}

impl Machine {
    async fn start() -> Machine {
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
    fn write(&self, name: &str, used: u64) {
        let group = self.folder.path().join(name);
        fs::create_dir_all(&group).unwrap();
        let files = [
            ("cpu.stat", format!("usage_usec {used}\n")),
            ("memory.current", format!("{used}\n")),
            (
                "memory.stat",
                "anon 1\nfile 0\ninactive_file 0\n".to_owned(),
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

    fn provider(&self, source: StatsSource) -> SummaryProvider {
        let peers = Peers {
            root: self.node.node.root.clone(),
            runtime: self.node.runtime.clone(),
            pod_manager: self.node.node.pod_manager.clone(),
            volumes: self.node.node.volumes.clone(),
            rules: self.node.rules.clone(),
            groups: SystemGroups::default(),
            source,
        };
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

/// How often the runtime was asked.
fn calls(operation: &str) -> u64 {
    let series = format!("kubelet_runtime_operations_total{{operation_type=\"{operation}\"}} ");
    let text = metrics::text();
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(series.as_str()));
    values.next().map_or(0, |value| value.parse().unwrap())
}

#[test]
fn pods_take_what_their_groups_say_and_the_runtime_tells_their_layers_alone() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        let before = calls("list_podsandbox_stats");
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert_eq!(calls("list_podsandbox_stats"), before);
        let pod = &summary.pods[0];
        let cpu = pod.cpu.as_ref().unwrap();
        assert_eq!(cpu.usage_core_nano_seconds, Some(300_000));
        assert_eq!(pod.swap.as_ref().unwrap().swap_usage_bytes, Some(7));
        assert!(pod.network.is_some() && pod.io.is_some());
        assert_eq!(pod.processes.as_ref().unwrap().process_count, Some(1));
        let container = &pod.containers[0];
        assert_eq!(container.memory.as_ref().unwrap().usage_bytes, Some(100));
        assert!(container.rootfs.is_some());
        let node = &summary.node;
        assert!(node.io.is_some() && node.cpu.as_ref().unwrap().usage_nano_cores.is_some());
        assert_eq!(node.system_containers[0].name, "pods");
    });
}

#[test]
fn cpu_and_memory_alone_ask_the_runtime_for_its_lists_alone() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        let before = (
            calls("list_container_stats"),
            calls("list_podsandbox_stats"),
        );
        let text = summaries.resource_metrics().await;
        let after = (
            calls("list_container_stats"),
            calls("list_podsandbox_stats"),
        );
        assert_eq!(before, after);
        for name in [
            "container_cpu_usage_seconds_total",
            "container_swap_usage_bytes",
            "container_swap_limit_bytes",
            "pod_swap_usage_bytes",
        ] {
            assert!(text.contains(&format!("\n{name}{{")), "{name} in {text}");
        }
        assert!(text.contains("\nnode_swap_usage_bytes "), "{text}");
    });
}

#[test]
fn layers_that_the_runtime_does_not_tell_cost_their_own_figures() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let refused =
            r#"{"faults": [{"call": "ListContainerStats", "code": "Internal", "message": "no"}]}"#;
        let summaries = machine.provider(StatsSource::Groups);
        machine.node.script(refused);
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        let container = &summary.pods[0].containers[0];
        assert!(container.rootfs.is_none() && container.cpu.is_some());
        machine.node.script(r#"{"faults": []}"#);
        pass(Duration::from_secs(2)).await;
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert!(summary.pods[0].containers[0].rootfs.is_some());
        // Figures that are there outlast a refusal for a while, and no longer.
        machine.node.script(refused);
        for (seconds, expected) in [(11, true), (150, false)] {
            pass(Duration::from_secs(seconds)).await;
            let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
            let container = &summary.pods[0].containers[0];
            assert_eq!(container.rootfs.is_some(), expected, "{seconds}");
        }
    });
}

#[test]
fn the_runtime_alone_counts_where_the_gate_says_so() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Runtime);
        let before = calls("list_podsandbox_stats");
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert_eq!(calls("list_podsandbox_stats"), before + 1);
        let cpu = summary.pods[0].cpu.as_ref().unwrap();
        assert_ne!(cpu.usage_core_nano_seconds, Some(300_000));
    });
}

#[test]
fn cgroups_show_by_cadvisors_metrics_and_requests_at_once_share_one_reading() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        let text = summaries.cadvisor_metrics().await;
        assert!(text.contains("\ncontainer_scrape_error 0\n"), "{text}");
        let app = r#"container_memory_usage_bytes{container="app",id="/kubepods/podweb/"#;
        assert!(text.contains(app), "{text}");
        machine.write("kubepods", 401);
        let top = r#"container_memory_usage_bytes{container="",id="/kubepods",image="",name="",namespace="",pod=""}"#;
        let value = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(top));
            line.unwrap().split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(value(&summaries.cadvisor_metrics().await), "400");
        pass(Duration::from_secs(2)).await;
        assert_eq!(value(&summaries.cadvisor_metrics().await), "401");
    });
}

#[test]
fn a_runtime_that_does_not_list_its_pods_leaves_the_groups_with_the_names_of_before() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        summaries.cadvisor_metrics().await;
        let faults =
            r#"{"faults": [{"call": "ListContainers", "code": "Internal", "message": "no"}]}"#;
        machine.node.script(faults);
        pass(Duration::from_secs(2)).await;
        let text = summaries.cadvisor_metrics().await;
        assert!(text.contains("container=\"app\"") && text.contains("container_scrape_error 0"));
    });
}
