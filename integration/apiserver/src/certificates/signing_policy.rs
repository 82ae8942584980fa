//! How certificate requests are handled, and how long certificates are valid, as a test sets it.

use serde::{Deserialize, Serialize};

/// How the double's signer handles certificate requests of kubelets, or of pods (these need no approval).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SigningPolicy {
    /// They are approved and signed at once.
    #[default]
    Approve,
    /// They wait until a test approves or denies them; an approved one is signed.
    Hold,
    /// They are denied.
    Deny,
    /// They are approved, and signing them fails.
    Fail,
    /// They are approved, and never signed.
    Forget,
}

/// How long pods' certificates are good, whatever is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateValidity {
    pub(crate) seconds: i64,
    /// Seconds until a new one is to be asked for.
    pub(crate) refresh_after: i64,
}
