//! The node's policy and facts, from its configuration and its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};

use config::{KubeletConfiguration, NodeConfig};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::linux::Seccomp;
use logic_api::pod::requests::{self, ResourceAmounts};
use logic_api::quantity::QuantityFormat;
use logic_api::text::sysctls::{self, SysctlAllowlist};
use logic_node::node_status;
use logic_resources::cgroups::{CgroupDriver, CgroupPolicy};
use logic_resources::node::policy::NodePolicy;
use logic_resources::node::{
    self, ExclusiveAllocation, LocalStorage, MachineFacts, NodeFacts, NodeSwap, PodLevelResize,
    PodLimit, Reservations, Support,
};

/// The gates by which exclusive CPUs and memory do not stand against a resize.
const RESIZED_CPUS: &str = "InPlacePodVerticalScalingExclusiveCPUs";
const RESIZED_MEMORY: &str = "InPlacePodVerticalScalingExclusiveMemory";

/// The facts of the node that decisions about pods need.
pub(super) fn facts(config: &NodeConfig, machine: &MachineFacts) -> NodeFacts {
    let kubelet = &config.kubelet;
    let limit = PodLimit {
        max: u32::try_from(kubelet.max_pods).unwrap_or(0),
        per_core: u32::try_from(kubelet.pods_per_core).unwrap_or(0),
    };
    let capacity = node::capacity(machine, limit, local_storage(kubelet));
    let reserved = reservations(config);
    let safe = sysctls::safe_allowlist(machine.kernel);
    let unsafe_sysctls = kubelet.allowed_unsafe_sysctls.iter().map(String::as_str);
    NodeFacts {
        name: config.node_name.clone(),
        allocatable: node::allocatable(&capacity, &reserved),
        allocatable_at_most: node::allocatable_at_most(&capacity, &reserved),
        capacity,
        labels: node::labels(
            &config.node_name,
            std::env::consts::ARCH,
            &config.flags.node_labels,
        ),
        taints: kubelet.register_with_taints.iter().map(taint).collect(),
        os: "linux".to_owned(),
        // The configuration's validation has parsed the patterns.
        sysctls: SysctlAllowlist::new(safe.into_iter().chain(unsafe_sysctls)).unwrap_or_default(),
        app_armor: machine.app_armor,
        pod_level_resources: gate(config, "PodLevelResources"),
        declared_features: declared_features(config),
        cpu_manager: exclusive(
            config,
            (&kubelet.cpu_manager_policy, "static"),
            RESIZED_CPUS,
        ),
        memory_manager: exclusive(
            config,
            (&kubelet.memory_manager_policy, "Static"),
            RESIZED_MEMORY,
        ),
        // Only cgroup v2 can limit swap.
        swap: match kubelet.memory_swap.swap_behavior.as_str() {
            "LimitedSwap" if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() => {
                NodeSwap::Limited
            }
            _ => NodeSwap::None,
        },
        pod_level_resize: match config
            .gates
            .enabled("InPlacePodLevelResourcesVerticalScaling")
        {
            true => PodLevelResize::Resizable,
            false => PodLevelResize::Fixed,
        },
        ..NodeFacts::default()
    }
}

pub(super) fn local_storage(kubelet: &KubeletConfiguration) -> LocalStorage {
    match kubelet.local_storage_capacity_isolation {
        true => LocalStorage::Counted,
        false => LocalStorage::Uncounted,
    }
}

fn taint(taint: &config::Taint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()),
        effect: taint.effect.clone(),
        time_added: None,
    }
}

fn gate(config: &NodeConfig, name: &str) -> Support {
    match config.gates.enabled(name) {
        true => Support::Yes,
        false => Support::No,
    }
}

fn declared_features(config: &NodeConfig) -> Option<BTreeSet<String>> {
    let gates = &config.gates;
    let declared = || node_status::declared_features(|gate| gates.enabled(gate));
    gates
        .enabled("NodeDeclaredFeatures")
        .then(|| declared().into_iter().collect())
}

/// Whether a policy keeps what guaranteed pods have from being resized; with the gate none does.
fn exclusive(config: &NodeConfig, (policy, word): (&str, &str), gate: &str) -> ExclusiveAllocation {
    match policy == word && !config.gates.enabled(gate) {
        true => ExclusiveAllocation::Static,
        false => ExclusiveAllocation::None,
    }
}

