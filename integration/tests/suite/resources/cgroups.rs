//! Pods' cgroups on this machine's real hierarchies, with containerd's containers in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;

use ::pods::cgroups::CgroupManager;
use ::pods::cgroups::pod_cgroups::PodCgroups;
use integration::agent::Node;
use integration::containerd::Containerd;
use integration::{pods, wait_until};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_resources::cgroups::{CgroupDriver, CgroupPolicy, Hierarchy, pod_limits};
use logic_resources::node::policy::NodePolicy;
use proto::cri;
use serde_json::{Value, json};

use crate::suite::node_rig::{CONVERGENCE_TIMEOUT, server, until_all_ready};

const UID: &str = "0a1b2c3d-0000-1111-2222-333344445555";

fn guaranteed(memory: &str) -> Pod {
    let amount = |name: &str, text: &str| (name.to_owned(), Quantity(text.to_owned()));
    let amounts = BTreeMap::from([amount("cpu", "500m"), amount("memory", memory)]);
    let resources = ResourceRequirements {
        limits: Some(amounts.clone()),
        requests: Some(amounts),
        claims: None,
    };
    let mut pod = Pod::default();
    pod.metadata.uid = Some(UID.to_owned());
    pod.spec = Some(PodSpec {
        containers: vec![Container {
            resources: Some(resources),
            ..Container::default()
        }],
        ..PodSpec::default()
    });
    pod
}

/// The machine's trees, and the group's folder in each.
struct CgroupPlacement {
    hierarchy: Hierarchy,
    parent: String,
}

impl CgroupPlacement {
    fn folder(&self, controller: &str) -> PathBuf {
        let top = self.hierarchy.top(controller).unwrap();
        top.join(self.parent.trim_start_matches('/'))
    }

    fn memory_limit(&self) -> String {
        let file = match self.hierarchy {
            Hierarchy::V1(_) => "memory.limit_in_bytes",
            Hierarchy::V2(_) => "memory.max",
        };
        let text = fs::read_to_string(self.folder("memory").join(file)).unwrap();
        text.trim().to_owned()
    }
}

#[tokio::test]
async fn a_pods_group_holds_its_containers_and_goes_with_the_last_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let policy = CgroupPolicy {
        driver: CgroupDriver::Cgroupfs,
        root: rig.cgroup(),
        pids: Some(64),
    };
    let node = NodePolicy {
        cgroups: Some(policy.clone()),
        ..NodePolicy::default()
    };
    let manager = CgroupManager::here(policy.driver, kernel::watch::channel(None).1);
    let cgroups = PodCgroups::new(Some(policy), manager);
    let pod = guaranteed("64Mi");
    let parent = cgroups.create(&pod, &node).await.unwrap();
    assert_eq!(parent, format!("{}/kubepods/pod{UID}", rig.cgroup()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let group = CgroupPlacement {
        hierarchy: Hierarchy::parse(&mounts).unwrap(),
        parent,
    };
    assert_eq!(group.memory_limit(), "67108864");
    let pids = fs::read_to_string(group.folder("pids").join("pids.max")).unwrap();
    assert_eq!(pids.trim(), "64");

    let mut config = pods::sandbox(&rig, "grouped").unwrap();
    config.linux.as_mut().unwrap().cgroup_parent = group.parent.clone();
    let client = rig.runtime();
    let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
    let script = pods::container("main", "sleep 1000");
    let container = pods::run_container(&client, &sandbox, &config, script)
        .await
        .unwrap();
    let pid = pods::pid_of(&client, &container).await.unwrap();
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let within = format!("{}/{container}", group.parent);
    assert!(own.lines().any(|line| line.ends_with(&within)), "{own}");

    let limits = pod_limits(&guaranteed("128Mi"), &node);
    cgroups.update(&guaranteed("128Mi"), &limits).await.unwrap();
    assert_eq!(group.memory_limit(), "134217728");

    let busy = cgroups.remove(&pod).await.unwrap_err();
    assert!(busy.transient(), "{busy}");
    let still = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert_eq!(still, own, "a group with processes is left alone");

    let pod_sandbox_id = sandbox;
    let stop = cri::StopPodSandboxRequest {
        pod_sandbox_id: pod_sandbox_id.clone(),
    };
    client.clone().stop_pod_sandbox(stop).await.unwrap();
    let remove = cri::RemovePodSandboxRequest { pod_sandbox_id };
    client.clone().remove_pod_sandbox(remove).await.unwrap();
    cgroups.remove(&pod).await.unwrap();
    for top in group.hierarchy.tops() {
        let folder = top.join(group.parent.trim_start_matches('/'));
        assert!(!folder.exists(), "{} is left", folder.display());
    }
    let above = group.folder("memory").parent().unwrap().to_owned();
    assert!(
        above.is_dir(),
        "what other pods share is not the pod's to remove"
    );
}

/// A pod that went while no agent ran, and whose processes its runtime has lost sight of.
#[tokio::test]
async fn the_cgroup_of_a_pod_that_is_gone_is_removed_with_the_processes_in_it() {
    let root = format!("/oxlet-orphan-{}", std::process::id());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let hierarchy = Hierarchy::parse(&mounts).unwrap();
    let group = CgroupPlacement {
        hierarchy,
        parent: format!("{root}/kubepods/burstable/pod{UID}"),
    };
    let mut left = Command::new("sleep").arg("1000").spawn().unwrap();
    for controller in ["memory", "cpu", "pids"] {
        let folder = group.folder(controller);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), left.id().to_string()).unwrap();
    }
    let config = json!({ "cgroupsPerQOS": true, "cgroupRoot": root });
    let node = Node::builder().config(&config).start().await.unwrap();
    wait_until(CONVERGENCE_TIMEOUT, "the group is removed", async || {
        let gone = |controller| !group.folder(controller).exists();
        ["memory", "cpu", "pids"].into_iter().all(gone)
    })
    .await
    .unwrap();
    let status = left.wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    drop(node);
    for top in group.hierarchy.tops() {
        let top = top.join(root.trim_start_matches('/'));
        for folder in ["kubepods/burstable", "kubepods/besteffort", "kubepods", ""] {
            fs::remove_dir(top.join(folder)).ok();
        }
    }
}

/// Nothing in the configuration names a driver: containerd 2 under systemd starts no pod whose cgroup has another form.
#[tokio::test]
async fn a_pods_group_is_named_as_the_runtime_reads_it() {
    let groups = json!({ "cgroupsPerQOS": true, "cgroupRoot": "/oxlet-test" });
    let builder = Node::builder().config(&groups);
    let builder = builder.fake(&json!({ "cgroup_driver": "systemd" }));
    let node = builder.manifest("web.yaml", &server("web"));
    let node = node.start().await.unwrap();
    until_all_ready(&node, 1, CONVERGENCE_TIMEOUT).await;
    let cri = node.cri().await.unwrap();
    let sandbox = cri.sandboxes().await.unwrap().remove(0);
    let request = cri::PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.id,
        verbose: true,
    };
    let status = cri.runtime().pod_sandbox_status(request).await.unwrap();
    let info: Value = serde_json::from_str(&status.into_inner().info["info"]).unwrap();
    let parent = info["cgroupParent"].as_str().unwrap();
    let above = "/oxlet_test.slice/oxlet_test-kubepods.slice/oxlet_test-kubepods-besteffort.slice/";
    assert!(parent.starts_with(above), "{parent}");
}
