//! Pods in the summary: tables for upstream's cases.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::volume_stats::{VolumeHealthReport, VolumeHealthState, VolumeMetrics};
use logic_api::testing::bare;
use logic_api::types::{
    ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxId,
    SandboxState,
};
use serde_json::json;

use super::pods::{
    DiskUsage, PodDiskUsage, RuntimeContainerStats, RuntimeMeasurements, RuntimeSandboxStats,
    SummaryInput, WritableLayer, claims, stats,
};
use super::rates::CpuRates;
use super::*;
use crate::group_stats::{GroupIndex, GroupStats};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn cpu(seconds: i64, nanoseconds: u64) -> Option<CpuStats> {
    Some(CpuStats {
        time: Some(at(seconds)),
        usage_core_nano_seconds: Some(nanoseconds),
        ..CpuStats::default()
    })
}

fn memory(bytes: u64) -> Option<MemoryStats> {
    Some(MemoryStats {
        time: Some(at(5)),
        working_set_bytes: Some(bytes),
        ..MemoryStats::default()
    })
}

fn sandbox(id: &str, created: i64, state: SandboxState) -> RuntimeSandbox {
    RuntimeSandbox {
        id: id.into(),
        attempt: 0,
        state,
        created_at: Some(at(created)),
        ips: Vec::new(),
        host_network: false,
        runtime_handler: String::new(),
    }
}

fn container(id: &str, sandbox: &str, name: &str, state: ContainerState) -> RuntimeContainer {
    RuntimeContainer {
        created_at: Some(at(1)),
        ..bare(id, sandbox, name, state)
    }
}

fn pod(
    uid: &str,
    name: &str,
    sandboxes: Vec<RuntimeSandbox>,
    containers: Vec<RuntimeContainer>,
) -> RuntimePod {
    RuntimePod {
        uid: uid.into(),
        name: name.to_owned(),
        namespace: "default".to_owned(),
        sandboxes,
        containers,
    }
}

fn figures(id: &str, nanoseconds: u64, bytes: u64) -> RuntimeContainerStats {
    RuntimeContainerStats {
        id: ContainerId::from(id),
        cpu: cpu(5, nanoseconds),
        memory: memory(bytes),
        swap: Some(SwapStats {
            time: Some(at(5)),
            swap_available_bytes: None,
            swap_usage_bytes: Some(3),
        }),
        io: None,
        layer: Some(WritableLayer {
            mountpoint: "/images".to_owned(),
            used: FsStats {
                time: Some(at(5)),
                used_bytes: Some(100),
                inodes_used: Some(10),
                ..FsStats::default()
            },
        }),
    }
}

/// Everything that a case needs, with nothing in it.
struct Case {
    listed: BTreeMap<PodUid, RuntimePod>,
    measured: RuntimeMeasurements,
    groups: Vec<GroupStats>,
    pods: BTreeMap<PodUid, Arc<Pod>>,
    volumes: BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>,
    disks: BTreeMap<PodUid, PodDiskUsage>,
    file_systems: BTreeMap<String, FsStats>,
    root: FsStats,
}

impl Case {
    fn new(pods: Vec<RuntimePod>, measured: RuntimeMeasurements) -> Case {
        Case {
            listed: pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect(),
            measured,
            groups: Vec::new(),
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            disks: BTreeMap::new(),
            file_systems: BTreeMap::new(),
            root: FsStats {
                time: Some(at(0)),
                available_bytes: Some(600),
                capacity_bytes: Some(1000),
                used_bytes: Some(400),
                inodes_free: Some(60),
                inodes: Some(100),
                inodes_used: Some(40),
            },
        }
    }

    fn stats(&self, scope: SummaryScope, rates: &mut CpuRates) -> Vec<PodStats> {
        let ids: BTreeSet<&str> = self.listed.values().flat_map(RuntimePod::ids).collect();
        let groups = GroupIndex::new(&self.groups, &ids);
        let facts = SummaryInput {
            listed: &self.listed,
            measured: &self.measured,
            groups: &groups,
            pods: &self.pods,
            volumes: &self.volumes,
            disks: &self.disks,
            file_systems: &self.file_systems,
            root: &self.root,
        };
        stats(&facts, scope, rates)
    }

    fn everything(&self) -> Vec<PodStats> {
        self.stats(SummaryScope::Everything, &mut CpuRates::default())
    }
}

fn web() -> RuntimePod {
    let containers = vec![
        container("c0", "s0", "app", ContainerState::Running),
        container("c1", "s0", "log", ContainerState::Running),
        container("c2", "s0", "app", ContainerState::Exited),
    ];
    pod(
        "u0",
        "web",
        vec![sandbox("s0", 0, SandboxState::Ready)],
        containers,
    )
}

