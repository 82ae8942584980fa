//! Admission of pods: once before they start, and again for deferred pods when resources become free.
//!
//! Upstream: pkg/kubelet/kubelet.go (HandlePodAdditions), pkg/kubelet/allocation, pkg/kubelet/preemption,
//! 1.36. Decisions: `logic_pods::admission`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::types::{PodFailure, PodUid};
use logic_pods::admission::{self, Admission, AdmissionDecision, PodPresence};
use metrics::pods as pod_metrics;

use super::PodManager;
use super::assignments::count;
use super::names::full_name;
use crate::worker::PodGoal;

/// A pod that admission has deferred.
#[derive(Debug)]
pub(super) struct DeferredPod {
    pub(super) pod: Arc<Pod>,
    pub(super) why: String,
}

impl PodManager {
    /// Admits, defers or rejects a pod that holds its name.
    pub(super) fn admit(&mut self, uid: PodUid, pod: Arc<Pod>) {
        let active = self.workers.active();
        let others: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let known = self.unmanaged.pods.as_ref();
        let runs = known.is_some_and(|unmanaged| unmanaged.contains_key(&uid));
        let standing = match runs {
            true => PodPresence::Running,
            false => PodPresence::New,
        };
        let began = kernel::now();
        let verdict = admission::admit(&Admission {
            pod: &pod,
            others: &others,
            used: Some(&self.workers.used(&uid)),
            node: &self.node.facts,
            topology: &self.workers.placement().topology,
            held: &self.workers.assignments(),
            pressures: &self.node.pressures,
            shutting_down: self.node.shutting_down,
            standing,
        });
        if standing == PodPresence::New {
            count(&verdict, kernel::now().saturating_duration_since(began));
        }
        match verdict {
            AdmissionDecision::Admit(assigned) => {
                // Before its worker begins.
                self.workers.assign(&uid, assigned);
                self.begin(&uid, pod);
            }
            AdmissionDecision::Reject(failure) => {
                tracing::info!(pod = %full_name(&pod), "rejected: {}", failure.message);
                let reason = admission::counted_reason(&failure.reason);
                pod_metrics::REJECTIONS.with_label_values(&[reason]).inc();
                self.workers.spawn(&uid, PodGoal::fail(pod, failure, None));
                // A rejected pod holds no resources: the next admission sees them as free.
                self.workers.mark_stopped(&uid);
            }
            AdmissionDecision::Defer { why } => {
                self.deferred.insert(uid, DeferredPod { pod, why });
            }
            AdmissionDecision::Preempt { victims, failure } => {
                let names: Vec<&str> = victims.iter().map(PodUid::as_str).collect();
                let why = format!("waits for the end of pre-empted pods: {}", names.join(", "));
                self.end_victims(&victims, &failure);
                self.deferred.insert(uid, DeferredPod { pod, why });
            }
        }
    }

    /// Fails pods that must make room.
    pub(super) fn end_victims(&self, victims: &[PodUid], failure: &PodFailure) {
        for victim in victims {
            if let Some(desired) = self.workers.desired(victim).filter(PodGoal::is_run) {
                pod_metrics::PREEMPTIONS.with_label_values(&[""]).inc();
                let failed = PodGoal::fail(desired.desired, failure.clone(), None);
                self.workers.set_goal(victim, failed);
            }
        }
    }

    /// Admits deferred pods again: resources or devices may be free.
    pub(super) fn admit_deferred(&mut self) {
        for (uid, deferred) in std::mem::take(&mut self.deferred) {
            self.admit(uid, deferred.pod);
        }
    }
}
