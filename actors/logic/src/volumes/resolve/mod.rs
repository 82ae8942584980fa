//! One entry of a pod's `spec.volumes`, resolved into what a storage plugin is to mount.

pub mod words;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};

use super::{Backend, Resolved, Step, Unresolved, Until, VolumeId};
use crate::objects::Objects;
use crate::sandbox::NodePolicy;
use crate::types::PodUid;

/// What a volume is resolved with.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    pub objects: &'a dyn Objects,
    pub node: &'a NodePolicy,
    /// The node's labels, for the node affinity of persistent volumes; empty is not known, and then nothing is
    /// checked.
    pub labels: &'a BTreeMap<String, String>,
    /// The drivers that registered, by their names.
    pub backends: &'a BTreeMap<String, Backend>,
    pub selinux: SeLinux,
    pub now: Timestamp,
    /// Which pods have which volume: mounted, or a mount was begun. A pod that only waits has none.
    pub taken: &'a BTreeMap<VolumeId, BTreeSet<PodUid>>,
}

/// Whether the node's kernel enforces SELinux labels, and which volumes are mounted with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeLinux {
    #[default]
    Off,
    /// Those that a single pod may have, as upstream without the feature gate `SELinuxMount`.
    On,
    /// Every persistent volume whose driver can.
    OnForAll,
}

/// Resolves one volume of a pod.
pub fn resolve(
    _pod: &Pod,
    _volume: &core::Volume,
    _ground: &Ground<'_>,
) -> Result<Resolved, Unresolved> {
    Err(Unresolved {
        reason: "FailedMount",
        message: "no volume plugin matched".to_owned(),
        step: Step::Processing,
        until: Until::Never,
        uses: BTreeSet::new(),
    })
}

/// Every volume that a container of the pod mounts or maps, by the pod's name of it; images are the runtime's.
pub fn all(_pod: &Pod, _ground: &Ground<'_>) -> BTreeMap<String, Result<Resolved, Unresolved>> {
    BTreeMap::new()
}
