//! Names and limits of pods' cgroups.

mod slices;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use logic_api::testing::*;

use super::*;
use crate::node::policy::NodePolicy;
use crate::resources::{
    MemoryQos, MemoryReservationPolicy, NodeCgroupVersion, ResourceEnforcement,
};

fn policy(driver: CgroupDriver, root: &str) -> CgroupPolicy {
    CgroupPolicy {
        driver,
        root: root.into(),
        pids: None,
    }
}

/// Upstream's TestCgroupNameToSystemdBasename, TestCgroupNameToSystemd and TestCgroupNameToCgroupfs.
#[test]
fn names_have_a_form_for_each_driver() {
    let cases: [(&[&str], &str, &str); 6] = [
        (&[], "/", "/"),
        (&["system"], "/system", "/system.slice"),
        (
            &["system", "Burstable"],
            "/system/Burstable",
            "/system.slice/system-Burstable.slice",
        ),
        (
            &["Burstable", "pod-123"],
            "/Burstable/pod-123",
            "/Burstable.slice/Burstable-pod_123.slice",
        ),
        (
            &["test", "a", "b"],
            "/test/a/b",
            "/test.slice/test-a.slice/test-a-b.slice",
        ),
        (
            &["BestEffort", "pod-6c1a4e95-6bb6-11e6-bc26-28d2444e470d"],
            "/BestEffort/pod-6c1a4e95-6bb6-11e6-bc26-28d2444e470d",
            "/BestEffort.slice/BestEffort-pod_6c1a4e95_6bb6_11e6_bc26_28d2444e470d.slice",
        ),
    ];
    for (parts, cgroupfs, systemd) in cases {
        let name = CgroupName::parse(&parts.join("/"));
        assert_eq!(name.path(CgroupDriver::Cgroupfs), cgroupfs);
        assert_eq!(name.path(CgroupDriver::Systemd), systemd);
        assert_eq!(CgroupName::parse(cgroupfs), name);
    }
}

/// Upstream's TestGetPodContainerName.
#[test]
fn a_pods_cgroup_lies_below_its_class() {
    let mut pod = pod("p").app("c");
    pod.metadata.uid = Some("fake-uid".into());
    let cases = [
        ("BestEffort", "/kubepods/besteffort/podfake-uid"),
        ("Burstable", "/kubepods/burstable/podfake-uid"),
        ("Guaranteed", "/kubepods/podfake-uid"),
    ];
    for (class, expected) in cases {
        pod.status.get_or_insert_default().qos_class = Some(class.into());
        let name = pod_cgroup(&pod, &policy(CgroupDriver::Cgroupfs, "/")).unwrap();
        assert_eq!(name.path(CgroupDriver::Cgroupfs), expected);
    }
    let name = pod_cgroup(&pod, &policy(CgroupDriver::Systemd, "/own/root")).unwrap();
    assert_eq!(
        name.path(CgroupDriver::Systemd),
        "/own.slice/own-root.slice/own-root-kubepods.slice/own-root-kubepods-podfake_uid.slice"
    );
    for uid in ["", "a/b", "../..", "a_b"] {
        pod.metadata.uid = Some(uid.into());
        assert_eq!(
            pod_cgroup(&pod, &policy(CgroupDriver::Cgroupfs, "")),
            None,
            "{uid:?}"
        );
    }
}

/// Upstream's TestIsCgroupPod.
#[test]
fn a_pods_cgroup_is_told_from_every_other() {
    let cases = [
        ("", None),
        ("kubepods", None),
        ("kubepods/pod123", Some("123")),
        ("kubepods/pod123/container.scope", None),
        ("kubepods/burstable", None),
        ("kubepods/burstable/pod123", Some("123")),
        ("kubepods/burstable/pod123/container.scope", None),
        ("kubepods/besteffort", None),
        ("kubepods/besteffort/pod123", Some("123")),
        ("kubepods/besteffort/pod123/container.scope", None),
        ("kubepods/pod", None),
        ("kubepods/podthis-uid-contains-reserved-word-pod", None),
        ("system", None),
        ("system/kubelet", None),
        ("system/pod123", None),
    ];
    for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
        for (group, expected) in cases {
            let path = CgroupName::parse(group).path(driver);
            let found = pod_of(&CgroupName::parse_as(driver, &path), &policy(driver, "/"));
            let expected = expected.map(|uid: &str| uid.to_owned());
            assert_eq!(found.map(|uid| uid.as_str().to_owned()), expected, "{path}");
        }
    }
}

