//! Volumes that outlive pods: local, nfs and hostPath here, CSI beside.
//!
//! Upstream: `GenerateMountVolumeFunc` of pkg/volume/util/operationexecutor, pkg/volume/{local,nfs,hostpath},
//! component-helpers/storage/volume (1.36).

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, LocalVolumeSource, NFSVolumeSource, PersistentVolume,
    PersistentVolumeSpec,
};
use logic_api::node_selector::selects;
use logic_api::pod::PodView;
use logic_api::quantity::bytes;

use super::event_reasons::Operation;
use super::lookup::{FailureSite, ObjectLookup, ResolveFailure};
use super::{VolumeResolution, csi, fs_group, local};
use crate::{
    AccessMode, Attachment, RetryWhen, Volume, VolumeAccess, VolumeId, VolumeKind, VolumeMode,
    VolumeSource,
};

const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// A persistent volume as one pod has it.
#[derive(Debug)]
pub(super) struct PersistentSpec {
    /// Translated, where its plugin became a CSI driver.
    pub(super) object: PersistentVolume,
    pub(super) access: VolumeAccess,
    pub(super) mode: VolumeMode,
    /// The in-tree plugin; empty for none.
    pub(super) migrated_from: &'static str,
}

impl PersistentSpec {
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.object.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    pub(super) fn spec(&self) -> Option<&PersistentVolumeSpec> {
        self.object.spec.as_ref()
    }

    pub(super) fn access_modes(&self) -> &[String] {
        let modes = self.spec().and_then(|spec| spec.access_modes.as_deref());
        modes.unwrap_or_default()
    }

    /// The access mode that the driver gets: the first.
    pub(super) fn access_mode(&self) -> Option<AccessMode> {
        match self.access_modes().first().map(String::as_str) {
            None | Some("ReadWriteOnce") => Some(AccessMode::ReadWriteOnce),
            Some("ReadOnlyMany") => Some(AccessMode::ReadOnlyMany),
            Some("ReadWriteMany") => Some(AccessMode::ReadWriteMany),
            Some("ReadWriteOncePod") => Some(AccessMode::ReadWriteOncePod),
            Some(_) => None,
        }
    }

    /// With several modes it is ambiguous which one a pod uses.
    pub(super) fn is_for_one_pod(&self) -> bool {
        matches!(self.access_modes(), [only] if only == "ReadWriteOncePod")
    }

    /// Bytes; zero if unknown.
    pub(super) fn size(&self) -> u64 {
        let capacity = self.spec().and_then(|spec| spec.capacity.as_ref());
        let size = bytes(capacity.and_then(|list| list.get("storage")));
        size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0)
    }

    pub(super) fn options_of_spec(&self) -> Vec<String> {
        let options = self.spec().and_then(|spec| spec.mount_options.clone());
        options.unwrap_or_default()
    }

    /// The annotation's come before the spec's; each once, in order.
    fn options(&self) -> Vec<String> {
        let mut options = match self.annotation(OPTIONS) {
            Some(list) => list.split(',').map(str::to_owned).collect(),
            None => self.options_of_spec(),
        };
        options.retain(|option| !option.is_empty());
        options.sort();
        options.dedup();
        options
    }

    pub(super) fn at(&self, operation: Operation) -> FailureSite<'_> {
        FailureSite {
            operation,
            mode: self.mode,
            volume: self.name(),
        }
    }

    pub(super) fn failed(
        &self,
        operation: Operation,
        cause: &str,
        until: RetryWhen,
    ) -> ResolveFailure {
        ResolveFailure::failed(self.at(operation), cause, until)
    }
}

pub(super) fn resolve(
    lookup: &mut ObjectLookup<'_>,
    volume: &PersistentSpec,
) -> Result<VolumeResolution, ResolveFailure> {
    super::named(volume.name())?;
    by_source(lookup, volume)
}

fn by_source(
    lookup: &mut ObjectLookup<'_>,
    volume: &PersistentSpec,
) -> Result<VolumeResolution, ResolveFailure> {
    let Some(spec) = volume.spec() else {
        return Err(super::no_plugin(volume.name()));
    };
    if let Some(source) = &spec.csi {
        csi::persistent(lookup, volume, source)
    } else if let Some(source) = &spec.local {
        local_volume(lookup, volume, source)
    } else if let Some(source) = &spec.nfs {
        nfs(lookup, volume, source)
    } else if let Some(source) = &spec.host_path {
        host_path(lookup, volume, source)
    } else {
        Err(super::no_plugin(volume.name()))
    }
}

