//! Which ResourceClaim objects a pod needs, and which of them a container uses.
//!
//! Mirrors upstream's resourceclaim.Name (k8s.io/dynamic-resource-allocation) and the walks over claims in
//! cm/dra/manager.go at v1.36.

use k8s_openapi::api::core::v1::{Container, Pod, PodResourceClaim};
use logic_api::pod::PodView;
use logic_api::quantity;
use thiserror::Error;

use super::ClaimGates;

/// Resources of this prefix are always claimed by DRA.
const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// How a pod came to a claim, which decides what is checked of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOrigin {
    /// The pod names the object, or the scheduler made it for the pod's extended resources.
    Named,
    /// It was made from a template: the pod, or its PodGroup, owns it.
    Template,
}

/// A ResourceClaim object that a pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimReference {
    /// The object's name, in the pod's namespace.
    pub name: String,
    pub origin: ClaimOrigin,
}

/// Why the object of a pod's claim is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClaimNameError {
    #[error("pod \"{pod}\": ResourceClaim not created yet")]
    NotCreated { pod: String },
    #[error("pod \"{pod}\", spec.resourceClaim {claim:?}: none of the supported fields are set")]
    Unsupported { pod: String, claim: String },
}

/// What of a claim a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimRequest {
    /// The object's name.
    pub(super) claim: String,
    /// None for all of the claim's requests.
    pub(super) request: Option<String>,
}

impl ClaimNameError {
    /// Returns whether the claim may be known later.
    pub fn transient(&self) -> bool {
        match self {
            Self::NotCreated { .. } => true,
            Self::Unsupported { .. } => false,
        }
    }
}

/// Whether the pod has claims, or extended resources that the scheduler made one of: whether anything may have to be
/// prepared for it.
pub fn has_claims(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    pod_claims(pod).next().is_some() || extended.is_some()
}

/// The ResourceClaim objects that must be prepared for the pod, in the order in which it names them, each once.
///
/// # Errors
///
/// An object has not been made yet, or the pod says in no known way which one it is.
pub fn needed_claims(pod: &Pod, gates: ClaimGates) -> Result<Vec<ClaimReference>, ClaimNameError> {
    let mut needed: Vec<ClaimReference> = Vec::new();
    for pod_claim in pod_claims(pod) {
        let reference = claim_reference(pod, pod_claim)?;
        needed.extend(reference.filter(|reference| !needed.contains(reference)));
    }
    let extended = extended_claim(pod, gates).map(|extended| ClaimReference {
        name: extended.resource_claim_name.clone(),
        origin: ClaimOrigin::Named,
    });
    needed.extend(extended.filter(|reference| !needed.contains(reference)));
    Ok(needed)
}

/// The object of one of the pod's claims. None where none was made on purpose: the claim is ignored then.
pub(super) fn claim_reference(
    pod: &Pod,
    pod_claim: &PodResourceClaim,
) -> Result<Option<ClaimReference>, ClaimNameError> {
    let reference = |name: &Option<String>, origin| {
        let name = name.clone()?;
        Some(ClaimReference { name, origin })
    };
    if pod_claim.resource_claim_name.is_some() {
        return Ok(reference(
            &pod_claim.resource_claim_name,
            ClaimOrigin::Named,
        ));
    }
    let pod_name = format!("{}/{}", pod.namespace(), pod.name());
    if pod_claim.resource_claim_template_name.is_none() {
        return Err(ClaimNameError::Unsupported {
            pod: pod_name,
            claim: pod_claim.name.clone(),
        });
    }
    let made = pod.status.as_ref().and_then(|status| {
        let statuses = status.resource_claim_statuses.iter().flatten();
        statuses
            .into_iter()
            .find(|made| made.name == pod_claim.name)
    });
    let made = made.ok_or(ClaimNameError::NotCreated { pod: pod_name })?;
    Ok(reference(&made.resource_claim_name, ClaimOrigin::Template))
}

pub(super) fn pod_claims(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.resource_claims.iter().flatten())
}

/// The claim that the scheduler made for the pod's extended resources.
pub(super) fn extended_claim(
    pod: &Pod,
    gates: ClaimGates,
) -> Option<&k8s_openapi::api::core::v1::PodExtendedResourceClaimStatus> {
    let status = pod.status.as_ref().filter(|_| gates.extended_resources)?;
    status.extended_resource_claim_status.as_ref()
}

/// What of which claims the container uses: those that the pod names first, in its order, then those of its extended
/// resources.
pub(super) fn container_requests(
    pod: &Pod,
    container: &Container,
    gates: ClaimGates,
) -> Result<Vec<ClaimRequest>, ClaimNameError> {
    let mut requests = Vec::new();
    for pod_claim in pod_claims(pod) {
        let used = container_claims(container).filter(|used| used.name == pod_claim.name);
        let mut used = used.peekable();
        if used.peek().is_none() {
            continue;
        }
        let Some(reference) = claim_reference(pod, pod_claim)? else {
            continue;
        };
        requests.extend(used.map(|used| ClaimRequest {
            claim: reference.name.clone(),
            request: used.request.clone().filter(|request| !request.is_empty()),
        }));
    }
    let Some(extended) = extended_claim(pod, gates) else {
        return Ok(requests);
    };
    let mappings = extended.request_mappings.iter();
    let own = mappings.filter(|mapping| {
        mapping.container_name == container.name && asks_for(container, &mapping.resource_name)
    });
    requests.extend(own.map(|mapping| ClaimRequest {
        claim: extended.resource_claim_name.clone(),
        request: Some(mapping.request_name.clone()),
    }));
    Ok(requests)
}

/// The entries of the container's `resources.claims`.
pub(super) fn container_claims(
    container: &Container,
) -> impl Iterator<Item = &k8s_openapi::api::core::v1::ResourceClaim> {
    let resources = container.resources.iter();
    resources.flat_map(|resources| resources.claims.iter().flatten())
}

/// Whether the container requests more than nothing of this extended resource.
fn asks_for(container: &Container, resource: &str) -> bool {
    let requests = container.resources.iter();
    let requested = requests
        .flat_map(|resources| resources.requests.iter())
        .find_map(|requests| requests.get(resource));
    is_dra_extended(resource) && requested.is_some_and(|amount| !quantity::is_zero(amount))
}

/// A resource that a driver may provide: an extended one, or one that names a device class.
fn is_dra_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(DEVICE_CLASS_PREFIX) || (!native && !name.starts_with("requests."))
}

/// The request of a reference that may name one of its subrequests (`request/subrequest`).
pub(super) fn base_request(reference: &str) -> &str {
    reference.split('/').next().unwrap_or(reference)
}
