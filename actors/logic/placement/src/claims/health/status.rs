//! The health of a pod's devices, as its containers' statuses show it (`allocatedResourcesStatus`).
//!
//! Mirrors upstream's Manager.UpdateAllocatedResourcesStatus of cm/dra/manager.go at v1.36, which shows it for app
//! containers alone. Unlike there the entries are in the order of their names.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, ResourceClaim as ContainerClaim, ResourceHealth,
    ResourceStatus,
};
use logic_api::pod::PodView;

use super::{DeviceHealth, HealthCache};
use crate::claims::cache::ClaimCache;
use crate::claims::entry::{ClaimDevice, ClaimEntry};
use crate::claims::names::{ClaimKey, DriverName};
use crate::claims::references::{base_request, claim_reference, container_claims, pod_claims};
use crate::claims::{ClaimGates, ContainerClaimError, DynamicResource, dynamic_resources};

/// What is known of the claims in use and of their devices, for those that show it.
#[derive(Clone, Debug, Default)]
pub struct KnownClaims {
    pub claims: ClaimCache,
    pub health: HealthCache,
    pub gates: ClaimGates,
}

impl KnownClaims {
    /// Puts what is known now of the devices of the pod's claims into the statuses of its app containers.
    pub fn show(&self, statuses: &mut [ContainerStatus], pod: &Pod, now: Timestamp) {
        let known = (&self.claims, &self.health);
        show_health(statuses, pod, known, now, self.gates);
    }

    /// The claims that the container uses, with their devices.
    ///
    /// # Errors
    ///
    /// A claim of the container is not in use yet.
    pub fn dynamic_resources(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<Vec<DynamicResource>, ContainerClaimError> {
        dynamic_resources(&self.claims, pod, container, self.gates)
    }
}

/// Puts what is known now of the devices of the pod's claims into the statuses of its app containers. What is there
/// already, of device plugins, stays; what is there of a claim is replaced.
pub fn show_health(
    statuses: &mut [ContainerStatus],
    pod: &Pod,
    (claims, health): (&ClaimCache, &HealthCache),
    now: Timestamp,
    gates: ClaimGates,
) {
    for status in statuses {
        let mut containers = pod.app_containers().iter();
        let Some(container) = containers.find(|container| container.name == status.name) else {
            continue;
        };
        if container_claims(container).next().is_none() {
            continue;
        }
        let shown = status.allocated_resources_status.take().unwrap_or_default();
        let shown = shown.into_iter().map(|entry| (entry.name.clone(), entry));
        let mut entries: BTreeMap<String, ResourceStatus> = shown.collect();
        for used in container_claims(container) {
            let entry = object_name(pod, used)
                .and_then(|name| claims.get(&ClaimKey::new(pod.namespace(), &name)));
            if let Some(entry) = entry {
                let name = resource_name(used);
                let resources = resources(entry, request(used), |driver, device| {
                    let known = health.get(now, driver, &device.pool, &device.device);
                    resource_health(driver, device, known, gates)
                });
                let resources = Some(resources);
                entries.insert(name.clone(), ResourceStatus { name, resources });
            }
        }
        let full = |entry: &ResourceStatus| entry.resources.iter().flatten().next().is_some();
        let entries = entries.into_values().filter(full).collect();
        status.allocated_resources_status = Some(entries);
    }
}

/// The object of a container's claim: by the pod's status, which may be late, or else by its spec.
fn object_name(pod: &Pod, used: &ContainerClaim) -> Option<String> {
    let status = pod.status.iter();
    let mut made = status.flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let named = made
        .find(|made| made.name == used.name)
        .and_then(|made| made.resource_claim_name.clone())
        .filter(|name| !name.is_empty());
    named.or_else(|| {
        let pod_claim = pod_claims(pod).find(|pod_claim| pod_claim.name == used.name)?;
        let reference = claim_reference(pod, pod_claim).ok()??;
        Some(reference.name)
    })
}

fn request(used: &ContainerClaim) -> Option<&str> {
    let request = used.request.as_deref();
    request.filter(|request| !request.is_empty())
}

fn resource_name(used: &ContainerClaim) -> String {
    match request(used) {
        Some(request) => format!("claim:{}/{request}", used.name),
        None => format!("claim:{}", used.name),
    }
}

/// The claim's devices for this request; those that have one id are shown once.
fn resources(
    entry: &ClaimEntry,
    request: Option<&str>,
    show: impl Fn(&DriverName, &ClaimDevice) -> ResourceHealth,
) -> Vec<ResourceHealth> {
    let mut ids = BTreeSet::new();
    let mut resources = Vec::new();
    for (driver, devices) in &entry.drivers {
        let own = devices
            .iter()
            .filter(|device| device.serves(request.map(base_request)));
        for device in own {
            let shown = show(driver, device);
            if ids.insert(shown.resource_id.clone()) {
                resources.push(shown);
            }
        }
    }
    resources
}

/// A device goes by its first CDI name, or where it has none by driver, pool and name.
pub(super) fn resource_health(
    driver: &DriverName,
    device: &ClaimDevice,
    known: DeviceHealth,
    gates: ClaimGates,
) -> ResourceHealth {
    let id = device.cdi_ids.first().cloned();
    let message = Some(known.message);
    ResourceHealth {
        health: Some(known.health.as_str().to_owned()),
        message: message.filter(|message| gates.health_messages && !message.is_empty()),
        resource_id: id.unwrap_or_else(|| format!("{driver}/{}/{}", device.pool, device.device)),
    }
}
