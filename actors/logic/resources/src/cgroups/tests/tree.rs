//! The groups above the pods.

use logic_api::pod::requests::{self, ResourceAmounts};
use logic_api::testing::*;

use super::super::tree::*;
use super::*;
use crate::node::{Reservations, allocatable_at_most};
use crate::resources::{MemoryReservationPolicy, cpu_shares};
use crate::thresholds::ThresholdLimit;

const MIB: i64 = 1 << 20;

fn amounts(list: CgroupResourceList) -> ResourceAmounts {
    requests::read(Some(&quantities(list)))
}

fn node() -> NodeLimits {
    NodeLimits {
        capacity: amounts(&[("cpu", "10"), ("memory", "10Gi"), ("pid", "1000")]),
        allocatable: amounts(&[("cpu", "9"), ("memory", "8Gi"), ("pid", "900")]),
        pods_enforced: true,
        cpus: Some("0-9".to_owned()),
        page_sizes: vec![2 << 20],
        ..NodeLimits::default()
    }
}

fn guaranteed() -> k8s_openapi::api::core::v1::Pod {
    const ALL: CgroupResourceList = &[("cpu", "1"), ("memory", "128Mi")];
    pod("guaranteed").app_with("c", asks(ALL, ALL))
}

fn burstable() -> k8s_openapi::api::core::v1::Pod {
    let requests: CgroupResourceList = &[("cpu", "1"), ("memory", "128Mi")];
    let limits: CgroupResourceList = &[("cpu", "2"), ("memory", "256Mi")];
    pod("burstable").app_with("c", asks(requests, limits))
}

fn best_effort() -> k8s_openapi::api::core::v1::Pod {
    pod("besteffort").app("c")
}

/// Upstream's TestQOSCPUConfigUpdate.
#[test]
fn a_class_has_the_shares_that_its_pods_ask_for_together() {
    let policy = policy(CgroupDriver::Cgroupfs, "/");
    let cases = [
        (vec![guaranteed()], 2),
        (vec![burstable()], 1024),
        (vec![burstable(), burstable()], 2048),
        (vec![best_effort()], 2),
        (vec![guaranteed(), burstable()], 1024),
        (vec![best_effort(), burstable()], 1024),
    ];
    for (pods, expected) in cases {
        let [root, middle, last] = groups(&policy, &node(), &pods);
        let names = [&root, &middle, &last].map(|group| group.name.path(CgroupDriver::Cgroupfs));
        assert_eq!(
            names,
            ["/kubepods", "/kubepods/burstable", "/kubepods/besteffort"]
        );
        assert_eq!(middle.limits.cpu_shares, Some(expected));
        assert_eq!(last.limits.cpu_shares, Some(2));
        for group in [&root, &middle, &last] {
            assert_eq!(group.limits.huge_pages, [(2 << 20, 1 << 62)].into());
        }
        for class in [middle, last] {
            assert_eq!((class.limits.memory, class.limits.pids), (None, None));
        }
    }
}

#[test]
fn the_root_has_what_is_allocatable_or_all_there_is() {
    let policy = policy(CgroupDriver::Cgroupfs, "/");
    for (enforced, cpu, memory, pids) in [(true, 9_000, 8_192, 900), (false, 10_000, 10_240, 1000)]
    {
        let node = NodeLimits {
            pods_enforced: enforced,
            ..node()
        };
        let [root, ..] = groups(&policy, &node, []);
        assert_eq!(root.limits.cpu_shares, Some(cpu_shares(cpu)));
        assert_eq!(root.limits.memory, Some(memory * MIB));
        assert_eq!(root.limits.pids, Some(pids));
        assert_eq!(root.limits.cpus.as_deref(), Some("0-9"));
        assert_eq!(root.limits.cpu, None, "CPU is shared, not capped");
    }
}

