//! Rules of projected volumes: several sources in one directory.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, KeyToPath, PodCertificateProjection, PodSpec,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use super::super::selectors;
use super::{FieldErrors, local, mode, names, text};

const KEY_TYPES: &[&str] = &[
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
const MIN_TOKEN_SECONDS: i64 = 600;
const MIN_CERTIFICATE_SECONDS: i32 = 3600;
/// A day for the cluster's own signers, 91 days for others.
const MAX_CERTIFICATE_SECONDS: (i32, i32) = (86_400, 7_862_400);

pub(super) fn check(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.projected else {
        return;
    };
    let field = format!("{field}.projected");
    mode(format!("{field}.defaultMode"), source.default_mode, report);
    let mut folder = ProjectedPaths {
        field,
        taken: BTreeSet::new(),
    };
    for (index, projection) in source.sources.iter().flatten().enumerate() {
        folder.source(index, projection, report);
    }
}

/// The paths within a projected volume that its sources write so far.
struct ProjectedPaths<'a> {
    field: String,
    taken: BTreeSet<&'a str>,
}

impl<'a> ProjectedPaths<'a> {
    fn source(&mut self, index: usize, source: &'a VolumeProjection, report: &mut FieldErrors) {
        let field = format!("{}.sources[{index}]", self.field);
        if let Some(secret) = &source.secret {
            let field = format!("{field}.secret");
            report.some(format!("{field}.name"), &secret.name);
            self.items(&field, &secret.name, secret.items.as_deref(), report);
        }
        if let Some(map) = &source.config_map {
            let field = format!("{field}.configMap");
            report.some(format!("{field}.name"), &map.name);
            self.items(&field, &map.name, map.items.as_deref(), report);
        }
        if let Some(facts) = &source.downward_api {
            for file in facts.items.iter().flatten() {
                local::file(&format!("{field}.downwardAPI"), file, report);
                self.take(&file.path, &file.path, report);
            }
        }
        if let Some(token) = &source.service_account_token {
            self.token(&format!("{field}.serviceAccountToken"), token, report);
        }
        if let Some(bundle) = &source.cluster_trust_bundle {
            self.bundle(&format!("{field}.clusterTrustBundle"), bundle, report);
        }
        if let Some(certificate) = &source.pod_certificate {
            self.certificate(&format!("{field}.podCertificate"), certificate, report);
        }
        if count(source) > 1 {
            let detail = "may not specify more than 1 volume type per source";
            report.forbidden(field, detail);
        }
    }

    /// Upstream names the volume, and what stands in the place of the value differs.
    fn take(&mut self, path: &'a str, value: &str, report: &mut FieldErrors) {
        if !path.is_empty() && !self.taken.insert(path) {
            report.invalid(self.field.clone(), value, "conflicting duplicate paths");
        }
    }

    fn items(
        &mut self,
        field: &str,
        name: &str,
        items: Option<&'a [KeyToPath]>,
        report: &mut FieldErrors,
    ) {
        local::items(field, items, report);
        for item in items.into_iter().flatten() {
            self.take(&item.path, name, report);
        }
    }

