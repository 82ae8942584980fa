//! The state of one manifest between two readings.

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::Pod;
use kernel::error_chain;
use state::folder::Stamp;

use super::scan::ManifestRead;
use crate::sources::manifest::{ManifestWarning, SourceError};
use crate::sources::source_problems::SourceProblem;

/// The result of the last reading of one manifest.
#[derive(Debug, Default)]
pub(super) struct ManifestState {
    pub(super) stamp: Option<Stamp>,
    /// Whether its stamp is certain to differ from the next version's.
    pub(super) telling: bool,
    /// The file has not changed for a while, so it is not half written.
    pub(super) settled: bool,
    /// The pods; if this version is bad, those of the last good one.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) problems: Vec<SourceError>,
    pub(super) warnings: Vec<ManifestWarning>,
}

impl ManifestState {
    /// Bad, but perhaps only half written.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.settled && !self.problems.is_empty()
    }

    /// The state after this reading.
    pub(super) fn after(mut self, look: ManifestRead, now: SystemTime) -> ManifestState {
        match look {
            ManifestRead::Unchanged => {
                self.settled = self.settled || self.stamp.is_none_or(|stamp| stamp.is_settled(now));
                self
            }
            ManifestRead::Read {
                stamp,
                telling,
                mut manifest,
            } => ManifestState {
                settled: stamp.is_settled(now),
                telling,
                stamp: Some(stamp),
                pods: manifest.replace(&self.pods),
                problems: manifest.problems,
                warnings: manifest.warnings,
            },
            ManifestRead::Refused(refused) => ManifestState {
                settled: true,
                pods: self.pods,
                problems: vec![refused],
                ..ManifestState::default()
            },
        }
    }

    pub(super) fn source_problems(&self, place: &str) -> impl Iterator<Item = SourceProblem> {
        let (version, settled) = (self.version(), self.settled);
        let problems = self.problems.iter().filter(move |_| settled);
        let refused = problems.map(move |problem| SourceProblem::Refused {
            manifest: place.to_owned(),
            why: error_chain(problem),
            version,
        });
        let doubtful = self
            .warnings
            .iter()
            .map(move |warning| SourceProblem::Doubtful {
                text: format!("{place}: {}", warning.text),
                version,
                pod: warning.pod.clone(),
            });
        refused.chain(doubtful)
    }

    pub(super) fn version(&self) -> u64 {
        self.stamp.map_or(0, |stamp| stamp.version())
    }
}
