//! How many CPUs a container, or a pod as a whole, is to have to itself.
//!
//! Mirrors upstream's guaranteedCPUs and podGuaranteedCPUs of cpumanager/policy_static.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use logic_api::pod::requests::{CPU, has_pod_level};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::quantity::Quantity;
use logic_api::types::ContainerKind;
use logic_resources::qos::{Qos, is_guaranteed, pod_qos};

use crate::topology::PodLevelManagers;

type Amounts = Option<BTreeMap<String, ApiQuantity>>;

/// Counts the CPUs that pods are to have exclusively.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuDemand {
    pub(super) pod_level: PodLevelManagers,
}

/// A container of a pod with pod-level resources has none to share with, though it has none of its own either
/// (upstream's `EmptyPodSharedPoolError`).
pub(super) type EmptySharedPool = &'static str;

impl CpuDemand {
    /// How many CPUs a container has to itself: those that it asks for, in a guaranteed pod and as a whole number; none
    /// otherwise. In a pod with pod-level resources it has to be guaranteed itself.
    pub(super) fn of_container(self, pod: &Pod, container: &Container) -> u32 {
        if pod_qos(pod) != Qos::Guaranteed {
            return 0;
        }
        if self.is_pod_level(pod) && !is_guaranteed(container) {
            return 0;
        }
        let resources = container.resources.as_ref();
        whole_cpus(resources.and_then(|resources| amount(&resources.requests, CPU)))
    }

    /// How many CPUs a pod has to itself: those of its pod-level resources; otherwise the most that run at a time.
    pub(super) fn of_pod(self, pod: &Pod) -> u32 {
        if self.is_pod_level(pod) {
            let resources = pod.spec().and_then(|spec| spec.resources.as_ref());
            return match pod_qos(pod) {
                Qos::Guaranteed => {
                    whole_cpus(resources.and_then(|resources| amount(&resources.requests, CPU)))
                }
                Qos::Burstable | Qos::BestEffort => 0,
            };
        }
        let (mut most_at_start, mut lasting) = (0_u32, 0_u32);
        for (kind, container) in pod.all_containers() {
            let own = self.of_container(pod, container);
            match kind == ContainerKind::Init && !is_sidecar(container) {
                true => most_at_start = most_at_start.max(lasting.saturating_add(own)),
                false => lasting = lasting.saturating_add(own),
            }
        }
        most_at_start.max(lasting)
    }

    /// Whether containers without CPUs of their own find some that the pod shares.
    ///
    /// # Errors
    ///
    /// The words of the refusal.
    pub(super) fn check_shared_pool(self, pod: &Pod) -> Result<(), EmptySharedPool> {
        let total = self.of_pod(pod);
        let (mut exclusive, mut shared) = (0_u32, false);
        for (kind, container) in pod.all_containers() {
            let own = self.of_container(pod, container);
            match kind == ContainerKind::Init && !is_sidecar(container) {
                true if own == 0 && exclusive >= total => {
                    return Err(
                        "pod rejected, pod has shared init containers but no cpus available \
                                for them",
                    );
                }
                true => {}
                false if own == 0 => shared = true,
                false => exclusive = exclusive.saturating_add(own),
            }
        }
        match shared && exclusive >= total {
            true => Err(
                "pod rejected, sum of exclusive container cpu requests equals pod budget, \
                         leaving no cpus for shared containers",
            ),
            false => Ok(()),
        }
    }

    /// Whether the pod's resources are given to it as a whole.
    pub(super) fn is_pod_level(self, pod: &Pod) -> bool {
        self.pod_level == PodLevelManagers::On && has_pod_level(pod)
    }

    /// Whether the pod has pod-level resources, which nobody manages.
    pub(super) fn is_left_out(self, pod: &Pod) -> bool {
        self.pod_level == PodLevelManagers::Off && has_pod_level(pod)
    }
}

/// Whether a container of a pod with pod-level resources may have CPUs to itself.
pub(super) fn qualifies(container: &Container) -> bool {
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|resources| amount(&resources.limits, CPU));
    is_guaranteed(container) && limit.is_none_or(|limit| is_integral(&limit))
}

fn amount(amounts: &Amounts, name: &str) -> Option<Quantity> {
    Quantity::parse(&amounts.as_ref()?.get(name)?.0).ok()
}

fn whole_cpus(amount: Option<Quantity>) -> u32 {
    let amount = amount.filter(is_integral);
    amount.map_or(0, |amount| {
        u32::try_from(amount.value().max(0)).unwrap_or(u32::MAX)
    })
}

fn is_integral(amount: &Quantity) -> bool {
    amount.value().checked_mul(1000) == Some(amount.milli_value())
}
