//! CPUs and memory that a container has to itself, read back from the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use integration::agent::Node;
use integration::{http, pods, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::suite::node_rig::{
    CONVERGENCE_TIMEOUT, NodeRig, TestRuntime, container, id_of, identities, phase, server,
};

on_real_runtimes! {
    what_a_pod_takes_others_lose_and_get_back_over_a_kill_of_the_agent,
}

/// The machine's memory that its system keeps.
const RESERVED: u64 = 64 << 20;
/// The default threshold of hard eviction on memory, which is reserved as well.
const EVICTION: u64 = 100 << 20;

fn settings() -> Value {
    json!({
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "single-numa-node",
        "kubeReserved": { "cpu": "500m", "memory": RESERVED.to_string() },
        "reservedMemory": [
            { "numaNode": 0, "limits": { "memory": (RESERVED + EVICTION).to_string() } },
        ],
    })
}

/// A guaranteed pod that asks for so many whole CPUs.
fn guaranteed(name: &str, cpus: usize) -> String {
    let resources = format!("resources: {{limits: {{cpu: '{cpus}', memory: 64Mi}}}}");
    server(name).replace("    command:", &format!("    {resources}\n    command:"))
}

fn numbers(list: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse().unwrap()..=last.parse::<usize>().unwrap());
    }
    cpus
}

/// What the kernel says of a container's first process in its line of this name.
async fn allowed(rig: &NodeRig, name: &str, line: &str) -> String {
    let pod = rig.node.pod(name).await.unwrap().unwrap();
    let id = id_of(container(&pod, "app").unwrap());
    let pid = pods::pid_of(&rig.cri().await.runtime(), &id).await.unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|text| text.strip_prefix(line));
    found.unwrap().trim_start_matches(':').trim().to_owned()
}

async fn cpus(rig: &NodeRig, name: &str) -> Vec<usize> {
    numbers(&allowed(rig, name, "Cpus_allowed_list").await)
}

async fn until_on(rig: &NodeRig, name: &str, expected: &[usize]) {
    let what = format!("{name} runs on {expected:?}");
    let is_there = async || cpus(rig, name).await == expected;
    wait_until(CONVERGENCE_TIMEOUT, &what, is_there)
        .await
        .unwrap();
}

/// What `oxctl cpus` says that a container has to itself.
async fn owned(rig: &NodeRig, holder: &str) -> Vec<usize> {
    let view = rig.node.oxctl(&["cpus", "-o", "json"]).await.unwrap();
    let view: Value = serde_json::from_str(&view).unwrap();
    let rows = view["cpus"].as_array().unwrap().iter();
    let owns = |row: &&Value| row["holders"].as_array().unwrap().contains(&json!(holder));
    let cpus = rows.filter(owns).map(|row| row["cpu"].as_u64().unwrap());
    cpus.map(|cpu| usize::try_from(cpu).unwrap()).collect()
}

async fn what_a_pod_takes_others_lose_and_get_back_over_a_kill_of_the_agent(on: TestRuntime) {
    let started = on.start_with(|builder| builder.config(&settings())).await;
    let Some(mut rig) = started else { return };
    let all = numbers(
        fs::read_to_string("/sys/devices/system/cpu/online")
            .unwrap()
            .trim(),
    );
    let (reserved, own) = all.split_at(1);

    rig.node.drop_manifest("web", &server("web")).unwrap();
    rig.until_running("web").await;
    assert_eq!(cpus(&rig, "web").await, all);

    rig.node
        .drop_manifest("db", &guaranteed("db", own.len()))
        .unwrap();
    let db = rig.until_running("db").await;
    let holder = format!("default/{} app", db.metadata.name.as_deref().unwrap());
    assert_eq!(cpus(&rig, "db").await, own);
    until_on(&rig, "web", reserved).await;
    assert_eq!(allowed(&rig, "db", "Mems_allowed_list").await, "0");
    assert_eq!(owned(&rig, &holder).await, own);

    // There is none left; the same after the agent died.
    let before = identities(&rig.node.pods().await.unwrap());
    rig.node.kill9().unwrap();
    let state = fs::read_to_string(rig.node.root().join("cpu_manager_state")).unwrap();
    assert!(
        state.starts_with(r#"{"policyName":"static","defaultCpuSet":"0","entries":{"#),
        "{state}"
    );
    rig.node.begin().await.unwrap();
    rig.until_running("db").await;
    rig.until_running("web").await;
    assert_eq!(identities(&rig.node.pods().await.unwrap()), before);
    rig.node
        .drop_manifest("more", &guaranteed("more", 1))
        .unwrap();
    let refused = rig
        .until("more", "is refused", |pod| phase(pod) == "Failed")
        .await;
    let status = refused.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("TopologyAffinityError"));
    let why = rig.node.oxctl(&["why", "more"]).await.unwrap();
    assert!(
        why.contains("single-numa-node admits no place for NUMA nodes cpu: nowhere"),
        "{why}"
    );
    assert_eq!(cpus(&rig, "db").await, own);
    assert_eq!(owned(&rig, &holder).await, own);

    // A container that comes back has the same CPUs.
    let id = id_of(container(&rig.node.pod("db").await.unwrap().unwrap(), "app").unwrap());
    let pid = pods::pid_of(&rig.cri().await.runtime(), &id).await.unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let is_back = |pod: &k8s_openapi::api::core::v1::Pod| {
        container(pod, "app").is_some_and(|app| app.restart_count == 1 && app.ready)
    };
    rig.until("db", "is started again", is_back).await;
    assert_eq!(cpus(&rig, "db").await, own);

    rig.node.remove_manifest("db").unwrap();
    rig.until_gone("db").await;
    until_on(&rig, "web", &all).await;
    rig.node.remove_manifest("web").unwrap();
    rig.node.remove_manifest("more").unwrap();
    for name in ["web", "more"] {
        rig.until_gone(name).await;
    }
    let forgotten = async || {
        let state = fs::read_to_string(rig.node.root().join("cpu_manager_state"));
        state.is_ok_and(|state| !state.contains("entries"))
    };
    let what = "nothing is held any more";
    wait_until(Duration::from_secs(10), what, forgotten)
        .await
        .unwrap();
}

