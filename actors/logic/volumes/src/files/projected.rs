//! Several sources in one directory.
//!
//! Mirrors `collectData` of upstream's pkg/volume/projected: a later source overwrites an earlier one, and all errors
//! are reported together.

use k8s_openapi::api::core::v1::{ProjectedVolumeSource, VolumeProjection};

use super::permissions::FilePermissions;
use super::{FilesBuilder, bits, certificates, downward_api, keys, tokens, trust};

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
