//! What a pod worker does next, as plain functions.
//!
//! [`compute_pod_actions`] compares a pod's spec with its runtime state and returns a plan: what to do, in order, what
//! waits and why, and when to plan again. [`kill::termination_plan`] is its counterpart at the end of a pod's life.
//! Neither has side effects; both mirror upstream's kuberuntime_manager.go (`computePodActions`,
//! `killPodWithSyncResult`) at v1.36.
//!
//! Read [`plan`] first, then this page; [`init`], [`apps`] and [`restart_all`] decide, [`plan_builder`] collects.

mod apps;
mod init;
pub mod kill;
pub mod plan;
mod plan_builder;
pub mod restart_all;
pub mod rules;
mod running;
pub mod sandbox;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};
pub use kill::PreStopHooks;
use logic_api::backoff::{BackoffPolicy, BackoffTable};
use logic_api::pod::PodView;
use logic_api::types::{
    ContainerHealth, ContainerId, EventLevel, RestartPolicy, RuntimeContainer, RuntimePod,
    RuntimeSandbox,
};
pub use plan::{ActionGate, BackoffUpdate, PodAction, PodPlan, RemovedLog};
pub use rules::{restarts_after, should_start};

/// The observed state of a pod, besides its spec.
#[derive(Clone, Copy, Debug)]
pub struct PodObservation<'a> {
    pub runtime: &'a RuntimePod,
    /// When this agent saw each exit; an exit not listed is taken as seen just now.
    pub exits: &'a BTreeMap<ContainerId, Timestamp>,
    pub backoffs: &'a BackoffTable,
    /// By container: the restart count that its log directory suggests
    /// ([`logic_api::pod::labels::restart_count_from_logs`]), used where the runtime has forgotten it.
    pub log_counts: &'a BTreeMap<String, u32>,
    /// Probe results by instance; an instance not listed has [`crate::probes::initial_health`].
    pub health: &'a BTreeMap<ContainerId, ContainerHealth>,
    /// By container: the CPU and memory that were last carried out, at its start or by a resize.
    pub actuated: &'a BTreeMap<String, core::ResourceRequirements>,
    /// Instances that were ended to be started again ([`PodPlan::replaced`]): whatever their exit codes, they are.
    pub replaced: &'a BTreeSet<ContainerId>,
}

impl PodObservation<'_> {
    /// Whether the newest instance of this container was ended to be started again.
    fn is_replaced(&self, name: &str) -> bool {
        let newest = self.runtime.newest(name);
        newest.is_some_and(|newest| self.replaced.contains(&newest.id))
    }
}

/// The worker's own section of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodActionPolicy {
    /// Of containers that end again and again.
    pub backoff: BackoffPolicy,
}

/// Decides what to do for a pod that should run.
pub fn compute_pod_actions(
    now: Timestamp,
    pod: &Pod,
    observed: &PodObservation<'_>,
    policy: &PodActionPolicy,
) -> PodPlan {
    let mut draft = plan_builder::PlanBuilder::new(now, pod, observed, policy);
    if pod.metadata.deletion_timestamp.is_some() {
        draft.why(
            None,
            EventLevel::Note,
            "Deleting",
            "the pod is being deleted: nothing starts any more",
        );
        return draft.finish();
    }
    let verdict = sandbox::sandbox_decision(pod, observed.runtime);
    if let Some(trigger) = restart_all::trigger(pod, observed.runtime) {
        if let sandbox::SandboxDecision::Keep(current) = verdict {
            draft.use_sandbox(current);
        }
        restart_all::reset(&mut draft, trigger);
    } else {
        match verdict {
            sandbox::SandboxDecision::Replace(change) => replace_sandbox(&mut draft, &change),
            sandbox::SandboxDecision::Keep(current) => sync_containers(&mut draft, current),
        }
    }
    let plan = draft.finish();
    debug_assert_eq!(plan.broken_promise(pod, observed.runtime), None);
    plan
}

