//! From a pod's claim to the persistent volume that it is bound to.
//!
//! Upstream: `createVolumeSpec` of pkg/kubelet/volumemanager/populator, and
//! component-helpers/storage/ephemeral (1.36).

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    self as core, EphemeralContainer, PersistentVolume, PersistentVolumeClaim, Pod,
};
use logic_api::pod::PodView;

use super::lookup::{ObjectLookup, ResolveFailure};
use super::migration;
use super::persistent::PersistentSpec;
use crate::{RetryWhen, VolumeAccess, VolumeMode};

const PVC_PROTECTION_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// A claim that is bound, and its volume.
#[derive(Debug)]
pub(super) struct ClaimedVolume {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) volume: PersistentSpec,
}

/// None for a volume that claims nothing.
pub(super) fn claimed(
    lookup: &mut ObjectLookup<'_>,
    volume: &core::Volume,
) -> Result<Option<ClaimedVolume>, ResolveFailure> {
    let Some((name, access)) = claim_name(lookup.pod, volume) else {
        return Ok(None);
    };
    let namespace = lookup.pod.namespace().to_owned();
    let about = |cause: String| {
        let message = format!("error processing PVC {namespace}/{name}: {cause}");
        ResolveFailure::unprocessed(message, RetryWhen::Changed)
    };
    let claim = bound(lookup, &name).map_err(about)?;
    if volume.persistent_volume_claim.is_none() {
        owned(lookup.pod, &claim)
            .map_err(|text| ResolveFailure::unprocessed(text, RetryWhen::Changed))?;
    }
    let object = bound_to(lookup, &claim).map_err(about)?;
    let volume = as_mounted(lookup.pod, volume, &object, access)?;
    Ok(Some(ClaimedVolume { claim, volume }))
}

/// The claim's name; one of a generic ephemeral volume is named for pod and volume.
pub(super) fn claim_name(pod: &Pod, volume: &core::Volume) -> Option<(String, VolumeAccess)> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => {
            let access = super::access(source.read_only);
            Some((source.claim_name.clone(), access))
        }
        (None, Some(_)) => {
            let name = format!("{}-{}", pod.name(), volume.name);
            Some((name, VolumeAccess::ReadWrite))
        }
        (None, None) => None,
    }
}

fn bound(lookup: &mut ObjectLookup<'_>, name: &str) -> Result<Arc<PersistentVolumeClaim>, String> {
    let claim = lookup.claim(name).ok_or_else(|| {
        let kind = ("PersistentVolumeClaim", "persistentvolumeclaims");
        let missing = lookup.missing(kind, lookup.pod.namespace(), name);
        format!("failed to fetch PVC from API server: {missing}")
    })?;
    let mut finalizers = claim.metadata.finalizers.iter().flatten();
    if claim.metadata.deletion_timestamp.is_some()
        && !finalizers.any(|f| f == PVC_PROTECTION_FINALIZER)
    {
        return Err("PVC is being deleted".to_owned());
    }
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    if phase != Some("Bound") {
        return Err("PVC is not bound".to_owned());
    }
    match volume_name(&claim) {
        "" => Err("PVC has empty pvc.Spec.VolumeName".to_owned()),
        _ => Ok(claim),
    }
}

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    let name = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref());
    name.unwrap_or_default()
}

/// A claim of another owner may have the name that the pod's own would have.
fn owned(pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let uid = pod.uid();
    if owners.any(|owner| owner.controller == Some(true) && owner.uid == uid.as_str()) {
        return Ok(());
    }
    let (namespace, name) = (pod.namespace(), pod.name());
    let claim = claim.metadata.name.as_deref().unwrap_or_default();
    Err(format!(
        "PVC {namespace}/{claim} was not created for pod {namespace}/{name} (pod is not owner)"
    ))
}

fn bound_to(
    lookup: &mut ObjectLookup<'_>,
    claim: &PersistentVolumeClaim,
) -> Result<Arc<PersistentVolume>, String> {
    let name = volume_name(claim);
    let volume = lookup.persistent_volume(name).ok_or_else(|| {
        let missing = lookup.missing(("PersistentVolume", "persistentvolumes"), "", name);
        format!("failed to fetch PV {name} from API server: {missing}")
    })?;
    let spec = volume.spec.as_ref();
    let Some(reference) = spec.and_then(|spec| spec.claim_ref.as_ref()) else {
        return Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    let (wanted, found) = (
        claim.metadata.uid.as_deref().unwrap_or_default(),
        reference.uid.as_deref().unwrap_or_default(),
    );
    if wanted != found {
        return Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {found} does not point to claim.UID {wanted}"
        ));
    }
    Ok(volume)
}

/// Translated where its plugin became a CSI driver, and checked against how the pod uses it.
fn as_mounted(
    pod: &Pod,
    volume: &core::Volume,
    object: &PersistentVolume,
    access: VolumeAccess,
) -> Result<PersistentSpec, ResolveFailure> {
    let translated = migration::persistent(object).map_err(migration::refused)?;
    let (object, migrated_from) = match translated {
        Some(migration::TranslatedVolume { plugin, volume }) => (volume, plugin),
        None => (object.clone(), ""),
    };
    // The API server's default.
    let mode = object.spec.as_ref().and_then(|s| s.volume_mode.as_deref());
    let mode = mode.unwrap_or("Filesystem").to_owned();
    let used = UsedVolumes::of(pod);
    for (uses, fits, field) in [
        (&used.mounted, "Filesystem", "volumeMounts"),
        (&used.mapped, "Block", "volumeDevices"),
    ] {
        if uses.contains(volume.name.as_str()) && mode != fits {
            let name = &volume.name;
            let text = format!("volume {name} has volumeMode {mode}, but is specified in {field}");
            return Err(ResolveFailure::unprocessed(text, RetryWhen::Changed));
        }
    }
    Ok(PersistentSpec {
        object,
        access,
        mode: if mode == "Block" {
            VolumeMode::Block
        } else {
            VolumeMode::FileSystem
        },
        migrated_from,
    })
}

/// Which volumes a pod's containers of all kinds use, and how.
#[derive(Debug, Default)]
pub(super) struct UsedVolumes<'a> {
    pub(super) mounted: BTreeSet<&'a str>,
    pub(super) mapped: BTreeSet<&'a str>,
}

impl<'a> UsedVolumes<'a> {
    pub(super) fn of(pod: &'a Pod) -> Self {
        let mut used = Self::default();
        for (_, container) in pod.all_containers() {
            used.add(&container.volume_mounts, &container.volume_devices);
        }
        let ephemeral = pod
            .spec()
            .and_then(|spec| spec.ephemeral_containers.as_deref());
        for container in ephemeral.unwrap_or_default() {
            let EphemeralContainer {
                volume_mounts,
                volume_devices,
                ..
            } = container;
            used.add(volume_mounts, volume_devices);
        }
        used
    }

    fn add(
        &mut self,
        mounts: &'a Option<Vec<core::VolumeMount>>,
        devices: &'a Option<Vec<core::VolumeDevice>>,
    ) {
        let mounts = mounts.iter().flatten().map(|mount| mount.name.as_str());
        self.mounted.extend(mounts);
        let devices = devices.iter().flatten().map(|device| device.name.as_str());
        self.mapped.extend(devices);
    }

    pub(super) fn has(&self, volume: &str) -> bool {
        self.mounted.contains(volume) || self.mapped.contains(volume)
    }
}
