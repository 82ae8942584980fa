//! Why a pod's claims are not as they should be.

use thiserror::Error;

use super::prepare::{CallFailure, PrepareRefusal};
use super::references::ClaimNameError;

/// Why a pod's claims are not prepared, or not undone; in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClaimsError {
    #[error("prepare dynamic resources: {0}")]
    Prepare(JobFailure),
    #[error("unprepare dynamic resources: {0}")]
    Unprepare(JobFailure),
}

/// What a job failed at.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JobFailure {
    #[error(transparent)]
    Name(#[from] ClaimNameError),
    #[error("fetch ResourceClaim {claim}: {why}")]
    Fetch { claim: String, why: String },
    #[error(transparent)]
    Refused(#[from] PrepareRefusal),
    #[error(transparent)]
    Call(#[from] CallFailure),
    #[error("checkpoint ResourceClaim state: {0}")]
    Record(String),
}

impl ClaimsError {
    /// Returns whether the same may succeed later.
    pub fn transient(&self) -> bool {
        let (Self::Prepare(failure) | Self::Unprepare(failure)) = self;
        match failure {
            JobFailure::Name(error) => error.transient(),
            JobFailure::Refused(refusal) => refusal.transient(),
            JobFailure::Fetch { .. } | JobFailure::Call(_) | JobFailure::Record(_) => true,
        }
    }
}
