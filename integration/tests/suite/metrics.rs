//! The metrics of a whole agent, beside upstream's list of stable and beta ones (Kubernetes metrics reference, 1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use integration::agent::Node;
use integration::cluster::{Cluster, condition};
use serde_json::{Value, json};

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
const TOKEN: &str = "reads-metrics";

/// What upstream says of a metric: where it shows, its name, type and labels.
type MetricFact = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const OWN: &str = "/metrics";
const PROBES: &str = "/metrics/probes";
const SLIS: &str = "/metrics/slis";
const RESOURCE: &str = "/metrics/resource";
const QUEUE: &[&str] = &["name"];
const CONTAINER: &[&str] = &["container", "namespace", "pod"];
const POD: &[&str] = &["namespace", "pod"];

/// Each stable one of the kubelet.
const STABLE: &[MetricFact] = &[
    (
        RESOURCE,
        "container_cpu_usage_seconds_total",
        "counter",
        CONTAINER,
    ),
    (
        RESOURCE,
        "container_memory_working_set_bytes",
        "gauge",
        CONTAINER,
    ),
    (RESOURCE, "container_start_time_seconds", "gauge", CONTAINER),
    (RESOURCE, "node_cpu_usage_seconds_total", "counter", &[]),
    (RESOURCE, "node_memory_working_set_bytes", "gauge", &[]),
    (RESOURCE, "pod_cpu_usage_seconds_total", "counter", POD),
    (RESOURCE, "pod_memory_working_set_bytes", "gauge", POD),
    (RESOURCE, "resource_scrape_error", "gauge", &[]),
    (SLIS, "kubernetes_healthcheck", "gauge", &["name", "type"]),
    (
        SLIS,
        "kubernetes_healthchecks_total",
        "counter",
        &["name", "status", "type"],
    ),
];

/// Each beta one of the kubelet that shows without a controller of its own: `running_managed_controllers` has no
/// sample.
const BETA: &[MetricFact] = &[
    (OWN, "disabled_metrics_total", "counter", &[]),
    (OWN, "hidden_metrics_total", "counter", &[]),
    (
        OWN,
        "kubelet_image_volume_mounted_errors_total",
        "counter",
        &[],
    ),
    (
        OWN,
        "kubelet_image_volume_mounted_succeed_total",
        "counter",
        &[],
    ),
    (OWN, "kubelet_image_volume_requested_total", "counter", &[]),
    (
        OWN,
        "kubernetes_build_info",
        "gauge",
        &[
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
    ),
    (
        OWN,
        "kubernetes_feature_enabled",
        "gauge",
        &["name", "stage"],
    ),
    (
        PROBES,
        "prober_probe_total",
        "counter",
        &[
            "container",
            "namespace",
            "pod",
            "pod_uid",
            "probe_type",
            "result",
        ],
    ),
    (
        OWN,
        "registered_metrics_total",
        "counter",
        &["deprecated_version", "stability_level"],
    ),
    (OWN, "workqueue_adds_total", "counter", QUEUE),
    (OWN, "workqueue_depth", "gauge", QUEUE),
    (
        OWN,
        "workqueue_longest_running_processor_seconds",
        "gauge",
        QUEUE,
    ),
    (OWN, "workqueue_queue_duration_seconds", "histogram", QUEUE),
    (OWN, "workqueue_retries_total", "counter", QUEUE),
    (OWN, "workqueue_unfinished_work_seconds", "gauge", QUEUE),
    (OWN, "workqueue_work_duration_seconds", "histogram", QUEUE),
];

/// The buckets of each stable and beta histogram.
const BUCKETS: &[(&str, &[f64])] = &[
    ("workqueue_queue_duration_seconds", WORK),
    ("workqueue_work_duration_seconds", WORK),
];
/// Each is ten times the one before, by the arithmetic of floats.
const WORK: &[f64] = &[
    1e-8,
    1e-7,
    1e-6,
    9.999999999999999e-6,
    9.999999999999999e-5,
    1e-3,
    1e-2,
    0.1,
    1.0,
    10.0,
];

/// A sample: its labels and its value.
type MetricSample = (BTreeMap<String, String>, f64);

/// What a text says of one metric.
#[derive(Debug, Default)]
struct MetricFamily {
    help: String,
    kind: String,
    /// By the sample's own name: a histogram has several.
    samples: BTreeMap<String, Vec<MetricSample>>,
}

/// A text of metrics, read.
#[derive(Debug)]
struct MetricsPage(BTreeMap<String, MetricFamily>);

impl MetricsPage {
    /// Reads the text format 0.0.4; what is not of it ends the test.
    fn read(text: &str) -> MetricsPage {
        let mut families: BTreeMap<String, MetricFamily> = BTreeMap::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# HELP ") {
                let (name, help) = head.split_once(' ').unwrap();
                let family = families.entry(name.to_owned()).or_default();
                assert!(family.help.is_empty(), "{name} comes twice");
                help.clone_into(&mut family.help);
            } else if let Some(head) = line.strip_prefix("# TYPE ") {
                let (name, kind) = head.split_once(' ').unwrap();
                let family = families.entry(name.to_owned()).or_default();
                kind.clone_into(&mut family.kind);
                name.clone_into(&mut current);
            } else {
                let (name, sample) = sample(line);
                assert!(name.starts_with(&current), "{line} stands under {current}");
                let family = families.get_mut(&current).unwrap();
                family.samples.entry(name).or_default().push(sample);
            }
        }
        MetricsPage(families)
    }

    fn samples(&self, name: &str) -> &[MetricSample] {
        let mut all = self.0.values();
        let found = all.find_map(|family| family.samples.get(name));
        found.map_or(&[], Vec::as_slice)
    }

    /// The sum of the samples that bear these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let bears = |sample: &&MetricSample| {
            let has = |(key, value): &(&str, &str)| {
                sample.0.get(*key).map(String::as_str) == Some(*value)
            };
            labels.iter().all(has)
        };
        let samples = self.samples(name).iter();
        samples.filter(bears).map(|(_, value)| value).sum()
    }

    fn buckets(&self, name: &str) -> BTreeSet<String> {
        let samples = self.samples(&format!("{name}_bucket")).iter();
        samples
            .filter_map(|(labels, _)| labels.get("le").cloned())
            .collect()
    }
}

