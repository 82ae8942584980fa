//! The queue of volumes, mounts and pods to check.
//!
//! Only what changed is checked. A target that is queued again goes to the end, so that a volume which fails for ever
//! never delays an earlier one.

use std::collections::BTreeMap;

use super::operation::OperationTarget;

#[derive(Debug, Default)]
pub(super) struct OperationQueue {
    order: BTreeMap<u64, OperationTarget>,
    places: BTreeMap<OperationTarget, u64>,
    last: u64,
}

impl OperationQueue {
    /// A target that is queued already keeps its place.
    pub(super) fn push(&mut self, subject: OperationTarget) {
        if self.places.contains_key(&subject) {
            return;
        }
        self.last += 1;
        self.places.insert(subject.clone(), self.last);
        self.order.insert(self.last, subject);
    }

    /// The first one after this position.
    pub(super) fn after(&self, place: u64) -> Option<(u64, OperationTarget)> {
        let (place, subject) = self.order.range(place + 1..).next()?;
        Some((*place, subject.clone()))
    }

    pub(super) fn remove(&mut self, place: u64) {
        if let Some(subject) = self.order.remove(&place) {
            self.places.remove(&subject);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
