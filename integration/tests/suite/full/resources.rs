//! Requests and limits of pods, in the kernel's cgroup files and in their statuses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use integration::pods::pid_of;
use logic_resources::cgroups::Hierarchy;
use serde_json::json;

use super::*;

on_each_runtime! {
    a_status_tells_what_the_pod_was_given,
    a_finished_pod_costs_the_others_no_figures,
}

/// containerd mounts images from 2.1 on.
mod volumes {
    use super::{TestRuntime, a_status_tells_where_volumes_are_mounted};

    mod fake {
        #[tokio::test]
        async fn a_status_tells_where_volumes_are_mounted() {
            super::a_status_tells_where_volumes_are_mounted(super::TestRuntime::Fake).await;
        }
    }
    mod native {
        #[tokio::test]
        async fn a_status_tells_where_volumes_are_mounted() {
            super::a_status_tells_where_volumes_are_mounted(super::TestRuntime::Native).await;
        }
    }
}

mod kernel {
    use super::{TestRuntime, limits_are_the_kernels_and_lie_below_the_nodes_own_group};

    on_real_runtimes! {
        limits_are_the_kernels_and_lie_below_the_nodes_own_group,
    }
}

fn demand(requests: [&str; 2], limits: [&str; 2]) -> Value {
    let amounts = |[cpu, memory]: [&str; 2]| json!({ "cpu": cpu, "memory": memory });
    json!({ "resources": { "requests": amounts(requests), "limits": amounts(limits) } })
}

/// One pod of each class.
fn three(node_rig: &NodeRig) {
    let app = || container_of("app", SERVE_ON);
    let burstable = with(app(), demand(["250m", "32Mi"], ["500m", "64Mi"]));
    let guaranteed = with(app(), demand(["100m", "48Mi"], ["100m", "48Mi"]));
    for (name, app) in [
        ("burstable", burstable),
        ("guaranteed", guaranteed),
        ("besteffort", app()),
    ] {
        let mut pod = pod(name, json!({ "containers": [app] }));
        pod["metadata"]["generation"] = json!(3);
        node_rig.drop_pod(&pod);
    }
}

/// containerd before 2.0 refuses to measure all sandboxes for one that has ended.
async fn a_finished_pod_costs_the_others_no_figures(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let once = json!({ "containers": [container_of("app", "exit 0")], "restartPolicy": "Never" });
    node_rig.drop_pod(&pod("done", once));
    let serving = json!({ "containers": [container_of("app", SERVE_ON)] });
    node_rig.drop_pod(&pod("web", serving));
    let node = &node_rig.node;
    for (name, phase) in [("done", "Succeeded"), ("web", "Running")] {
        let is = |pod: &Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some(phase);
        node_rig.until(name, "has that phase", is).await;
    }
    let asked = async |path: &str| {
        let answer = integration::http::get(node.read_only_port(), path).await;
        answer.unwrap().text()
    };
    let measured = async || {
        let summary: Value =
            serde_json::from_str(&asked("/stats/summary").await).unwrap_or_default();
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let is_web = |pod: &&Value| {
            pod["podRef"]["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("web"))
        };
        let web = pods.iter().find(is_web);
        web.is_some_and(|web| web["memory"]["workingSetBytes"].as_u64() > Some(0))
    };
    let waited = wait_until(
        CONVERGENCE_TIMEOUT,
        "figures of the pod that runs",
        measured,
    );
    waited.await.unwrap();
    let figures = asked("/metrics/resource").await;
    assert!(figures.contains("\nresource_scrape_error 0\n"), "{figures}");
}

async fn a_status_tells_what_the_pod_was_given(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    three(&node_rig);
    for (name, class) in [
        ("burstable", "Burstable"),
        ("guaranteed", "Guaranteed"),
        ("besteffort", "BestEffort"),
    ] {
        let pod = node_rig.until_running(name).await;
        assert_eq!(
            pod.status.as_ref().unwrap().qos_class.as_deref(),
            Some(class)
        );
    }
    let pod = node_rig.until_running("burstable").await;
    let whole = pod.status.as_ref().unwrap();
    assert_eq!(whole.observed_generation, Some(3));
    for condition in whole.conditions.iter().flatten() {
        assert_eq!(
            condition.observed_generation,
            Some(3),
            "{}",
            condition.type_
        );
    }
    let status = serde_json::to_value(container(&pod, "app").unwrap()).unwrap();
    let asked = json!({ "cpu": "250m", "memory": "32Mi" });
    assert_eq!(status["allocatedResources"], asked);
    let limits = json!({ "cpu": "500m", "memory": "64Mi" });
    assert_eq!(
        status["resources"],
        json!({ "limits": limits, "requests": asked })
    );
    assert_eq!(status["started"], true);
    let least = node_rig.until_running("besteffort").await;
    let status = serde_json::to_value(container(&least, "app").unwrap()).unwrap();
    assert!(
        status["allocatedResources"].is_null() && status["resources"]["limits"].is_null(),
        "{status}"
    );
}

async fn a_status_tells_where_volumes_are_mounted(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let mount = json!({ "volumeMounts": [{ "name": "programs", "mountPath": "/programs", "readOnly": true }] });
    let image = json!({ "reference": "localhost/oxlet/busybox:1", "pullPolicy": "IfNotPresent" });
    node_rig.drop_pod(&pod(
        "mounted",
        json!({
            "volumes": [{ "name": "programs", "image": image }],
            "containers": [with(container_of("app", SERVE_ON), mount)],
        }),
    ));
    let pod = node_rig.until_running("mounted").await;
    let status = serde_json::to_value(container(&pod, "app").unwrap()).unwrap();
    let expected = json!([{
        "name": "programs", "mountPath": "/programs", "readOnly": true, "recursiveReadOnly": "Disabled",
    }]);
    assert_eq!(status["volumeMounts"], expected);
}

/// What the kernel holds of a container.
struct KernelLimits {
    groups: BTreeMap<&'static str, PathBuf>,
    score: i32,
    path: String,
}

impl KernelLimits {
    async fn of(node_rig: &NodeRig, name: &str) -> Self {
        let pod = node_rig.until_running(name).await;
        let id = id_of(container(&pod, "app").unwrap());
        let runtime = node_rig.cri().await.runtime();
        let pid = pid_of(&runtime, &id).await.unwrap();
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let hierarchy =
            Hierarchy::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap()).unwrap();
        let own = read("cgroup");
        let path = own
            .lines()
            .find(|line| line.contains("memory") || line.starts_with("0::"));
        let path = path.unwrap().rsplit(':').next().unwrap().to_owned();
        assert!(path.contains(&uid(&pod)), "{own}");
        let folder = |controller| {
            hierarchy
                .top(controller)
                .unwrap()
                .join(path.trim_start_matches('/'))
        };
        Self {
            groups: ["cpu", "memory", "pids"]
                .into_iter()
                .map(|name| (name, folder(name)))
                .collect(),
            score: read("oom_score_adj").trim().parse().unwrap(),
            path,
        }
    }

    fn own(&self, controller: &str, file: &str) -> String {
        let text = fs::read_to_string(self.groups[controller].join(file));
        text.unwrap_or_else(|error| panic!("{file}: {error}"))
            .trim()
            .to_owned()
    }

    fn pods(&self, controller: &str, file: &str) -> String {
        let text = fs::read_to_string(self.groups[controller].parent().unwrap().join(file));
        text.unwrap_or_else(|error| panic!("{file}: {error}"))
            .trim()
            .to_owned()
    }
}

