//! Upstream's TestMakeSignalObservations, TestFallbackResourcesUsage and TestUpdateThreshold.

use logic_api::testing::yaml;

use super::*;
use crate::summary::{
    ContainerStats, FsStats, MemoryStats, NodeStats, PodStats, ProcessLimit, ProcessStats,
    RuntimeStats, VolumeStats,
};

fn file_system(available: u64, capacity: u64) -> FsStats {
    FsStats {
        available_bytes: Some(available),
        capacity_bytes: Some(capacity),
        inodes_free: Some(available + 1),
        inodes: Some(capacity + 1),
        ..FsStats::default()
    }
}

fn memory_stats(available: u64, working_set: u64) -> Option<MemoryStats> {
    Some(MemoryStats {
        available_bytes: Some(available),
        working_set_bytes: Some(working_set),
        ..MemoryStats::default()
    })
}

#[test]
fn each_signal_is_what_is_left_of_its_resource() {
    let pods = ContainerStats {
        name: "pods".into(),
        memory: memory_stats(7, 3),
        ..ContainerStats::default()
    };
    let mut node = NodeStats {
        memory: memory_stats(100, 50),
        system_containers: vec![pods],
        fs: Some(file_system(20, 40)),
        runtime: Some(RuntimeStats {
            image_fs: Some(file_system(30, 60)),
            container_fs: Some(file_system(50, 90)),
        }),
        rlimit: Some(ProcessLimit {
            maxpid: Some(1000),
            curproc: Some(400),
            ..ProcessLimit::default()
        }),
        ..NodeStats::default()
    };
    let figures = |node: &NodeStats| -> Vec<(u64, u64)> {
        let all = super::super::observe(node, at(0));
        Signal::ALL
            .iter()
            .filter_map(|signal| all.get(signal))
            .map(|observed| (observed.available, observed.capacity))
            .collect()
    };
    let expected = [
        (100, 150),
        (7, 10),
        (20, 40),
        (21, 41),
        (30, 60),
        (31, 61),
        (50, 90),
        (51, 91),
        (600, 1000),
    ];
    assert_eq!(figures(&node), expected);

    // A file system without inodes is never short of them, and more processes than there may be leave none.
    node.fs.as_mut().unwrap().inodes = Some(0);
    node.rlimit.as_mut().unwrap().curproc = Some(2000);
    let found = figures(&node);
    assert_eq!((found.len(), found[2], found[7]), (8, (20, 40), (0, 1000)));
    // What is missing costs its own figure.
    node.memory = None;
    node.system_containers.clear();
    node.runtime = None;
    node.rlimit.as_mut().unwrap().maxpid = None;
    assert_eq!(figures(&node), [(20, 40)]);
    assert!(figures(&NodeStats::default()).is_empty());
}

const POD: &str = "
metadata: {name: web}
spec:
  priority: 7
  containers:
  - name: app
    image: a
    resources: {requests: {memory: 1Ki, ephemeral-storage: 2Ki}}
  initContainers:
  - {name: side, image: a, restartPolicy: Always, resources: {requests: {memory: 1Ki}}}
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: ram, emptyDir: {medium: Memory}}
  - {name: host, hostPath: {path: /x}}
  - {name: claim, persistentVolumeClaim: {claimName: c}}
";

fn used(bytes: u64, inodes: u64) -> Option<FsStats> {
    Some(FsStats {
        used_bytes: Some(bytes),
        inodes_used: Some(inodes),
        ..FsStats::default()
    })
}

#[test]
fn a_pods_use_is_summed_from_what_was_measured_and_nothing_else() {
    let pod = yaml::pod(POD);
    let container = |name: &str, bytes| ContainerStats {
        name: name.into(),
        memory: memory_stats(0, bytes),
        rootfs: used(bytes, 1),
        logs: used(1, 1),
        ..ContainerStats::default()
    };
    let volume = |name: &str, bytes| VolumeStats {
        name: name.into(),
        fs: used(bytes, 1).unwrap(),
        ..VolumeStats::default()
    };
    let stats = PodStats {
        memory: memory_stats(0, 3000),
        processes: Some(ProcessStats {
            process_count: Some(5),
        }),
        containers: vec![container("app", 2000), container("debug", 10)],
        volumes: vec![
            volume("scratch", 100),
            volume("ram", 1000),
            volume("host", 10_000),
            volume("claim", 100_000),
            volume("unknown", 7),
        ],
        ..PodStats::default()
    };
    let found = PodUsage::of(&pod, Some(&stats), FsLayout::Shared);
    assert_eq!(
        (found.priority, found.standing),
        (7, EvictionClass::Evictable)
    );
    let requests = PodRequests {
        memory: 2048,
        ephemeral_storage: 2048,
        pod_level_memory: None,
    };
    assert_eq!(found.requests, requests);
    let amount = |bytes, inodes| DiskAmount { bytes, inodes };
    let found = found.used.unwrap();
    assert_eq!((found.memory, found.pids), (3000, 5));
    assert_eq!(found.root, amount(2010, 2));
    assert_eq!(found.logs, amount(2, 2));
    assert_eq!(found.volumes, amount(10_100, 2));
    let [app] = found.containers.as_slice() else {
        panic!(
            "an ephemeral container is not blamed: {:?}",
            found.containers
        );
    };
    assert_eq!((app.memory, app.memory_request.value), (Some(2000), 1024));
    assert_eq!((app.storage, app.storage_request.value), (Some(2001), 2048));

    let unmeasured = PodUsage::of(&pod, None, FsLayout::Shared);
    assert_eq!(unmeasured.used, None);
    let empty = PodUsage::of(&pod, Some(&PodStats::default()), FsLayout::Shared);
    assert_eq!(empty.used, Some(MeasuredUsage::default()));
}

/// Upstream's TestUpdateThreshold, TestUpdateThresholdWithInvalidSummary and TestUpdateMemcgThreshold.
#[test]
fn the_kernel_reports_where_so_little_is_left_that_the_threshold_is_met() {
    const GIB: u64 = 1 << 30;
    let figures = |available, working_set, usage| MemoryStats {
        available_bytes: Some(available),
        working_set_bytes: Some(working_set),
        usage_bytes: Some(usage),
        ..MemoryStats::default()
    };
    let threshold = hard(Signal::MemoryAvailable, GIB);
    let cases = [
        (figures(3 * GIB, GIB, 2 * GIB), Some(4 * GIB)),
        (figures(4 * GIB, GIB, 3 * GIB), Some(6 * GIB)),
        (figures(0, 0, 0), Some(0)),
        (figures(u64::MAX, u64::MAX, 0), Some(u64::MAX - GIB)),
        (MemoryStats::default(), None),
    ];
    for (memory, expected) in cases {
        assert_eq!(notify_at(&threshold, &memory), expected, "{memory:?}");
    }
}
