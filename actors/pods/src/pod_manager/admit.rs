//! Admission of pods: once before they start, and again for deferred pods when resources become free.
//!
//! Upstream: pkg/kubelet/kubelet.go (HandlePodAdditions), pkg/kubelet/allocation, pkg/kubelet/preemption,
//! 1.36. Decisions: `logic_pods::admission`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic_api::types::{PodFailure, PodUid};
use logic_placement::devices::{DevicePreferences, PreferenceQuestion};
use logic_pods::admission::{self, Admission, AdmissionDecision, AdmissionOutcome, PodPresence};
use metrics::pods as pod_metrics;

use super::assignments::count;
use super::messages::PluginAnswers;
use super::names::full_name;
use super::{Msg, PodManager};
use crate::worker::PodGoal;

/// A pod that admission has deferred.
#[derive(Debug)]
pub(super) struct DeferredPod {
    pub(super) pod: Arc<Pod>,
    pub(super) why: String,
    pub(super) asks: DeferredFor,
}

/// What brings a deferred pod on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeferredFor {
    /// Room on the node.
    Room,
    /// The answers of device plugins.
    Answers,
}

impl PodManager {
    /// Admits, defers or rejects a pod that holds its name.
    pub(super) fn admit(&mut self, uid: PodUid, pod: Arc<Pod>) {
        let waiting = self.deferred.get_mut(&uid);
        if let Some(waiting) = waiting.filter(|waiting| waiting.asks == DeferredFor::Answers) {
            waiting.pod = pod;
            return;
        }
        let active = self.workers.active();
        let others: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let known = self.unmanaged.pods.as_ref();
        let runs = known.is_some_and(|unmanaged| unmanaged.contains_key(&uid));
        let standing = match runs && !self.needs_anew(&uid, &pod) {
            true => PodPresence::Running,
            false => PodPresence::New,
        };
        let began = kernel::now();
        let AdmissionOutcome { decision, counts } = admission::admit(&Admission {
            pod: &pod,
            others: &others,
            used: Some(&self.workers.used(&uid)),
            node: &self.node.facts,
            topology: &self.workers.placement().topology,
            held: &self.workers.assignments(),
            devices: &self.workers.devices(),
            preferences: self
                .preferences
                .get(&uid)
                .unwrap_or(&DevicePreferences::NONE),
            pressures: &self.node.pressures,
            shutting_down: self.node.shutting_down,
            standing,
        });
        count(&counts, kernel::now().saturating_duration_since(began));
        if !matches!(decision, AdmissionDecision::Ask(_)) {
            self.preferences.remove(&uid);
        }
        match decision {
            AdmissionDecision::Ask(questions) => self.ask_plugins(uid, pod, questions),
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
                self.defer(uid, pod, why);
            }
            AdmissionDecision::Preempt { victims, failure } => {
                let names: Vec<&str> = victims.iter().map(PodUid::as_str).collect();
                let why = format!("waits for the end of pre-empted pods: {}", names.join(", "));
                self.end_victims(&victims, &failure);
                self.defer(uid, pod, why);
            }
        }
    }

    /// Whether a pod of which only dead containers are left holds nothing of what it has to have for itself.
    fn needs_anew(&self, uid: &PodUid, pod: &Pod) -> bool {
        let held = self.workers.assignments();
        if self.unmanaged.alive.contains(uid) || held.contains_key(uid) {
            return false;
        }
        let topology = &self.workers.placement().topology;
        let devices = self.workers.devices();
        let again = topology.admit_with_devices(pod, &held, &devices, &DevicePreferences::NONE);
        !again.outcome.is_ok_and(|assigned| assigned.is_empty())
    }

    fn defer(&mut self, uid: PodUid, pod: Arc<Pod>, why: String) {
        let asks = DeferredFor::Room;
        self.deferred.insert(uid, DeferredPod { pod, why, asks });
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
            match deferred.asks {
                DeferredFor::Answers => drop(self.deferred.insert(uid, deferred)),
                DeferredFor::Room => self.admit(uid, deferred.pod),
            }
        }
    }

    /// Asks device plugins which devices they would give the pod, and admits it again with their answers: as often as it
    /// has containers that ask for devices.
    fn ask_plugins(&mut self, uid: PodUid, pod: Arc<Pod>, questions: Vec<PreferenceQuestion>) {
        let deferred = DeferredPod {
            pod,
            why: "waits for the preferences of device plugins".to_owned(),
            asks: DeferredFor::Answers,
        };
        self.deferred.insert(uid.clone(), deferred);
        self.questions.push((uid, questions));
    }

    /// Begins to ask what admission wants to know.
    pub(super) fn ask(&mut self, ctx: &mut Context<Msg>) {
        for (uid, questions) in std::mem::take(&mut self.questions) {
            let plugins = self.workers.plugins();
            ctx.run(async move {
                let answers = plugins.prefer(questions).await;
                Msg::Preferred { uid, answers }
            });
        }
    }

    /// Admits a pod again with the answers of device plugins, unless it is gone.
    pub(super) fn preferred(&mut self, uid: PodUid, answers: PluginAnswers) {
        let Some(deferred) = self.deferred.remove(&uid) else {
            return drop(self.preferences.remove(&uid));
        };
        let known = self.preferences.entry(uid.clone()).or_default();
        for (question, answer) in answers {
            known.insert(question, answer);
        }
        self.admit(uid, deferred.pod);
    }
}