/// Upstream's TestQoSContainerCgroup and TestQoSContainerCgroupWithMemoryReservationPolicyNone.
#[test]
fn memory_is_kept_for_the_classes_whose_pods_ask_for_it() {
    use MemoryReservationPolicy::{None as Nothing, Tiered};
    let policy = policy(CgroupDriver::Cgroupfs, "/");
    let without_memory = pod("p").app_with("c", asks(&[("cpu", "1")], &[]));
    let all = vec![guaranteed(), burstable(), burstable(), burstable()];
    let cases = [
        (Some(Tiered), all.clone(), Some((512, 384))),
        (Some(Tiered), vec![best_effort()], Some((0, 0))),
        (Some(Tiered), vec![without_memory], Some((0, 0))),
        (Some(Tiered), vec![], Some((0, 0))),
        (Some(Nothing), all.clone(), Some((0, 0))),
        (None, all, None),
    ];
    for (reservation, pods, expected) in cases {
        let node = NodeLimits {
            memory_reservation: reservation,
            ..node()
        };
        let [root, burstable, best_effort] = groups(&policy, &node, &pods);
        let bytes = |group: &GroupLimits, file: &str| {
            let text = group.limits.unified.get(file)?;
            text.parse::<i64>().ok()
        };
        let found = bytes(&root, "memory.min").zip(bytes(&burstable, "memory.low"));
        assert_eq!(found, expected.map(|(all, low)| (all * MIB, low * MIB)));
        assert!(best_effort.limits.unified.is_empty());
    }
}

#[test]
fn a_share_of_requested_memory_may_be_closed_to_worse_classes() {
    let policy = policy(CgroupDriver::Cgroupfs, "/");
    let pods = [guaranteed(), burstable()];
    let cases = [
        (None, None),
        (Some(0), Some((8192, 8192))),
        (Some(50), Some((8192 - 64, 8192 - 128))),
        (Some(100), Some((8192 - 128, 8192 - 256))),
    ];
    for (percent, expected) in cases {
        let node = NodeLimits {
            qos_reserved_memory: percent,
            ..node()
        };
        let [_, burstable, best_effort] = groups(&policy, &node, &pods);
        let found = burstable.limits.memory.zip(best_effort.limits.memory);
        assert_eq!(found, expected.map(|(b, e)| (b * MIB, e * MIB)));
    }
    let unknown = NodeLimits {
        qos_reserved_memory: Some(100),
        ..NodeLimits::default()
    };
    let [_, burstable, _] = groups(&policy, &unknown, &pods);
    assert_eq!(
        burstable.limits.memory, None,
        "the node's memory is not known"
    );
}

/// Upstream's TestGetCgroupConfig.
#[test]
fn a_reserved_part_is_limited_in_full_or_in_cpu_alone() {
    let both = amounts(&[("cpu", "100m"), ("memory", "200Mi")]);
    let cpu = of_compressible(&both, None);
    assert_eq!(
        (cpu.cpu_shares, cpu.memory, cpu.pids),
        (Some(102), None, None)
    );
    assert!(cpu.huge_pages.is_empty());
    let memory = of_amounts(&amounts(&[("memory", "200Mi")]), None);
    assert_eq!((memory.cpu_shares, memory.memory), (None, Some(200 * MIB)));
    let all = of_amounts(&both, Some("0-1"));
    assert_eq!((all.cpu_shares, all.memory), (Some(102), Some(200 * MIB)));
    assert_eq!(all.cpus.as_deref(), Some("0-1"));
    assert_eq!(of_amounts(&amounts(&[]), None), CgroupLimits::default());

    let kept = NodeLimits {
        memory_reservation: Some(MemoryReservationPolicy::None),
        ..node()
    };
    let min = |kind, node: &NodeLimits| {
        let limits = of_reserved(kind, &both, node);
        limits.unified.get("memory.min").cloned()
    };
    let bytes = Some((200 * MIB).to_string());
    assert_eq!(min(Enforcement::KubeReserved, &kept), bytes);
    assert_eq!(min(Enforcement::KubeReservedCompressible, &kept), None);
    assert_eq!(min(Enforcement::SystemReserved, &node()), None);
}