fn local_volume(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    source: &LocalVolumeSource,
) -> Result<VolumeResolution, ResolveFailure> {
    let id = VolumeId(format!("kubernetes.io/local-volume/{}", volume.name()));
    check(lookup, volume, &id)?;
    if source.path.is_empty() {
        let cause = "local volume source is nil or local path is not set";
        return Err(volume.failed(Operation::Initialization, cause, RetryWhen::Changed));
    }
    if let Err(cause) = local::no_backsteps(&source.path) {
        let cause = format!("invalid path: {} {cause}", source.path);
        return Err(volume.failed(Operation::Publish, &cause, RetryWhen::Changed));
    }
    let ownership = match volume.mode {
        VolumeMode::FileSystem => fs_group::as_asked(lookup.pod, volume.access),
        VolumeMode::Block => None,
    };
    let source = VolumeSource::Local {
        path: source.path.clone(),
        fs_type: source.fs_type.clone().unwrap_or_default(),
    };
    let mount_options = volume.options();
    Ok(VolumeResolution::from(Volume {
        ownership,
        mount_options,
        ..made(volume, id, VolumeKind::Local, source)
    }))
}

fn nfs(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    source: &NFSVolumeSource,
) -> Result<VolumeResolution, ResolveFailure> {
    let id = local::id(lookup.pod, VolumeKind::Nfs, volume.name());
    check(lookup, volume, &id)?;
    no_device(volume)?;
    let mount_options = volume.options();
    Ok(VolumeResolution::from(Volume {
        mount_options,
        ..made(volume, id, VolumeKind::Nfs, local::nfs_source(source))
    }))
}

fn host_path(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    source: &HostPathVolumeSource,
) -> Result<VolumeResolution, ResolveFailure> {
    let id = local::id(lookup.pod, VolumeKind::HostPath, volume.name());
    check(lookup, volume, &id)?;
    no_device(volume)?;
    if !volume.options().is_empty() {
        let cause = "mount options are not supported for this volume type";
        return Err(volume.failed(Operation::MountOptions, cause, RetryWhen::Changed));
    }
    let source = local::host_path_source(source)
        .map_err(|cause| volume.failed(Operation::Publish, &cause, RetryWhen::Changed))?;
    Ok(VolumeResolution::from(made(
        volume,
        id,
        VolumeKind::HostPath,
        source,
    )))
}

pub(super) fn made(
    volume: &PersistentSpec,
    id: VolumeId,
    kind: VolumeKind,
    source: VolumeSource,
) -> Volume {
    Volume {
        id,
        kind,
        // The pod's name of it is put in at the end.
        name: String::new(),
        folder: super::folder(volume.name()),
        source,
        access: volume.access,
        mode: volume.mode,
        mount_options: Vec::new(),
        ownership: None,
        selinux_label: String::new(),
        attachment: Attachment::NotNeeded,
    }
}

/// What holds of every persistent volume: it may be on this node, and no other pod has it for itself.
pub(super) fn check(
    lookup: &ObjectLookup<'_>,
    volume: &PersistentSpec,
    id: &VolumeId,
) -> Result<(), ResolveFailure> {
    if !is_for_node(lookup, volume) {
        let cause = "no matching NodeSelectorTerms";
        return Err(volume.failed(Operation::NodeAffinity, cause, RetryWhen::Changed));
    }
    let own = lookup.pod.uid();
    let holders = lookup.context.taken.get(id);
    let is_taken = holders.is_some_and(|pods| pods.iter().any(|pod| *pod != own));
    if is_taken && volume.is_for_one_pod() {
        let operation = match volume.mode {
            VolumeMode::FileSystem => Operation::Publish,
            VolumeMode::Block => Operation::Stage,
        };
        let cause =
            "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
        return Err(volume.failed(operation, cause, RetryWhen::Changed));
    }
    Ok(())
}

fn is_for_node(lookup: &ObjectLookup<'_>, volume: &PersistentSpec) -> bool {
    let affinity = volume.spec().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return true;
    };
    let mut labels = lookup.context.labels.clone();
    if labels.is_empty() {
        return true;
    }
    let topologies = lookup.context.backends.values();
    labels.extend(topologies.flat_map(|backend| backend.topology.clone()));
    selects(required, "", &labels)
}

fn no_device(volume: &PersistentSpec) -> Result<(), ResolveFailure> {
    match volume.mode {
        VolumeMode::FileSystem => Ok(()),
        VolumeMode::Block => {
            let cause = "MapVolume.FindMapperPluginBySpec failed to find BlockVolumeMapper plugin. Volume plugin is nil.";
            Err(volume.failed(Operation::Initialization, cause, RetryWhen::Changed))
        }
    }
}
