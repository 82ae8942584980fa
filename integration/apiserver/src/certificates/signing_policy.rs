//! What becomes of certificate requests, and how long certificates are good, as a test wants it.

use serde::{Deserialize, Serialize};

/// What becomes of certificate requests of kubelets, or of pods: of those nobody approves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SigningPolicy {
    /// They are approved and signed at once.
    #[default]
    Approve,
    /// They wait until somebody approves or denies them; an approved one is signed.
    Hold,
    /// They are denied.
    Deny,
    /// They are approved, and signing them fails.
    Fail,
    /// They are approved, and nobody signs them.
    Forget,
}

/// How long pods' certificates are good, whatever is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateValidity {
    pub(crate) seconds: i64,
    /// Seconds until a new one is to be asked for.
    pub(crate) refresh_after: i64,
}