/// Upstream's TestNodeAllocatableForEnforcement: thresholds of eviction do not count.
#[test]
fn what_is_enforced_is_capacity_without_what_is_reserved() {
    let cases: [(
        CgroupResourceList,
        CgroupResourceList,
        CgroupResourceList,
        CgroupResourceList,
    ); 5] = [
        (
            &[("cpu", "100m"), ("memory", "100Mi")],
            &[("cpu", "50m"), ("memory", "50Mi")],
            &[("cpu", "10"), ("memory", "10Gi")],
            &[("cpu", "9850m"), ("memory", "10090Mi")],
        ),
        (
            &[],
            &[],
            &[("cpu", "10"), ("memory", "10Gi")],
            &[("cpu", "10"), ("memory", "10Gi")],
        ),
        (
            &[("memory", "100Mi")],
            &[("cpu", "50m"), ("memory", "50Mi")],
            &[("cpu", "10"), ("memory", "10Gi")],
            &[("cpu", "9950m"), ("memory", "10090Mi")],
        ),
        (
            &[("cpu", "50m"), ("memory", "100Mi")],
            &[("memory", "50Mi")],
            &[("cpu", "10"), ("memory", "10Gi")],
            &[("cpu", "9950m"), ("memory", "10090Mi")],
        ),
        (
            &[("memory", "100Mi")],
            &[("memory", "50Mi")],
            &[("cpu", "10")],
            &[("cpu", "10")],
        ),
    ];
    let thresholds = [
        None,
        Some(ThresholdLimit::amount(100 << 20)),
        Some(ThresholdLimit::PerMillion(50_000)),
    ];
    for (kube, system, capacity, expected) in cases {
        for memory_available in thresholds {
            let reserved = Reservations {
                kube: amounts(kube),
                system: amounts(system),
                memory_available,
                ..Reservations::default()
            };
            let left = allocatable_at_most(&amounts(capacity), &reserved);
            let milli = |list: &ResourceAmounts| -> Vec<(String, i64)> {
                let list = list.iter();
                list.map(|(name, amount)| (name.clone(), amount.milli_value()))
                    .collect()
            };
            assert_eq!(milli(&left), milli(&amounts(expected)));
        }
    }
}

/// Upstream's TestNodeAllocatableInputValidation.
#[test]
fn no_more_is_reserved_than_there_is() {
    let gib = |n: u64| Some(ThresholdLimit::amount(n << 30));
    let cases: [(
        CgroupResourceList,
        CgroupResourceList,
        _,
        CgroupResourceList,
        usize,
    ); 7] = [
        (
            &[("cpu", "100m"), ("memory", "100Mi")],
            &[("cpu", "50m"), ("memory", "50Mi")],
            gib(0),
            &[("cpu", "10"), ("memory", "10Gi")],
            0,
        ),
        (
            &[],
            &[],
            Some(ThresholdLimit::PerMillion(50_000)),
            &[("cpu", "10"), ("memory", "10Gi")],
            0,
        ),
        (
            &[("memory", "100Mi")],
            &[("memory", "50Mi")],
            None,
            &[("cpu", "10")],
            0,
        ),
        (
            &[("cpu", "5"), ("memory", "10Gi")],
            &[("cpu", "5"), ("memory", "10Gi")],
            gib(2),
            &[("cpu", "10"), ("memory", "11Gi")],
            1,
        ),
        (
            &[("cpu", "6")],
            &[("cpu", "5")],
            None,
            &[("cpu", "10"), ("memory", "11Gi")],
            1,
        ),
        (
            &[("ephemeral-storage", "100Mi")],
            &[],
            None,
            &[("ephemeral-storage", "500Mi")],
            0,
        ),
        (
            &[("ephemeral-storage", "21Gi")],
            &[],
            None,
            &[("ephemeral-storage", "20Gi")],
            1,
        ),
    ];
    for (kube, system, memory_available, capacity, wrong) in cases {
        let reserved = Reservations {
            kube: amounts(kube),
            system: amounts(system),
            memory_available,
            nodefs_available: Some(ThresholdLimit::amount(100 << 20)),
        };
        let capacity = amounts(capacity);
        let found = overcommitted(&capacity, &reserved.with_eviction(&capacity));
        assert_eq!(found.len(), wrong, "{found:?}");
    }
    let capacity = amounts(&[("memory", "1Gi")]);
    let found = overcommitted(&capacity, &amounts(&[("memory", "2Gi")]));
    assert_eq!(
        found,
        [
            "Resource \"memory\" has a reservation of 2Gi but capacity of 1Gi. Expected capacity >= reservation."
        ]
    );
}