async fn limits_are_the_kernels_and_lie_below_the_nodes_own_group(on: TestRuntime) {
    let config = json!({ "podPidsLimit": 128 });
    let Some(node_rig) = on.start_with(|builder| builder.config(&config)).await else {
        return;
    };
    three(&node_rig);
    let root = node_rig.cgroup();
    let (burstable, guaranteed) = (
        KernelLimits::of(&node_rig, "burstable").await,
        KernelLimits::of(&node_rig, "guaranteed").await,
    );
    let least = KernelLimits::of(&node_rig, "besteffort").await;
    for (kernel, class) in [
        (&burstable, "/burstable"),
        (&guaranteed, ""),
        (&least, "/besteffort"),
    ] {
        let begins = format!("{root}/kubepods{class}/pod");
        assert!(
            kernel.path.starts_with(&begins),
            "{} is not below {begins}",
            kernel.path
        );
        assert_eq!(kernel.pods("pids", "pids.max"), "128");
    }
    if burstable.groups["cpu"].join("cpu.shares").exists() {
        assert_eq!(burstable.own("cpu", "cpu.shares"), "256");
        assert_eq!(burstable.own("cpu", "cpu.cfs_quota_us"), "50000");
        assert_eq!(
            burstable.own("memory", "memory.limit_in_bytes"),
            (64 << 20).to_string()
        );
        assert_eq!(burstable.pods("cpu", "cpu.shares"), "256");
        assert_eq!(burstable.pods("cpu", "cpu.cfs_quota_us"), "50000");
        assert_eq!(
            burstable.pods("memory", "memory.limit_in_bytes"),
            (64 << 20).to_string()
        );
        assert_eq!(guaranteed.own("cpu", "cpu.cfs_quota_us"), "10000");
        assert_eq!(least.own("cpu", "cpu.shares"), "2");
        assert_eq!(least.own("cpu", "cpu.cfs_quota_us"), "-1");
    } else {
        assert_eq!(burstable.own("cpu", "cpu.max"), "50000 100000");
        assert_eq!(
            burstable.own("memory", "memory.max"),
            (64 << 20).to_string()
        );
        assert_eq!(least.own("cpu", "cpu.max"), "max 100000");
    }
    // A score below the agent's own cannot be had everywhere: that of guaranteed pods is not asked for here.
    assert_eq!(least.score, 1000);
    assert!((3..1000).contains(&burstable.score), "{}", burstable.score);
    assert!(guaranteed.score < burstable.score, "{}", guaranteed.score);
}
