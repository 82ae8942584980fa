//! Parsed Mount requests: every path and kind is checked, every field is where it belongs.

use std::path::Path;

use mounts::requests;
use proto::storage::volume::Source;
use proto::storage::{
    Access, ChangePolicy, EmptyDir, HostPath, Local, MountRequest, Nfs, Ownership,
};
use tonic::Status;

use crate::kind::{Backing, LocalVolumeKind};
use crate::state::place::{Place, VOLUMES};
use crate::volumes::files::PayloadFiles;

/// One volume of one pod.
#[derive(Debug)]
pub(crate) struct Order {
    /// The agent's name of the volume.
    pub(crate) id: String,
    pub(crate) what: What,
    pub(crate) parameters: MountParameters,
}

/// The volume to be mounted, by kind.
#[derive(Debug)]
pub(crate) enum What {
    EmptyDir(Place, EmptyDir),
    Files(Place, PayloadFiles),
    HostPath(HostPath),
    Local(Place, Local),
    Nfs(Place, Nfs),
}

/// How it is to be mounted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MountParameters {
    pub(crate) access: Access,
    pub(crate) options: Vec<String>,
    pub(crate) ownership: Option<Ownership>,
    /// The SELinux label; empty is none.
    pub(crate) label: String,
}

impl Order {
    /// Reads a request; `root` is where the kubelet's folders lie.
    pub(crate) fn read(root: &Path, request: MountRequest) -> Result<Self, Status> {
        requests::volume(request.volume.as_ref())?;
        requests::pod(request.pod.as_ref())?;
        let parameters = MountParameters {
            access: request.access(),
            options: request.mount_options,
            ownership: request.ownership,
            label: request.selinux_label,
        };
        let volume = request.volume.unwrap_or_default();
        let kind = LocalVolumeKind::read(&volume.kind)?;
        let place = || Place::new(root, VOLUMES, kind.name(), &request.target);
        let what = match (kind, volume.source) {
            (LocalVolumeKind::EmptyDir, Some(Source::EmptyDir(source))) => {
                What::EmptyDir(place()?, source)
            }
            (LocalVolumeKind::HostPath, Some(Source::HostPath(source))) => What::HostPath(source),
            (LocalVolumeKind::Local, Some(Source::Local(source))) => What::Local(place()?, source),
            (LocalVolumeKind::Nfs, Some(Source::Nfs(source))) => What::Nfs(place()?, source),
            (kind, Some(Source::Files(source))) if kind.is_files() => {
                What::Files(place()?, PayloadFiles::read(source)?)
            }
            (_, _) => {
                return Err(requests::invalid(format!(
                    "volume.source is not that of a volume of kind {:?}",
                    volume.kind
                )));
            }
        };
        Ok(Self {
            id: volume.id,
            what,
            parameters,
        })
    }

    pub(crate) fn backing(&self) -> Backing {
        match &self.what {
            What::EmptyDir(..) | What::Files(..) => Backing::Own,
            What::HostPath(_) | What::Local(..) | What::Nfs(..) => Backing::Foreign,
        }
    }

    /// Returns a description of the call for messages.
    pub(crate) fn description(&self) -> String {
        match &self.what {
            What::EmptyDir(place, _)
            | What::Files(place, _)
            | What::Local(place, _)
            | What::Nfs(place, _) => {
                format!("mounting volume {} at {}", self.id, place.target.display())
            }
            What::HostPath(source) => format!("looking at {}", source.path),
        }
    }

    /// What is worked on by one call at a time.
    pub(crate) fn subject(&self) -> String {
        match &self.what {
            What::EmptyDir(place, _) => place.subject(LocalVolumeKind::EmptyDir),
            What::Files(place, _) => place.subject(LocalVolumeKind::ConfigMap),
            What::Nfs(place, _) => place.subject(LocalVolumeKind::Nfs),
            What::Local(place, _) => place.subject(LocalVolumeKind::Local),
            What::HostPath(_) => self.id.clone(),
        }
    }
}

impl MountParameters {
    /// For what the node writes itself: upstream goes through all of it, whatever the pod's policy.
    pub(crate) fn group_always(&self) -> Option<Ownership> {
        let always = |ownership: &Ownership| Ownership {
            fs_group: ownership.fs_group,
            policy: ChangePolicy::ChangeAlways.into(),
        };
        self.ownership.as_ref().map(always)
    }
}
