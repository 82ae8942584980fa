//! Whether a pod may use a ResourceClaim: it is its own, reserved for it, and allocated.
//!
//! Mirrors upstream's resourceclaim.IsForPod and IsReservedForPod (k8s.io/dynamic-resource-allocation), and
//! newClaimInfoFromClaim of cm/dra/claiminfo.go, at v1.36.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use thiserror::Error;

use super::names::{ClaimIdentity, ClaimKey, ClaimUid};
use super::references::ClaimOrigin;
use super::{ClaimEntry, ClaimGates};

/// The API group of PodGroups; its version changes.
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// Why a pod may not use a claim.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClaimRefusal {
    #[error("ResourceClaim {claim} is not in the same namespace as Pod {pod}")]
    Namespace { claim: ClaimKey, pod: String },
    #[error("ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)")]
    PodIsNotOwner { claim: ClaimKey, pod: String },
    #[error(
        "ResourceClaim {claim} was not created for Pod {pod} (neither Pod nor PodGroup {group} is the owner)"
    )]
    GroupIsNotOwner {
        claim: ClaimKey,
        pod: String,
        group: String,
    },
    #[error("pod {pod} ({pod_uid}) is not allowed to use ResourceClaim {claim} ({claim_uid})")]
    NotReserved {
        pod: String,
        pod_uid: PodUid,
        claim: String,
        claim_uid: ClaimUid,
    },
    #[error("ResourceClaim {claim}: not allocated")]
    NotAllocated { claim: String },
}

/// Checks that the pod may use the claim, and returns the claim as the cache keeps it: with the drivers that its
/// devices come from, and no pod yet.
///
/// # Errors
///
/// The claim belongs to another pod, is not reserved for this one, or has no devices allocated.
pub(super) fn check_claim(
    pod: &Pod,
    origin: ClaimOrigin,
    claim: &ResourceClaim,
    gates: ClaimGates,
) -> Result<ClaimEntry, ClaimRefusal> {
    if origin == ClaimOrigin::Template {
        check_owner(pod, claim, gates)?;
    }
    let identity = ClaimIdentity::of(claim);
    if !is_reserved(pod, claim, gates) {
        return Err(ClaimRefusal::NotReserved {
            pod: pod.name().to_owned(),
            pod_uid: pod.uid(),
            claim: identity.name,
            claim_uid: identity.uid,
        });
    }
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let Some(allocation) = allocation else {
        let claim = identity.name;
        return Err(ClaimRefusal::NotAllocated { claim });
    };
    let devices = allocation.devices.iter();
    let results = devices.flat_map(|devices| devices.results.iter().flatten());
    let drivers = results.map(|result| result.driver.as_str().into());
    Ok(ClaimEntry::unprepared(identity, drivers))
}

/// Checks that the claim was made for this pod or, where that may be, for its PodGroup.
pub(super) fn check_owner(
    pod: &Pod,
    claim: &ResourceClaim,
    gates: ClaimGates,
) -> Result<(), ClaimRefusal> {
    let claim_key = ClaimIdentity::of(claim).key();
    let pod_name = format!("{}/{}", pod.namespace(), pod.name());
    if claim_key.namespace != pod.namespace() {
        return Err(ClaimRefusal::Namespace {
            claim: claim_key,
            pod: pod_name,
        });
    }
    let controller = controller(claim);
    if controller.is_some_and(|owner| owner.uid == pod.uid().as_str()) {
        return Ok(());
    }
    match pod_group(pod).filter(|_| gates.pod_groups) {
        None => Err(ClaimRefusal::PodIsNotOwner {
            claim: claim_key,
            pod: pod_name,
        }),
        Some(group) if controller.is_some_and(|owner| is_group(owner, group)) => Ok(()),
        Some(group) => Err(ClaimRefusal::GroupIsNotOwner {
            claim: claim_key,
            pod: pod_name,
            group: group.to_owned(),
        }),
    }
}

/// Whether the claim is reserved for this pod or, where that may be, for its PodGroup. A pod does not know its group's
/// UID, so the group goes by name.
pub(super) fn is_reserved(pod: &Pod, claim: &ResourceClaim, gates: ClaimGates) -> bool {
    let group = pod_group(pod).filter(|_| gates.pod_groups);
    let status = claim.status.iter();
    let mut reserved = status.flat_map(|status| status.reserved_for.iter().flatten());
    reserved.any(|consumer| {
        let is_group = consumer.api_group.as_deref() == Some(SCHEDULING_GROUP)
            && consumer.resource == "podgroups"
            && group == Some(consumer.name.as_str());
        consumer.uid == pod.uid().as_str() || is_group
    })
}

fn controller(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

fn pod_group(pod: &Pod) -> Option<&str> {
    let group = pod.spec.as_ref()?.scheduling_group.as_ref()?;
    group.pod_group_name.as_deref()
}

fn is_group(owner: &OwnerReference, group: &str) -> bool {
    let api_group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.name == group && owner.kind == "PodGroup" && api_group == Some(SCHEDULING_GROUP)
}