/// Upstream's TestCRIListPodStats, without what cAdvisor adds.
#[test]
fn a_pod_takes_what_its_running_containers_take_where_nobody_measures_the_pod() {
    let measured = vec![
        figures("c0", 1000, 11),
        figures("c1", 2000, 22),
        figures("c2", 4000, 44),
        figures("stranger", 8000, 88),
    ];
    let mut case = Case::new(vec![web()], RuntimeMeasurements::Containers(measured));
    case.file_systems.insert(
        "/images".to_owned(),
        FsStats {
            available_bytes: Some(7),
            capacity_bytes: Some(8),
            ..FsStats::default()
        },
    );
    let amount = |bytes| DiskUsage { bytes, inodes: 1 };
    let disk = PodDiskUsage {
        container_logs: [("app".to_owned(), amount(50))].into(),
        logs: Some(amount(5)),
        mounted_files: Some(amount(2)),
    };
    case.disks.insert("u0".into(), disk);
    let pods = case.everything();
    assert_eq!(pods.len(), 1);
    let pod = &pods[0];
    let names: Vec<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["app", "log"]);
    assert_eq!(
        (pod.start_time, pod.pod_ref.uid.as_str()),
        (Some(at(0)), "u0")
    );
    let cpu = pod.cpu.as_ref().unwrap();
    assert_eq!(
        (cpu.usage_core_nano_seconds, cpu.time),
        (Some(3000), Some(at(5)))
    );
    assert_eq!(pod.memory.as_ref().unwrap().working_set_bytes, Some(33));
    assert_eq!(pod.swap.as_ref().unwrap().swap_usage_bytes, Some(6));
    let app = &pod.containers[0];
    let rootfs = app.rootfs.as_ref().unwrap();
    assert_eq!(
        (rootfs.used_bytes, rootfs.inodes_used, rootfs.capacity_bytes),
        (Some(100), Some(10), Some(8))
    );
    let logs = app.logs.as_ref().unwrap();
    assert_eq!(
        (logs.used_bytes, logs.available_bytes),
        (Some(50), Some(600))
    );
    // Two layers, one container's log, the pod's own log and its mounted files.
    let storage = pod.ephemeral_storage.as_ref().unwrap();
    assert_eq!(
        (
            storage.used_bytes,
            storage.inodes_used,
            storage.capacity_bytes
        ),
        (Some(257), Some(23), Some(1000))
    );
}

/// Upstream's TestListPodStatsStrictlyFromCRI.
#[test]
fn a_pod_takes_what_the_runtime_says_of_its_sandbox_where_it_says_so() {
    let network = NetworkStats {
        time: Some(at(5)),
        default: InterfaceStats {
            name: "eth0".to_owned(),
            rx_bytes: Some(1),
            ..InterfaceStats::default()
        },
        interfaces: vec![InterfaceStats::default()],
    };
    let whole = RuntimeSandboxStats {
        id: SandboxId::from("s0"),
        cpu: cpu(5, 9000),
        memory: memory(99),
        io: None,
        network: Some(network.clone()),
        processes: Some(4),
        containers: vec![figures("c0", 1000, 11), figures("c2", 1, 1)],
    };
    let unknown = RuntimeSandboxStats {
        id: SandboxId::from("gone"),
        ..whole.clone()
    };
    let case = Case::new(
        vec![web()],
        RuntimeMeasurements::Sandboxes(vec![whole, unknown]),
    );
    let pods = case.everything();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].network, Some(network));
    assert_eq!(pods[0].processes.as_ref().unwrap().process_count, Some(4));
    let cpu = pods[0].cpu.as_ref().unwrap();
    assert_eq!(cpu.usage_core_nano_seconds, Some(9000));
    assert_eq!(pods[0].containers.len(), 1);
    let small = &case.stats(SummaryScope::CpuAndMemory, &mut CpuRates::default())[0];
    let absent = (&small.network, &small.processes, &small.ephemeral_storage);
    assert_eq!(absent, (&None, &None, &None));
    assert!(small.containers[0].rootfs.is_none() && small.containers[0].cpu.is_some());
}

