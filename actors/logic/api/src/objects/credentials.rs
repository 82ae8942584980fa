//! What is made for one pod: tokens of its service account, and certificates.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCertificateProjection, ServiceAccountTokenProjection};
use k8s_openapi::api::storage::v1::TokenRequest;

use crate::pod::PodView;

/// The API's default lifetime of a token.
const DEFAULT_LIFE_SECONDS: i64 = 3600;
/// Upstream's `maxTTL`: no token is kept longer.
const MAX_LIFE: SignedDuration = SignedDuration::from_hours(24);
/// The least that the API gives.
const MIN_LIFE_SECONDS: i64 = 600;

/// The spec of the API's `TokenRequest` for one service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenSpec {
    pub namespace: String,
    pub service_account: String,
    /// Sorted. Empty is the API server's own.
    pub audiences: Vec<String>,
    /// As asked for; the API may grant others.
    pub expiration_seconds: i64,
    /// The pod that it is bound to.
    pub pod_name: String,
    /// The pod to which the token is bound.
    pub pod_uid: String,
}

impl TokenSpec {
    /// For a file of a projected volume.
    pub fn projected(pod: &Pod, source: &ServiceAccountTokenProjection) -> Self {
        let seconds = source.expiration_seconds.unwrap_or(DEFAULT_LIFE_SECONDS);
        Self::of(pod, source.audience.as_ref(), seconds.max(MIN_LIFE_SECONDS))
    }

    /// For a CSI driver that acts in the pod's name.
    pub fn for_driver(pod: &Pod, request: &TokenRequest) -> Self {
        let seconds = request.expiration_seconds.unwrap_or(DEFAULT_LIFE_SECONDS);
        Self::of(pod, Some(&request.audience), seconds)
    }

    /// The API server's own audience is asked for by none.
    fn of(pod: &Pod, audience: Option<&String>, expiration_seconds: i64) -> Self {
        let account = pod
            .spec()
            .and_then(|spec| spec.service_account_name.clone());
        let audience = audience.filter(|audience| !audience.is_empty());
        Self {
            namespace: pod.namespace().to_owned(),
            service_account: account.unwrap_or_default(),
            audiences: audience.into_iter().cloned().collect(),
            expiration_seconds,
            pod_name: pod.name().to_owned(),
            pod_uid: pod.uid().to_string(),
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccountToken {
    pub token: String,
    /// After which the API refuses it.
    pub expires: Timestamp,
    /// When it was issued, if that is known: upstream renews at four fifths of its lifetime.
    pub issued: Option<Timestamp>,
}

impl ServiceAccountToken {
    /// When it is to be renewed: after four fifths of its lifetime, or after a day (upstream's `requiresRefresh`).
    pub fn renew_at(&self, asked_seconds: i64, jitter: SignedDuration) -> Timestamp {
        let life = match self.issued {
            Some(issued) => self.expires.duration_since(issued),
            None => SignedDuration::from_secs(asked_seconds),
        };
        let before =
            |early: SignedDuration| self.expires.checked_sub(early).unwrap_or(Timestamp::MIN);
        let fifth = SignedDuration::from_secs(life.as_secs() / 5);
        let late = before(fifth.saturating_add(jitter));
        let a_day = before(life.saturating_sub(MAX_LIFE).saturating_add(jitter));
        late.min(a_day)
    }
}

// Never shown.
impl fmt::Debug for ServiceAccountToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ServiceAccountToken(until {})", self.expires)
    }
}

/// The spec of the API's `PodCertificateRequest` for one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodCertificateSpec {
    pub namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    pub service_account: String,
    pub signer_name: String,
    /// The key's algorithm as the API names it: `RSA3072`, `ED25519` ...
    pub key_type: String,
    /// None for the signer's own choice.
    pub max_expiration_seconds: Option<i32>,
    pub user_annotations: Vec<(String, String)>,
    /// Which source of which volume it is for: each has its own.
    pub volume: String,
    /// The number of the source in the projected volume.
    pub source: usize,
}

impl PodCertificateSpec {
    /// The spec that comes before all others of a pod, in their order.
    pub fn first_of(namespace: &str, pod_name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pod_name: pod_name.to_owned(),
            pod_uid: String::new(),
            service_account: String::new(),
            signer_name: String::new(),
            key_type: String::new(),
            max_expiration_seconds: None,
            user_annotations: Vec::new(),
            volume: String::new(),
            source: 0,
        }
    }

    /// For a source of a projected volume.
    pub fn projected(
        pod: &Pod,
        volume: &str,
        (index, source): (usize, &PodCertificateProjection),
    ) -> Self {
        let account = pod
            .spec()
            .and_then(|spec| spec.service_account_name.clone());
        let annotations = source.user_annotations.clone().unwrap_or_default();
        Self {
            namespace: pod.namespace().to_owned(),
            pod_name: pod.name().to_owned(),
            pod_uid: pod.uid().to_string(),
            service_account: account.unwrap_or_default(),
            signer_name: source.signer_name.clone(),
            key_type: source.key_type.clone(),
            max_expiration_seconds: source.max_expiration_seconds,
            user_annotations: annotations.into_iter().collect(),
            volume: volume.to_owned(),
            source: index,
        }
    }
}

/// The state of a pod's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCertificate {
    Issued(CertificateCredentials),
    Denied { reason: String, message: String },
    Failed { reason: String, message: String },
    NotYet { missing: String },
}

impl PodCertificate {
    /// A certificate that has not been requested yet.
    pub fn missing(wanted: &PodCertificateSpec) -> Self {
        let PodCertificateSpec {
            namespace,
            pod_name,
            signer_name,
            ..
        } = wanted;
        let missing = format!(
            "there is no PodCertificateRequest of pod {namespace}/{pod_name} for signer {signer_name:?}"
        );
        Self::NotYet { missing }
    }
}

/// A key and its certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateCredentials {
    /// The private key, PKCS#8 in PEM.
    pub key_pem: Vec<u8>,
    /// The certificate first.
    pub chain_pem: Vec<u8>,
    /// From when on a new one is due: the API's `beginRefreshAt`.
    pub renew_at: Timestamp,
    /// The end of the certificate's validity.
    pub expires: Timestamp,
}

// Never shown.
impl fmt::Debug for CertificateCredentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CertificateCredentials(until {})", self.expires)
    }
}
