//! Mirror pods: the API's copies of static pods, so that the cluster sees them.
//!
//! Mirrors upstream's pkg/kubelet/pod/mirror_client.go, and `tryReconcileMirrorPods` and the orphans' part of
//! `HandlePodCleanups` in kubelet.go and kubelet_pods.go (v1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use logic_api::pod::{CONFIG_HASH, CONFIG_MIRROR, PodView};

/// The static pods of the node.
#[derive(Debug, Clone, Default)]
pub struct StaticPodSet {
    /// The pods that the sources desire.
    pub pods: Vec<Arc<Pod>>,
    /// The names (namespace/name) of those that are terminating.
    pub ending: BTreeSet<String>,
}

/// One change that brings the mirror pods in line with the static pods.
#[derive(Debug, Clone, PartialEq)]
pub enum MirrorAction {
    /// There is no mirror of it.
    Make(Arc<Pod>),
    /// The mirror is of another manifest, or is being deleted: it is deleted, and another is created.
    Replace { mirror: Arc<Pod>, with: Arc<Pod> },
    /// Its static pod is gone.
    Delete(Arc<Pod>),
}

impl MirrorAction {
    /// `namespace/name` of the mirror.
    pub fn full_name(&self) -> String {
        match self {
            MirrorAction::Make(pod)
            | MirrorAction::Replace { with: pod, .. }
            | MirrorAction::Delete(pod) => full_name(pod),
        }
    }
}

/// `namespace/name`, which a static pod shares with its mirror.
pub fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

/// The actions, in the order of the names. `ending` are the names of static pods that are no longer desired but not
/// yet terminated: their mirror pods stay until they are.
pub fn plan(
    statics: &[Arc<Pod>],
    mirrors: &[Arc<Pod>],
    ending: &BTreeSet<String>,
) -> Vec<MirrorAction> {
    let by_name = |pods: &[Arc<Pod>]| -> BTreeMap<String, Arc<Pod>> {
        let named = pods.iter().map(|pod| (full_name(pod), Arc::clone(pod)));
        named.collect()
    };
    let (statics, mirrors) = (by_name(statics), by_name(mirrors));
    let gone = mirrors
        .iter()
        .filter(|(name, _)| !statics.contains_key(*name));
    let gone = gone.map(|(_, mirror)| MirrorAction::Delete(Arc::clone(mirror)));
    let kept = statics.iter().filter_map(|(name, pod)| {
        let pod = Arc::clone(pod);
        match mirrors.get(name) {
            None => Some(MirrorAction::Make(pod)),
            Some(mirror) if is_of(mirror, &pod) => None,
            Some(mirror) => Some(MirrorAction::Replace {
                mirror: Arc::clone(mirror),
                with: pod,
            }),
        }
    });
    let mut steps: Vec<_> = kept.chain(gone).collect();
    steps.retain(|step| !ending.contains(&step.full_name()));
    steps.sort_by_cached_key(MirrorAction::full_name);
    steps
}

/// Whether the mirror shows this static pod, and stays.
fn is_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.deletion_timestamp.is_none()
        && mirror.annotations().get(CONFIG_MIRROR).map(String::as_str) == Some(hash(pod))
}

fn hash(pod: &Pod) -> &str {
    pod.annotations()
        .get(CONFIG_HASH)
        .map_or("", String::as_str)
}

/// The mirror of a static pod, as it is sent to the API: it belongs to the node.
pub fn mirror(pod: &Pod, node: &str, node_uid: &str) -> Pod {
    let mut mirror = pod.clone();
    let hash = hash(pod).to_owned();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use logic_api::testing::{self, at};

    use super::*;

    fn fixed(name: &str, hash: &str) -> Arc<Pod> {
        let mut pod = testing::pod(name);
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_HASH.into(), hash.into());
        Arc::new(pod)
    }

    fn mirrored(name: &str, hash: &str) -> Arc<Pod> {
        Arc::new(mirror(&fixed(name, hash), "node", "node-uid"))
    }

    fn deleted(pod: &Pod) -> Arc<Pod> {
        let mut pod = pod.clone();
        pod.metadata.deletion_timestamp = Some(Time(at(0)));
        Arc::new(pod)
    }

    /// Upstream's TestDeleteOutdatedMirrorPod and TestDeleteOrphanedMirrorPods, as decisions.
    #[test]
    fn a_mirror_is_made_kept_replaced_or_deleted_by_its_hash_and_name() {
        let web = fixed("web", "1");
        let [good, old] = [mirrored("web", "1"), mirrored("web", "0")];
        let ending = deleted(&good);
        let replace = |mirror: &Arc<Pod>| {
            vec![MirrorAction::Replace {
                mirror: mirror.clone(),
                with: web.clone(),
            }]
        };
        let cases = [
            (
                vec![web.clone()],
                vec![],
                vec![MirrorAction::Make(web.clone())],
            ),
            (vec![web.clone()], vec![good.clone()], vec![]),
            (vec![web.clone()], vec![old.clone()], replace(&old)),
            (vec![web.clone()], vec![ending.clone()], replace(&ending)),
            (vec![], vec![good.clone()], vec![MirrorAction::Delete(good)]),
            (vec![], vec![], vec![]),
        ];
        for (statics, mirrors, steps) in cases {
            assert_eq!(plan(&statics, &mirrors, &BTreeSet::new()), steps);
            // While the pod of before still ends, nothing of the name changes.
            let ending = BTreeSet::from(["default/web".to_owned()]);
            assert_eq!(plan(&statics, &mirrors, &ending), []);
        }
    }

    /// Upstream's TestCreateMirrorPod.
    #[test]
    fn a_mirror_is_the_pod_with_its_hash_and_the_node_as_its_owner() {
        let mut told = mirror(&fixed("web", "abc"), "node", "node-uid");
        let owners = told.metadata.owner_references.take().unwrap();
        let annotations = told.metadata.annotations.as_mut().unwrap();
        assert_eq!(annotations.remove(CONFIG_MIRROR).unwrap(), "abc");
        assert_eq!(told, *fixed("web", "abc"));
        let [owner] = owners.as_slice() else {
            panic!("{owners:?}")
        };
        assert_eq!((&*owner.kind, &*owner.api_version), ("Node", "v1"));
        assert_eq!((&*owner.name, &*owner.uid), ("node", "node-uid"));
        assert_eq!(owner.controller, Some(true));
    }
}
