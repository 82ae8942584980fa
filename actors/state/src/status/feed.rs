//! The changes of statuses, for those who watch them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use logic_api::types::PodUid;
use tokio::sync::broadcast;

/// The changes that wait for a watcher at most: about upstream's 1,000 before its watchers and 100 for each of them.
const MAX_LAG: usize = 1024;

/// A change of a pod's status.
#[derive(Debug, Clone)]
pub enum StatusChange {
    /// The pod's status is this one now.
    Changed { uid: PodUid, status: Arc<PodStatus> },
    /// Nothing of the pod is left. May come more than once.
    Removed { uid: PodUid },
}

/// Every status, and the changes after it.
#[derive(Debug)]
pub struct StatusWatch {
    pub statuses: BTreeMap<PodUid, Arc<PodStatus>>,
    /// Lags when more than 1,024 changes wait; ends with the status manager.
    pub changes: broadcast::Receiver<StatusChange>,
}

/// The queue that all watchers read; none before the first of them.
#[derive(Debug, Default)]
pub(super) struct StatusFeed(Option<broadcast::Sender<StatusChange>>);

impl StatusFeed {
    pub(super) fn subscribe(&mut self) -> broadcast::Receiver<StatusChange> {
        let queue = self
            .0
            .get_or_insert_with(|| broadcast::Sender::new(MAX_LAG));
        queue.subscribe()
    }

    pub(super) fn changed(&mut self, uid: &PodUid, status: &Arc<PodStatus>) {
        self.send(|| StatusChange::Changed {
            uid: uid.clone(),
            status: status.clone(),
        });
    }

    pub(super) fn removed(&mut self, uid: &PodUid) {
        self.send(|| StatusChange::Removed { uid: uid.clone() });
    }

    fn send(&mut self, change: impl FnOnce() -> StatusChange) {
        let Some(queue) = &self.0 else { return };
        if queue.send(change()).is_err() {
            // The last watcher is gone, and what waited for it goes too.
            self.0 = None;
        }
    }
}
