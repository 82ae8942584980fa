//! The desired pods, as their sources sent them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::types::PodUid;

use super::PodSource;

/// The last set of each source; a UID may be in several.
#[derive(Debug)]
pub(super) struct SourcedPods {
    /// The sources that this node is configured with.
    expected: BTreeSet<PodSource>,
    sets: BTreeMap<PodSource, BTreeMap<PodUid, Arc<Pod>>>,
    /// Whether the offline checkpoint has stood in for the API's pods.
    restored: bool,
}

impl SourcedPods {
    pub(super) fn new(expected: BTreeSet<PodSource>) -> Self {
        SourcedPods {
            expected,
            sets: BTreeMap::new(),
            restored: false,
        }
    }

    /// Replaces the pods of a source; returns the UIDs that it no longer has.
    pub(super) fn replace(
        &mut self,
        source: PodSource,
        pods: BTreeMap<PodUid, Arc<Pod>>,
    ) -> Vec<PodUid> {
        let mut gone = self.sets.remove(&source).unwrap_or_default();
        gone.retain(|uid, _| !pods.contains_key(uid));
        self.sets.insert(source, pods);
        gone.into_keys().collect()
    }

    /// Has the offline checkpoint stand in for the API's pods; false if the API has sent them already.
    pub(super) fn restore(&mut self) -> bool {
        let stands_in = !self.sets.contains_key(&PodSource::Api);
        self.restored |= stands_in;
        stands_in
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PodUid, &Arc<Pod>)> {
        self.sets.values().flatten()
    }

    pub(super) fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.sets.values().flat_map(BTreeMap::keys)
    }

    /// The pods of this UID, one a source.
    pub(super) fn with_uid(&self, uid: &PodUid) -> impl Iterator<Item = &Arc<Pod>> {
        self.sets.values().filter_map(|pods| pods.get(uid))
    }

    pub(super) fn contains(&self, uid: &PodUid) -> bool {
        self.with_uid(uid).next().is_some()
    }

    /// The pods of all sources but the API.
    pub(super) fn statics(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let sets = self.sets.iter();
        let fixed = sets.filter(|(source, _)| **source != PodSource::Api);
        fixed.flat_map(|(_, pods)| pods.values())
    }

    /// How many pods each source sent.
    pub(super) fn counts(&self) -> BTreeMap<PodSource, usize> {
        let sets = self.sets.iter();
        sets.map(|(source, pods)| (*source, pods.len())).collect()
    }

    /// The sources that have not sent their pods yet.
    pub(super) fn missing(&self) -> Vec<PodSource> {
        let silent = |source: &&PodSource| !self.sets.contains_key(source);
        self.expected.iter().filter(silent).copied().collect()
    }

    /// Whether all sources have sent their pods, the offline checkpoint for the API's included.
    pub(super) fn are_known(&self) -> bool {
        let restored = |source: &PodSource| *source == PodSource::Api && self.restored;
        self.missing().iter().all(restored)
    }
}
