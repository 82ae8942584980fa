//! Which resource limits the node's kernel and configuration can enforce.
//!
//! Upstream: kuberuntime_container_linux.go (`swapControllerAvailable`, `isCgroup2UnifiedMode`) and
//! pkg/securitycontext/util_linux.go (masked paths of CPUs), 1.36.

use std::path::Path;

use config::NodeConfig;
use logic_resources::node::MachineFacts;
use logic_resources::resources::{
    MemoryQos, MemoryReservationPolicy, OomKill, ResourceEnforcement, SwapBehaviour, SwapPolicy,
    huge_page_name,
};

pub(super) fn enforcement(config: &NodeConfig, machine: &MachineFacts) -> ResourceEnforcement {
    let kubelet = &config.kubelet;
    let cgroups = host::cgroups::version(Path::new("/"));
    let behaviour = match kubelet.memory_swap.swap_behavior.as_str() {
        "LimitedSwap" => SwapBehaviour::LimitedSwap,
        _ => SwapBehaviour::NoSwap,
    };
    let swap = SwapPolicy {
        behaviour,
        capacity: machine.swap,
    };
    let memory_qos = || MemoryQos {
        throttling: kubelet.memory_throttling_factor.and_then(millionths),
        reservation: match kubelet.memory_reservation_policy.as_str() {
            "TieredReservation" => MemoryReservationPolicy::Tiered,
            _ => MemoryReservationPolicy::None,
        },
        page_size: u32::try_from(host::units::page_size()).unwrap_or(u32::MAX),
    };
    ResourceEnforcement {
        cgroups,
        huge_page_sizes: machine
            .huge_pages
            .keys()
            .copied()
            .filter_map(huge_page_name)
            .collect(),
        swap: host::cgroups::limits_swap(Path::new("/"), cgroups).then_some(swap),
        oom: oom_kill(kubelet.single_process_oom_kill),
        memory_qos: config.gates.enabled("MemoryQoS").then(memory_qos),
    }
}

/// `singleProcessOOMKill`, which is false unless it is set; cgroup v1 knows nothing else than single processes.
fn oom_kill(single_process: Option<bool>) -> OomKill {
    match single_process {
        Some(true) => OomKill::SingleProcess,
        Some(false) | None => OomKill::WholeContainer,
    }
}

/// A factor of the configuration in millionths; validation keeps it above 0 and at most 1.
fn millionths(factor: f64) -> Option<u32> {
    format!("{:.0}", factor * 1e6).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestGenerateLinuxContainerConfigResources with the defaults of `NewMainKubelet`.
    #[test]
    fn a_container_out_of_memory_is_killed_as_a_whole_unless_the_configuration_says_otherwise() {
        use OomKill::{SingleProcess, WholeContainer};
        assert_eq!(
            [None, Some(false), Some(true)].map(oom_kill),
            [WholeContainer, WholeContainer, SingleProcess]
        );
    }

    #[test]
    fn a_factor_is_counted_in_millionths() {
        assert_eq!(
            [0.9, 1.0, 0.000_001].map(millionths),
            [Some(900_000), Some(1_000_000), Some(1)]
        );
    }
}
