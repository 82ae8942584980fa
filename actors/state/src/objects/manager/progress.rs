//! The progress of one pod certificate.

use std::sync::Arc;

use api_client::ApiError;
use jiff::Timestamp;
use logic_api::objects::{CertificateAge, CertificateEvent, Issuance, IssuanceStep};

/// The state of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Unknown: it may exist.
    #[default]
    Unmade,
    /// The API server has it.
    Made,
    /// There is no key to make it with, nor will be.
    Impossible,
}

/// The progress of a certificate, and which events about it were recorded.
#[derive(Debug, Default)]
pub(super) struct CertificateProgress {
    pub(super) issuance: Option<Arc<Issuance>>,
    pub(super) request: RequestState,
    /// The age that the pod's events report.
    pub(super) told: CertificateAge,
    /// Events that are not recorded yet.
    pub(super) notices: Vec<CertificateEvent>,
}

impl CertificateProgress {
    pub(super) fn issuance(&self) -> Issuance {
        self.issuance.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn keep(&mut self, issuance: Issuance) {
        self.issuance = Some(Arc::new(issuance));
        self.request = RequestState::Unmade;
    }

    pub(super) fn step(&self, now: Timestamp) -> IssuanceStep {
        match (self.request, &self.issuance) {
            (RequestState::Impossible, _) => IssuanceStep::Over,
            (RequestState::Unmade | RequestState::Made, Some(issuance)) => issuance.step(now),
            (RequestState::Unmade | RequestState::Made, None) => IssuanceStep::Ask,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        let issuance = self.issuance.as_ref();
        issuance.is_some_and(|issuance| issuance.held.is_some())
    }

    /// Whether the issuance itself explains why the certificate is missing.
    pub(super) fn is_telling(&self) -> bool {
        let issuance = self.issuance.as_ref();
        issuance.is_some_and(|issuance| issuance.asked.is_some() || issuance.refused.is_some())
    }

    /// Drops a request if another one has its name.
    pub(super) fn mind(&mut self, trouble: &ApiError) {
        if matches!(trouble, ApiError::Exists { .. }) {
            let mut issuance = self.issuance();
            issuance.asked = None;
            self.keep(issuance);
        }
    }

    pub(super) fn grow_old(&mut self, now: Timestamp) {
        let issuance = self.issuance.as_ref();
        let age = issuance.map_or(CertificateAge::Fresh, |issuance| issuance.age(now));
        self.notices.extend(age.notices(self.told));
        self.told = age;
    }
}
