//! Pods' certificates in the checkpoint: with their keys, and the keys of requests that are not answered yet.

use std::sync::Arc;

use jiff::Timestamp;
use logic_api::objects::{
    CertificateCredentials, Issuance, PendingCertificateRequest, PodCertificateSpec, StaticObjects,
};
use serde::{Deserialize, Serialize};

/// One source of one pod's volume. A signer's refusal is not kept: a restarted agent asks again.
#[derive(Serialize, Deserialize)]
pub(super) struct CheckpointedCertificate {
    namespace: String,
    pod_name: String,
    pod_uid: String,
    service_account: String,
    signer_name: String,
    key_type: String,
    max_expiration_seconds: Option<i32>,
    user_annotations: Vec<(String, String)>,
    volume: String,
    source: usize,
    held: Option<CheckpointedChain>,
    asked: Option<CheckpointedRequest>,
}

#[derive(Serialize, Deserialize)]
struct CheckpointedChain {
    key: String,
    chain: String,
    renew_at: Timestamp,
    expires: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct CheckpointedRequest {
    name: String,
    key: String,
    request: Vec<u8>,
}

impl CheckpointedCertificate {
    /// What is held for this source; none if that is nothing.
    pub(super) fn of(
        wanted: &PodCertificateSpec,
        objects: &StaticObjects,
    ) -> Option<CheckpointedCertificate> {
        let issuance = objects.issuances.get(wanted)?;
        if issuance.held.is_none() && issuance.asked.is_none() {
            return None;
        }
        let wanted = wanted.clone();
        Some(CheckpointedCertificate {
            namespace: wanted.namespace,
            pod_name: wanted.pod_name,
            pod_uid: wanted.pod_uid,
            service_account: wanted.service_account,
            signer_name: wanted.signer_name,
            key_type: wanted.key_type,
            max_expiration_seconds: wanted.max_expiration_seconds,
            user_annotations: wanted.user_annotations,
            volume: wanted.volume,
            source: wanted.source,
            held: issuance.held.as_ref().map(|held| CheckpointedChain {
                key: text(&held.key_pem),
                chain: text(&held.chain_pem),
                renew_at: held.renew_at,
                expires: held.expires,
            }),
            asked: issuance.asked.as_ref().map(|asked| CheckpointedRequest {
                name: asked.name.clone(),
                key: text(&asked.key_pem),
                request: asked.request.clone(),
            }),
        })
    }

    /// Puts it back among the objects.
    pub(super) fn put(&self, objects: &mut StaticObjects) {
        let wanted = PodCertificateSpec {
            namespace: self.namespace.clone(),
            pod_name: self.pod_name.clone(),
            pod_uid: self.pod_uid.clone(),
            service_account: self.service_account.clone(),
            signer_name: self.signer_name.clone(),
            key_type: self.key_type.clone(),
            max_expiration_seconds: self.max_expiration_seconds,
            user_annotations: self.user_annotations.clone(),
            volume: self.volume.clone(),
            source: self.source,
        };
        let held = self.held.as_ref().map(|held| CertificateCredentials {
            key_pem: held.key.clone().into_bytes(),
            chain_pem: held.chain.clone().into_bytes(),
            renew_at: held.renew_at,
            expires: held.expires,
        });
        let asked = self.asked.as_ref().map(|asked| PendingCertificateRequest {
            name: asked.name.clone(),
            key_pem: asked.key.clone().into_bytes(),
            request: asked.request.clone(),
        });
        let issuance = Issuance {
            held,
            asked,
            refused: None,
        };
        objects.issuances.insert(wanted, Arc::new(issuance));
    }
}

/// PEM is text.
fn text(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).into_owned()
}

/// What of the certificates must not be lost: that there is one, or which is requested. A renewed one comes again.
pub(super) fn essence(
    objects: &StaticObjects,
) -> impl Iterator<Item = (&PodCertificateSpec, bool, Option<&str>)> {
    objects.issuances.iter().map(|(wanted, issuance)| {
        let is_held = issuance.held.is_some();
        let asked = issuance.asked.as_ref().filter(|_| !is_held);
        (wanted, is_held, asked.map(|asked| asked.name.as_str()))
    })
}
