//! Cgroups made and removed in a plain directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use kernel::watch;
use logic_resources::cgroups::Hierarchy;

use super::*;
use crate::cgroups::systemd::SystemdConnection;

/// A directory laid out like a cgroup file system.
struct FakeCgroups {
    folder: tempfile::TempDir,
    cgroups: PodCgroups,
    node: NodePolicy,
}

impl FakeCgroups {
    fn new(driver: CgroupDriver, make: impl FnOnce(&Path) -> Hierarchy) -> FakeCgroups {
        FakeCgroups::reported(driver, None, make)
    }

    /// The configured driver, and the one that the runtime reports.
    fn reported(
        driver: CgroupDriver,
        reported: Option<CgroupDriver>,
        make: impl FnOnce(&Path) -> Hierarchy,
    ) -> FakeCgroups {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = make(folder.path());
        let policy = CgroupPolicy {
            driver,
            root: "/own".into(),
            pids: Some(50),
        };
        FakeCgroups {
            folder,
            cgroups: PodCgroups::new(
                Some(policy.clone()),
                CgroupManager::on(
                    (driver, watch::channel(reported).1),
                    (Some(hierarchy), vec![2 << 20]),
                    // No bus is there.
                    SystemdConnection::at("unix:path=/nonexistent/bus"),
                ),
            ),
            node: NodePolicy {
                cgroups: Some(policy),
                ..NodePolicy::default()
            },
        }
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).unwrap_or_else(|_| "absent".into())
    }
}

fn version_1(controllers: &[&str]) -> impl FnOnce(&Path) -> Hierarchy {
    move |folder| {
        let tree = |name: &&str| {
            let top = folder.join(name);
            fs::create_dir(&top).unwrap();
            ((*name).to_owned(), top)
        };
        Hierarchy::V1(controllers.iter().map(tree).collect::<BTreeMap<_, _>>())
    }
}

fn pod(limit: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some("u1".into());
    let amounts: BTreeMap<_, _> = [
        ("cpu".to_owned(), Quantity("1".into())),
        ("memory".to_owned(), Quantity(limit.into())),
    ]
    .into();
    let container = Container {
        resources: Some(ResourceRequirements {
            limits: Some(amounts.clone()),
            requests: Some(amounts),
            claims: None,
        }),
        ..Container::default()
    };
    pod.spec = Some(PodSpec {
        containers: vec![container],
        ..PodSpec::default()
    });
    pod
}

#[tokio::test]
async fn a_pods_group_is_made_with_its_limits_and_changed_with_them() {
    let sham = FakeCgroups::new(
        CgroupDriver::Cgroupfs,
        version_1(&["cpu", "cpuset", "memory", "pids", "systemd"]),
    );
    let parent = sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap();
    assert_eq!(parent, "/own/kubepods/podu1");
    assert_eq!(sham.text("cpu/own/kubepods/podu1/cpu.shares"), "1024");
    assert_eq!(
        sham.text("cpu/own/kubepods/podu1/cpu.cfs_quota_us"),
        "100000"
    );
    assert_eq!(
        sham.text("memory/own/kubepods/podu1/memory.limit_in_bytes"),
        "1073741824"
    );
    assert_eq!(sham.text("pids/own/kubepods/podu1/pids.max"), "50");
    assert!(
        sham.folder
            .path()
            .join("systemd/own/kubepods/podu1")
            .is_dir()
    );

    sham.cgroups.create(&pod("2Gi"), &sham.node).await.unwrap();
    let memory = "memory/own/kubepods/podu1/memory.limit_in_bytes";
    assert_eq!(
        sham.text(memory),
        "1073741824",
        "what is there is not changed on the way"
    );
    let limits = pod_limits(&pod("2Gi"), &sham.node);
    sham.cgroups.update(&pod("2Gi"), &limits).await.unwrap();
    assert_eq!(sham.text(memory), "2147483648");
}

#[tokio::test]
async fn cgroups_of_pods_are_found_in_every_class_and_tree() {
    let sham = FakeCgroups::new(
        CgroupDriver::Cgroupfs,
        version_1(&["cpu", "cpuset", "memory", "pids"]),
    );
    sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap();
    for other in [
        "memory/own/kubepods/besteffort/podu2",
        "pids/own/kubepods/burstable/podu3/container",
        "cpu/own/kubepods/burstable/other",
        "cpu/own/podu4",
    ] {
        fs::create_dir_all(sham.folder.path().join(other)).unwrap();
    }
    let found = sham.cgroups.list().await;
    let found: Vec<&str> = found.keys().map(PodUid::as_str).collect();
    assert_eq!(found, ["u1", "u2", "u3"]);
}

