//! What a scrape says of the CPUs that pods have to themselves, on a node of 4 CPUs of which one is reserved.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::testing::{pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_placement::testing::static_cpus;

use super::cpus::guaranteed;
use crate::testing::TestNode;
use crate::worker::tests::phase;

const SHARED: &str = "kubelet_cpu_manager_shared_pool_size_millicores";
const EXCLUSIVE: &str = "kubelet_cpu_manager_exclusive_cpu_allocation_count";
const ADMISSIONS: &str = "kubelet_topology_manager_admission_requests_total";
const TIMES: &str = "kubelet_topology_manager_admission_duration_ms_count";
const REQUESTS: &str = "kubelet_cpu_manager_pinning_requests_total";
const ERRORS: &str = "kubelet_cpu_manager_pinning_errors_total";
const CACHE: &str = "kubelet_container_aligned_compute_resources_count{boundary=\"uncore_cache\",scope=\"container\"}";

/// The series of the managers and their values; of histograms the counts.
fn scrape() -> BTreeMap<String, f64> {
    const MANAGERS: [&str; 5] = [
        "kubelet_cpu_manager_",
        "kubelet_memory_manager_",
        "kubelet_topology_manager_",
        "kubelet_container_aligned_compute_resources_",
        "resource_manager_",
    ];
    let text = metrics::text();
    let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
    let own = samples.filter(|(series, _)| {
        let is_count = !series.contains("_bucket{") && !series.ends_with("_sum");
        is_count && MANAGERS.iter().any(|manager| series.starts_with(manager))
    });
    own.map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

/// What has changed since an earlier scrape, which is brought up to date.
fn moved(before: &mut BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let now = scrape();
    let changed = now.iter().filter_map(|(series, value)| {
        let by = value - before.get(series).unwrap_or(&0.0);
        (by != 0.0).then(|| (series.clone(), by))
    });
    let changed = changed.collect();
    *before = now;
    changed
}

fn series(list: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let list = list.iter();
    list.map(|(series, value)| ((*series).to_owned(), *value))
        .collect()
}

/// Upstream's test/e2e_node/cpu_manager_metrics_test.go, as far as it needs no threads of cores.
#[test]
fn counters_move_as_pods_come_are_refused_and_are_found_running() {
    run_paused(|| async {
        let node = TestNode::assigning(static_cpus(4)).await;
        pass(Duration::from_secs(1)).await;
        let mut seen = scrape();
        for (series, value) in [
            (REQUESTS, 0.0),
            (ERRORS, 0.0),
            (CACHE, 0.0),
            (&CACHE.replace("uncore_cache", "physical_cpu"), 0.0),
            (
                &CACHE
                    .replace("uncore_cache", "physical_cpu")
                    .replace("_count", "_failure_count"),
                0.0,
            ),
            ("kubelet_memory_manager_pinning_errors_total", 0.0),
            // The reserved one runs shared containers too and is not counted.
            (SHARED, 3000.0),
            (EXCLUSIVE, 0.0),
            (
                "kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"}",
                0.0,
            ),
        ] {
            assert_eq!(seen.get(series), Some(&value), "{series}");
        }
        assert!(
            !seen
                .keys()
                .any(|series| series.contains("resource_manager")),
            "{seen:?}"
        );

        let db = pod(&guaranteed("db", "2"));
        node.desire(std::slice::from_ref(&db));
        node.until("db", phase("Running")).await;
        let own = "kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"}";
        let taken = [(SHARED, -2000.0), (EXCLUSIVE, 2.0), (own, 2.0)];
        let counted = [
            (ADMISSIONS, 1.0),
            (TIMES, 1.0),
            (REQUESTS, 1.0),
            (CACHE, 1.0),
        ];
        assert_eq!(moved(&mut seen), series(&[&taken[..], &counted].concat()));

        node.desire(&[db.clone(), pod(&guaranteed("large", "3"))]);
        node.until("large", phase("Failed")).await;
        let refused = [
            (ADMISSIONS, 1.0),
            (TIMES, 1.0),
            (REQUESTS, 1.0),
            (ERRORS, 1.0),
        ];
        assert_eq!(moved(&mut seen), series(&refused));

        // Of those that share, the topology manager alone has heard.
        node.desire(&[db.clone(), pod(&guaranteed("small", "500m"))]);
        node.until("small", phase("Running")).await;
        assert_eq!(moved(&mut seen), series(&[(ADMISSIONS, 1.0), (TIMES, 1.0)]));

        // One that keeps its CPUs is asked for again, and not allocated them.
        node.desire(std::slice::from_ref(&db));
        node.until_gone("small").await;
        drop(moved(&mut seen));
        let node = node.restart_assigning(static_cpus(4)).await;
        node.desire(&[db]);
        pass(Duration::from_secs(5)).await;
        node.until("db", phase("Running")).await;
        let again = [(ADMISSIONS, 1.0), (TIMES, 1.0), (REQUESTS, 1.0)];
        assert_eq!(moved(&mut seen), series(&again));

        node.desire(&[]);
        node.until_gone("db").await;
        pass(Duration::from_secs(1)).await;
        let freed = [(SHARED, 2000.0), (EXCLUSIVE, -2.0), (own, -2.0)];
        assert_eq!(moved(&mut seen), series(&freed));
    });
}