/// Upstream's TestListPodStats cases of sandboxes that were made again (`removeTerminatedPods`).
#[test]
fn of_sandboxes_of_one_name_the_ready_one_counts_or_else_the_newest() {
    let measured = |ids: &[&str]| {
        let sandbox = |id: &&str| RuntimeSandboxStats {
            id: SandboxId::from(*id),
            cpu: cpu(5, 1),
            ..RuntimeSandboxStats::default()
        };
        RuntimeMeasurements::Sandboxes(ids.iter().map(sandbox).collect())
    };
    let uids = |case: &Case| -> Vec<String> {
        let pods = case.everything();
        pods.into_iter().map(|pod| pod.pod_ref.uid).collect()
    };
    let (ready, over) = (SandboxState::Ready, SandboxState::NotReady);
    let one = |uid: &str, id: &str, created, state| {
        pod(uid, "web", vec![sandbox(id, created, state)], Vec::new())
    };
    let remade = vec![one("u1", "old", 0, over), one("u2", "new", 1, ready)];
    let case = Case::new(remade, measured(&["old", "new"]));
    assert_eq!(uids(&case), ["u2"]);
    let ended = vec![one("u1", "old", 0, over), one("u2", "new", 1, over)];
    let case = Case::new(ended, measured(&["old", "new"]));
    assert_eq!(uids(&case), ["u2"]);
    let alone = Case::new(vec![one("u1", "old", 0, over)], measured(&["old"]));
    assert_eq!(uids(&alone), ["u1"]);
}

/// Upstream's TestGetContainerUsageNanoCores.
#[test]
fn the_rate_of_cpu_use_is_told_by_two_looks() {
    let mut rates = CpuRates::default();
    let mut look = |seconds, nanoseconds| {
        let mut figure = cpu(seconds, nanoseconds).unwrap();
        rates.rate("c0", &mut figure);
        figure.usage_nano_cores
    };
    assert_eq!(look(0, 10_000_000_000), None);
    assert_eq!(look(1, 11_000_000_000), Some(1_000_000_000));
    assert_eq!(look(3, 12_000_000_000), Some(500_000_000));
    // The same look again, and one from before.
    assert_eq!(look(3, 12_000_000_000), Some(500_000_000));
    assert_eq!(look(2, 11_500_000_000), Some(500_000_000));
    // A clock that was set back by an hour goes on from there.
    assert_eq!(look(-3600, 12_500_000_000), Some(500_000_000));
    assert_eq!(look(-3599, 12_700_000_000), Some(200_000_000));
    // The container began anew.
    assert_eq!(look(4, 1), None);
    assert_eq!(look(5, 1), Some(0));
    let mut said = cpu(6, 9).unwrap();
    said.usage_nano_cores = Some(42);
    rates.rate("c0", &mut said);
    assert_eq!(said.usage_nano_cores, Some(42));
    rates.keep(|_| false);
    let mut forgotten = cpu(7, 100).unwrap();
    rates.rate("c0", &mut forgotten);
    assert_eq!(forgotten.usage_nano_cores, None);
}

/// Upstream's TestPVCRef, and the volumes of TestCRIListPodStats.
#[test]
fn volumes_are_told_with_their_claims_and_what_is_ephemeral_counts_for_the_pod() {
    let spec = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u0"},
        "spec": {"containers": [], "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]},
    });
    let known = |used| VolumeMetrics {
        used: Some(used),
        at: Some(at(9)),
        ..VolumeMetrics::default()
    };
    let mut case = Case::new(
        vec![web()],
        RuntimeMeasurements::Containers(vec![figures("c0", 1, 1)]),
    );
    case.pods
        .insert("u0".into(), Arc::new(serde_json::from_value(spec).unwrap()));
    let sick = VolumeMetrics {
        abnormal: Some(VolumeHealthReport {
            state: VolumeHealthState::Abnormal,
            message: String::new(),
        }),
        ..known(1000)
    };
    let volumes = [
        ("scratch", known(7)),
        ("shm", known(100)),
        ("data", sick),
        ("own", known(5)),
    ];
    let volumes = volumes.map(|(name, figures)| (name.to_owned(), figures));
    case.volumes.insert("u0".into(), volumes.into());
    let pod = &case.everything()[0];
    let names: Vec<&str> = pod.volumes.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["scratch", "data", "own", "shm"]);
    let data = &pod.volumes[1];
    assert_eq!(data.pvc_ref.as_ref().unwrap().name, "claim");
    assert_eq!(
        data.volume_health_stats,
        Some(VolumeHealth { abnormal: true })
    );
    assert_eq!(data.fs.capacity_bytes, Some(0));
    assert_eq!(pod.volumes[2].pvc_ref.as_ref().unwrap().name, "web-own");
    let storage = pod.ephemeral_storage.as_ref().unwrap();
    assert_eq!((storage.used_bytes, storage.time), (Some(107), Some(at(9))));
    let claims = claims(&case.pods, &case.volumes);
    let names: Vec<&str> = claims.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["claim", "web-own"]);
}

