//! The pod's own certificates, from the signer that its projection names.
//!
//! Mirrors upstream's pkg/volume/projected and KEP-4317: who asks the signer stands behind
//! [`Objects`](crate::objects::Objects).

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PodCertificateProjection;

use super::Draft;
use super::problem::Problem;
use super::projected::Rights;
use super::refresh::look_at;
use crate::objects::{Credentials, PodCertificate, PodCertificateWanted, pem};

/// Upstream's `jitterDuration`.
const JITTER: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn collect(
    draft: &mut Draft<'_>,
    index: usize,
    source: &PodCertificateProjection,
    rights: Rights,
) {
    let wanted = PodCertificateWanted::projected(draft.pod, &draft.volume.name, (index, source));
    draft.uses("PodCertificateRequest", &wanted.namespace, &wanted.pod_name);
    match find(&wanted, draft) {
        Ok(held) => {
            let jitter = draft.jitter(&index.to_string(), JITTER);
            let renew_at = held.renew_at.checked_add(jitter).unwrap_or(held.expires);
            draft.refresh(look_at(draft.ground.now, renew_at, held.expires));
            put(draft, source, rights, &held);
        }
        Err(problem) => draft.problems.push(problem),
    }
}

fn find(wanted: &PodCertificateWanted, draft: &Draft<'_>) -> Result<Credentials, Problem> {
    let never = |what, reason, message| {
        Err(Problem::NeverIssued {
            what,
            reason,
            message,
        })
    };
    match draft.ground.objects.pod_certificate(wanted) {
        PodCertificate::Issued(held) if held.expires <= draft.ground.now => {
            Err(Problem::CertificateExpired(held.expires.to_string()))
        }
        PodCertificate::Issued(held) => Ok(held),
        PodCertificate::Denied { reason, message } => never("denied", reason, message),
        PodCertificate::Failed { reason, message } => never("failed", reason, message),
        PodCertificate::NotYet { missing } => {
            let PodCertificateWanted {
                namespace,
                pod_name,
                ..
            } = wanted;
            let objects = draft.ground.objects;
            let refused = objects.refused("PodCertificateRequest", namespace, pod_name);
            Err(Problem::NotIssued(refused.unwrap_or(missing)))
        }
    }
}

/// Key and chain in one file, in files of their own, or both.
fn put(
    draft: &mut Draft<'_>,
    source: &PodCertificateProjection,
    rights: Rights,
    held: &Credentials,
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
            draft.put(path, rights.file(data));
        }
    }
}
