//! Volumes that the pod itself describes, without a claim and without a driver.

use k8s_openapi::api::core::v1::{self as core, HostPathVolumeSource, NFSVolumeSource, Pod};
use logic_api::pod::PodView;

use super::event_reasons::Operation;
use super::lookup::{FailureSite, ObjectLookup, ResolveFailure};
use super::{VolumeResolution, empty_dir, fs_group};
use crate::{
    Attachment, RetryWhen, Volume, VolumeAccess, VolumeId, VolumeKind, VolumeMode, VolumeSource,
    files,
};

/// A volume that is neither attached nor staged is its pod's own.
pub(super) fn id(pod: &Pod, kind: VolumeKind, name: &str) -> VolumeId {
    VolumeId(format!(
        "kubernetes.io/{}/{}-{name}",
        kind.as_str(),
        pod.uid()
    ))
}

pub(super) fn made(
    lookup: &ObjectLookup<'_>,
    kind: VolumeKind,
    name: &str,
    source: VolumeSource,
) -> Volume {
    Volume {
        id: id(lookup.pod, kind, name),
        kind,
        name: name.to_owned(),
        folder: super::folder(name),
        source,
        access: VolumeAccess::ReadWrite,
        mode: VolumeMode::FileSystem,
        mount_options: Vec::new(),
        ownership: None,
        selinux_label: String::new(),
        attachment: Attachment::NotNeeded,
    }
}

pub(super) fn failed(name: &str, cause: &str, until: RetryWhen) -> ResolveFailure {
    let at = FailureSite {
        operation: Operation::Publish,
        mode: VolumeMode::FileSystem,
        volume: name,
    };
    ResolveFailure::failed(at, cause, until)
}

/// None for a volume of another kind.
pub(super) fn resolve(
    lookup: &mut ObjectLookup<'_>,
    volume: &core::Volume,
) -> Option<Result<VolumeResolution, ResolveFailure>> {
    let name = volume.name.as_str();
    let never = |cause: String| failed(name, &cause, RetryWhen::Never);
    if let Some(source) = &volume.empty_dir {
        let made_of = empty_dir::empty_dir(source, lookup.pod, lookup.context.node);
        let source = made_of.map(VolumeSource::EmptyDir).map_err(never);
        Some(source.map(|source| owned(lookup, VolumeKind::EmptyDir, name, source)))
    } else if let Some(source) = &volume.host_path {
        let source = host_path_source(source).map_err(never);
        Some(
            source.map(|source| {
                VolumeResolution::from(made(lookup, VolumeKind::HostPath, name, source))
            }),
        )
    } else if let Some(source) = &volume.nfs {
        let access = super::access(source.read_only);
        let volume = made(lookup, VolumeKind::Nfs, name, nfs_source(source));
        Some(Ok(VolumeResolution::from(Volume { access, ..volume })))
    } else if volume.image.is_some() {
        Some(Ok(VolumeResolution::from(Volume {
            access: VolumeAccess::ReadOnly,
            ..made(lookup, VolumeKind::Image, name, VolumeSource::Image)
        })))
    } else {
        kind_of_files(volume).map(|kind| with_files(lookup, kind, volume))
    }
}

fn owned(
    lookup: &ObjectLookup<'_>,
    kind: VolumeKind,
    name: &str,
    source: VolumeSource,
) -> VolumeResolution {
    VolumeResolution::from(Volume {
        ownership: fs_group::always(lookup.pod),
        ..made(lookup, kind, name, source)
    })
}

fn kind_of_files(volume: &core::Volume) -> Option<VolumeKind> {
    let kinds = [
        (volume.config_map.is_some(), VolumeKind::ConfigMap),
        (volume.secret.is_some(), VolumeKind::Secret),
        (volume.projected.is_some(), VolumeKind::Projected),
        (volume.downward_api.is_some(), VolumeKind::DownwardApi),
    ];
    let found = kinds.into_iter().find(|(is_it, _)| *is_it);
    found.map(|(_, kind)| kind)
}

fn with_files(
    lookup: &mut ObjectLookup<'_>,
    kind: VolumeKind,
    volume: &core::Volume,
) -> Result<VolumeResolution, ResolveFailure> {
    let context = files::FilesContext {
        objects: lookup.context.objects,
        node: lookup.context.node,
        now: lookup.context.now,
    };
    match files::files(lookup.pod, volume, &context) {
        Ok(made_of) => {
            lookup.uses.extend(made_of.uses);
            let mut found = owned(lookup, kind, &volume.name, VolumeSource::Files(made_of.set));
            found.volume.access = VolumeAccess::ReadOnly;
            found.refresh_at = made_of.refresh_at;
            Ok(found)
        }
        Err(error) => {
            lookup.uses.extend(error.uses);
            Err(failed(&volume.name, &error.message, error.until))
        }
    }
}

pub(super) fn nfs_source(source: &NFSVolumeSource) -> VolumeSource {
    VolumeSource::Nfs {
        server: source.server.clone(),
        path: source.path.clone(),
    }
}

/// The error is the cause as upstream words it.
pub(super) fn host_path_source(source: &HostPathVolumeSource) -> Result<VolumeSource, String> {
    let path = &source.path;
    no_backsteps(path).map_err(|cause| format!("invalid HostPath `{path}`: {cause}"))?;
    Ok(VolumeSource::HostPath {
        path: path.clone(),
        r#type: source.type_.clone().unwrap_or_default(),
    })
}

pub(super) fn no_backsteps(path: &str) -> Result<(), &'static str> {
    match path.split('/').any(|part| part == "..") {
        true => Err("must not contain '..'"),
        false => Ok(()),
    }
}
