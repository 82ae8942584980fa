//! A static pod may not need an object of the API: it starts before there is one.
//!
//! Mirrors `HasAPIObjectReference` of `pkg/api/pod/util.go` (v1.36, gate PreventStaticPodAPIReferences): the same
//! order, the same words.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume, VolumeProjection};

use super::ManifestError;

pub(super) fn refuse(pod: &Pod) -> Result<(), ManifestError> {
    let resource = pod.spec.as_ref().and_then(first);
    resource.map_or(Ok(()), |resource| {
        Err(ManifestError::ApiReference { resource })
    })
}

fn first(spec: &PodSpec) -> Option<&'static str> {
    let containers = || {
        spec.init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
    };
    let volumes = || spec.volumes.iter().flatten();
    if is_named(spec.service_account_name.as_deref()) {
        return Some("serviceaccounts");
    }
    let pull_secrets = spec
        .image_pull_secrets
        .iter()
        .flatten()
        .any(|secret| !secret.name.is_empty());
    if pull_secrets || containers().any(uses_secret) || volumes().any(holds_secret) {
        return Some("secrets");
    }
    if containers().any(uses_config_map) || volumes().any(holds_config_map) {
        return Some("configmaps");
    }
    if spec
        .resource_claims
        .as_ref()
        .is_some_and(|claims| !claims.is_empty())
    {
        return Some("resourceclaims");
    }
    volumes().find_map(of_volume)
}

fn is_named(name: Option<&str>) -> bool {
    name.is_some_and(|name| !name.is_empty())
}

fn uses_secret(container: &Container) -> bool {
    let sources = container
        .env_from
        .iter()
        .flatten()
        .filter_map(|from| from.secret_ref.as_ref());
    let variables = container
        .env
        .iter()
        .flatten()
        .filter_map(|env| env.value_from.as_ref()?.secret_key_ref.as_ref());
    sources
        .map(|source| &source.name)
        .chain(variables.map(|source| &source.name))
        .any(|name| !name.is_empty())
}

fn uses_config_map(container: &Container) -> bool {
    let sources = container
        .env_from
        .iter()
        .flatten()
        .filter_map(|from| from.config_map_ref.as_ref());
    let variables = container
        .env
        .iter()
        .flatten()
        .filter_map(|env| env.value_from.as_ref()?.config_map_key_ref.as_ref());
    sources
        .map(|source| &source.name)
        .chain(variables.map(|source| &source.name))
        .any(|name| !name.is_empty())
}

fn projections(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume
        .projected
        .iter()
        .flat_map(|source| source.sources.iter().flatten())
}

fn holds_secret(volume: &Volume) -> bool {
    let name = |name: &str| !name.is_empty();
    volume
        .azure_file
        .as_ref()
        .is_some_and(|s| name(&s.secret_name))
        || volume
            .cephfs
            .as_ref()
            .and_then(|s| s.secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || volume
            .cinder
            .as_ref()
            .and_then(|s| s.secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || volume
            .flex_volume
            .as_ref()
            .and_then(|s| s.secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || volume
            .rbd
            .as_ref()
            .and_then(|s| s.secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || volume
            .secret
            .as_ref()
            .is_some_and(|s| is_named(s.secret_name.as_deref()))
        || volume
            .scale_io
            .as_ref()
            .is_some_and(|s| name(&s.secret_ref.name))
        || volume
            .iscsi
            .as_ref()
            .and_then(|s| s.secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || volume
            .storageos
            .as_ref()
            .and_then(|s| s.secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || volume
            .csi
            .as_ref()
            .and_then(|s| s.node_publish_secret_ref.as_ref())
            .is_some_and(|s| name(&s.name))
        || projections(volume)
            .filter_map(|source| source.secret.as_ref())
            .any(|s| name(&s.name))
}

fn holds_config_map(volume: &Volume) -> bool {
    volume
        .config_map
        .as_ref()
        .is_some_and(|source| !source.name.is_empty())
        || projections(volume)
            .filter_map(|source| source.config_map.as_ref())
            .any(|source| !source.name.is_empty())
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    let rows = [
        (
            volume.config_map.is_some(),
            "configmaps (via configmap volumes)",
        ),
        (volume.secret.is_some(), "secrets (via secret volumes)"),
        (volume.csi.is_some(), "csidrivers (via CSI volumes)"),
        (
            volume.glusterfs.is_some(),
            "endpoints (via glusterFS volumes)",
        ),
        (
            volume.persistent_volume_claim.is_some(),
            "persistentvolumeclaims",
        ),
        (
            volume.ephemeral.is_some(),
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        (
            volume.azure_file.is_some(),
            "secrets (via azureFile volumes)",
        ),
    ];
    let direct = rows
        .into_iter()
        .find_map(|(used, resource)| used.then_some(resource));
    direct.or_else(|| projections(volume).find_map(of_projection))
}

fn of_projection(source: &VolumeProjection) -> Option<&'static str> {
    let rows = [
        (
            source.config_map.is_some(),
            "configmaps (via projected volumes)",
        ),
        (source.secret.is_some(), "secrets (via projected volumes)"),
        (
            source.service_account_token.is_some(),
            "serviceaccounts (via projected volumes)",
        ),
        (source.cluster_trust_bundle.is_some(), "clustertrustbundles"),
        (source.pod_certificate.is_some(), "podcertificates"),
    ];
    rows.into_iter()
        .find_map(|(used, resource)| used.then_some(resource))
}
