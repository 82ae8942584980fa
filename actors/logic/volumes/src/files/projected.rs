//! Several sources in one folder.
//!
//! Mirrors `collectData` of upstream's pkg/volume/projected: a later source goes over an earlier one, and all that is
//! wrong is told at once.

use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource, VolumeProjection};

use super::super::FileProjection;
use super::{FilesBuilder, bits, certificates, downward_api, keys, tokens, trust};
use logic_api::pod::PodView;

pub(super) fn collect(builder: &mut FilesBuilder<'_>, source: &ProjectedVolumeSource) {
    let rights = FilePermissions::new(builder.pod, bits(source.default_mode));
    for (index, source) in source.sources.iter().flatten().enumerate() {
        one(builder, index, source, rights);
    }
}

fn one(
    builder: &mut FilesBuilder<'_>,
    index: usize,
    source: &VolumeProjection,
    rights: FilePermissions,
) {
    if let Some(secret) = &source.secret {
        keys::secret(builder, &keys::KeySelection::of_secret(secret, rights.mode));
    } else if let Some(map) = &source.config_map {
        keys::config_map(builder, &keys::KeySelection::of_map(map, rights.mode));
    } else if let Some(facts) = &source.downward_api {
        let items = facts.items.as_deref().unwrap_or_default();
        downward_api::collect(builder, items, rights.mode);
    } else if let Some(token) = &source.service_account_token {
        tokens::collect(builder, token, rights);
    } else if let Some(bundle) = &source.cluster_trust_bundle {
        trust::collect(builder, bundle, rights);
    } else if let Some(certificate) = &source.pod_certificate {
        certificates::collect(builder, index, certificate, rights);
    }
}

/// Who may read what is made for this pod alone.
#[derive(Clone, Copy)]
pub(super) struct FilePermissions {
    /// Of what others may read.
    mode: u32,
    user: Option<u32>,
    /// For the user alone; its group is given the right to read when the volume's ownership is set.
    is_private: bool,
}

impl FilePermissions {
    fn new(pod: &Pod, mode: u32) -> Self {
        let user = only_user(pod);
        let group = pod.security().and_then(|security| security.fs_group);
        Self {
            mode,
            user,
            is_private: user.is_some() || group.is_some(),
        }
    }

    pub(super) fn file(self, data: Vec<u8>) -> FileProjection {
        FileProjection {
            data,
            mode: if self.is_private { 0o600 } else { self.mode },
            owner: self.user,
        }
    }
}

/// The one user that all containers run as, where each says so: upstream's `FsUserFrom`.
fn only_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.security().and_then(|security| security.run_as_user);
    let ephemeral = pod.ephemeral_containers();
    let lasting = pod.all_containers().map(|(_, container)| container);
    let mut users = lasting.chain(&ephemeral).map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|security| security.run_as_user).or(of_pod)
    });
    let first = users.next()??;
    let is_same = |user: Option<i64>| user == Some(first);
    users.all(is_same).then(|| u32::try_from(first).ok())?
}