type CgroupResourceList = &'static [(&'static str, &'static str)];

fn asks(requests: CgroupResourceList, limits: CgroupResourceList) -> impl FnOnce(&mut Container) {
    move |container| {
        container.resources = Some(ResourceRequirements {
            requests: Some(quantities(requests)),
            limits: Some(quantities(limits)),
            claims: None,
        });
    }
}

/// Shares, quota, memory.
type CpuLimits = (i64, Option<i64>, Option<i64>);

fn found(pod: &Pod, period: Option<u64>) -> CpuLimits {
    let node = NodePolicy {
        cpu_quota_period: period.map(Duration::from_micros),
        ..NodePolicy::default()
    };
    let limits = pod_limits(pod, &node);
    let expected = period.map_or(100_000, |period| i64::try_from(period).unwrap());
    assert!(limits.cpu.is_none_or(|cpu| cpu.period == expected));
    (
        limits.cpu_shares.unwrap(),
        limits.cpu.map(|cpu| cpu.quota),
        limits.memory,
    )
}

/// Upstream's TestResourceConfigForPod.
#[test]
fn a_pods_limits_are_those_of_all_in_it() {
    const SMALL: CgroupResourceList = &[("cpu", "100m"), ("memory", "200Mi")];
    const MORE: CgroupResourceList = &[("cpu", "200m"), ("memory", "300Mi")];
    let mib = |n: i64| n << 20;
    let pod = || pod("p");
    let cases: [(&str, Pod, Option<u64>, CpuLimits); 9] = [
        (
            "best effort",
            pod().app("c"),
            Some(100_000),
            (2, None, None),
        ),
        (
            "burstable without limits",
            pod().app_with("c", asks(SMALL, &[])),
            Some(100_000),
            (102, None, None),
        ),
        (
            "burstable with limits",
            pod().app_with("c", asks(SMALL, MORE)),
            Some(100_000),
            (102, Some(20_000), Some(mib(300))),
        ),
        (
            "quota not enforced",
            pod().app_with("c", asks(SMALL, MORE)),
            None,
            (102, Some(-1), Some(mib(300))),
        ),
        (
            "another period",
            pod().app_with("c", asks(SMALL, MORE)),
            Some(10_000),
            (102, Some(2000), Some(mib(300))),
        ),
        (
            "one container without limits",
            pod()
                .app_with("c", asks(SMALL, MORE))
                .app_with("d", asks(SMALL, &[])),
            Some(100_000),
            (204, None, None),
        ),
        (
            "only memory limited",
            pod().app_with("c", asks(SMALL, &[("memory", "300Mi")])),
            Some(100_000),
            (102, None, Some(mib(300))),
        ),
        (
            "guaranteed",
            pod().app_with("c", asks(SMALL, SMALL)),
            Some(100_000),
            (102, Some(10_000), Some(mib(200))),
        ),
        (
            "guaranteed with an odd one less than a millisecond",
            pod().app_with(
                "c",
                asks(
                    &[("cpu", "1m"), ("memory", "1Mi")],
                    &[("cpu", "1m"), ("memory", "1Mi")],
                ),
            ),
            Some(100_000),
            (2, Some(1000), Some(mib(1))),
        ),
    ];
    for (name, pod, period, expected) in cases {
        assert_eq!(found(&pod, period), expected, "{name}");
    }
}

