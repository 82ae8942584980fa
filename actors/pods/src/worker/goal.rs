//! The goal of a pod: what its worker makes the runtime match.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::PodFailure;
use logic_pods::resize::ResizeRefusal;

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
    /// The generation of the pod whose resize was allocated last; none before the first one.
    pub resized: Option<i64>,
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
    /// The same, and the dead containers that an ended static pod has left are removed.
    Remove,
}

impl PartialEq for PodGoal {
    /// Equal goals have the very same objects: sources hand out one `Arc` as long as a manifest is unchanged.
    fn eq(&self, other: &PodGoal) -> bool {
        self.lifecycle == other.lifecycle
            && self.pending == other.pending
            && self.resized == other.resized
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

    pub fn remove(pod: Arc<Pod>) -> PodGoal {
        PodGoal::new(pod, Lifecycle::Remove)
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
            resized: None,
        }
    }

    pub fn is_run(&self) -> bool {
        self.lifecycle == Lifecycle::Run
    }

    pub fn is_end(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::End | Lifecycle::Remove)
    }

    /// Whether it is a static pod that ends: its manifest may come back, so its dead containers are left to it.
    pub fn is_ending_static(&self) -> bool {
        self.lifecycle == Lifecycle::End && self.allocated.is_static()
    }

    /// Whether it is a pod that ends: its logs are left for a while to what collects them.
    pub fn leaves_logs(&self) -> bool {
        self.lifecycle == Lifecycle::End
    }

    pub(crate) fn word(&self) -> &'static str {
        match self.lifecycle {
            Lifecycle::Run => "run",
            Lifecycle::Fail { .. } => "fail",
            Lifecycle::End | Lifecycle::Remove => "end",
        }
    }
}
