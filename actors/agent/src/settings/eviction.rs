//! The settings of eviction.

use std::collections::BTreeMap;
use std::time::Duration;

use config::NodeConfig;
use logic_resources::eviction::{EvictionPolicy, MemoryNotification, StorageLimitPolicy};
use logic_resources::thresholds::{self, AllocatableThresholds, ThresholdPolicy, ThresholdTexts};

/// The configuration's validation has read every threshold.
pub(super) fn policy(config: &NodeConfig) -> EvictionPolicy {
    let kubelet = &config.kubelet;
    let none = BTreeMap::new();
    let enforces_pods = kubelet
        .enforce_node_allocatable
        .iter()
        .any(|word| word == "pods");
    let is_derived = enforces_pods && !config.flags.experimental_allocatable_ignore_eviction;
    let texts = ThresholdTexts {
        hard: kubelet.eviction_hard.as_ref().unwrap_or(&none),
        soft: &kubelet.eviction_soft,
        soft_grace: &kubelet.eviction_soft_grace_period,
        min_reclaim: &kubelet.eviction_minimum_reclaim,
        allocatable: match is_derived {
            true => AllocatableThresholds::Derived,
            false => AllocatableThresholds::Left,
        },
    };
    let thresholds = thresholds::parse(&texts).unwrap_or_else(|error| {
        tracing::warn!("the node evicts for no shortage: {error}");
        Default::default()
    });
    let seconds = u64::try_from(kubelet.eviction_max_pod_grace_period).unwrap_or(0);
    EvictionPolicy {
        pressure: ThresholdPolicy {
            thresholds,
            transition: kubelet.eviction_pressure_transition_period.into(),
        },
        max_pod_grace: Duration::from_secs(seconds),
        storage_limits: match kubelet.local_storage_capacity_isolation {
            true => StorageLimitPolicy::Kept,
            false => StorageLimitPolicy::Ignored,
        },
        notification: match kubelet.kernel_memcg_notification {
            true => MemoryNotification::On,
            false => MemoryNotification::Off,
        },
    }
}
