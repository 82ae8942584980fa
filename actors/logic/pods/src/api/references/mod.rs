//! What a pod's own definition refers to; what those objects refer to in turn is `needed`'s.
//!
//! Mirrors upstream's `VisitPodSecretNames` and `VisitPodConfigmapNames` (pkg/api/v1/pod/util.go, 1.36).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ConfigMapEnvSource, EnvFromSource, EnvVar, LocalObjectReference, Pod, ProjectedVolumeSource,
    Volume, VolumeProjection,
};
use logic_api::objects::{PodCertificateSpec, TokenSpec};
use logic_api::pod::{CONFIG_MIRROR, PodView, has_ended};
use logic_volumes::pod_volume_names;

/// Names of objects, in the pod's namespace unless a field says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodReferences {
    pub namespace: String,
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    /// Of volumes that a container uses.
    pub claims: BTreeSet<String>,
    /// None for the default handler.
    pub runtime_class: Option<String>,
    /// Whether the pod gets variables for services.
    pub services: ServiceLinks,
    /// The CSI drivers of the pod's own volumes.
    pub drivers: BTreeSet<String>,
    /// Asked for by projected volumes; what drivers ask for their `CSIDriver`s say.
    pub tokens: BTreeSet<TokenSpec>,
    pub certificates: BTreeSet<PodCertificateSpec>,
    pub trust_bundles: TrustBundleUse,
}

/// The services whose variables the pod gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceLinks {
    /// Of none: it has ended.
    #[default]
    None,
    /// Of the API's own.
    Master,
    /// Of those of its namespace as well.
    Namespace,
}

/// Whether the pod needs trust bundles: any of them may be meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustBundleUse {
    #[default]
    None,
    Any,
}

/// The objects that the pod refers to. A terminal pod needs none. A mirror pod, whose static pod may not refer to
/// objects, needs services.
pub fn references(pod: &Pod) -> PodReferences {
    let mut found = PodReferences {
        namespace: pod.namespace().to_owned(),
        ..PodReferences::default()
    };
    if has_ended(pod) {
        return found;
    }
    found.take_links(pod);
    if is_mirror(pod) {
        return found;
    }
    let spec = pod.spec();
    let class = spec.and_then(|spec| spec.runtime_class_name.clone());
    found.runtime_class = class.filter(|name| !name.is_empty());
    let pull_secrets = spec.and_then(|spec| spec.image_pull_secrets.as_deref());
    for reference in pull_secrets.unwrap_or_default() {
        found.secret(&reference.name);
    }
    for (_, container) in pod.all_containers() {
        found.take_environment(container.env.as_deref(), container.env_from.as_deref());
    }
    let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_deref());
    for container in ephemeral.unwrap_or_default() {
        found.take_environment(container.env.as_deref(), container.env_from.as_deref());
    }
    found.take_volumes(pod);
    found
}

fn is_mirror(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(CONFIG_MIRROR))
}

impl PodReferences {
    fn config_map(&mut self, name: &str) {
        if !name.is_empty() {
            self.config_maps.insert(name.to_owned());
        }
    }

    fn secret(&mut self, name: &str) {
        if !name.is_empty() {
            self.secrets.insert(name.to_owned());
        }
    }

    fn take_links(&mut self, pod: &Pod) {
        let links = pod.spec().and_then(|spec| spec.enable_service_links);
        self.services = match links {
            Some(false) => ServiceLinks::Master,
            Some(true) | None => ServiceLinks::Namespace,
        };
    }

