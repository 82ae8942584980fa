//! What a runtime measured, in the words of `/stats/summary`.

use logic::summary::pods::{ContainerFigures, Layer, Measured, SandboxFigures};
use logic::summary::{Cpu, FileSystem, Interface, Io, Memory, Network, Psi, Stalls, Swap};
use proto::cri;

use super::seen::time;

pub(in crate::runtime) fn sandboxes(stats: Vec<cri::PodSandboxStats>) -> Measured {
    Measured::Sandboxes(stats.into_iter().filter_map(sandbox).collect())
}

pub(in crate::runtime) fn containers(stats: Vec<cri::ContainerStats>) -> Measured {
    Measured::Containers(stats.into_iter().filter_map(container).collect())
}

/// What nobody can say the owner of is left out.
fn sandbox(stats: cri::PodSandboxStats) -> Option<SandboxFigures> {
    let linux = stats.linux.unwrap_or_default();
    Some(SandboxFigures {
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

fn container(stats: cri::ContainerStats) -> Option<ContainerFigures> {
    Some(ContainerFigures {
        id: stats.attributes?.id.into(),
        cpu: stats.cpu.map(cpu),
        memory: stats.memory.map(memory),
        swap: stats.swap.map(|swap| Swap {
            time: time(swap.timestamp),
            swap_available_bytes: number(swap.swap_available_bytes),
            swap_usage_bytes: number(swap.swap_usage_bytes),
        }),
        io: stats.io.map(io),
        layer: stats.writable_layer.map(layer),
    })
}

pub(in crate::runtime) fn layer(usage: cri::FilesystemUsage) -> Layer {
    Layer {
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
        used: FileSystem {
            time: time(usage.timestamp),
            used_bytes: number(usage.used_bytes),
            inodes_used: number(usage.inodes_used),
            ..FileSystem::default()
        },
    }
}

fn cpu(usage: cri::CpuUsage) -> Cpu {
    Cpu {
        time: time(usage.timestamp),
        usage_nano_cores: number(usage.usage_nano_cores),
        usage_core_nano_seconds: number(usage.usage_core_nano_seconds),
        psi: usage.psi.map(psi),
    }
}

fn memory(usage: cri::MemoryUsage) -> Memory {
    Memory {
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

fn io(usage: cri::IoUsage) -> Io {
    Io {
        time: time(usage.timestamp),
        psi: usage.psi.map(psi),
    }
}

fn psi(told: cri::PsiStats) -> Psi {
    let stalls = |told: Option<cri::PsiData>| {
        let told = told.unwrap_or_default();
        Stalls {
            total: told.total,
            avg10: told.avg10,
            avg60: told.avg60,
            avg300: told.avg300,
        }
    };
    Psi {
        full: stalls(told.full),
        some: stalls(told.some),
    }
}

fn network(usage: cri::NetworkUsage) -> Network {
    Network {
        time: time(usage.timestamp),
        default: usage.default_interface.map(interface).unwrap_or_default(),
        interfaces: usage.interfaces.into_iter().map(interface).collect(),
    }
}

fn interface(usage: cri::NetworkInterfaceUsage) -> Interface {
    Interface {
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