/// What a scrape says of the managers, by series.
async fn counted(node: &Node) -> BTreeMap<String, f64> {
    const MANAGERS: [&str; 5] = [
        "kubelet_container_aligned_compute_resources_",
        "kubelet_cpu_manager_",
        "kubelet_memory_manager_",
        "kubelet_topology_manager_admission_",
        "resource_manager_",
    ];
    let text = http::get(node.read_only_port(), "/metrics").await.unwrap();
    let text = text.text();
    let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
    let own = samples.filter(|(series, _)| {
        let is_total = !series.contains("_duration_ms_bucket") && !series.ends_with("_sum");
        is_total && MANAGERS.iter().any(|manager| series.starts_with(manager))
    });
    own.map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

/// The series of a node on which so many pods were asked for, admitted, refused and allocated something; the admitted one
/// has so many CPUs.
fn expected(
    [asked, admitted, refused, allocated]: [f64; 4],
    cpus: f64,
    all: &[usize],
) -> BTreeMap<String, f64> {
    let manager = |name: &str, value: f64| (format!("kubelet_{name}"), value);
    let boundary = |name: &str, scope: &str, boundary: &str, value: f64| {
        let labels = format!("boundary=\"{boundary}\",scope=\"{scope}\"");
        (
            format!("kubelet_container_aligned_compute_resources_{name}{{{labels}}}"),
            value,
        )
    };
    let shared = u32::try_from(all.len() - 1).map(f64::from).unwrap() - cpus;
    let mut series = BTreeMap::from([
        manager("cpu_manager_allocation_per_numa{numa_node=\"0\"}", cpus),
        manager("cpu_manager_exclusive_cpu_allocation_count", cpus),
        manager("cpu_manager_pinning_errors_total", 0.0),
        manager("cpu_manager_pinning_requests_total", admitted),
        manager("cpu_manager_shared_pool_size_millicores", shared * 1000.0),
        manager("memory_manager_pinning_errors_total", 0.0),
        manager("memory_manager_pinning_requests_total", admitted),
        manager("topology_manager_admission_duration_ms_count", asked),
        manager("topology_manager_admission_errors_total", refused),
        manager("topology_manager_admission_requests_total", asked),
        boundary("count", "container", "numa_node", 0.0),
        boundary("count", "container", "physical_cpu", 0.0),
        boundary("count", "container", "uncore_cache", allocated),
        boundary("count", "pod", "numa_node", admitted),
        boundary("failure_count", "container", "numa_node", 0.0),
        boundary("failure_count", "container", "physical_cpu", 0.0),
        boundary("failure_count", "pod", "numa_node", refused),
    ]);
    for resource in ["cpu", "memory"].into_iter().filter(|_| allocated > 0.0) {
        let source = format!("resource_name=\"{resource}\",source=\"node\"");
        let manner = format!("assignment_type=\"node_exclusive\",resource_name=\"{resource}\"");
        series.extend([
            (
                format!("resource_manager_allocations_total{{{source}}}"),
                allocated,
            ),
            (
                format!("resource_manager_container_assignments{{{manner}}}"),
                allocated,
            ),
        ]);
    }
    series
}

/// Upstream's test/e2e_node/{cpu,memory,topology}_manager_metrics_test.go, as far as this machine has cores and nodes for
/// them, with the gate `PodLevelResourceManagers`.
#[tokio::test]
async fn what_pods_take_is_counted_by_the_kubelets_names_and_anew_after_a_kill_of_the_agent() {
    let mut settings = settings();
    settings["topologyManagerScope"] = "pod".into();
    settings["featureGates"] = json!({ "PodLevelResourceManagers": true });
    let mut node = Node::builder().config(&settings).start().await.unwrap();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let all = numbers(online.trim());
    let until = async |node: &Node, what: &str, wanted: &BTreeMap<String, f64>| {
        let is_so = async || counted(node).await == *wanted;
        let so = wait_until(CONVERGENCE_TIMEOUT, what, is_so).await;
        assert!(
            so.is_ok(),
            "{what}: {:#?} and not {wanted:#?}",
            counted(node).await
        );
    };
    until(
        &node,
        "nothing is counted yet",
        &expected([0.0; 4], 0.0, &all),
    )
    .await;

    let is_running = |pod: &k8s_openapi::api::core::v1::Pod| phase(pod) == "Running";
    node.drop_manifest("db", &guaranteed("db", 1)).unwrap();
    node.until("db", CONVERGENCE_TIMEOUT, "runs", is_running)
        .await
        .unwrap();
    let wanted = expected([1.0, 1.0, 0.0, 1.0], 1.0, &all);
    until(&node, "a pod is counted", &wanted).await;

    node.drop_manifest("large", &guaranteed("large", all.len()))
        .unwrap();
    let wanted = expected([2.0, 1.0, 1.0, 1.0], 1.0, &all);
    until(&node, "a refused pod is counted", &wanted).await;
    node.remove_manifest("large").unwrap();
    node.until_gone("large", CONVERGENCE_TIMEOUT).await.unwrap();

    // It is asked for again, and allocated nothing.
    node.kill9().unwrap();
    node.begin().await.unwrap();
    let wanted = expected([1.0, 1.0, 0.0, 0.0], 1.0, &all);
    until(&node, "a pod that runs is counted", &wanted).await;
}
