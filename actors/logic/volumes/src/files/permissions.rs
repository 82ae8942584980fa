//! Permissions of files that are made for one pod alone: tokens, certificates, trust anchors.
//!
//! Mirrors upstream's `FsUserFrom` and how pkg/volume/projected chooses the mode of a token's file.

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;

use super::super::FileProjection;

/// The owner and mode of files that are made for one pod alone.
#[derive(Clone, Copy)]
pub(super) struct FilePermissions {
    /// Of what others may read.
    pub(super) mode: u32,
    user: Option<u32>,
    /// For the user alone; its group is given the right to read when the volume's ownership is set.
    is_private: bool,
}

impl FilePermissions {
    pub(super) fn new(pod: &Pod, mode: u32) -> Self {
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

/// The one user that all containers run as, if all name the same: upstream's `FsUserFrom`.
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
