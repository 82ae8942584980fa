//! What a container gets of its pod's claims.
//!
//! Mirrors upstream's Manager.GetResources and GetContainerClaimInfos of cm/dra/manager.go, and GetDynamicResources of
//! cm/container_manager_linux.go, at v1.36. Unlike there a device is named once also when several requests lead to it,
//! and the pod resources API shows each device with its own CDI names only.

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;
use thiserror::Error;

use super::ClaimGates;
use super::cache::ClaimCache;
use super::entry::{ClaimDevice, ClaimEntry};
use super::names::{ClaimKey, DriverName};
use super::references::{
    ClaimNameError, claim_reference, container_claims, container_requests, extended_claim,
    pod_claims,
};

/// Why it is not known what a container gets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContainerClaimError {
    #[error(transparent)]
    Name(#[from] ClaimNameError),
    #[error(
        "internal error: unable to get claim info for ResourceClaim {} in namespace {}", .0.name, .0.namespace
    )]
    NotPrepared(ClaimKey),
    #[error("unable to get information for ResourceClaim {}", .0.name)]
    Unknown(ClaimKey),
    #[error("unable to get claim info for claim {} in namespace {}", .0.name, .0.namespace)]
    UnknownExtended(ClaimKey),
}

/// A claim of a container, as the pod resources API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicResource {
    pub claim: ClaimKey,
    pub devices: Vec<ClaimedDevice>,
}

/// A device of a claim, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedDevice {
    pub driver: DriverName,
    pub device: ClaimDevice,
}

impl ContainerClaimError {
    /// Returns whether it may be known later: once the claims are prepared.
    pub fn transient(&self) -> bool {
        match self {
            Self::Name(error) => error.transient(),
            Self::NotPrepared(_) | Self::Unknown(_) | Self::UnknownExtended(_) => true,
        }
    }
}

/// The CDI names of the devices that the runtime gives the container, each once, in the order of the pod's claims.
///
/// # Errors
///
/// A claim of the container is not in the cache, or its object is not known.
pub fn container_devices(
    cache: &ClaimCache,
    pod: &Pod,
    container: &Container,
    gates: ClaimGates,
) -> Result<Vec<String>, ContainerClaimError> {
    let mut devices: Vec<String> = Vec::new();
    for used in container_requests(pod, container, gates)? {
        let key = ClaimKey::new(pod.namespace(), &used.claim);
        let Some(entry) = cache.get(&key) else {
            return Err(ContainerClaimError::NotPrepared(key));
        };
        for id in entry.cdi_ids(used.request.as_deref()) {
            if !devices.contains(id) {
                devices.push(id.clone());
            }
        }
    }
    Ok(devices)
}

/// The claims that the container uses, with their devices by driver.
///
/// # Errors
///
/// A claim of the container is not in the cache, or its object is not known.
pub fn dynamic_resources(
    cache: &ClaimCache,
    pod: &Pod,
    container: &Container,
    gates: ClaimGates,
) -> Result<Vec<DynamicResource>, ContainerClaimError> {
    let mut resources = Vec::new();
    for pod_claim in pod_claims(pod) {
        if container_claims(container).all(|used| used.name != pod_claim.name) {
            continue;
        }
        let Some(reference) = claim_reference(pod, pod_claim)? else {
            continue;
        };
        let key = ClaimKey::new(pod.namespace(), &reference.name);
        let entry = cache.get(&key).ok_or(ContainerClaimError::Unknown(key))?;
        resources.push(dynamic_resource(entry));
    }
    let extended = extended_claim(pod, gates).filter(|extended| {
        let mut mappings = extended.request_mappings.iter();
        mappings.any(|mapping| mapping.container_name == container.name)
    });
    if let Some(extended) = extended {
        let key = ClaimKey::new(pod.namespace(), &extended.resource_claim_name);
        let unknown = ContainerClaimError::UnknownExtended;
        let entry = cache.get(&key).ok_or_else(|| unknown(key))?;
        resources.push(dynamic_resource(entry));
    }
    Ok(resources)
}

fn dynamic_resource(entry: &ClaimEntry) -> DynamicResource {
    let drivers = entry.drivers.iter();
    let devices = drivers.flat_map(|(driver, devices)| {
        devices.iter().map(|device| ClaimedDevice {
            driver: driver.clone(),
            device: device.clone(),
        })
    });
    DynamicResource {
        claim: entry.key(),
        devices: devices.collect(),
    }
}