/// `name{key="value",...} number [time]`
fn sample(line: &str) -> (String, MetricSample) {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}').unwrap(),
        None => ("", rest),
    };
    let value = rest.trim().split(' ').next().unwrap();
    let labels = labels.split("\",").filter(|label| !label.is_empty());
    let labels = labels.map(|label| {
        let (key, value) = label.split_once("=\"").unwrap();
        (key.to_owned(), value.trim_end_matches('"').to_owned())
    });
    (name.to_owned(), (labels.collect(), value.parse().unwrap()))
}

/// The HTTPS API's answer to an authorized client.
async fn page(cluster: &Cluster, path: &str) -> MetricsPage {
    let url = format!("https://127.0.0.1:{}{path}", cluster.node.https_port());
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let output = tokio::process::Command::new("curl")
        .args(["-sSkf", "-H", &bearer, &url])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{path}: {output:?}");
    MetricsPage::read(&String::from_utf8(output.stdout).unwrap())
}

fn pod(name: &str, containers: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": "node",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": containers,
        },
    })
}

fn container(name: &str, command: &str) -> Value {
    json!({
        "name": name,
        "image": "localhost/oxlet/busybox:1",
        "command": command.split(' ').collect::<Vec<_>>(),
    })
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == Some("True")
}

/// A node on which pods have begun and ended, been probed, entered and deleted.
async fn lived_in() -> Cluster {
    let cluster = Cluster::start(Node::builder()).await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    cluster.double().token(TOKEN, "operator", &[]);
    let asked = |question: &apiserver::AccessAttributes| {
        question.resource == "nodes" && question.user == "operator"
    };
    cluster
        .double()
        .judge(move |question| asked(question).then_some(true));

    let mut probed = container("app", "sleep infinity");
    probed["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let web = json!([probed, container("beside", "sleep infinity")]);
    cluster.apply(&pod("web", web)).unwrap();
    cluster
        .apply(&pod("job", json!([container("app", "sleep 1")])))
        .unwrap();
    cluster
        .apply(&pod("gone", json!([container("app", "sleep infinity")])))
        .unwrap();
    let fixed = pod("fixed", json!([container("app", "sleep infinity")]));
    cluster
        .node
        .drop_manifest("fixed.json", &fixed.to_string())
        .unwrap();
    for name in ["web", "gone", "fixed-node"] {
        cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, is_ready)
            .await
            .unwrap();
    }
    let over = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    cluster
        .until_pod("job", CONVERGENCE_TIMEOUT, over)
        .await
        .unwrap();
    cluster
        .kubectl_ok(&["exec", "web", "-c", "app", "--", "true"])
        .await
        .unwrap();
    cluster
        .kubectl_ok(&["delete", "pod", "gone"])
        .await
        .unwrap();
    cluster
        .until_pod("gone", CONVERGENCE_TIMEOUT, Value::is_null)
        .await
        .unwrap();
    cluster
}

