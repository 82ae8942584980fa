//! Pulls as `oxctl images` shows them: running, waiting or backing off.

use jiff::Timestamp;
use logic_api::pod::PodView;
use serde::{Deserialize, Serialize};

use super::request::ImageRequest;

/// The state of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullState {
    Pulling,
    /// In the queue.
    Waiting,
    BackingOff,
}

/// One image of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRow {
    /// As the pod names it.
    pub image: String,
    pub state: PullState,
    /// `namespace/name`.
    pub pod: String,
    /// The container, or `volume NAME`.
    pub purpose: String,
    /// When it entered this state.
    pub since: Timestamp,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Its position in the queue, from 1; none if it is not queued.
    pub position: Option<usize>,
    /// When the next attempt may begin; none if it does not back off.
    pub until: Option<Timestamp>,
    /// The error of the last attempt.
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

/// Every image that is pulled, waits or backs off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Pulls at a time; none for no limit.
    pub limit: Option<usize>,
    /// Running pulls first, then the queue in its order, then back-offs.
    pub rows: Vec<PullRow>,
}