/// Brings the containers of a sandbox that stays to where they should be.
fn sync_containers(draft: &mut plan_builder::PlanBuilder<'_>, current: &RuntimeSandbox) {
    let (pod, observed) = (draft.pod, draft.observed);
    draft.use_sandbox(current);
    let init = init::init_actions(pod, observed, current);
    if let Some((name, reason)) = init.awaited {
        draft.why(Some(name), EventLevel::Note, "PodInitializing", reason);
    }
    let apps = match init.progress {
        init::InitProgress::Done => apps::app_actions(pod, observed),
        init::InitProgress::UnderWay => apps::Apps::default(),
        init::InitProgress::Failed(name) => {
            let reason = "an init container failed, and is not started again";
            draft.why(Some(name), EventLevel::Note, "PodFailed", reason);
            draft.kill_pod();
            return;
        }
    };
    for name in apps.finished {
        let reason = "it has ended, and its policy does not start it again";
        draft.why(Some(name), EventLevel::Note, "Completed", reason);
    }
    if init.progress == init::InitProgress::Done && apps.alive == 0 {
        let reason = "no container runs, and none is to be started";
        draft.why(None, EventLevel::Note, "PodCompleted", reason);
        // Sidecars do not keep a pod alive.
        draft.kill_pod();
        return;
    }
    draft.kill_leftovers();
    draft.resize_pod();
    let needs = init.needs.into_iter().chain(apps.needs);
    needs.for_each(|need| draft.meet(need));
    start_ephemeral_containers(draft);
}

/// Each runs once, whatever becomes of it; one that was made and never ran has not run yet.
fn start_ephemeral_containers(draft: &mut plan_builder::PlanBuilder<'_>) {
    for container in draft.pod.ephemeral_containers() {
        let newest = draft.observed.runtime.newest(&container.name);
        if newest.is_none_or(RuntimeContainer::never_ran) {
            draft.start(&container);
        }
    }
}

/// Everything of the pod starts over in a new sandbox, unless there is nothing left to run.
fn replace_sandbox(
    draft: &mut plan_builder::PlanBuilder<'_>,
    change: &sandbox::SandboxReplacement<'_>,
) {
    let (pod, runtime) = (draft.pod, draft.observed.runtime);
    draft.kill_pod();

    let runs_once = pod.restart_policy() == RestartPolicy::Never;
    if runs_once && change.attempt != 0 && !runtime.containers.is_empty() {
        draft.why(
            None,
            EventLevel::Note,
            "PodCompleted",
            "restartPolicy is Never, and the pod has run",
        );
        return;
    }
    let to_start: Vec<&core::Container> = pod
        .app_containers()
        .iter()
        .filter(|c| {
            draft.observed.is_replaced(&c.name)
                || !rules::is_finished(pod, c, runtime.newest(&c.name))
        })
        .collect();
    if to_start.is_empty() && init::any_app_created(pod, runtime) {
        draft.why(
            None,
            EventLevel::Note,
            "PodCompleted",
            "every container has finished",
        );
        return;
    }

    if let Some(old) = change.old {
        draft.stop_sandbox(old);
        let message = "Pod sandbox changed, it will be killed and re-created.";
        draft.why(None, EventLevel::Normal, "SandboxChanged", message);
    }
    draft.why(None, EventLevel::Note, "CreatingSandbox", change.reason);
    draft.purge_old_sandbox();
    draft.create_sandbox(change.attempt);
    match pod.init_containers().first() {
        Some(first) => draft.start(first),
        None => to_start.into_iter().for_each(|c| draft.start(c)),
    }
}

/// The restart count of the next instance of a container.
pub(crate) fn next_restart_count(name: &str, observed: &PodObservation<'_>) -> u32 {
    match observed.runtime.newest(name) {
        // It never ran: an interrupted start is finished under the same number.
        Some(newest) if newest.never_ran() => newest.restart_count,
        Some(newest) => newest.restart_count.saturating_add(1),
        None => observed.log_counts.get(name).copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
