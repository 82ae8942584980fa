//! The pods as the API has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{CONFIG_MIRROR, PodView};
use logic_api::types::PodUid;

/// All pods of this node.
#[derive(Debug)]
pub(super) struct KnownPods {
    pods: BTreeMap<PodUid, Arc<Pod>>,
    /// By the static pod's UID.
    mirrors: BTreeMap<PodUid, Arc<Pod>>,
}

impl KnownPods {
    pub(super) fn new(pods: Vec<Arc<Pod>>) -> Self {
        let mut shown = KnownPods {
            pods: BTreeMap::new(),
            mirrors: BTreeMap::new(),
        };
        for pod in pods {
            match pod.annotations().get(CONFIG_MIRROR) {
                Some(of) => shown.mirrors.insert(PodUid::from(of.as_str()), pod),
                None => shown.pods.insert(pod.uid(), pod),
            };
        }
        shown
    }

    /// The object that shows the status of the pod with this UID: its own, or its mirror.
    pub(super) fn of(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid).or_else(|| self.mirrors.get(uid))
    }

    /// Whether this is a pod of the API, and not the mirror of one.
    pub(super) fn has(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }
}

/// Whether `one` is a later state of an object than `other`; false where a version is no number.
pub(super) fn is_newer(one: &Pod, other: &Pod) -> bool {
    let version = |pod: &Pod| {
        pod.metadata
            .resource_version
            .as_deref()?
            .parse::<u128>()
            .ok()
    };
    version(one)
        .zip(version(other))
        .is_some_and(|(one, other)| one > other)
}
