//! Resource use of simulated containers: plausible, the same for the same container at the same time.

use proto::cri::{
    self, ContainerAttributes, CpuUsage, FilesystemIdentifier, FilesystemUsage, MemoryUsage,
    NetworkInterfaceUsage, NetworkUsage, PodSandboxAttributes, ProcessUsage, SwapUsage,
    UInt64Value,
};

use crate::node::SimulatedNode;
use crate::state::{ContainerPhase, FakeContainer, FakeSandbox};

const MEBIBYTE: u64 = 1 << 20;

#[allow(
    clippy::unnecessary_wraps,
    reason = "every such field of CRI is optional"
)]
fn some(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

/// The simulated usage of one container.
#[derive(Clone, Copy, Default)]
struct SimulatedUsage {
    cpu_nanos: u64,
    nano_cores: u64,
    memory: u64,
    limit: u64,
}

fn usage(node: &SimulatedNode, container: &FakeContainer, now: i64) -> SimulatedUsage {
    let ContainerPhase::Running { started, .. } = container.record.phase else {
        return SimulatedUsage::default();
    };
    let tuning = node.tuning(container);
    let seq = container.record.seq;
    let millis = tuning.cpu_millis.unwrap_or(1 + seq % 5);
    let age = u64::try_from(now.saturating_sub(started)).unwrap_or(0);
    let resources = container
        .config()
        .linux
        .and_then(|linux| linux.resources)
        .unwrap_or_default();
    let limit = u64::try_from(resources.memory_limit_in_bytes).unwrap_or(0);
    let memory = tuning.memory_bytes.unwrap_or((8 + seq % 8) * MEBIBYTE);
    let memory = if limit > 0 { memory.min(limit) } else { memory };
    SimulatedUsage {
        cpu_nanos: (age / 1000).saturating_mul(millis),
        nano_cores: millis.saturating_mul(1_000_000),
        memory,
        limit,
    }
}

fn cpu(used: SimulatedUsage, timestamp: i64) -> CpuUsage {
    CpuUsage {
        timestamp,
        usage_core_nano_seconds: some(used.cpu_nanos),
        usage_nano_cores: some(used.nano_cores),
        psi: None,
    }
}

fn memory(used: SimulatedUsage, timestamp: i64) -> MemoryUsage {
    MemoryUsage {
        timestamp,
        working_set_bytes: some(used.memory),
        available_bytes: some(used.limit.saturating_sub(used.memory)),
        usage_bytes: some(used.memory.saturating_add(used.memory / 8)),
        rss_bytes: some(used.memory - used.memory / 4),
        page_faults: some(used.memory / 4096),
        major_page_faults: some(0),
        psi: None,
    }
}

fn filesystem(used_bytes: u64, inodes: u64, timestamp: i64, mountpoint: &str) -> FilesystemUsage {
    FilesystemUsage {
        timestamp,
        fs_id: Some(FilesystemIdentifier {
            mountpoint: mountpoint.to_owned(),
        }),
        used_bytes: some(used_bytes),
        inodes_used: some(inodes),
    }
}

/// Returns what a container uses now.
pub(crate) fn container(
    node: &SimulatedNode,
    container: &FakeContainer,
    mountpoint: &str,
) -> cri::ContainerStats {
    let now = node.clock.now();
    let used = usage(node, container, now);
    let config = container.config();
    let files = container
        .record
        .files
        .values()
        .map(|text| text.len() as u64);
    let written: u64 = 4096 + files.sum::<u64>();
    cri::ContainerStats {
        attributes: Some(ContainerAttributes {
            id: node.state.id(container.record.seq),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        cpu: Some(cpu(used, now)),
        memory: Some(memory(used, now)),
        writable_layer: Some(filesystem(
            written,
            1 + container.record.files.len() as u64,
            now,
            mountpoint,
        )),
        swap: Some(SwapUsage {
            timestamp: now,
            swap_available_bytes: some(0),
            swap_usage_bytes: some(0),
        }),
        io: None,
    }
}

/// Returns what a pod uses now: the sum of its containers, and a little network.
pub(crate) fn sandbox(
    node: &SimulatedNode,
    sandbox: &FakeSandbox,
    mountpoint: &str,
) -> cri::PodSandboxStats {
    let now = node.clock.now();
    let containers = sandbox
        .containers
        .iter()
        .filter_map(|seq| node.state.containers.get(seq));
    let running: Vec<&FakeContainer> = containers.filter(|container| container.running()).collect();
    let total = running
        .iter()
        .map(|container| usage(node, container, now))
        .fold(SimulatedUsage::default(), |sum, used| SimulatedUsage {
            cpu_nanos: sum.cpu_nanos.saturating_add(used.cpu_nanos),
            nano_cores: sum.nano_cores.saturating_add(used.nano_cores),
            memory: sum.memory.saturating_add(used.memory),
            limit: sum.limit.saturating_add(used.limit),
        });
    let config = sandbox.config();
    let seconds =
        u64::try_from(now.saturating_sub(sandbox.record.created)).unwrap_or(0) / 1_000_000_000;
    let interface = NetworkInterfaceUsage {
        name: "eth0".to_owned(),
        rx_bytes: some(seconds * 128),
        rx_errors: some(0),
        tx_bytes: some(seconds * 64),
        tx_errors: some(0),
    };
    let network = sandbox.record.ip.map(|_| NetworkUsage {
        timestamp: now,
        default_interface: Some(interface.clone()),
        interfaces: vec![interface],
    });
    cri::PodSandboxStats {
        attributes: Some(PodSandboxAttributes {
            id: node.state.id(sandbox.record.seq),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        }),
        linux: Some(cri::LinuxPodSandboxStats {
            cpu: Some(cpu(total, now)),
            memory: Some(memory(total, now)),
            network,
            process: Some(ProcessUsage {
                timestamp: now,
                process_count: some(1 + running.len() as u64),
            }),
            containers: running
                .iter()
                .map(|one| container(node, one, mountpoint))
                .collect(),
            io: None,
        }),
        windows: None,
    }
}

/// Returns what the images, and what the containers, take of the disk.
pub(crate) fn image_filesystem(
    node: &SimulatedNode,
    mountpoint: &str,
) -> (FilesystemUsage, FilesystemUsage) {
    let now = node.clock.now();
    let (count, bytes) = node
        .state
        .images
        .all()
        .fold((0, 0u64), |(count, bytes), image| {
            (count + 1, bytes.saturating_add(image.size))
        });
    let containers = node.state.containers.len() as u64;
    (
        filesystem(bytes, count * 100, now, mountpoint),
        filesystem(containers * 4096, containers, now, mountpoint),
    )
}
