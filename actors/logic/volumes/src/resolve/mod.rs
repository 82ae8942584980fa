//! One entry of a pod's `spec.volumes`, resolved into the volume that a storage plugin mounts.
//!
//! [`resolve`] decides where the volume comes from: a claim (`claim`, then `persistent`), a plugin that became a CSI
//! driver (`migration`), the pod itself (`local`, `empty_dir`), a CSI driver (`csi`). [`event_reasons`] has the
//! events' texts, [`expansion`] decides about sizes.

mod claim;
mod csi;
pub mod dependencies;
mod empty_dir;
pub mod event_reasons;
pub mod expansion;
mod fs_group;
mod local;
mod lookup;
mod migration;
mod persistent;
mod selinux;

use std::collections::{BTreeMap, BTreeSet};

pub use csi::attachment_name;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::objects::Objects;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_resources::node::policy::NodePolicy;
use lookup::{ObjectLookup, ResolveFailure};
pub use migration::PLUGINS as MIGRATED_PLUGINS;
use persistent::PersistentSpec;

use super::{
    RegisteredDriver, ResolvedVolume, RetryWhen, UnresolvedVolume, Volume, VolumeAccess, VolumeId,
    VolumeMode,
};

/// The input of resolving a volume.
#[derive(Clone, Copy, Debug)]
pub struct ResolveContext<'a> {
    pub objects: &'a dyn Objects,
    pub node: &'a NodePolicy,
    /// The node's labels, for the node affinity of persistent volumes; those of the drivers' topology need not be
    /// among them. Empty is not known, and then nothing is checked.
    pub labels: &'a BTreeMap<String, String>,
    /// The drivers that registered, by their names.
    pub backends: &'a BTreeMap<String, RegisteredDriver>,
    pub selinux: SeLinuxMountPolicy,
    pub now: Timestamp,
    /// Which pods have which volume: mounted, or a mount was begun. A pod that only waits has none.
    pub taken: &'a BTreeMap<VolumeId, BTreeSet<PodUid>>,
    /// The volumes that a controller has attached, as in the node's `volumesAttached`; none where no controller
    /// attaches or the node's object is not known, and then the attachment is not checked.
    pub attached: Option<&'a BTreeSet<VolumeId>>,
}

/// Whether the node's kernel enforces SELinux labels, and which volumes are mounted with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeLinuxMountPolicy {
    #[default]
    Off,
    /// Those that a single pod may have, as upstream without the feature gate `SELinuxMount`.
    On,
    /// Every persistent volume whose driver can.
    OnForAll,
}

type VolumeAttributes = BTreeMap<String, String>;

/// The result of resolving a volume.
#[derive(Debug)]
struct VolumeResolution {
    volume: Volume,
    refresh_at: Option<Timestamp>,
}

impl From<Volume> for VolumeResolution {
    fn from(volume: Volume) -> Self {
        Self {
            volume,
            refresh_at: None,
        }
    }
}

/// Resolves one volume of a pod.
pub fn resolve(
    pod: &Pod,
    volume: &core::Volume,
    context: &ResolveContext<'_>,
) -> Result<ResolvedVolume, UnresolvedVolume> {
    let mut lookup = ObjectLookup::new(pod, &volume.name, context);
    match by_source(&mut lookup, volume) {
        Ok(found) => Ok(ResolvedVolume {
            volume: Volume {
                name: volume.name.clone(),
                ..found.volume
            },
            refresh_at: found.refresh_at,
            uses: lookup.uses,
        }),
        Err(failure) => Err(failure.into_unresolved(lookup)),
    }
}

/// Every volume that a container of the pod mounts or maps, by the pod's name of it; images are the runtime's.
pub fn all(
    pod: &Pod,
    context: &ResolveContext<'_>,
) -> BTreeMap<String, Result<ResolvedVolume, UnresolvedVolume>> {
    let used = claim::UsedVolumes::of(pod);
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let wanted = |volume: &&core::Volume| volume.image.is_none() && used.has(&volume.name);
    let wanted = volumes.unwrap_or_default().iter().filter(wanted);
    wanted
        .map(|volume| (volume.name.clone(), resolve(pod, volume, context)))
        .collect()
}

fn by_source(
    lookup: &mut ObjectLookup<'_>,
    volume: &core::Volume,
) -> Result<VolumeResolution, ResolveFailure> {
    named(&volume.name)?;
    if let Some(claimed) = claim::claimed(lookup, volume)? {
        return persistent::resolve(lookup, &claimed.volume);
    }
    if let Some(volume) = migrated(lookup, volume)? {
        return persistent::resolve(lookup, &volume);
    }
    if let Some(source) = &volume.csi {
        return csi::inline(lookup, &volume.name, source);
    }
    if volume.git_repo.is_some() {
        let cause = "git-repo volume plugin has been disabled";
        return Err(local::failed(&volume.name, cause, RetryWhen::Never));
    }
    let found = local::resolve(lookup, volume);
    found.unwrap_or_else(|| Err(no_plugin(&volume.name)))
}

fn migrated(
    lookup: &ObjectLookup<'_>,
    volume: &core::Volume,
) -> Result<Option<PersistentSpec>, ResolveFailure> {
    let translated = migration::inline(volume, lookup.pod.namespace());
    let Some(translated) = translated.map_err(migration::refused)? else {
        return Ok(None);
    };
    let volume = PersistentSpec {
        object: translated.volume,
        access: VolumeAccess::ReadWrite,
        mode: VolumeMode::FileSystem,
        migrated_from: translated.plugin,
    };
    Ok(Some(PersistentSpec {
        access: csi::inline_access(&volume),
        ..volume
    }))
}

fn no_plugin(volume: &str) -> ResolveFailure {
    let message = format!(
        "failed to get Plugin from volumeSpec for volume {volume:?} err=no volume plugin matched"
    );
    ResolveFailure::unprocessed(message, RetryWhen::Never)
}

fn access(read_only: Option<bool>) -> VolumeAccess {
    match read_only {
        Some(true) => VolumeAccess::ReadOnly,
        Some(false) | None => VolumeAccess::ReadWrite,
    }
}

/// The API server takes no such name; a manifest may have it.
fn named(name: &str) -> Result<(), ResolveFailure> {
    if ["", ".", ".."].contains(&name) || name.contains('\0') {
        let message = format!("the volume's name {name:?} cannot be the name of a folder");
        return Err(ResolveFailure::unprocessed(message, RetryWhen::Changed));
    }
    Ok(())
}

/// Upstream's `EscapeQualifiedName`.
fn folder(name: &str) -> String {
    name.replace('/', "~")
}

#[cfg(test)]
mod tests;
