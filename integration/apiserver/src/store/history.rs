//! The latest changes of objects, for the watches.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

/// One write of an object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectChange {
    pub(crate) version: u64,
    pub(crate) storage_key: &'static str,
    pub(crate) kind: ChangeType,
    pub(crate) object: Arc<Value>,
    /// What it replaced or took away: a watch with a selector must know whether it had seen it.
    pub(crate) before: Option<Arc<Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

#[derive(Debug)]
pub(crate) struct ChangeHistory {
    changes: VecDeque<ObjectChange>,
    kept: usize,
    /// All changes after this version are known.
    since: u64,
}

impl ChangeHistory {
    pub(crate) fn new(kept: usize, since: u64) -> ChangeHistory {
        ChangeHistory {
            changes: VecDeque::new(),
            kept: kept.max(1),
            since,
        }
    }

    pub(crate) fn add(&mut self, change: ObjectChange) {
        if self.changes.len() == self.kept
            && let Some(oldest) = self.changes.pop_front()
        {
            self.since = oldest.version;
        }
        self.changes.push_back(change);
    }

    pub(crate) fn expire(&mut self, version: u64) {
        self.changes.clear();
        self.since = version;
    }

    /// Returns the oldest version from which a watch can start.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Returns the changes of a storage_key after a version; none if they are forgotten.
    pub(crate) fn after(&self, version: u64, storage_key: &str) -> Option<Vec<ObjectChange>> {
        if version < self.since {
            return None;
        }
        let from = self
            .changes
            .partition_point(|change| change.version <= version);
        Some(
            self.changes
                .range(from..)
                .filter(|change| change.storage_key == storage_key)
                .cloned()
                .collect(),
        )
    }
}
