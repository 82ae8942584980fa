//! Pods by their cgroups.

use super::*;
use crate::group_stats::{
    GroupCpu, GroupIo, GroupMemory, GroupStats, GroupTasks, InterfaceCounters, TrafficCounters,
};

fn group(name: &str, seconds: i64, nanoseconds: u64) -> GroupStats {
    GroupStats {
        name: name.to_owned(),
        at: Some(at(seconds)),
        cpu: Some(GroupCpu {
            usage: nanoseconds,
            ..GroupCpu::default()
        }),
        memory: Some(GroupMemory {
            usage: nanoseconds * 2,
            inactive_file: nanoseconds,
            swap: 5,
            limit: u64::MAX,
            swap_limit: u64::MAX,
            ..GroupMemory::default()
        }),
        io: Some(GroupIo::default()),
        tasks: GroupTasks {
            processes: 2,
            ..GroupTasks::default()
        },
        ..GroupStats::default()
    }
}

/// The groups of `web` at a time: its own, its sandbox's, and its two containers'.
fn groups(seconds: i64) -> Vec<GroupStats> {
    let second = 1_000_000_000 * u64::try_from(seconds).unwrap();
    let mut sandbox = group("/kubepods/podu0/s0", seconds, 1);
    sandbox.network = Some(vec![InterfaceCounters {
        name: "eth0".to_owned(),
        received: TrafficCounters {
            bytes: 11,
            ..TrafficCounters::default()
        },
        ..InterfaceCounters::default()
    }]);
    vec![
        group("/kubepods/podu0", seconds, 10 + second),
        group("/kubepods/podu0/c0", seconds, 3),
        group("/kubepods/podu0/c1", seconds, 4),
        sandbox,
    ]
}

/// The native runtime's sandboxes have no process and no group, as CRI-O's.
#[test]
fn a_pod_has_the_network_of_a_container_where_its_sandbox_has_no_group() {
    let measured = RuntimeMeasurements::Containers(vec![figures("c0", 1000, 11)]);
    let mut case = Case::new(vec![web()], measured);
    case.groups = groups(7);
    let sandbox = case.groups.pop().unwrap();
    assert!(case.everything()[0].network.is_none());
    case.groups[1].network = sandbox.network;
    let network = case.everything()[0].network.clone().unwrap();
    assert_eq!(network.default.rx_bytes, Some(11));
}

/// Upstream's TestCRIListPodStats and TestCadvisorListPodStats: what cAdvisor adds.
#[test]
fn a_container_and_a_pod_take_what_their_groups_say() {
    let measured = RuntimeMeasurements::Containers(vec![figures("c0", 1000, 11)]);
    let mut case = Case::new(vec![web()], measured);
    case.groups = groups(7);
    let pod = &case.everything()[0];
    let cpu = pod.cpu.as_ref().unwrap();
    assert_eq!(
        (cpu.usage_core_nano_seconds, cpu.time),
        (Some(7_000_000_010), Some(at(7)))
    );
    assert!(cpu.psi.is_some() && pod.io.as_ref().unwrap().psi.is_some());
    let swap = pod.swap.as_ref().unwrap();
    assert_eq!(
        (swap.swap_usage_bytes, swap.swap_available_bytes),
        (Some(5), None)
    );
    let network = pod.network.as_ref().unwrap();
    assert_eq!(
        (network.default.rx_bytes, network.interfaces.len()),
        (Some(11), 1)
    );
    // The sandbox's own process does not count.
    assert_eq!(pod.processes.as_ref().unwrap().process_count, Some(4));
    let [app, log] = &pod.containers[..] else {
        panic!("{:?}", pod.containers)
    };
    assert_eq!(app.cpu.as_ref().unwrap().usage_core_nano_seconds, Some(3));
    assert_eq!(app.memory.as_ref().unwrap().working_set_bytes, Some(3));
    // The layer is the runtime's to tell.
    assert!(app.rootfs.is_some() && log.rootfs.is_none());
    assert_eq!(log.cpu.as_ref().unwrap().usage_core_nano_seconds, Some(4));
}

/// Upstream's TestCadvisorListPodCPUAndMemoryStats and TestCRIListPodCPUAndMemoryStats.
#[test]
fn cpu_memory_and_swap_alone_come_from_the_groups_too() {
    let mut case = Case::new(vec![web()], RuntimeMeasurements::Containers(Vec::new()));
    case.groups = groups(7);
    let pod = &case.stats(SummaryScope::CpuAndMemory, &mut CpuRates::default())[0];
    assert!(pod.network.is_none() && pod.io.is_none() && pod.processes.is_none());
    assert!(pod.cpu.is_some() && pod.memory.is_some() && pod.swap.is_some());
    for container in &pod.containers {
        assert!(container.io.is_none() && container.rootfs.is_none());
        assert!(container.cpu.is_some() && container.swap.is_some());
    }
}

#[test]
fn the_rate_of_a_group_is_zero_until_there_are_two_samples() {
    let mut case = Case::new(vec![web()], RuntimeMeasurements::Containers(Vec::new()));
    let mut rates = CpuRates::default();
    let mut rate = |seconds| {
        case.groups = groups(seconds);
        let pods = case.stats(SummaryScope::Everything, &mut rates);
        pods[0].cpu.as_ref().unwrap().usage_nano_cores
    };
    assert_eq!(rate(7), Some(0));
    assert_eq!(rate(9), Some(1_000_000_000));
}

/// Upstream's TestMergeProcessStats.
#[test]
fn the_processes_of_a_pod_are_those_of_its_containers() {
    let mut case = Case::new(vec![web()], RuntimeMeasurements::Containers(Vec::new()));
    case.groups = groups(7);
    case.groups[1].tasks.processes = 0;
    let pod = &case.everything()[0];
    assert_eq!(pod.processes.as_ref().unwrap().process_count, Some(2));
    case.groups.retain(|group| !group.name.ends_with("/c1"));
    let pod = &case.everything()[0];
    assert_eq!(pod.processes.as_ref().unwrap().process_count, Some(0));
}

#[test]
fn a_container_without_a_group_takes_what_the_runtime_says_and_no_other_is_touched() {
    let measured = RuntimeMeasurements::Containers(vec![figures("c1", 2000, 22)]);
    let mut case = Case::new(vec![web()], measured);
    case.groups = groups(7);
    case.groups.retain(|group| !group.name.ends_with("/c1"));
    let pod = &case.everything()[0];
    let used: Vec<_> = pod
        .containers
        .iter()
        .map(|one| one.cpu.as_ref().unwrap().usage_core_nano_seconds)
        .collect();
    assert_eq!(used, [Some(3), Some(2000)]);
    // Without a group of the pod, its containers add up.
    case.groups.retain(|group| group.name != "/kubepods/podu0");
    let pod = &case.everything()[0];
    assert_eq!(
        pod.cpu.as_ref().unwrap().usage_core_nano_seconds,
        Some(2003)
    );
    assert_eq!(pod.swap.as_ref().unwrap().swap_usage_bytes, Some(8));
}