pub(super) fn reservations(config: &NodeConfig) -> Reservations {
    let kubelet = &config.kubelet;
    let hard = |signal: &str| match config.flags.experimental_allocatable_ignore_eviction {
        true => None,
        false => {
            let text = kubelet.eviction_hard.as_ref()?.get(signal)?;
            logic_resources::thresholds::hard_limit(text)
        }
    };
    let (mut kube, mut system) = (
        amounts(&kubelet.kube_reserved),
        amounts(&kubelet.system_reserved),
    );
    // CPUs that are reserved by number replace those that are reserved by amount.
    let cpus = host::cpus::count(&kubelet.reserved_system_cpus);
    if let Some(cpus) = cpus.filter(|cpus| *cpus > 0) {
        let cpus = requests::quantity(cpus.into(), QuantityFormat::DecimalSI);
        kube.remove(requests::CPU);
        system.insert(requests::CPU.to_owned(), cpus);
    }
    Reservations {
        kube,
        system,
        memory_available: hard("memory.available"),
        nodefs_available: hard("nodefs.available"),
    }
}

fn amounts(list: &BTreeMap<String, String>) -> ResourceAmounts {
    let list = list
        .iter()
        .map(|(name, text)| (name.clone(), Quantity(text.clone())));
    requests::read(Some(&list.collect()))
}

/// The node's settings that every pod is made with.
pub(super) fn policy(config: &NodeConfig, machine: &MachineFacts, facts: &NodeFacts) -> NodePolicy {
    let kubelet = &config.kubelet;
    NodePolicy {
        node_name: config.node_name.clone(),
        host_ips: host_ips(&config.node_ips),
        cluster_dns: kubelet.cluster_dns.clone(),
        cluster_domain: kubelet.cluster_domain.clone(),
        is_standalone: config.flags.kubeconfig.is_empty(),
        resolver_config: PathBuf::from(&kubelet.resolver_config),
        root_dir: PathBuf::from(&config.flags.root_dir),
        pod_logs_dir: PathBuf::from(&kubelet.pod_logs_dir),
        container_logs_dir: PathBuf::from(logic_api::pod::labels::CONTAINER_LOGS_DIR),
        cgroups: kubelet.cgroups_per_qos.then(|| CgroupPolicy {
            driver: match kubelet.cgroup_driver.as_str() {
                "systemd" => CgroupDriver::Systemd,
                _ => CgroupDriver::Cgroupfs,
            },
            root: kubelet.cgroup_root.clone(),
            pids: u64::try_from(kubelet.pod_pids_limit).ok(),
        }),
        memory_capacity: machine.memory,
        unreserved_memory: facts
            .allocatable_at_most
            .get(requests::MEMORY)
            .map_or(0, |memory| u64::try_from(memory.value()).unwrap_or(0)),
        cpu_quota_period: kubelet
            .cpu_cfs_quota
            .then(|| kubelet.cpu_cfs_quota_period.into()),
        seccomp_default: match kubelet.seccomp_default {
            true => Seccomp::RuntimeDefault,
            false => Seccomp::Unconfined,
        },
        allocatable: facts
            .allocatable
            .iter()
            .map(|(name, amount)| (name.clone(), Quantity(amount.to_string())))
            .collect(),
        enforcement: super::enforcement::enforcement(config, machine),
        masked_paths: host::cpus::thermal_files(Path::new("/")),
    }
}

/// The configured addresses, or the source address of the default route.
fn host_ips(configured: &[IpAddr]) -> Vec<String> {
    let chosen: Vec<String> = configured
        .iter()
        .filter(|ip| !ip.is_unspecified())
        .map(IpAddr::to_string)
        .collect();
    if !chosen.is_empty() {
        return chosen;
    }
    // Connecting a datagram socket sends nothing, it only looks up the route (192.0.2.1 is for documents).
    let routed = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    vec![routed().unwrap_or(Ipv4Addr::LOCALHOST.into()).to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::testing::load;

    #[test]
    fn eviction_takes_of_what_is_allocatable_unless_it_is_off_or_to_be_left_out() {
        let hard = "--eviction-hard=memory.available<1Gi,nodefs.available<10%";
        let ignored = format!("{hard} --experimental-allocatable-ignore-eviction");
        let off = "--eviction-hard=memory.available<100%,nodefs.available<0%";
        for (line, expected) in [(hard, [true; 2]), (&ignored, [false; 2]), (off, [false; 2])] {
            let found = reservations(&load(line));
            let there = [found.memory_available, found.nodefs_available].map(|one| one.is_some());
            assert_eq!(there, expected, "{line}");
        }
    }
}