#[tokio::test]
async fn every_stable_and_beta_metric_shows_by_upstreams_name_type_labels_and_buckets() {
    let cluster = lived_in().await;
    assert!(cluster.node.is_healthy().await);
    let mut pages = BTreeMap::new();
    for path in ["/healthz", OWN, PROBES, SLIS, RESOURCE] {
        match path {
            "/healthz" => drop(integration::http::get(cluster.node.read_only_port(), path).await),
            path => drop(pages.insert(path, page(&cluster, path).await)),
        }
    }
    let facts = STABLE.iter().map(|fact| ("[STABLE] ", fact));
    let facts = facts.chain(BETA.iter().map(|fact| ("[BETA] ", fact)));
    for (stability, (path, name, kind, labels)) in facts {
        let family = pages[path].0.get(*name);
        let family = family.unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.kind, *kind, "{name}");
        assert!(
            family.help.starts_with(stability),
            "{name}: {}",
            family.help
        );
        assert!(!family.samples.is_empty(), "{name} has no samples");
        let expected: BTreeSet<&str> = labels.iter().copied().collect();
        for (own, samples) in &family.samples {
            for (found, _) in samples {
                let found: BTreeSet<&str> = found.keys().map(String::as_str).collect();
                let mut expected = expected.clone();
                expected.extend(own.ends_with("_bucket").then_some("le"));
                assert_eq!(found, expected, "{own}");
            }
        }
    }
    for (name, expected) in BUCKETS {
        let found = pages[OWN].buckets(name);
        assert_eq!(found.len(), expected.len() + 1, "{name}: {found:?}");
        for bound in *expected {
            let is_it = |text: &String| text.parse::<f64>().is_ok_and(|found| found == *bound);
            assert!(found.iter().any(is_it), "{name}: {bound} in {found:?}");
        }
    }
    // What is stable or beta here is so upstream.
    let known: BTreeSet<&str> = STABLE.iter().chain(BETA).map(|fact| fact.1).collect();
    for (name, family) in pages.values().flat_map(|page| &page.0) {
        let promised = family.help.starts_with("[STABLE]") || family.help.starts_with("[BETA]");
        assert!(
            !promised || known.contains(name.as_str()),
            "{name} promises too much"
        );
    }
}

/// A metric, the labels that count, and their sum.
type ExpectedCount = (&'static str, &'static [(&'static str, &'static str)], f64);

/// What must be counted, no more and no less.
const EXACT: &[ExpectedCount] = &[
    ("kubelet_running_pods", &[], 2.0),
    (
        "kubelet_running_containers",
        &[("container_state", "running")],
        3.0,
    ),
    (
        "kubelet_running_containers",
        &[("container_state", "exited")],
        1.0,
    ),
    ("kubelet_started_pods_total", &[], 4.0),
    ("kubelet_started_pods_errors_total", &[], 0.0),
    (
        "kubelet_started_containers_total",
        &[("container_type", "container")],
        5.0,
    ),
    ("kubelet_desired_pods", &[("static", "")], 2.0),
    ("kubelet_desired_pods", &[("static", "true")], 1.0),
    ("kubelet_active_pods", &[("static", "")], 1.0),
    ("kubelet_active_pods", &[("static", "true")], 1.0),
    ("kubelet_mirror_pods", &[], 1.0),
    ("kubelet_pod_worker_start_duration_seconds_count", &[], 4.0),
    ("kubelet_containers_per_pod_count_count", &[], 4.0),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "run_podsandbox")],
        4.0,
    ),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "create_container")],
        5.0,
    ),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "start_container")],
        5.0,
    ),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "exec")],
        1.0,
    ),
    (
        "kubelet_runtime_operations_errors_total",
        &[("operation_type", "run_podsandbox")],
        0.0,
    ),
    ("kubelet_run_podsandbox_duration_seconds_count", &[], 4.0),
    (
        "kubelet_terminated_containers_total",
        &[
            ("exit_code", "0"),
            ("reason", "Completed"),
            ("container_type", "container"),
        ],
        1.0,
    ),
    ("kubelet_node_name", &[("node", "node")], 1.0),
    ("kubelet_metrics_provider", &[("provider", "cadvisor")], 1.0),
    (
        "kubernetes_feature_enabled",
        &[("name", "NodeSwap"), ("stage", "")],
        1.0,
    ),
    (
        "version_info",
        &[("component", "kube"), ("emulation", "1.36")],
        1.0,
    ),
    (
        "kubelet_http_requests_total",
        &[
            ("path", "exec"),
            ("server_type", "readwrite"),
            ("long_running", "true"),
        ],
        1.0,
    ),
    (
        "authentication_token_cache_request_total",
        &[("status", "miss")],
        1.0,
    ),
    (
        "apiserver_delegated_authn_request_total",
        &[("code", "201")],
        1.0,
    ),
];