    fn token(&self, field: &str, token: &ServiceAccountTokenProjection, report: &mut FieldErrors) {
        let seconds = token.expiration_seconds.unwrap_or_default();
        let field = format!("{field}.expirationSeconds");
        if seconds < MIN_TOKEN_SECONDS {
            let detail = "may not specify a duration less than 10 minutes";
            report.invalid(field, seconds, detail);
        } else if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            report.invalid(field, seconds, detail);
        }
        // Upstream names the volume.
        let field = format!("{}.path", self.field);
        report.some(field.clone(), &token.path);
        report.name(field, &token.path, names::non_reserved);
    }

    fn bundle(
        &mut self,
        field: &str,
        bundle: &'a ClusterTrustBundleProjection,
        report: &mut FieldErrors,
    ) {
        match (&bundle.name, &bundle.signer_name) {
            (Some(_), Some(_)) => {
                report.invalid(field, "", "only one of name and signerName may be used");
            }
            (Some(name), None) => {
                bundle_name(format!("{field}.name"), name, report);
                if bundle.label_selector.is_some() {
                    let detail = "labelSelector must be unset if name is specified";
                    report.invalid(format!("{field}.labelSelector"), "", detail);
                }
            }
            (None, Some(signer)) => {
                let name = format!("{field}.signerName");
                if signer.is_empty() {
                    report.missing(name.clone(), "must be a valid signer name");
                }
                self::signer(&name, signer, report);
                let selector = bundle.label_selector.as_ref();
                selectors::labels(&format!("{field}.labelSelector"), selector, report);
            }
            (None, None) => {
                report.missing(field, "either name or signerName must be specified");
            }
        }
        report.some(format!("{field}.path"), &bundle.path);
        report.name(format!("{field}.path"), &bundle.path, names::non_reserved);
        self.take(&bundle.path, &bundle.path, report);
    }

    fn certificate(
        &mut self,
        field: &str,
        certificate: &'a PodCertificateProjection,
        report: &mut FieldErrors,
    ) {
        signer(
            &format!("{field}.signerName"),
            &certificate.signer_name,
            report,
        );
        for key in certificate
            .user_annotations
            .iter()
            .flatten()
            .map(|(key, _)| key)
        {
            report.name(format!("{field}.userAnnotations"), key, names::annotation);
        }
        let kind = certificate.key_type.as_str();
        report.known(format!("{field}.keyType"), kind, KEY_TYPES);
        if let Some(seconds) = certificate.max_expiration_seconds {
            let field = format!("{field}.maxExpirationSeconds");
            lifetime(field, seconds, &certificate.signer_name, report);
        }
        let paths = [
            ("credentialBundlePath", &certificate.credential_bundle_path),
            ("keyPath", &certificate.key_path),
            ("certificateChainPath", &certificate.certificate_chain_path),
        ];
        for (name, path) in paths {
            let path = text(path.as_ref());
            report.name(format!("{field}.{name}"), path, names::non_reserved);
            self.take(path, path, report);
        }
        if paths.iter().all(|(_, path)| text(path.as_ref()).is_empty()) {
            let detail =
                "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
            report.missing(field, detail);
        }
    }
}

fn count(source: &VolumeProjection) -> usize {
    let kinds = [
        source.secret.is_some(),
        source.config_map.is_some(),
        source.downward_api.is_some(),
        source.service_account_token.is_some(),
        source.cluster_trust_bundle.is_some(),
        source.pod_certificate.is_some(),
    ];
    kinds.into_iter().filter(|used| *used).count()
}

fn lifetime(field: String, seconds: i32, signer: &str, report: &mut FieldErrors) {
    if seconds < MIN_CERTIFICATE_SECONDS {
        let detail = "if provided, maxExpirationSeconds must be >= 3600";
        report.invalid(field.clone(), seconds, detail);
    }
    let (own, other) = MAX_CERTIFICATE_SECONDS;
    let domain = signer.split('/').next().unwrap_or_default();
    let is_own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let most = if is_own { own } else { other };
    if seconds > most {
        let detail = format!("if provided, maxExpirationSeconds must be <= {most}");
        report.invalid(field, seconds, detail);
    }
}

fn signer(field: &str, name: &str, report: &mut FieldErrors) {
    if name.is_empty() {
        return report.required(field);
    }
    for (value, detail) in names::signer(name) {
        report.invalid(field, value, detail);
    }
}

/// A bundle of a signer is named after it, `domain:path:name`.
fn bundle_name(field: String, name: &str, report: &mut FieldErrors) {
    if name.is_empty() {
        report.missing(field.clone(), "must be a valid object name");
    }
    let own = name.rsplit_once(':').map_or(name, |(_, own)| own);
    for wrong in names::subdomain(own) {
        let detail = format!("not a valid clustertrustbundlename: {wrong}");
        report.invalid(field.clone(), name, detail);
    }
}

/// A token is of the pod's account; without one there is none to ask for.
pub(in crate::manifest::validate) fn tokens(spec: &PodSpec, report: &mut FieldErrors) {
    if !text(spec.service_account_name.as_ref()).is_empty() {
        return;
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let sources = volume
            .projected
            .iter()
            .filter_map(|held| held.sources.as_ref());
        for (place, source) in sources.flatten().enumerate() {
            if source.service_account_token.is_some() {
                let field =
                    format!("spec.volumes[{index}].projected.sources[{place}].serviceAccountToken");
                let detail = "must not be specified when serviceAccountName is not set";
                report.forbidden(field, detail);
            }
        }
    }
}
