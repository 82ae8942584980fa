//! What is shown of pulls: each under way, waiting or backing off, for whom, since when.

use jiff::Timestamp;
use logic_api::pod::PodView;
use serde::{Deserialize, Serialize};

use super::request::ImageRequest;

/// Where a pull stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullState {
    Pulling,
    /// For a free place.
    Waiting,
    BackingOff,
}

/// One image of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRow {
    pub image: String,
    pub state: PullState,
    /// `namespace/name`.
    pub pod: String,
    /// The container, or `volume NAME`.
    pub purpose: String,
    /// When it came into its state.
    pub since: Timestamp,
    /// From 1: the first attempt.
    pub attempt: u32,
    /// Its place among those that wait, from 1.
    pub position: Option<usize>,
    /// When it is tried again.
    pub until: Option<Timestamp>,
    /// What the last attempt failed of.
    pub last_error: Option<String>,
}

impl PullRow {
    pub(super) fn new(wanted: &ImageRequest, state: PullState, since: Timestamp) -> Self {
        let pod = &wanted.pod;
        PullRow {
            image: wanted.image.clone(),
            state,
            pod: format!("{}/{}", pod.namespace(), pod.name()),
            purpose: wanted.purpose.to_string(),
            since,
            attempt: 1,
            position: None,
            until: None,
            last_error: None,
        }
    }
}

/// Everything that is not simply there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Pulls at a time; none for no limit.
    pub limit: Option<usize>,
    /// First those that are pulled, then those that wait in their order, then those that back off.
    pub rows: Vec<PullRow>,
}