    fn take_environment(&mut self, env: Option<&[EnvVar]>, from: Option<&[EnvFromSource]>) {
        for source in from.unwrap_or_default() {
            if let Some(ConfigMapEnvSource { name, .. }) = &source.config_map_ref {
                self.config_map(name);
            }
            if let Some(reference) = &source.secret_ref {
                self.secret(&reference.name);
            }
        }
        let sources = env.unwrap_or_default().iter();
        for source in sources.filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(selector) = &source.config_map_key_ref {
                self.config_map(&selector.name);
            }
            if let Some(selector) = &source.secret_key_ref {
                self.secret(&selector.name);
            }
        }
    }

    fn take_volumes(&mut self, pod: &Pod) {
        let used = used(pod);
        let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
        for volume in volumes.unwrap_or_default() {
            self.take_contents(volume);
            if used.contains(&volume.name) {
                self.take_used(pod, volume);
            }
        }
    }

    /// Of every volume, used or not, as upstream has it.
    fn take_contents(&mut self, volume: &Volume) {
        if let Some(source) = &volume.config_map {
            self.config_map(&source.name);
        }
        if let Some(name) = secret_of(volume) {
            self.secret(name);
        }
        for source in sources(volume.projected.as_ref()) {
            if let Some(source) = &source.config_map {
                self.config_map(&source.name);
            }
            if let Some(source) = &source.secret {
                self.secret(&source.name);
            }
        }
    }

    fn take_used(&mut self, pod: &Pod, volume: &Volume) {
        if let Some(source) = &volume.persistent_volume_claim {
            self.claims.insert(source.claim_name.clone());
        }
        if volume.ephemeral.is_some() {
            self.claims
                .insert(format!("{}-{}", pod.name(), volume.name));
        }
        if let Some(source) = &volume.csi {
            self.drivers.insert(source.driver.clone());
        }
        for (index, source) in sources(volume.projected.as_ref()).iter().enumerate() {
            if let Some(source) = &source.pod_certificate {
                let source = (index, source);
                let wanted = PodCertificateSpec::projected(pod, &volume.name, source);
                self.certificates.insert(wanted);
            }
            if let Some(source) = &source.service_account_token {
                self.tokens.insert(TokenSpec::projected(pod, source));
            }
            if source.cluster_trust_bundle.is_some() {
                self.trust_bundles = TrustBundleUse::Any;
            }
        }
    }
}

/// Every volume that a container mounts or maps.
fn used(pod: &Pod) -> BTreeSet<String> {
    let mut used = pod_volume_names(pod);
    let ephemeral = pod.spec().and_then(|s| s.ephemeral_containers.as_deref());
    for container in ephemeral.unwrap_or_default() {
        let mounts = container.volume_mounts.iter().flatten();
        used.extend(mounts.map(|mount| mount.name.clone()));
        let devices = container.volume_devices.iter().flatten();
        used.extend(devices.map(|device| device.name.clone()));
    }
    used
}

fn sources(projected: Option<&ProjectedVolumeSource>) -> &[VolumeProjection] {
    let sources = projected.and_then(|projected| projected.sources.as_deref());
    sources.unwrap_or_default()
}

/// The one that the volume's kind names, if it does.
fn secret_of(volume: &Volume) -> Option<&str> {
    if let Some(source) = &volume.secret {
        return source.secret_name.as_deref();
    }
    if let Some(source) = &volume.azure_file {
        return Some(&source.secret_name);
    }
    None.or_else(|| local(&volume.cephfs.as_ref()?.secret_ref))
        .or_else(|| local(&volume.cinder.as_ref()?.secret_ref))
        .or_else(|| local(&volume.flex_volume.as_ref()?.secret_ref))
        .or_else(|| local(&volume.rbd.as_ref()?.secret_ref))
        .or_else(|| Some(volume.scale_io.as_ref()?.secret_ref.name.as_str()))
        .or_else(|| local(&volume.iscsi.as_ref()?.secret_ref))
        .or_else(|| local(&volume.storageos.as_ref()?.secret_ref))
        .or_else(|| local(&volume.csi.as_ref()?.node_publish_secret_ref))
}

fn local(reference: &Option<LocalObjectReference>) -> Option<&str> {
    reference.as_ref().map(|reference| reference.name.as_str())
}

#[cfg(test)]
mod tests;