#[test]
fn init_containers_overhead_and_pod_level_amounts_count() {
    const MORE: CgroupResourceList = &[("cpu", "200m"), ("memory", "300Mi")];
    let plain = pod("p").app_with("c", asks(MORE, MORE));
    let unlimited_init = plain.clone().init("i");
    assert_eq!(found(&unlimited_init, Some(100_000)), (204, None, None));
    let heavy = plain.clone().spec_with(|spec| {
        spec.overhead = Some(quantities(&[("cpu", "100m"), ("memory", "100Mi")]));
    });
    assert_eq!(
        found(&heavy, Some(100_000)),
        (307, Some(30_000), Some(400 << 20))
    );
    let pod_level = pod("p").app("c").spec_with(|spec| {
        spec.resources = Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", "1")])),
            limits: Some(quantities(&[("cpu", "2"), ("memory", "1Gi")])),
            claims: None,
        });
    });
    assert_eq!(
        found(&pod_level, Some(100_000)),
        (1024, Some(200_000), Some(1 << 30))
    );
}

/// Upstream's TestResourceConfigForPodWithEnforceMemoryQoS.
#[test]
fn a_pods_memory_is_protected_as_its_class_has_it() {
    const SMALL: CgroupResourceList = &[("cpu", "100m"), ("memory", "100Mi")];
    const MORE: CgroupResourceList = &[("cpu", "200m"), ("memory", "200Mi")];
    let node = |reservation, cgroups| NodePolicy {
        enforcement: ResourceEnforcement {
            cgroups,
            memory_qos: Some(MemoryQos {
                throttling: None,
                reservation,
                page_size: 4096,
            }),
            ..ResourceEnforcement::default()
        },
        ..NodePolicy::default()
    };
    let tiered = node(MemoryReservationPolicy::Tiered, NodeCgroupVersion::V2);
    let partial = pod("p").app_with("c", asks(SMALL, MORE));
    let partial = partial.app_with("d", asks(SMALL, &[]));
    let cases: [(Pod, Option<(&str, &str)>); 6] = [
        (pod("p").app("c"), None),
        (pod("p").app_with("c", asks(&[("cpu", "1")], &[])), None),
        (
            pod("p").app_with("c", asks(SMALL, &[])),
            Some(("memory.low", "104857600")),
        ),
        (
            pod("p").app_with("c", asks(SMALL, MORE)),
            Some(("memory.low", "104857600")),
        ),
        (partial, Some(("memory.low", "209715200"))),
        (
            pod("p").app_with("c", asks(SMALL, SMALL)),
            Some(("memory.min", "104857600")),
        ),
    ];
    for (pod, expected) in cases {
        let unified = pod_limits(&pod, &tiered).unified;
        let found: Vec<_> = unified
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        for other in [
            node(MemoryReservationPolicy::None, NodeCgroupVersion::V2),
            node(MemoryReservationPolicy::Tiered, NodeCgroupVersion::V1),
        ] {
            assert!(pod_limits(&pod, &other).unified.is_empty());
        }
    }
}

/// Upstream's TestHugePageLimits.
#[test]
fn huge_pages_are_limited_by_size() {
    let pod = pod("p")
        .app_with("c", asks(&[("hugepages-2Mi", "2Mi"), ("cpu", "1")], &[]))
        .app_with(
            "d",
            asks(&[("hugepages-2Mi", "4Mi"), ("hugepages-1Gi", "3Gi")], &[]),
        );
    let limits = pod_limits(&pod, &NodePolicy::default());
    let expected: BTreeMap<i64, i64> = [(2 << 20, 6 << 20), (1 << 30, 3 << 30)].into();
    assert_eq!(limits.huge_pages, expected);
}

fn texts(list: &[CgroupWrite]) -> Vec<(&str, &str)> {
    list.iter()
        .map(|w| (w.file.as_str(), w.value.as_str()))
        .collect()
}

