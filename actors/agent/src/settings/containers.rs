//! The container manager's settings.
//!
//! Upstream: cmd/kubelet/app/server.go (`NodeConfig`), pkg/kubelet/cm/node_container_manager_linux.go, 1.36.

use std::collections::BTreeSet;
use std::path::Path;

use config::{KubeletConfiguration, NodeConfig};
use host::tunables::{self, TunablePolicy};
use logic_api::pod::requests::{self, ResourceAmounts};
use logic_api::quantity::QuantityFormat;
use logic_resources::cgroups::tree::{self, Enforcement, NodeLimits};
use logic_resources::node::policy::NodePolicy;
use logic_resources::node::{MachineFacts, NodeFacts};
use logic_resources::resources::NodeCgroupVersion;
use resources::container_manager::{ContainerManagerConfig, ProcessPlacement, ReservedGroup};

use super::node;

pub(super) fn containers(
    config: &NodeConfig,
    machine: &MachineFacts,
    (policy, facts): (&NodePolicy, &NodeFacts),
) -> ContainerManagerConfig {
    let kubelet = &config.kubelet;
    let reservations = node::reservations(config);
    let words = kubelet.enforce_node_allocatable.iter();
    let enforced: BTreeSet<Enforcement> =
        words.filter_map(|word| Enforcement::parse(word)).collect();
    let reserved = enforced.iter().filter_map(|kind| {
        let (group, amounts) = match kind {
            Enforcement::Pods => return None,
            Enforcement::SystemReserved | Enforcement::SystemReservedCompressible => {
                (&kubelet.system_reserved_cgroup, reservations.system.clone())
            }
            Enforcement::KubeReserved | Enforcement::KubeReservedCompressible => {
                (&kubelet.kube_reserved_cgroup, reservations.kube.clone())
            }
        };
        Some(ReservedGroup {
            kind: *kind,
            group: group.clone(),
            amounts,
        })
    });
    ContainerManagerConfig {
        node_name: config.node_name.clone(),
        policy: policy.cgroups.clone(),
        node: NodeLimits {
            capacity: with_pids(facts.capacity.clone(), machine, &ResourceAmounts::new()),
            allocatable: with_pids(
                facts.allocatable_at_most.clone(),
                machine,
                &reservations.all(),
            ),
            pods_enforced: enforced.contains(&Enforcement::Pods),
            qos_reserved_memory: qos_reserved_memory(config),
            memory_reservation: match policy.enforcement.cgroups {
                NodeCgroupVersion::V1 => None,
                NodeCgroupVersion::V2 => policy.enforcement.memory_qos.map(|qos| qos.reservation),
            },
            cpus: host::cpus::online(Path::new("/sys")),
            page_sizes: machine
                .huge_pages
                .keys()
                .filter_map(|size| i64::try_from(*size).ok())
                .collect(),
        },
        reserved: reserved.collect(),
        processes: ProcessPlacement {
            kubelet: kubelet.kubelet_cgroups.clone(),
            system: kubelet.system_cgroups.clone(),
            oom_score: Some(kubelet.oom_score_adj),
            tunables: Some(match kubelet.protect_kernel_defaults {
                true => TunablePolicy::Expect,
                false => TunablePolicy::Set,
            }),
        },
    }
}

/// Process ids are no resource of the node's object, but of its cgroups.
fn with_pids(
    mut amounts: ResourceAmounts,
    machine: &MachineFacts,
    reserved: &ResourceAmounts,
) -> ResourceAmounts {
    let pids = i64::try_from(machine.pids).unwrap_or(i64::MAX);
    if pids > 0 {
        let whole = requests::quantity(pids, QuantityFormat::DecimalSI);
        let left = match reserved.get(tree::PIDS) {
            Some(taken) => requests::left(&whole, taken),
            None => whole,
        };
        amounts.insert(tree::PIDS.to_owned(), left);
    }
    amounts
}

/// The share of `qosReserved` for memory, the only resource that it knows; validation has checked its form.
fn qos_reserved_memory(config: &NodeConfig) -> Option<u8> {
    let share = config.kubelet.qos_reserved.get("memory")?;
    let percent = share.strip_suffix('%')?.parse().ok();
    percent.filter(|_| config.gates.enabled("QOSReserved"))
}

fn swap_refusal(
    kubelet: &KubeletConfiguration,
    version: NodeCgroupVersion,
    swap: u64,
) -> Option<&'static str> {
    if kubelet.memory_swap.swap_behavior == "LimitedSwap" && version == NodeCgroupVersion::V1 {
        return Some(
            "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2",
        );
    }
    (kubelet.fail_swap_on && swap > 0).then_some(
        "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false",
    )
}

/// What upstream does not start with either: swap where `failSwapOn` forbids it, or that cgroups cannot limit; more
/// reserved than there is; a kernel whose protected settings (`protectKernelDefaults`) are no node's. `swap` is the
/// machine's in bytes. The error has upstream's words.
pub(super) fn check(config: &NodeConfig, facts: &NodeFacts, swap: u64) -> Result<(), String> {
    let version = host::cgroups::version(Path::new("/"));
    if let Some(refusal) = swap_refusal(&config.kubelet, version, swap) {
        return Err(refusal.to_owned());
    }
    let reservations = node::reservations(config);
    let reserved = reservations.with_eviction(&facts.capacity);
    let wrong = tree::overcommitted(&facts.capacity, &reserved);
    if !wrong.is_empty() {
        let wrong = wrong.join(" ");
        return Err(format!("invalid Node Allocatable configuration. {wrong}"));
    }
    if config.kubelet.protect_kernel_defaults {
        let wrong = tunables::apply(Path::new("/proc/sys"), TunablePolicy::Expect);
        if !wrong.is_empty() {
            return Err(wrong.join(", "));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_stops_the_start_only_where_it_is_forbidden_or_cannot_be_limited() {
        let with = |fail_swap_on, behaviour: &str| {
            let mut kubelet = KubeletConfiguration {
                fail_swap_on,
                ..KubeletConfiguration::default()
            };
            behaviour.clone_into(&mut kubelet.memory_swap.swap_behavior);
            kubelet
        };
        let (v1, v2) = (NodeCgroupVersion::V1, NodeCgroupVersion::V2);
        let cases = [
            (with(true, ""), v1, 0, None),
            (with(true, ""), v2, 4096, Some("--fail-swap-on")),
            (with(false, ""), v2, 4096, None),
            (with(false, "LimitedSwap"), v2, 4096, None),
            (with(false, "LimitedSwap"), v1, 4096, Some("cgroupv2")),
            (with(false, "NoSwap"), v1, 4096, None),
        ];
        for (kubelet, version, swap, expected) in cases {
            let found = swap_refusal(&kubelet, version, swap);
            let is_as_expected = match (found, expected) {
                (Some(found), Some(part)) => found.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_as_expected, "{found:?}, not {expected:?}");
        }
    }
}