/// Upstream's ReduceCPULimits.
#[tokio::test]
async fn a_pod_that_waits_for_its_volumes_has_the_least_cpu_and_keeps_its_group() {
    let sham = FakeCgroups::new(CgroupDriver::Cgroupfs, version_1(&["cpu", "memory"]));
    sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap();
    let shares = "cpu/own/kubepods/podu1/cpu.shares";
    assert_eq!(sham.text(shares), "1024");
    let (uid, name) = sham.cgroups.list().await.pop_first().unwrap();
    sham.cgroups.reduce_cpu(&uid, &name).await;
    assert_eq!(sham.text(shares), "2");
    let memory = "memory/own/kubepods/podu1/memory.limit_in_bytes";
    assert_eq!(sham.text(memory), "1073741824");
}

#[tokio::test]
async fn in_one_tree_controllers_are_handed_down() {
    let sham = FakeCgroups::new(CgroupDriver::Cgroupfs, |folder| {
        fs::write(
            folder.join("cgroup.controllers"),
            "cpuset cpu io memory hugetlb pids\n",
        )
        .unwrap();
        fs::write(
            folder.join("cgroup.subtree_control"),
            "cpu memory pids cpuset\n",
        )
        .unwrap();
        Hierarchy::V2(folder.to_owned())
    });
    sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap();
    assert_eq!(
        sham.text("cgroup.subtree_control"),
        "+hugetlb",
        "the one that was not"
    );
    assert_eq!(sham.text("own/kubepods/podu1/cpu.max"), "100000 100000");
    assert_eq!(sham.text("own/kubepods/podu1/hugetlb.2MB.max"), "0");
}

#[tokio::test]
async fn a_machine_without_a_controller_leaves_groups_to_the_runtime() {
    let sham = FakeCgroups::new(CgroupDriver::Cgroupfs, version_1(&["cpu", "pids"]));
    for _ in 0..2 {
        assert_eq!(
            sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap(),
            ""
        );
    }
    assert!(!sham.folder.path().join("cpu/own").exists());
    let limits = pod_limits(&pod("1Gi"), &sham.node);
    sham.cgroups.update(&pod("1Gi"), &limits).await.unwrap();
    sham.cgroups.remove(&pod("1Gi")).await.unwrap();
}

#[tokio::test]
async fn without_systemd_on_its_bus_or_without_a_policy_nothing_is_made() {
    let sham = FakeCgroups::new(CgroupDriver::Systemd, version_1(&["cpu", "memory"]));
    let parent = sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap();
    assert_eq!(
        parent,
        "/own.slice/own-kubepods.slice/own-kubepods-podu1.slice"
    );
    assert!(
        fs::read_dir(sham.folder.path().join("cpu"))
            .unwrap()
            .next()
            .is_none()
    );
    let none = CgroupManager::on(
        (CgroupDriver::Cgroupfs, watch::channel(None).1),
        (None, Vec::new()),
        SystemdConnection::default(),
    );
    let none = PodCgroups::new(None, none);
    assert_eq!(
        none.create(&pod("1Gi"), &NodePolicy::default())
            .await
            .unwrap(),
        ""
    );
}

#[tokio::test]
async fn the_driver_that_the_runtime_reports_replaces_the_configured_one() {
    use CgroupDriver::{Cgroupfs, Systemd};
    let systemd = "/own.slice/own-kubepods.slice/own-kubepods-podu1.slice";
    for (configured, reported, expected) in [
        (Cgroupfs, Some(Systemd), systemd),
        (Systemd, Some(Cgroupfs), "/own/kubepods/podu1"),
        (Systemd, None, systemd),
        (Cgroupfs, None, "/own/kubepods/podu1"),
    ] {
        let sham = FakeCgroups::reported(configured, reported, version_1(&["cpu", "memory"]));
        let parent = sham.cgroups.create(&pod("1Gi"), &sham.node).await.unwrap();
        assert_eq!(parent, expected);
    }
}

#[tokio::test]
async fn only_the_pods_own_group_is_removed_and_only_when_it_is_empty() {
    let sham = FakeCgroups::new(CgroupDriver::Cgroupfs, version_1(&["cpu", "memory"]));
    let cpu = sham.folder.path().join("cpu/own/kubepods");
    fs::create_dir_all(cpu.join("podu1/container/inner")).unwrap();
    fs::create_dir_all(cpu.join("podu2")).unwrap();
    sham.cgroups.remove(&pod("1Gi")).await.unwrap();
    assert!(!cpu.join("podu1").exists() && cpu.join("podu2").is_dir());
    sham.cgroups.remove(&pod("1Gi")).await.unwrap();

    // A file in a directory has the effect of a process in a cgroup: neither can be removed.
    fs::create_dir_all(cpu.join("podu1")).unwrap();
    fs::write(cpu.join("podu1/process"), "").unwrap();
    let busy = sham.cgroups.remove(&pod("1Gi")).await.unwrap_err();
    assert!(busy.transient() && cpu.join("podu1").is_dir(), "{busy}");
}
