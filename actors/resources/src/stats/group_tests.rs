//! The summary provider on a machine whose cgroups a test has written.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use kernel::testing::{pass, run_paused};
use logic_resources::summary::SummaryScope;

use super::testing::Machine;
use super::*;

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

/// Upstream's NewCRIMetricsCollector; a runtime that makes no metrics leaves them to the cgroups.
#[test]
fn the_runtimes_own_metrics_show_where_the_gate_says_so_and_it_makes_some() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let of_cgroups = r#"container_memory_usage_bytes{container="app",id="/kubepods/"#;
        let of_runtime = r#"namespace="default",pod="web"} "#;
        let fault = |call: &str, code: &str| {
            format!(r#"{{"faults": [{{"call": "{call}", "code": "{code}", "message": "no"}}]}}"#)
        };
        let cases = [
            ("{}".to_owned(), [false, true, false]),
            (
                fault("ListMetricDescriptors", "Unimplemented"),
                [true, false, false],
            ),
            (
                fault("ListPodSandboxMetrics", "Internal"),
                [false, false, true],
            ),
        ];
        for (script, expected) in cases {
            machine.node.script(&script);
            let summaries = machine.provider(StatsSource::Runtime);
            let text = summaries.cadvisor_metrics().await;
            let is_by_runtime = |line: &str| {
                line.starts_with("container_memory_usage_bytes{") && line.contains(of_runtime)
            };
            let found = [
                text.contains(of_cgroups),
                text.lines().any(is_by_runtime) && !text.contains(of_cgroups),
                text.contains("\ncontainer_scrape_error 1\n")
                    || text.starts_with("container_scrape_error 1"),
            ];
            assert_eq!(found, expected, "{script} {text}");
            assert!(text.contains("\nmachine_memory_bytes{"), "{text}");
        }
        // Otherwise it is not asked.
        machine.node.script("{}");
        let summaries = machine.provider(StatsSource::Groups);
        assert!(summaries.cadvisor_metrics().await.contains(of_cgroups));
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

/// A runtime that answers after the summary has stopped waiting: the next one has the answer, and asks nobody.
#[test]
fn layers_that_come_late_are_shown_by_the_next_summary() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        machine
            .node
            .script(r#"{"delays": {"ListContainerStats": "8s"}}"#);
        let before = calls("list_container_stats");
        for expected in [false, true] {
            let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
            let container = &summary.pods[0].containers[0];
            assert_eq!(container.rootfs.is_some(), expected);
            assert!(container.cpu.is_some());
            pass(Duration::from_secs(5)).await;
        }
        assert_eq!(calls("list_container_stats"), before + 1);
    });
}

/// Groups whose files vanish, are empty or lie: those figures are missing, and every other one is there.
#[test]
fn a_group_that_tells_nonsense_costs_its_own_figures_and_no_others() {
    type Spoil = fn(&Path) -> io::Result<()>;
    let spoils: [Spoil; 5] = [
        |group| fs::remove_file(group.join("memory.current")),
        |group| fs::write(group.join("memory.current"), ""),
        |group| fs::write(group.join("memory.current"), "-1\n"),
        |group| fs::write(group.join("memory.stat"), "99999999999999999999999\n\0"),
        |group| fs::remove_dir_all(group),
    ];
    for spoil in spoils {
        run_paused(move || async move {
            let machine = Machine::start().await;
            let summaries = machine.provider(StatsSource::Groups);
            spoil(&machine.group("kubepods/podweb")).unwrap();
            let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
            let container = &summary.pods[0].containers[0];
            let memory = container.memory.as_ref().unwrap();
            assert!(memory.usage_bytes > Some(0) && container.cpu.is_some());
            assert!(container.rootfs.is_some() && summary.node.memory.is_some());
            let text = summaries.resource_metrics().await;
            assert!(text.contains("\nresource_scrape_error 0\n"), "{text}");
        });
    }
}

#[test]
fn requests_of_all_kinds_within_a_second_read_each_figure_once() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        let used = |summary: &StatsSummary| {
            let cpu = summary.pods[0].cpu.as_ref().unwrap();
            cpu.usage_core_nano_seconds.unwrap()
        };
        let listed = machine.node.runtime.pods().await.unwrap();
        let group = format!("kubepods/pod{}", listed.values().next().unwrap().uid);
        summaries.cadvisor_metrics().await;
        machine.write(&group, 500);
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert_eq!(used(&summary), 300_000, "as cAdvisor's metrics have it");
        tokio::time::advance(CACHE_PERIOD).await;
        let summary = summaries.summary(SummaryScope::CpuAndMemory).await.unwrap();
        assert_eq!(used(&summary), 500_000);
        assert!(summary.pods[0].io.is_none());
        machine.write(&group, 700);
        let summary = summaries.summary(SummaryScope::Everything).await.unwrap();
        assert_eq!(used(&summary), 500_000, "what is known is not read again");
        assert!(summary.pods[0].io.is_some(), "what is not known is read");
    });
}

#[test]
fn descriptors_and_limits_of_tasks_are_as_old_as_cadvisors_and_usage_is_new() {
    run_paused(|| async {
        let machine = Machine::start().await;
        let summaries = machine.provider(StatsSource::Groups);
        let limit = |text: String| fs::write(machine.group("kubepods").join("pids.max"), text);
        let labels = r#"{container="",id="/kubepods",image="",name="",namespace="",pod=""} "#;
        let value = |text: &str, name: &str| {
            let series = format!("{name}{labels}");
            let line = text.lines().find_map(|line| line.strip_prefix(&series));
            line.unwrap().split_whitespace().next().unwrap().to_owned()
        };
        for (nth, seconds, expected) in [(1, 0, "1"), (2, 15, "1"), (3, 6, "3"), (4, 19, "3")] {
            pass(Duration::from_secs(seconds)).await;
            machine.write("kubepods", nth);
            limit(format!("{nth}\n")).unwrap();
            let text = summaries.cadvisor_metrics().await;
            assert_eq!(value(&text, "container_threads_max"), expected);
            let used = value(&text, "container_memory_usage_bytes");
            assert_eq!(used, nth.to_string());
        }
    });
}