#[test]
fn limits_go_into_the_files_of_either_version() {
    let mut limits = CgroupLimits {
        cpu_shares: Some(1024),
        cpu: Some(CpuQuota {
            quota: 20_000,
            period: 100_000,
        }),
        cpu_burst: Some(5_000),
        cpus: Some("0-3".to_owned()),
        memory: Some(4096),
        huge_pages: [(2 << 20, 8 << 20)].into(),
        pids: Some(64),
        unified: [("memory.low".to_owned(), "4000".to_owned())].into(),
    };
    let sizes = [2 << 20, 1 << 30];
    let (old, new) = (
        Hierarchy::V1(BTreeMap::new()),
        Hierarchy::V2(PathBuf::new()),
    );
    assert_eq!(
        texts(&writes(&limits, &old, &sizes)),
        [
            ("cpu.shares", "1024"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "20000"),
            ("memory.limit_in_bytes", "4096"),
            ("pids.max", "64"),
            ("cpuset.cpus", "0-3"),
            ("hugetlb.2MB.limit_in_bytes", "8388608"),
            ("hugetlb.2MB.rsvd.limit_in_bytes", "8388608"),
            ("hugetlb.1GB.limit_in_bytes", "0"),
            ("hugetlb.1GB.rsvd.limit_in_bytes", "0"),
        ]
    );
    assert_eq!(
        texts(&writes(&limits, &new, &sizes)),
        [
            ("cpu.weight", "39"),
            ("cpu.max.burst", "0"),
            ("cpu.max", "20000 100000"),
            ("cpu.max.burst", "5000"),
            ("memory.max", "4096"),
            ("memory.low", "4000"),
            ("pids.max", "64"),
            ("cpuset.cpus", "0-3"),
            ("hugetlb.2MB.max", "8388608"),
            ("hugetlb.2MB.rsvd.max", "8388608"),
            ("hugetlb.1GB.max", "0"),
            ("hugetlb.1GB.rsvd.max", "0"),
        ]
    );
    limits.cpu = Some(CpuQuota {
        quota: -1,
        period: 100_000,
    });
    (limits.memory, limits.pids, limits.cpu_burst) = (None, None, None);
    (limits.cpus, limits.unified) = (None, BTreeMap::new());
    assert_eq!(
        texts(&writes(&limits, &old, &[])),
        [
            ("cpu.shares", "1024"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "-1")
        ]
    );
    assert_eq!(
        texts(&writes(&limits, &new, &[])),
        [
            ("cpu.weight", "39"),
            ("cpu.max.burst", "0"),
            ("cpu.max", "max 100000")
        ]
    );
}

const V1: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
35 21 0:28 / /var/lib/elsewhere/memory rw,relatime - cgroup cgroup rw,memory
a line that is none
";

/// Upstream's `getCgroupSubsystemsV1`: of two mounts the shorter path counts.
#[test]
fn the_machines_trees_are_found() {
    let Some(Hierarchy::V1(trees)) = Hierarchy::parse(V1) else {
        panic!("version 1");
    };
    let found: Vec<_> = trees
        .iter()
        .map(|(name, top)| (name.as_str(), top.to_str().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("cpu", "/sys/fs/cgroup/cpu,cpuacct"),
            ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
            ("memory", "/sys/fs/cgroup/memory"),
            ("systemd", "/sys/fs/cgroup/systemd"),
            ("unified", "/sys/fs/cgroup/unified"),
        ]
    );
    let old = Hierarchy::V1(trees);
    assert_eq!(old.tops().len(), 4);
    assert_eq!(old.top("memory"), Some(Path::new("/sys/fs/cgroup/memory")));
    assert_eq!(old.top("pids"), None);

    let new =
        Hierarchy::parse("30 21 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate").unwrap();
    assert_eq!(new, Hierarchy::V2("/sys/fs/cgroup".into()));
    assert_eq!(new.top("cpu"), Some(Path::new("/sys/fs/cgroup")));
    assert_eq!(
        Hierarchy::parse("21 1 8:1 / / rw - ext4 /dev/sda1 rw"),
        None
    );
}
