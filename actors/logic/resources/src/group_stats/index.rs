//! Groups by their owners.

use std::collections::{BTreeMap, BTreeSet};

use logic_api::types::PodUid;

use super::{GroupStats, container_id, pod_uid};

/// The groups of containers, sandboxes and pods.
#[derive(Debug, Default)]
pub struct GroupIndex<'a> {
    by_id: BTreeMap<&'a str, &'a GroupStats>,
    by_pod: BTreeMap<PodUid, &'a GroupStats>,
}

impl<'a> GroupIndex<'a> {
    /// Sorts out groups that are ordered by name; `ids` are those of the containers and sandboxes that the runtime
    /// lists. A group within a container's group is the container's own, whatever it is called.
    pub fn new(groups: &'a [GroupStats], ids: &BTreeSet<&str>) -> Self {
        let mut index = GroupIndex::default();
        for group in groups {
            let parents = group
                .name
                .match_indices('/')
                .map(|(at, _)| &group.name[..at]);
            let is_within = |parent: &str| container_id(parent).is_some_and(|id| ids.contains(id));
            if parents.into_iter().any(is_within) {
                continue;
            }
            let id = container_id(&group.name).filter(|id| ids.contains(id));
            if let Some(id) = id {
                index.by_id.entry(id).or_insert(group);
            } else if let Some(uid) = pod_uid(&group.name) {
                index.by_pod.entry(uid).or_insert(group);
            }
        }
        index
    }

    /// The group of a container or sandbox by its id.
    pub fn container(&self, id: &str) -> Option<&'a GroupStats> {
        self.by_id.get(id).copied()
    }

    /// The group of a whole pod.
    pub fn pod(&self, uid: &PodUid) -> Option<&'a GroupStats> {
        self.by_pod.get(uid).copied()
    }

    /// Whether no container has a group on this machine.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestFilterTerminatedContainerInfoAndAssembleByPodCgroupKey: here the runtime's list says what lives.
    #[test]
    fn a_group_belongs_to_its_pod_or_to_a_container_that_the_runtime_lists() {
        let group = |name: &str| GroupStats {
            name: name.to_owned(),
            ..GroupStats::default()
        };
        let groups = [
            "/",
            "/kubepods",
            "/kubepods/poda",
            "/kubepods/poda/c1",
            "/kubepods/poda/c1/c2",
            "/kubepods/poda/c1/podb",
            "/kubepods/poda/gone",
            "/kubepods/podb",
            "/kubepods/podb/c2",
        ]
        .map(group);
        let index = GroupIndex::new(&groups, &["c1", "c2"].into());
        let name = |group: Option<&GroupStats>| group.map(|group| group.name.clone());
        assert_eq!(
            name(index.container("c1")).as_deref(),
            Some("/kubepods/poda/c1")
        );
        assert_eq!(
            name(index.container("c2")).as_deref(),
            Some("/kubepods/podb/c2")
        );
        assert_eq!(
            name(index.pod(&"b".into())).as_deref(),
            Some("/kubepods/podb")
        );
        assert!(index.container("gone").is_none() && index.pod(&"c".into()).is_none());
        assert!(GroupIndex::new(&groups[..3], &["c1"].into()).is_empty());
    }
}
