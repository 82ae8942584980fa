//! The goal of a pod, and which pod may hold a name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use logic_api::types::{PodFailure, PodUid, RuntimePod};
use logic_pods::resize::ResizeRefusal;
use serde::Serialize;

/// The sources of desired pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSource {
    /// Manifests in a folder or file (`staticPodPath`).
    File,
    /// Manifests from a URL (`staticPodURL`).
    Http,
    /// The API server.
    Api,
}

/// The goal of one pod; the newest one counts.
#[derive(Debug, Clone)]
pub struct PodGoal {
    /// The pod as its source gives it.
    pub desired: Arc<Pod>,
    /// The same pod with its allocated resources.
    pub allocated: Arc<Pod>,
    pub lifecycle: Lifecycle,
    /// A resize that is desired but not allocated, with the reason.
    pub pending: Option<(ResizeRefusal, String)>,
}

/// Whether a pod runs or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifecycle {
    Run,
    /// Ends as failed: rejected, evicted, pre-empted. The worker stays for its status.
    Fail {
        failure: PodFailure,
        /// The grace period; none for the pod's own.
        grace: Option<Duration>,
    },
    /// Ends within its grace period, and is forgotten.
    End,
}

impl PartialEq for PodGoal {
    /// Equal goals have the very same objects: sources hand out one `Arc` as long as a manifest is unchanged.
    fn eq(&self, other: &PodGoal) -> bool {
        self.lifecycle == other.lifecycle
            && self.pending == other.pending
            && Arc::ptr_eq(&self.desired, &other.desired)
            && Arc::ptr_eq(&self.allocated, &other.allocated)
    }
}

impl PodGoal {
    pub fn run(pod: Arc<Pod>) -> PodGoal {
        PodGoal::new(pod, Lifecycle::Run)
    }

    pub fn end(pod: Arc<Pod>) -> PodGoal {
        PodGoal::new(pod, Lifecycle::End)
    }

    pub fn fail(pod: Arc<Pod>, failure: PodFailure, grace: Option<Duration>) -> PodGoal {
        PodGoal::new(pod, Lifecycle::Fail { failure, grace })
    }

    fn new(pod: Arc<Pod>, lifecycle: Lifecycle) -> PodGoal {
        PodGoal {
            desired: pod.clone(),
            allocated: pod,
            lifecycle,
            pending: None,
        }
    }

    pub fn is_run(&self) -> bool {
        self.lifecycle == Lifecycle::Run
    }

    pub fn is_end(&self) -> bool {
        self.lifecycle == Lifecycle::End
    }

    pub(super) fn word(&self) -> &'static str {
        match self.lifecycle {
            Lifecycle::Run => "run",
            Lifecycle::Fail { .. } => "fail",
            Lifecycle::End => "end",
        }
    }
}

/// Which pod holds a full name and which wait for it: two pods of one name never run at the same time.
#[derive(Debug, Default)]
pub(super) struct PodNameReservations {
    holders: BTreeMap<String, PodUid>,
    waiting: BTreeMap<PodUid, Arc<Pod>>,
}

impl PodNameReservations {
    /// Reserves the pod's name for this UID; returns false if another pod holds it.
    pub(super) fn claim(&mut self, uid: &PodUid, pod: &Pod) -> bool {
        let holder = self
            .holders
            .entry(full_name(pod))
            .or_insert_with(|| uid.clone());
        holder == uid
    }

    pub(super) fn wait(&mut self, uid: PodUid, pod: Arc<Pod>) {
        self.waiting.insert(uid, pod);
    }

    pub(super) fn stop_waiting(&mut self, uid: &PodUid) {
        self.waiting.remove(uid);
    }

    /// Frees the name; returns the pods that waited for it or for this UID.
    pub(super) fn release(&mut self, uid: &PodUid, name: &str) -> Vec<(PodUid, Arc<Pod>)> {
        if self.holders.get(name) == Some(uid) {
            self.holders.remove(name);
        }
        let wanted = |other: &PodUid, pod: &mut Arc<Pod>| other == uid || full_name(pod) == name;
        self.waiting.extract_if(.., wanted).collect()
    }

    pub(super) fn take_waiting(&mut self) -> BTreeMap<PodUid, Arc<Pod>> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.waiting.values()
    }
}

/// `namespace/name`.
pub(super) fn full_name(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    format!("{namespace}/{name}")
}

pub(super) fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default())
}

/// A pod made from the runtime's state: enough to end it (upstream: kubecontainer.Pod.ToAPIPod).
pub(super) fn from_runtime(pod: &RuntimePod) -> Pod {
    let mut names: Vec<&str> = pod
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let container = |name: &&str| k8s_openapi::api::core::v1::Container {
        name: (*name).to_owned(),
        ..Default::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.as_str().to_owned()),
            ..Default::default()
        },
        spec: Some(PodSpec {
            containers: names.iter().map(container).collect(),
            ..Default::default()
        }),
        status: None,
    }
}
