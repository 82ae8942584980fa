//! One entry of a pod's `spec.volumes`, resolved into what a storage plugin is to mount.
//!
//! [`resolve`] asks where the volume comes from: a claim (`claim`, then `persistent`), a plugin that became a CSI
//! driver (`migration`), the pod itself (`local`, `empty_dir`), a CSI driver (`csi`). [`words`] is what events say,
//! [`expansion`] what is grown.

mod claim;
mod csi;
mod empty_dir;
pub mod expansion;
mod fs_group;
mod local;
mod look;
mod migration;
pub mod needs;
mod persistent;
mod selinux;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use csi::attachment_name;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};
use look::{Look, Refusal};
pub use migration::PLUGINS as MIGRATED_PLUGINS;
use persistent::Persistent;

use super::{Access, Backend, Mode, Resolved, Unresolved, Until, Volume, VolumeId};
use crate::node_policy::NodePolicy;
use crate::objects::Objects;
use crate::pod::PodView;
use crate::types::PodUid;

/// What a volume is resolved with.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    pub objects: &'a dyn Objects,
    pub node: &'a NodePolicy,
    /// The node's labels, for the node affinity of persistent volumes; those of the drivers' topology need not be
    /// among them. Empty is not known, and then nothing is checked.
    pub labels: &'a BTreeMap<String, String>,
    /// The drivers that registered, by their names.
    pub backends: &'a BTreeMap<String, Backend>,
    pub selinux: SeLinux,
    pub now: Timestamp,
    /// Which pods have which volume: mounted, or a mount was begun. A pod that only waits has none.
    pub taken: &'a BTreeMap<VolumeId, BTreeSet<PodUid>>,
    /// What a controller has attached, as the node's object says (`volumesAttached`); none where no controller attaches
    /// or no object is known, and then nothing is checked.
    pub attached: Option<&'a BTreeSet<VolumeId>>,
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

type Words = BTreeMap<String, String>;

/// What is found out of a volume.
#[derive(Debug)]
struct Found {
    volume: Volume,
    refresh_at: Option<Timestamp>,
}

impl From<Volume> for Found {
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
    ground: &Ground<'_>,
) -> Result<Resolved, Unresolved> {
    let mut look = Look::new(pod, &volume.name, ground);
    match by_source(&mut look, volume) {
        Ok(found) => Ok(Resolved {
            volume: Volume {
                name: volume.name.clone(),
                ..found.volume
            },
            refresh_at: found.refresh_at,
            uses: look.uses,
        }),
        Err(refusal) => Err(refusal.told(look)),
    }
}

/// Every volume that a container of the pod mounts or maps, by the pod's name of it; images are the runtime's.
pub fn all(pod: &Pod, ground: &Ground<'_>) -> BTreeMap<String, Result<Resolved, Unresolved>> {
    let used = claim::Used::of(pod);
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let wanted = |volume: &&core::Volume| volume.image.is_none() && used.has(&volume.name);
    let wanted = volumes.unwrap_or_default().iter().filter(wanted);
    wanted
        .map(|volume| (volume.name.clone(), resolve(pod, volume, ground)))
        .collect()
}

fn by_source(look: &mut Look<'_>, volume: &core::Volume) -> Result<Found, Refusal> {
    named(&volume.name)?;
    if let Some(claimed) = claim::claimed(look, volume)? {
        return persistent::resolve(look, &claimed.volume);
    }
    if let Some(volume) = migrated(look, volume)? {
        return persistent::resolve(look, &volume);
    }
    if let Some(source) = &volume.csi {
        return csi::inline(look, &volume.name, source);
    }
    if volume.git_repo.is_some() {
        let cause = "git-repo volume plugin has been disabled";
        return Err(local::failed(&volume.name, cause, Until::Never));
    }
    let found = local::resolve(look, volume);
    found.unwrap_or_else(|| Err(no_plugin(&volume.name)))
}

fn migrated(look: &Look<'_>, volume: &core::Volume) -> Result<Option<Persistent>, Refusal> {
    let translated = migration::inline(volume, look.pod.namespace());
    let Some(translated) = translated.map_err(migration::refused)? else {
        return Ok(None);
    };
    let volume = Persistent {
        object: translated.volume,
        access: Access::ReadWrite,
        mode: Mode::FileSystem,
        migrated_from: translated.plugin,
    };
    Ok(Some(Persistent {
        access: csi::inline_access(&volume),
        ..volume
    }))
}

fn no_plugin(volume: &str) -> Refusal {
    let message = format!(
        "failed to get Plugin from volumeSpec for volume {volume:?} err=no volume plugin matched"
    );
    Refusal::unprocessed(message, Until::Never)
}

fn access(read_only: Option<bool>) -> Access {
    match read_only {
        Some(true) => Access::ReadOnly,
        Some(false) | None => Access::ReadWrite,
    }
}

/// The API server takes no such name; a manifest may have it.
fn named(name: &str) -> Result<(), Refusal> {
    if ["", ".", ".."].contains(&name) || name.contains('\0') {
        let message = format!("the volume's name {name:?} cannot be the name of a folder");
        return Err(Refusal::unprocessed(message, Until::Changed));
    }
    Ok(())
}

/// Upstream's `EscapeQualifiedName`.
fn folder(name: &str) -> String {
    name.replace('/', "~")
}

#[cfg(test)]
mod tests;
