//! How much memory of its own a container asks for, or a pod as a whole.
//!
//! Mirrors `getContainerRequestedResources`, `getPodRequestedResources` and `validatePodScopeResources` of upstream's
//! memorymanager/policy_static.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource as api;
use logic_api::pod::requests::{has_pod_level, parse};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::ContainerKind;
use logic_resources::qos::is_guaranteed;
use thiserror::Error;

use super::amount::{MemoryAmounts, add, is_memory, whole_units};
use crate::topology::PodLevelManagers;

/// A request that is no whole number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("[memorymanager] failed to represent quantity as int64")]
pub(super) struct NotAnInteger;

/// Why a pod's containers cannot share what those with memory of their own leave of the pod's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum EmptySharedPool {
    #[error("pod rejected, pod has shared init containers but no {0} available for them")]
    OfInitContainer(String),
    #[error(
        "pod rejected, sum of exclusive container {0} requests equals pod budget, leaving no memory for shared \
         containers"
    )]
    OfContainers(String),
    #[error(transparent)]
    Amount(#[from] NotAnInteger),
}

/// Reads pods' requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedMemory<'a> {
    pub(super) pod: &'a Pod,
    pub(super) pod_level: PodLevelManagers,
}

impl AskedMemory<'_> {
    /// Whether the pod's own resources count, and not the sum of its containers'.
    pub(super) fn is_pod_level(&self) -> bool {
        self.pod_level == PodLevelManagers::On && has_pod_level(self.pod)
    }

    /// What the container is to have for itself. Nothing in a pod with resources of its own, unless the container's
    /// requests are its limits.
    pub(super) fn of_container(
        &self,
        container: &Container,
    ) -> Result<MemoryAmounts, NotAnInteger> {
        if self.is_pod_level() && !is_guaranteed(container) {
            return Ok(MemoryAmounts::new());
        }
        let resources = container.resources.as_ref();
        read(resources.and_then(|own| own.requests.as_ref()))
    }

    /// What the pod needs at the most at any time.
    pub(super) fn of_pod(&self) -> Result<MemoryAmounts, NotAnInteger> {
        if self.is_pod_level() {
            let resources = self.pod.spec().and_then(|spec| spec.resources.as_ref());
            let mut asked = read(resources.and_then(|own| own.requests.as_ref()))?;
            asked.retain(|_, bytes| *bytes > 0);
            return Ok(asked);
        }
        let (mut lasting, mut most) = (MemoryAmounts::new(), MemoryAmounts::new());
        for init in self.pod.init_containers() {
            let asked = self.of_container(init)?;
            if is_sidecar(init) {
                add(&mut lasting, &asked);
                continue;
            }
            for (resource, bytes) in asked {
                let beside = lasting.get(&resource).copied().unwrap_or(0);
                let most = most.entry(resource).or_default();
                *most = (*most).max(bytes.saturating_add(beside));
            }
        }
        let mut apps = MemoryAmounts::new();
        for app in self.pod.app_containers() {
            add(&mut apps, &self.of_container(app)?);
        }
        // A resource that no app container asks for is not counted.
        let total = apps.into_iter().map(|(resource, bytes)| {
            let total = bytes.saturating_add(lasting.get(&resource).copied().unwrap_or(0));
            let most = most.get(&resource).copied().unwrap_or(0);
            (resource, total.max(most))
        });
        Ok(total.collect())
    }

    /// Checks that in a pod with resources of its own containers without memory of their own find some of its total left,
    /// each while it runs.
    pub(super) fn leaves_a_shared_pool(
        &self,
        total: &MemoryAmounts,
    ) -> Result<(), EmptySharedPool> {
        if !self.is_pod_level() {
            return Ok(());
        }
        let mut lasting = MemoryAmounts::new();
        let mut sharing = false;
        for (kind, container) in self.pod.all_containers() {
            let asked = self.of_container(container)?;
            let shares = asked.is_empty();
            if kind == ContainerKind::App || is_sidecar(container) {
                sharing |= shares;
                add(&mut lasting, &asked);
            } else if let Some(resource) = used_up(total, &lasting).filter(|_| shares) {
                return Err(EmptySharedPool::OfInitContainer(resource));
            }
        }
        match used_up(total, &lasting).filter(|_| sharing) {
            Some(resource) => Err(EmptySharedPool::OfContainers(resource)),
            None => Ok(()),
        }
    }
}

/// A resource of which nothing is left.
fn used_up(total: &MemoryAmounts, used: &MemoryAmounts) -> Option<String> {
    let used = |resource| used.get(resource).copied().unwrap_or(0);
    let mut total = total.iter();
    let empty = total.find(|(resource, bytes)| used(*resource) >= **bytes);
    empty.map(|(resource, _)| resource.clone())
}

fn read(list: Option<&BTreeMap<String, api::Quantity>>) -> Result<MemoryAmounts, NotAnInteger> {
    let list = list.into_iter().flatten();
    let memory = list.filter(|(resource, _)| is_memory(resource));
    let units = memory.map(|(resource, amount)| {
        let units = parse(amount).as_ref().and_then(whole_units);
        Ok((resource.clone(), units.ok_or(NotAnInteger)?))
    });
    units.collect()
}