/// What must be counted at least so often.
const AT_LEAST: &[ExpectedCount] = &[
    // A pod whose command is quick may be over before it shows as running.
    ("kubelet_pod_start_duration_seconds_count", &[], 3.0),
    ("kubelet_pod_start_sli_duration_seconds_count", &[], 2.0),
    ("kubelet_pleg_relist_duration_seconds_count", &[], 1.0),
    ("kubelet_pleg_relist_interval_seconds_count", &[], 1.0),
    ("kubelet_pleg_pod_relist_duration_seconds_count", &[], 4.0),
    ("kubelet_pleg_last_seen_seconds", &[], 1e9),
    (
        "kubelet_evented_pleg_connection_latency_seconds_count",
        &[],
        1.0,
    ),
    (
        "kubelet_pod_worker_duration_seconds_count",
        &[("operation_type", "create")],
        4.0,
    ),
    ("kubelet_pod_status_sync_duration_seconds_count", &[], 4.0),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "stop_podsandbox")],
        1.0,
    ),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "remove_container")],
        1.0,
    ),
    (
        "kubelet_runtime_operations_total",
        &[("operation_type", "version")],
        1.0,
    ),
    (
        "rest_client_requests_total",
        &[("code", "200"), ("method", "GET")],
        1.0,
    ),
    (
        "rest_client_requests_total",
        &[("code", "201"), ("method", "POST")],
        2.0,
    ),
    (
        "rest_client_requests_total",
        &[("code", "200"), ("method", "PATCH")],
        3.0,
    ),
    (
        "rest_client_request_duration_seconds_count",
        &[("verb", "PATCH")],
        3.0,
    ),
    (
        "kubelet_node_startup_pre_kubelet_duration_seconds",
        &[],
        1e-9,
    ),
    (
        "kubelet_node_startup_registration_duration_seconds",
        &[],
        1e-9,
    ),
    (
        "kubelet_node_startup_post_registration_duration_seconds",
        &[],
        1e-9,
    ),
    ("kubelet_node_startup_duration_seconds", &[], 1e-9),
    (
        "storage_operation_duration_seconds_count",
        &[("operation_name", "volume_mount")],
        1.0,
    ),
    ("process_resident_memory_bytes", &[], 1e6),
    (
        "apiserver_client_certificate_expiration_seconds_count",
        &[],
        1.0,
    ),
];

#[tokio::test]
async fn what_is_counted_is_what_has_happened() {
    let cluster = lived_in().await;
    let first = page(&cluster, OWN).await;
    let own = page(&cluster, OWN).await;
    for (name, labels, expected) in EXACT {
        let found = own.sum(name, labels);
        assert_eq!(
            found,
            *expected,
            "{name} {labels:?}: {:?}",
            own.samples(name)
        );
    }
    for (name, labels, least) in AT_LEAST {
        let found = own.sum(name, labels);
        assert!(
            found >= *least,
            "{name} {labels:?}: {:?}",
            own.samples(name)
        );
    }
    assert_eq!(
        own.sum("kubelet_certificate_manager_client_ttl_seconds", &[]),
        f64::INFINITY
    );
    let scrape = [
        ("path", "metrics"),
        ("method", "GET"),
        ("server_type", "readwrite"),
    ];
    let scrapes = |page: &MetricsPage| page.sum("kubelet_http_requests_total", &scrape);
    assert_eq!((scrapes(&first), scrapes(&own)), (1.0, 2.0));
    assert_eq!(
        own.sum("kubelet_http_inflight_requests", &scrape),
        1.0,
        "its own"
    );
    let hosts = own.samples("rest_client_requests_total").iter();
    let hosts: BTreeSet<_> = hosts.map(|(labels, _)| &labels["host"]).collect();
    assert_eq!(hosts.len(), 1, "{hosts:?}");

    let probes = page(&cluster, PROBES).await;
    let web = cluster.pod("web").unwrap();
    let uid = web["metadata"]["uid"].as_str().unwrap();
    let labels = [
        ("container", "app"),
        ("namespace", "default"),
        ("pod", "web"),
        ("pod_uid", uid),
        ("probe_type", "Readiness"),
        ("result", "successful"),
    ];
    assert!(
        probes.sum("prober_probe_total", &labels) >= 1.0,
        "{probes:?}"
    );
    assert_eq!(
        probes.samples("prober_probe_total").len(),
        1,
        "nothing else is probed"
    );
}
