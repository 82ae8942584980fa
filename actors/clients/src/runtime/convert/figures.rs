//! From CRI's stats to the types of `/stats/summary`.

use logic_resources::summary::pods::{
    RuntimeContainerStats, RuntimeMeasurements, RuntimeSandboxStats, WritableLayer,
};
use logic_resources::summary::{
    CpuStats, FsStats, InterfaceStats, IoStats, MemoryStats, NetworkStats, PsiData, PsiStats,
    SwapStats,
};
use proto::cri;

use super::seen::time;

pub(in crate::runtime) fn sandboxes(stats: Vec<cri::PodSandboxStats>) -> RuntimeMeasurements {
    RuntimeMeasurements::Sandboxes(stats.into_iter().filter_map(sandbox).collect())
}

pub(in crate::runtime) fn containers(
    stats: Vec<cri::ContainerStats>,
) -> Vec<RuntimeContainerStats> {
    stats.into_iter().filter_map(container).collect()
}

/// None for stats without a sandbox id, which belong to no known pod.
fn sandbox(stats: cri::PodSandboxStats) -> Option<RuntimeSandboxStats> {
    let linux = stats.linux.unwrap_or_default();
    Some(RuntimeSandboxStats {
        id: stats.attributes?.id.into(),
        cpu: linux.cpu.map(cpu),
        memory: linux.memory.map(memory),
        io: linux.io.map(io),
        network: linux.network.map(network),
        processes: linux
            .process
            .and_then(|process| number(process.process_count)),
        containers: linux.containers.into_iter().filter_map(container).collect(),
    })
}

fn container(stats: cri::ContainerStats) -> Option<RuntimeContainerStats> {
    Some(RuntimeContainerStats {
        id: stats.attributes?.id.into(),
        cpu: stats.cpu.map(cpu),
        memory: stats.memory.map(memory),
        swap: stats.swap.map(|swap| SwapStats {
            time: time(swap.timestamp),
            swap_available_bytes: number(swap.swap_available_bytes),
            swap_usage_bytes: number(swap.swap_usage_bytes),
        }),
        io: stats.io.map(io),
        layer: stats.writable_layer.map(layer),
    })
}

pub(in crate::runtime) fn layer(usage: cri::FilesystemUsage) -> WritableLayer {
    WritableLayer {
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
        used: FsStats {
            time: time(usage.timestamp),
            used_bytes: number(usage.used_bytes),
            inodes_used: number(usage.inodes_used),
            ..FsStats::default()
        },
    }
}

fn cpu(usage: cri::CpuUsage) -> CpuStats {
    CpuStats {
        time: time(usage.timestamp),
        usage_nano_cores: number(usage.usage_nano_cores),
        usage_core_nano_seconds: number(usage.usage_core_nano_seconds),
        psi: usage.psi.map(psi),
    }
}

fn memory(usage: cri::MemoryUsage) -> MemoryStats {
    MemoryStats {
        time: time(usage.timestamp),
        available_bytes: number(usage.available_bytes),
        usage_bytes: number(usage.usage_bytes),
        working_set_bytes: number(usage.working_set_bytes),
        rss_bytes: number(usage.rss_bytes),
        page_faults: number(usage.page_faults),
        major_page_faults: number(usage.major_page_faults),
        psi: usage.psi.map(psi),
    }
}

fn io(usage: cri::IoUsage) -> IoStats {
    IoStats {
        time: time(usage.timestamp),
        psi: usage.psi.map(psi),
    }
}

fn psi(told: cri::PsiStats) -> PsiStats {
    let stalls = |told: Option<cri::PsiData>| {
        let reported = told.unwrap_or_default();
        PsiData {
            total: reported.total,
            avg10: reported.avg10,
            avg60: reported.avg60,
            avg300: reported.avg300,
        }
    };
    PsiStats {
        full: stalls(told.full),
        some: stalls(told.some),
    }
}

fn network(usage: cri::NetworkUsage) -> NetworkStats {
    NetworkStats {
        time: time(usage.timestamp),
        default: usage.default_interface.map(interface).unwrap_or_default(),
        interfaces: usage.interfaces.into_iter().map(interface).collect(),
    }
}

fn interface(usage: cri::NetworkInterfaceUsage) -> InterfaceStats {
    InterfaceStats {
        name: usage.name,
        rx_bytes: number(usage.rx_bytes),
        rx_errors: number(usage.rx_errors),
        tx_bytes: number(usage.tx_bytes),
        tx_errors: number(usage.tx_errors),
    }
}

fn number(value: Option<cri::UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}
