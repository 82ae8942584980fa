//! The pod's own certificates, from the signer that its projection names.
//!
//! Mirrors upstream's pkg/volume/projected and KEP-4317; [`Objects`](logic_api::objects::Objects) gives the
//! certificates.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PodCertificateProjection;
use logic_api::objects::{CertificateCredentials, PodCertificate, PodCertificateSpec, pem};

use super::FilesBuilder;
use super::permissions::FilePermissions;
use super::problem::FilesProblem;
use super::refresh::look_at;

/// Upstream's `jitterDuration`.
const JITTER: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn collect(
    builder: &mut FilesBuilder<'_>,
    index: usize,
    source: &PodCertificateProjection,
    rights: FilePermissions,
) {
    let wanted = PodCertificateSpec::projected(builder.pod, &builder.volume.name, (index, source));
    builder.uses("PodCertificateRequest", &wanted.namespace, &wanted.pod_name);
    match find(&wanted, builder) {
        Ok(held) => {
            let jitter = builder.jitter(&index.to_string(), JITTER);
            let renew_at = held.renew_at.checked_add(jitter).unwrap_or(held.expires);
            builder.refresh(look_at(builder.context.now, renew_at, held.expires));
            put(builder, source, rights, &held);
        }
        Err(problem) => builder.problems.push(problem),
    }
}

fn find(
    wanted: &PodCertificateSpec,
    builder: &FilesBuilder<'_>,
) -> Result<CertificateCredentials, FilesProblem> {
    let never = |what, reason, message| {
        Err(FilesProblem::NeverIssued {
            what,
            reason,
            message,
        })
    };
    match builder.context.objects.pod_certificate(wanted) {
        PodCertificate::Issued(held) if held.expires <= builder.context.now => {
            Err(FilesProblem::CertificateExpired(held.expires.to_string()))
        }
        PodCertificate::Issued(held) => Ok(held),
        PodCertificate::Denied { reason, message } => never("denied", reason, message),
        PodCertificate::Failed { reason, message } => never("failed", reason, message),
        PodCertificate::NotYet { missing } => {
            let PodCertificateSpec {
                namespace,
                pod_name,
                ..
            } = wanted;
            let objects = builder.context.objects;
            let refused = objects.refused("PodCertificateRequest", namespace, pod_name);
            Err(FilesProblem::NotIssued(refused.unwrap_or(missing)))
        }
    }
}

/// Key and chain in one file, in files of their own, or both.
fn put(
    builder: &mut FilesBuilder<'_>,
    source: &PodCertificateProjection,
    rights: FilePermissions,
    held: &CertificateCredentials,
) {
    let blocks = pem::blocks(&String::from_utf8_lossy(&held.chain_pem));
    let chain = pem::certificates(blocks.iter().map(|block| &*block.bytes)).into_bytes();
    let bundle = [held.key_pem.as_slice(), &chain].concat();
    let files = [
        (&source.credential_bundle_path, bundle),
        (&source.key_path, held.key_pem.clone()),
        (&source.certificate_chain_path, chain),
    ];
    for (path, data) in files {
        if let Some(path) = path.as_deref().filter(|path| !path.is_empty()) {
            builder.put(path, rights.file(data));
        }
    }
}
