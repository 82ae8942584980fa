//! Volumes of plugins that became CSI drivers: translated, as if the CSI driver had been named.
//!
//! What only a scheduler or a controller needs, such as topology, is left out, and so is the node affinity, since it
//! names the old plugin's labels.
//!
//! Upstream: csi-translation-lib, pkg/volume/csimigration (1.36).

mod azure;
mod disks;

use k8s_openapi::api::core::v1::{
    self as core, CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::lookup::ResolveFailure;
use crate::RetryWhen;

/// The plugins that became drivers, by their names, in order.
pub const PLUGINS: [&str; 7] = [
    disks::EBS.plugin,
    azure::DISK.plugin,
    azure::FILE.plugin,
    disks::CINDER.plugin,
    disks::GCE.plugin,
    disks::PORTWORX.plugin,
    disks::VSPHERE.plugin,
];

/// A plugin and the driver that it became.
#[derive(Clone, Copy, Debug)]
struct PluginName {
    plugin: &'static str,
    driver: &'static str,
}

/// A volume as the CSI driver's.
#[derive(Debug)]
pub(super) struct TranslatedVolume {
    /// The in-tree plugin's name.
    pub(super) plugin: &'static str,
    pub(super) volume: PersistentVolume,
}

type CsiSource = CSIPersistentVolumeSource;
/// None for a volume of no such plugin; the error is the cause as upstream words it.
type Translation<T> = Option<Result<T, String>>;

pub(super) fn refused(cause: String) -> ResolveFailure {
    let message = format!("failed to translate in-tree pv to CSI: {cause}");
    ResolveFailure::unprocessed(message, RetryWhen::Changed)
}

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<TranslatedVolume>, String> {
    let Some(spec) = &volume.spec else {
        return Ok(None);
    };
    let found = disks::persistent(volume, spec).or_else(|| azure::persistent(volume, spec));
    let Some((name, source)) = found.transpose()? else {
        return Ok(None);
    };
    let mut volume = volume.clone();
    if let Some(spec) = &mut volume.spec {
        spec.csi = Some(source);
        spec.node_affinity = None;
        if name.plugin == disks::GCE.plugin {
            disks::correct_modes(spec);
        }
    }
    Ok(Some(TranslatedVolume {
        plugin: name.plugin,
        volume,
    }))
}

/// The pod's inline volume, as a persistent volume without an API object.
#[derive(Debug)]
struct InlineSource {
    /// Unique for the disk: staging is by this name.
    name: String,
    access_mode: &'static str,
    source: CsiSource,
}

pub(super) fn inline(
    volume: &core::Volume,
    namespace: &str,
) -> Result<Option<TranslatedVolume>, String> {
    let found = disks::inline(volume).or_else(|| azure::inline(volume, namespace));
    let Some((name, made)) = found.transpose()? else {
        return Ok(None);
    };
    Ok(Some(TranslatedVolume {
        plugin: name.plugin,
        volume: PersistentVolume {
            metadata: ObjectMeta {
                name: Some(made.name),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeSpec {
                csi: Some(made.source),
                access_modes: Some(vec![made.access_mode.to_owned()]),
                ..PersistentVolumeSpec::default()
            }),
            status: None,
        },
    }))
}

fn attributes<const N: usize>(pairs: [(&str, String); N]) -> Option<super::VolumeAttributes> {
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
    Some(super::VolumeAttributes::from(pairs))
}

#[cfg(test)]
mod tests;