#[test]
fn a_summary_is_written_as_the_api_writes_it() {
    let pod = PodStats {
        pod_ref: PodReference {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            uid: "u0".to_owned(),
        },
        start_time: Some(at(0)),
        cpu: cpu(5, 7),
        network: Some(NetworkStats {
            time: Some(at(5)),
            default: InterfaceStats {
                name: "eth0".to_owned(),
                rx_bytes: Some(1),
                ..InterfaceStats::default()
            },
            interfaces: Vec::new(),
        }),
        processes: Some(ProcessStats {
            process_count: Some(2),
        }),
        volumes: vec![VolumeStats {
            name: "data".to_owned(),
            fs: FsStats {
                used_bytes: Some(3),
                ..FsStats::default()
            },
            ..VolumeStats::default()
        }],
        ephemeral_storage: Some(FsStats::default()),
        ..PodStats::default()
    };
    let summary = StatsSummary {
        node: NodeStats {
            node_name: "node".to_owned(),
            rlimit: Some(ProcessLimit {
                time: Some(at(1)),
                maxpid: Some(9),
                curproc: Some(1),
            }),
            ..NodeStats::default()
        },
        pods: vec![pod],
    };
    let expected = json!({
        "node": {
            "nodeName": "node",
            "startTime": null,
            "rlimit": {"time": "2023-11-14T22:13:21Z", "maxpid": 9, "curproc": 1},
        },
        "pods": [{
            "podRef": {"name": "web", "namespace": "default", "uid": "u0"},
            "startTime": "2023-11-14T22:13:20Z",
            "containers": [],
            "cpu": {"time": "2023-11-14T22:13:25Z", "usageCoreNanoSeconds": 7},
            "network": {"time": "2023-11-14T22:13:25Z", "name": "eth0", "rxBytes": 1},
            "volume": [{"time": null, "usedBytes": 3, "name": "data"}],
            "ephemeral-storage": {"time": null},
            "process_stats": {"process_count": 2},
        }],
    });
    assert_eq!(serde_json::to_value(&summary).unwrap(), expected);
}

/// A runtime that tells of a container twice, or of one that is another pod's: metrics have each series once.
#[test]
fn a_container_is_told_of_once_and_with_its_own_pod() {
    let other = pod(
        "u1",
        "other",
        vec![sandbox("s1", 0, SandboxState::Ready)],
        vec![container("c9", "s1", "app", ContainerState::Running)],
    );
    let whole = |id: &str, containers: &[&str]| RuntimeSandboxStats {
        id: SandboxId::from(id),
        cpu: cpu(5, u64::MAX),
        memory: memory(u64::MAX),
        containers: containers.iter().map(|id| figures(id, 1, 1)).collect(),
        ..RuntimeSandboxStats::default()
    };
    let told = vec![
        whole("s0", &["c9", "c0", "c0", "unknown"]),
        whole("s1", &["c9", "c0"]),
        whole("s1", &["c9"]),
    ];
    let case = Case::new(vec![web(), other], RuntimeMeasurements::Sandboxes(told));
    let named: Vec<(String, Vec<String>)> = case
        .everything()
        .into_iter()
        .map(|pod| {
            let containers = pod.containers.into_iter();
            (pod.pod_ref.name, containers.map(|one| one.name).collect())
        })
        .collect();
    let of = |name: &str| (name.to_owned(), vec!["app".to_owned()]);
    assert_eq!(named, [of("other"), of("web")]);
}

/// Figures beyond all numbers are summed to the largest, whichever are missing.
#[test]
fn no_figure_is_too_large_to_be_summed() {
    for largest in [None, Some(u64::MAX)] {
        let all = |id: &str| RuntimeContainerStats {
            id: ContainerId::from(id),
            cpu: Some(CpuStats {
                usage_core_nano_seconds: largest,
                usage_nano_cores: largest,
                ..CpuStats::default()
            }),
            memory: Some(MemoryStats {
                available_bytes: largest,
                usage_bytes: largest,
                working_set_bytes: largest,
                rss_bytes: largest,
                page_faults: largest,
                major_page_faults: largest,
                ..MemoryStats::default()
            }),
            swap: Some(SwapStats {
                swap_available_bytes: largest,
                swap_usage_bytes: largest,
                ..SwapStats::default()
            }),
            io: None,
            layer: Some(WritableLayer {
                mountpoint: String::new(),
                used: FsStats {
                    used_bytes: largest,
                    inodes_used: largest,
                    ..FsStats::default()
                },
            }),
        };
        let told = RuntimeMeasurements::Containers(vec![all("c0"), all("c1"), all("c1")]);
        let pods = Case::new(vec![web()], told).everything();
        let summed = [
            pods[0].memory.as_ref().unwrap().working_set_bytes,
            pods[0].cpu.as_ref().unwrap().usage_core_nano_seconds,
            pods[0].swap.as_ref().unwrap().swap_usage_bytes,
        ];
        assert_eq!(summed, [largest; 3]);
        let disk = pods[0].ephemeral_storage.as_ref().unwrap();
        assert_eq!(disk.used_bytes, largest);
    }
}
