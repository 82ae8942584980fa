//! The systemd driver before a double of systemd on a bus of its own: slices made, limited, refused and removed.
//!
//! The groups are plain folders; real groups that a real systemd makes are not shown here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ::pods::cgroups::pod_cgroups::PodCgroups;
use ::pods::cgroups::systemd::{SystemdConnection, SystemdError};
use ::pods::cgroups::{CgroupManager, CgroupManagerError};
use integration::doubles::bus::PrivateBus;
use integration::doubles::systemd::SystemdDouble;
use k8s_openapi::api::core::v1::Pod;
use logic_resources::cgroups::{
    CgroupDriver, CgroupLimits, CgroupName, CgroupPolicy, CpuQuota, Hierarchy, pod_limits,
};
use logic_resources::node::policy::NodePolicy;
use serde_json::json;

const UNLIMITED: &str = "18446744073709551615";
const POD_FOLDER: &str = "own.slice/own-kubepods.slice/own-kubepods-podu1.slice";

struct Rig {
    folder: tempfile::TempDir,
    systemd: SystemdDouble,
    manager: CgroupManager,
}

impl Rig {
    async fn start() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let controllers = "cpuset cpu memory hugetlb pids";
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        let systemd = SystemdDouble::start(folder.path()).await.unwrap();
        let manager = manager(folder.path(), systemd.address());
        Rig {
            folder,
            systemd,
            manager,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn text(&self, group: &str, file: &str) -> String {
        fs::read_to_string(self.path(group).join(file)).unwrap_or_else(|_| "absent".to_owned())
    }

    /// The properties of a slice but those that every slice is made with.
    fn limits(&self, slice: &str) -> BTreeMap<String, String> {
        let mut slices = self.systemd.slices();
        let mut properties = slices.remove(slice).unwrap_or_default();
        properties.retain(|name, _| {
            !name.ends_with("Accounting")
                && !["Description", "Wants", "DefaultDependencies"].contains(&name.as_str())
        });
        properties
    }
}

fn manager(top: &Path, bus: &str) -> CgroupManager {
    CgroupManager::on(
        (CgroupDriver::Systemd, kernel::watch::channel(None).1),
        (Some(Hierarchy::V2(top.to_owned())), vec![2 << 20]),
        SystemdConnection::at(bus),
    )
}

fn policy() -> CgroupPolicy {
    CgroupPolicy {
        driver: CgroupDriver::Systemd,
        root: "/own".to_owned(),
        pids: Some(50),
    }
}

fn node() -> NodePolicy {
    NodePolicy {
        cgroups: Some(policy()),
        ..NodePolicy::default()
    }
}

fn guaranteed(memory: &str) -> Pod {
    let amounts = json!({ "cpu": "500m", "memory": memory, "hugepages-2Mi": "4Mi" });
    let resources = json!({ "limits": amounts, "requests": amounts });
    serde_json::from_value(json!({
        "metadata": { "name": "p", "uid": "u1" },
        "spec": { "containers": [{ "name": "c", "resources": resources }] },
    }))
    .unwrap()
}

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn group(name: &str) -> CgroupName {
    CgroupName::parse(name)
}

#[tokio::test]
async fn a_pods_slice_has_the_pods_limits_as_properties_and_in_its_files() {
    let rig = Rig::start().await;
    let cgroups = PodCgroups::new(Some(policy()), rig.manager.clone());
    let parent = cgroups.create(&guaranteed("64Mi"), &node()).await.unwrap();
    assert_eq!(parent, format!("/{POD_FOLDER}"));
    let slices = rig.systemd.slices();
    let made: Vec<&String> = slices.keys().collect();
    assert_eq!(
        made,
        ["own-kubepods-podu1.slice"],
        "those above are systemd's"
    );
    let properties = &slices["own-kubepods-podu1.slice"];
    assert_eq!(properties["Wants"], r#"["own-kubepods.slice"]"#);
    for accounting in [
        "CPUAccounting",
        "MemoryAccounting",
        "IOAccounting",
        "TasksAccounting",
    ] {
        assert_eq!(properties[accounting], "true", "{accounting}");
    }
    assert_eq!(properties["DefaultDependencies"], "false");
    let limits = texts([
        ("CPUQuotaPerSecUSec", "500000"),
        ("CPUQuotaPeriodUSec", "100000"),
        ("CPUWeight", "20"),
        ("MemoryMax", "67108864"),
        ("TasksMax", "50"),
    ]);
    assert_eq!(rig.limits("own-kubepods-podu1.slice"), limits);
    let files = [
        ("cpu.max", "50000 100000"),
        ("cpu.weight", "20"),
        ("memory.max", "67108864"),
        ("pids.max", "50"),
        ("hugetlb.2MB.max", "4194304"),
        ("hugetlb.2MB.rsvd.max", "4194304"),
    ];
    for (file, value) in files {
        assert_eq!(rig.text(POD_FOLDER, file), value, "{file}");
    }

    let larger = guaranteed("128Mi");
    let limits = pod_limits(&larger, &node());
    cgroups.update(&larger, &limits).await.unwrap();
    let properties = rig.limits("own-kubepods-podu1.slice");
    assert_eq!(properties["MemoryMax"], "134217728");
    assert_eq!(properties["CPUWeight"], "20");
    assert_eq!(rig.text(POD_FOLDER, "memory.max"), "134217728");

    cgroups.remove(&larger).await.unwrap();
    assert!(rig.systemd.slices().is_empty());
    assert!(!rig.path(POD_FOLDER).exists());
    cgroups.remove(&larger).await.unwrap();
}

#[tokio::test]
async fn a_limit_that_is_lifted_is_infinity_to_systemd() {
    let rig = Rig::start().await;
    let name = group("/kubepods");
    let quota = |quota| CgroupLimits {
        cpu: Some(CpuQuota {
            quota,
            period: 100_000,
        }),
        pids: Some(quota),
        ..CgroupLimits::default()
    };
    rig.manager.create(&name, &quota(12_345)).await.unwrap();
    let rounded = rig.limits("kubepods.slice");
    assert_eq!(rounded["CPUQuotaPerSecUSec"], "130000", "whole percents");
    assert_eq!(rig.text("kubepods.slice", "cpu.max"), "13000 100000");
    rig.manager.enforce(&name, &quota(-1)).await.unwrap();
    let lifted = rig.limits("kubepods.slice");
    assert_eq!(lifted["CPUQuotaPerSecUSec"], UNLIMITED);
    assert_eq!(lifted["TasksMax"], UNLIMITED);
    assert_eq!(rig.text("kubepods.slice", "cpu.max"), "max 100000");
}

#[tokio::test]
async fn a_job_that_fails_fails_its_pod_alone_and_can_be_repeated() {
    let rig = Rig::start().await;
    let cgroups = PodCgroups::new(Some(policy()), rig.manager.clone());
    rig.systemd.fail_next("failed");
    let pod = guaranteed("64Mi");
    let error = cgroups.create(&pod, &node()).await.unwrap_err();
    let CgroupManagerError::Systemd(SystemdError::Job { unit, result }) = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (unit.as_str(), result.as_str()),
        ("own-kubepods-podu1.slice", "failed")
    );
    assert!(error.transient() && !error.is_node_wide());
    assert!(!rig.path(POD_FOLDER).exists());
    cgroups.create(&pod, &node()).await.unwrap();
    assert_eq!(rig.text(POD_FOLDER, "memory.max"), "67108864");
}

#[tokio::test]
async fn a_slice_that_is_there_is_kept_and_gets_the_limits() {
    let rig = Rig::start().await;
    let other = SystemdConnection::at(rig.systemd.address());
    let properties = Vec::new();
    other
        .start_slice("kubepods.slice", &properties)
        .await
        .unwrap();
    other
        .start_slice("kubepods.slice", &properties)
        .await
        .unwrap();
    // Its group went without systemd.
    fs::remove_dir_all(rig.path("kubepods.slice")).unwrap();
    let limits = CgroupLimits {
        memory: Some(1 << 30),
        ..CgroupLimits::default()
    };
    rig.manager
        .enforce(&group("/kubepods"), &limits)
        .await
        .unwrap();
    assert_eq!(rig.limits("kubepods.slice")["MemoryMax"], "1073741824");
    assert_eq!(rig.text("kubepods.slice", "memory.max"), "1073741824");
}

#[tokio::test]
async fn limits_of_a_slice_that_is_gone_are_systemds_error() {
    let rig = Rig::start().await;
    let limits = CgroupLimits {
        memory: Some(1 << 30),
        ..CgroupLimits::default()
    };
    let error = rig.manager.update(&group("/kubepods"), &limits).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("NoSuchUnit"), "{error}");
    assert!(error.transient() && !error.is_node_wide());
    // The connection is as good as before.
    rig.manager
        .enforce(&group("/kubepods"), &limits)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_slice_with_processes_stays_until_they_have_ended() {
    let rig = Rig::start().await;
    let cgroups = PodCgroups::new(Some(policy()), rig.manager.clone());
    let pod = guaranteed("64Mi");
    cgroups.create(&pod, &node()).await.unwrap();
    let processes = rig.path(POD_FOLDER).join("cgroup.procs");
    fs::write(&processes, "4194305\n").unwrap();
    let busy = cgroups.remove(&pod).await.unwrap_err();
    assert!(busy.transient(), "{busy}");
    assert!(rig.path(POD_FOLDER).exists());
    fs::remove_dir_all(rig.path(POD_FOLDER)).unwrap();
    cgroups.remove(&pod).await.unwrap();
}

#[tokio::test]
async fn without_systemd_slices_are_left_to_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cgroup.controllers"), "cpu memory").unwrap();
    let bus = PrivateBus::start().unwrap();
    for address in [bus.address(), "unix:path=/nonexistent/bus"] {
        let manager = manager(folder.path(), address);
        let (name, limits) = (group("/kubepods"), CgroupLimits::default());
        let error = manager.create(&name, &limits).await.unwrap_err();
        assert!(error.is_node_wide(), "{address}: {error}");
        assert!(error.to_string().contains("no systemd"), "{error}");
        let cgroups = PodCgroups::new(Some(policy()), manager);
        let parent = cgroups.create(&guaranteed("64Mi"), &node()).await.unwrap();
        assert_eq!(parent, format!("/{POD_FOLDER}"), "the runtime has it made");
        assert!(!folder.path().join("own.slice").exists());
    }
}

#[tokio::test]
async fn a_systemd_that_goes_is_an_error_that_passes() {
    let rig = Rig::start().await;
    let limits = CgroupLimits::default();
    rig.manager
        .create(&group("/kubepods"), &limits)
        .await
        .unwrap();
    drop(rig.systemd);
    let other = group("/other");
    let error = rig.manager.create(&other, &limits).await.unwrap_err();
    assert!(error.transient(), "{error}");
}
