//! The objects that a CSI driver's volume is resolved with: the object manager fetches them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{self as core, CSIPersistentVolumeSource, PersistentVolume};

use super::csi::attachment_name;
use super::lookup::parts;
use super::migration;

/// Objects by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDependencies {
    pub driver: String,
    pub attachment: String,
    /// Secrets by namespace and name.
    pub secrets: BTreeSet<(String, String)>,
    pub form: CsiVolumeForm,
}

/// Whether the volume is a file system or a raw device: a device gets no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsiVolumeForm {
    FileSystem,
    Block,
}

/// None for a volume of no driver, or one that cannot be translated into a driver's.
pub fn of_persistent(volume: &PersistentVolume, node_name: &str) -> Option<CsiDependencies> {
    let translated = migration::persistent(volume).ok()?;
    let volume = translated.as_ref().map_or(volume, |found| &found.volume);
    let spec = volume.spec.as_ref()?;
    let form = match spec.volume_mode.as_deref() {
        Some("Block") => CsiVolumeForm::Block,
        Some(_) | None => CsiVolumeForm::FileSystem,
    };
    Some(dependencies(spec.csi.as_ref()?, node_name, form))
}

/// The pod's own volume of a plugin that became a driver; none for others.
pub fn of_inline(
    volume: &core::Volume,
    namespace: &str,
    node_name: &str,
) -> Option<CsiDependencies> {
    let translated = migration::inline(volume, namespace).ok()??;
    let spec = translated.volume.spec.as_ref()?;
    Some(dependencies(
        spec.csi.as_ref()?,
        node_name,
        CsiVolumeForm::FileSystem,
    ))
}

fn dependencies(
    source: &CSIPersistentVolumeSource,
    node_name: &str,
    form: CsiVolumeForm,
) -> CsiDependencies {
    let named = [
        &source.node_stage_secret_ref,
        &source.node_publish_secret_ref,
        &source.node_expand_secret_ref,
    ];
    let named = named.into_iter().flatten().map(parts);
    CsiDependencies {
        driver: source.driver.clone(),
        attachment: attachment_name(&source.volume_handle, &source.driver, node_name),
        secrets: named
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .collect(),
        form,
    }
}
