//! What is made for one pod: tokens of its service account, and certificates.

use std::fmt;

use jiff::Timestamp;

/// What a token is asked for with: the API's `TokenRequest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenWanted {
    pub namespace: String,
    pub service_account: String,
    /// Sorted. Empty is the API server's own.
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    /// The pod that it is bound to.
    pub pod_name: String,
    pub pod_uid: String,
}

#[derive(Clone, PartialEq, Eq)]
pub struct ServiceAccountToken {
    pub token: String,
    pub expires: Timestamp,
    /// When it was given, as far as that is known: upstream renews at four fifths of its life.
    pub issued: Option<Timestamp>,
}

// Never shown.
impl fmt::Debug for ServiceAccountToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ServiceAccountToken(until {})", self.expires)
    }
}

/// What a certificate is asked for with: the API's `PodCertificateRequest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodCertificateWanted {
    pub namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    pub service_account: String,
    pub signer_name: String,
    /// `RSA3072`, `ED25519` ...
    pub key_type: String,
    pub max_expiration_seconds: Option<i32>,
    pub user_annotations: Vec<(String, String)>,
    /// Which source of which volume it is for: each has its own.
    pub volume: String,
    pub source: usize,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCertificate {
    Issued(Credentials),
    Denied { reason: String, message: String },
    Failed { reason: String, message: String },
    NotYet { missing: String },
}

impl PodCertificate {
    /// Nobody has asked for one.
    pub fn missing(wanted: &PodCertificateWanted) -> Self {
        let PodCertificateWanted {
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
pub struct Credentials {
    /// PKCS#8.
    pub key_pem: Vec<u8>,
    pub chain_pem: Vec<u8>,
    /// From when on a new one is due: the API's `beginRefreshAt`.
    pub renew_at: Timestamp,
    pub expires: Timestamp,
}

// Never shown.
impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Credentials(until {})", self.expires)
    }
}
