//! Stats and metrics of containers and pods, from their cgroups, their network devices and their writable layers.

mod cgroup;
mod metrics;
mod network;
mod usage;

use std::sync::Arc;

use proto::cri::{
    ContainerAttributes, ContainerStats, CpuUsage, FilesystemIdentifier, FilesystemUsage,
    LinuxPodSandboxStats, MemoryUsage, NetworkUsage, PodSandboxAttributes, PodSandboxStats,
    ProcessUsage, UInt64Value,
};

pub(crate) use metrics::descriptors;
pub(crate) use usage::UsageCache;

use self::cgroup::CgroupUsage;
use self::usage::LayerUsage;
use crate::clock;
use crate::error::CallError;
use crate::node::Node;
use crate::record::{ContainerRecord, SandboxRecord};
use crate::sandbox::own_namespaces;

fn wire(value: Option<u64>) -> Option<UInt64Value> {
    value.map(|value| UInt64Value { value })
}

/// A container with what it uses now.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    record: ContainerRecord,
    usage: CgroupUsage,
    /// Nanoseconds of CPU a second.
    nano_cores: Option<u64>,
    layer: Option<LayerUsage>,
}

impl Node {
    /// Measures running containers, and the network devices of the pod that the last of them is in.
    async fn measure(
        self: &Arc<Node>,
        records: Vec<ContainerRecord>,
    ) -> Result<(Vec<Measured>, Option<NetworkUsage>), CallError> {
        let with_pids: Vec<_> = {
            let state = self.state();
            let pid = |id: &str| state.container(id).and_then(|entry| entry.pid);
            let with = records
                .into_iter()
                .filter_map(|record| Some((pid(&record.id)?, record)));
            with.collect()
        };
        let node = self.clone();
        let read = self.blocking("reading cgroups", move || {
            let network = with_pids
                .last()
                .and_then(|(pid, _)| network::of_process(*pid));
            let measured = with_pids.into_iter().map(|(pid, record)| {
                let usage = cgroup::of_container(pid, &record.id);
                let nano_cores = node.usage.rate(&record.id, usage.cpu_nanos);
                Measured {
                    record,
                    usage,
                    nano_cores,
                    layer: None,
                }
            });
            Ok((measured.collect::<Vec<_>>(), network))
        });
        let (mut measured, network) = read.await?;
        for one in &mut measured {
            one.layer = self.writable_layer(&one.record.id);
        }
        Ok((measured, network))
    }

    fn container_stats_of(&self, measured: &Measured) -> ContainerStats {
        let images = self.parts.layout.images();
        container(measured, &images.display().to_string())
    }

    /// Returns the stats of running containers.
    pub(crate) async fn container_stats(
        self: &Arc<Node>,
        records: Vec<ContainerRecord>,
    ) -> Result<Vec<ContainerStats>, CallError> {
        let (measured, _) = self.measure(records).await?;
        let stats = measured.iter().map(|one| self.container_stats_of(one));
        Ok(stats.collect())
    }

    /// Returns the stats of a pod: the sum of its running containers, and its network.
    pub(crate) async fn sandbox_stats(
        self: &Arc<Node>,
        sandbox: &SandboxRecord,
    ) -> Result<PodSandboxStats, CallError> {
        let (measured, network) = self.measure_pod(sandbox).await?;
        let own = own_namespaces(&sandbox.config.0).network;
        let containers = measured.iter().map(|one| self.container_stats_of(one));
        let containers = containers.collect();
        Ok(pod(
            sandbox,
            &measured,
            (containers, network.filter(|_| own)),
        ))
    }

    async fn measure_pod(
        self: &Arc<Node>,
        sandbox: &SandboxRecord,
    ) -> Result<(Vec<Measured>, Option<NetworkUsage>), CallError> {
        let records = self.state().records_of(&sandbox.id).into_iter();
        let running = records.filter(ContainerRecord::running);
        self.measure(running.collect()).await
    }
}

fn cpu(usage: &CgroupUsage, nano_cores: Option<u64>, timestamp: i64) -> CpuUsage {
    CpuUsage {
        timestamp,
        usage_core_nano_seconds: wire(usage.cpu_nanos),
        usage_nano_cores: wire(nano_cores),
        psi: None,
    }
}

fn memory(usage: &CgroupUsage, timestamp: i64) -> MemoryUsage {
    let available = usage
        .limit_bytes
        .zip(usage.working_set_bytes)
        .map(|(limit, used)| limit.saturating_sub(used));
    MemoryUsage {
        timestamp,
        working_set_bytes: wire(usage.working_set_bytes),
        available_bytes: wire(available),
        usage_bytes: wire(usage.memory_bytes),
        rss_bytes: wire(usage.rss_bytes),
        page_faults: wire(usage.page_faults),
        major_page_faults: wire(usage.major_page_faults),
        psi: None,
    }
}

/// Returns the stats of a container; `file_system` is where the node's images and writable layers lie.
fn container(measured: &Measured, file_system: &str) -> ContainerStats {
    let now = clock::now();
    let config = measured.record.config.0.clone();
    ContainerStats {
        attributes: Some(ContainerAttributes {
            id: measured.record.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        cpu: Some(cpu(&measured.usage, measured.nano_cores, now)),
        memory: Some(memory(&measured.usage, now)),
        writable_layer: measured.layer.map(|layer| FilesystemUsage {
            timestamp: layer.taken,
            fs_id: Some(FilesystemIdentifier {
                mountpoint: file_system.to_owned(),
            }),
            used_bytes: wire(Some(layer.bytes)),
            inodes_used: wire(Some(layer.inodes)),
        }),
        swap: None,
        io: None,
    }
}

/// Sums what is known; where nothing is known there is no sum.
fn total(measured: &[Measured]) -> CgroupUsage {
    let sum = |of: fn(&CgroupUsage) -> Option<u64>| {
        let known = measured.iter().filter_map(|one| of(&one.usage));
        known.reduce(u64::saturating_add)
    };
    CgroupUsage {
        cpu_nanos: sum(|usage| usage.cpu_nanos),
        memory_bytes: sum(|usage| usage.memory_bytes),
        working_set_bytes: sum(|usage| usage.working_set_bytes),
        rss_bytes: sum(|usage| usage.rss_bytes),
        page_faults: sum(|usage| usage.page_faults),
        major_page_faults: sum(|usage| usage.major_page_faults),
        limit_bytes: None,
        processes: sum(|usage| usage.processes),
    }
}

fn pod(
    sandbox: &SandboxRecord,
    measured: &[Measured],
    (containers, network): (Vec<ContainerStats>, Option<NetworkUsage>),
) -> PodSandboxStats {
    let (now, total) = (clock::now(), total(measured));
    let rates = measured.iter().filter_map(|one| one.nano_cores);
    let nano_cores = rates.reduce(u64::saturating_add);
    let config = sandbox.config.0.clone();
    PodSandboxStats {
        attributes: Some(PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        linux: Some(LinuxPodSandboxStats {
            cpu: Some(cpu(&total, nano_cores, now)),
            memory: Some(memory(&total, now)),
            network,
            process: Some(ProcessUsage {
                timestamp: now,
                process_count: wire(total.processes),
            }),
            containers,
            io: None,
        }),
        windows: None,
    }
}
