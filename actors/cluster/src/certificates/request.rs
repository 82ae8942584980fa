//! Requests a certificate from the API: makes a key, submits the request, waits for approval and signature.
//!
//! Upstream: client-go util/certificate/csr/csr.go (1.36).

use std::time::Duration;

use api_client::{ByValue, ObjectEvent, ObjectSelector, watch};
use futures_util::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use kube::api::{Api, ObjectMeta, PostParams};
use logic_node::certificates::CertificateSubject;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, SanType,
};

/// The wait for approval and signature, as upstream's `certificateWaitTimeout`.
const SIGNED_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The use of the certificate, and so its signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificatePurpose {
    /// The node's user towards the API server.
    Client,
    /// The kubelet's HTTPS API.
    Server,
}

impl CertificatePurpose {
    fn signer(self) -> &'static str {
        match self {
            CertificatePurpose::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            CertificatePurpose::Server => "kubernetes.io/kubelet-serving",
        }
    }

    /// For an ECDSA key; RSA keys would need key encipherment as well.
    fn usages(self) -> Vec<String> {
        let auth = match self {
            CertificatePurpose::Client => "client auth",
            CertificatePurpose::Server => "server auth",
        };
        vec!["digital signature".to_owned(), auth.to_owned()]
    }
}

/// Why a certificate signing request brought no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("cannot make a certificate signing request")]
    Make(#[source] rcgen::Error),
    #[error("cannot create certificate signing request")]
    Submit(#[source] Box<kube::Error>),
    #[error("certificate signing request is denied, reason: {reason}, message: {message}")]
    Denied { reason: String, message: String },
    #[error("certificate signing request failed, reason: {reason}, message: {message}")]
    Failed { reason: String, message: String },
    #[error("csr {name:?} was deleted")]
    Deleted { name: String },
    #[error("csr {name:?} changed UIDs")]
    Replaced { name: String },
    #[error("csr {name:?} was not signed within {} minutes", SIGNED_TIMEOUT.as_secs() / 60)]
    Late { name: String },
}

/// A key and its request, both PEM.
pub(super) struct SigningRequestDraft {
    pub(super) key: String,
    request: String,
}

impl SigningRequestDraft {
    /// Makes a new key, and the request for it.
    pub(super) fn new(subject: &CertificateSubject) -> Result<SigningRequestDraft, RequestError> {
        let make = || -> Result<SigningRequestDraft, rcgen::Error> {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            let name = &mut params.distinguished_name;
            for organization in &subject.organizations {
                name.push(DnType::OrganizationName, organization.as_str());
            }
            name.push(DnType::CommonName, subject.common_name.as_str());
            for name in &subject.names {
                let name = SanType::DnsName(name.as_str().try_into()?);
                params.subject_alt_names.push(name);
            }
            let addresses = subject.addresses.iter().copied();
            params
                .subject_alt_names
                .extend(addresses.map(SanType::IpAddress));
            Ok(SigningRequestDraft {
                request: params.serialize_request(&key)?.pem()?,
                key: key.serialize_pem(),
            })
        };
        make().map_err(RequestError::Make)
    }
}

/// Submits the draft and waits until it is signed; returns the certificates as PEM.
pub(super) async fn obtain(
    client: kube::Client,
    purpose: CertificatePurpose,
    draft: &SigningRequestDraft,
) -> Result<Vec<u8>, RequestError> {
    let watched = Api::all(client.clone());
    let api: Api<CertificateSigningRequest> = Api::all(client);
    let wanted = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("csr-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(draft.request.clone().into_bytes()),
            signer_name: purpose.signer().to_owned(),
            usages: Some(purpose.usages()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api.create(&PostParams::default(), &wanted).await;
    let made = made.map_err(|error| RequestError::Submit(Box::new(error)))?;
    let name = made.metadata.name.clone().unwrap_or_default();
    let uid = made.metadata.uid.clone();
    let signed = tokio::time::timeout(SIGNED_TIMEOUT, signed(watched, &name, uid)).await;
    signed.unwrap_or(Err(RequestError::Late { name }))
}

/// Follows the one request until there is a verdict, as upstream's `WaitForCertificate`.
async fn signed(
    api: Api<ByValue<CertificateSigningRequest>>,
    name: &str,
    uid: Option<String>,
) -> Result<Vec<u8>, RequestError> {
    let deleted = || RequestError::Deleted { name: name.into() };
    let mut events = watch(api, ObjectSelector::named(name));
    while let Some(event) = events.next().await {
        let request = match event {
            Ok(ObjectEvent::Listed(requests)) => requests.into_iter().next().ok_or_else(deleted)?,
            Ok(ObjectEvent::Applied(request)) => request,
            Ok(ObjectEvent::Deleted(_)) => return Err(deleted()),
            // The server is away: the request is still there when it is back.
            Err(error) => {
                tracing::debug!(%error, "a certificate signing request is not seen");
                continue;
            }
        };
        if request.metadata.uid != uid {
            return Err(RequestError::Replaced { name: name.into() });
        }
        if let Some(certificate) = verdict(&request)? {
            return Ok(certificate);
        }
    }
    Err(deleted())
}

/// The signed certificate, if there is one; denial and failure are final.
fn verdict(request: &CertificateSigningRequest) -> Result<Option<Vec<u8>>, RequestError> {
    let Some(status) = &request.status else {
        return Ok(None);
    };
    let mut is_approved = false;
    for condition in status.conditions.iter().flatten() {
        let reason = condition.reason.clone().unwrap_or_default();
        let message = condition.message.clone().unwrap_or_default();
        match condition.type_.as_str() {
            "Denied" => return Err(RequestError::Denied { reason, message }),
            "Failed" => return Err(RequestError::Failed { reason, message }),
            "Approved" => is_approved = true,
            _ => {}
        }
    }
    let certificate = status.certificate.as_ref().map(|bytes| bytes.0.clone());
    Ok(certificate.filter(|bytes| is_approved && !bytes.is_empty()))
}
