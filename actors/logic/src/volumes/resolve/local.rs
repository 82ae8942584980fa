//! Volumes that the pod itself describes, without a claim and without a driver.

use k8s_openapi::api::core::v1::{self as core, HostPathVolumeSource, NFSVolumeSource, Pod};

use super::look::{At, Look, Refusal};
use super::words::Operation;
use super::{Found, empty_dir, fs_group};
use crate::pod::PodView;
use crate::volumes::{Access, Attachment, Kind, Mode, Source, Until, Volume, VolumeId, files};

/// A volume that nobody attaches or stages is its pod's own.
pub(super) fn id(pod: &Pod, kind: Kind, name: &str) -> VolumeId {
    VolumeId(format!(
        "kubernetes.io/{}/{}-{name}",
        kind.as_str(),
        pod.uid()
    ))
}

pub(super) fn made(look: &Look<'_>, kind: Kind, name: &str, source: Source) -> Volume {
    Volume {
        id: id(look.pod, kind, name),
        kind,
        name: name.to_owned(),
        folder: super::folder(name),
        source,
        access: Access::ReadWrite,
        mode: Mode::FileSystem,
        mount_options: Vec::new(),
        ownership: None,
        selinux_label: String::new(),
        attachment: Attachment::NotNeeded,
    }
}

pub(super) fn failed(name: &str, cause: &str, until: Until) -> Refusal {
    let at = At {
        operation: Operation::Publish,
        mode: Mode::FileSystem,
        volume: name,
    };
    Refusal::failed(at, cause, until)
}

/// None for a volume of another kind.
pub(super) fn resolve(
    look: &mut Look<'_>,
    volume: &core::Volume,
) -> Option<Result<Found, Refusal>> {
    let name = volume.name.as_str();
    let never = |cause: String| failed(name, &cause, Until::Never);
    if let Some(source) = &volume.empty_dir {
        let made_of = empty_dir::empty_dir(source, look.pod, look.ground.node);
        let source = made_of.map(Source::EmptyDir).map_err(never);
        Some(source.map(|source| owned(look, Kind::EmptyDir, name, source)))
    } else if let Some(source) = &volume.host_path {
        let source = host_path_source(source).map_err(never);
        Some(source.map(|source| Found::from(made(look, Kind::HostPath, name, source))))
    } else if let Some(source) = &volume.nfs {
        let access = super::access(source.read_only);
        let volume = made(look, Kind::Nfs, name, nfs_source(source));
        Some(Ok(Found::from(Volume { access, ..volume })))
    } else if volume.image.is_some() {
        Some(Ok(Found::from(Volume {
            access: Access::ReadOnly,
            ..made(look, Kind::Image, name, Source::Image)
        })))
    } else {
        kind_of_files(volume).map(|kind| with_files(look, kind, volume))
    }
}

fn owned(look: &Look<'_>, kind: Kind, name: &str, source: Source) -> Found {
    Found::from(Volume {
        ownership: fs_group::always(look.pod),
        ..made(look, kind, name, source)
    })
}

fn kind_of_files(volume: &core::Volume) -> Option<Kind> {
    let kinds = [
        (volume.config_map.is_some(), Kind::ConfigMap),
        (volume.secret.is_some(), Kind::Secret),
        (volume.projected.is_some(), Kind::Projected),
        (volume.downward_api.is_some(), Kind::DownwardApi),
    ];
    let found = kinds.into_iter().find(|(is_it, _)| *is_it);
    found.map(|(_, kind)| kind)
}

fn with_files(look: &mut Look<'_>, kind: Kind, volume: &core::Volume) -> Result<Found, Refusal> {
    let ground = files::Ground {
        objects: look.ground.objects,
        node: look.ground.node,
        now: look.ground.now,
    };
    match files::files(look.pod, volume, &ground) {
        Ok(made_of) => {
            look.uses.extend(made_of.uses);
            let mut found = owned(look, kind, &volume.name, Source::Files(made_of.set));
            found.volume.access = Access::ReadOnly;
            found.refresh_at = made_of.refresh_at;
            Ok(found)
        }
        Err(error) => {
            look.uses.extend(error.uses);
            Err(failed(&volume.name, &error.message, error.until))
        }
    }
}

pub(super) fn nfs_source(source: &NFSVolumeSource) -> Source {
    Source::Nfs {
        server: source.server.clone(),
        path: source.path.clone(),
    }
}

/// The error is the cause as upstream words it.
pub(super) fn host_path_source(source: &HostPathVolumeSource) -> Result<Source, String> {
    let path = &source.path;
    no_backsteps(path).map_err(|cause| format!("invalid HostPath `{path}`: {cause}"))?;
    Ok(Source::HostPath {
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
