//! What a pod worker does next: the heart of the node, as plain functions.
//!
//! [`compute_pod_actions`] compares a pod's definition with what the runtime has of it and returns a
//! plan: what to do, in order, who waits and why, and when to look again. [`kill::termination_plan`]
//! is its counterpart at the end of a pod's life. Neither touches anything; both mirror upstream's
//! kuberuntime_manager.go (`computePodActions`, `killPodWithSyncResult`) at v1.36.
//!
//! Room is left for what comes later: sidecars join in [`init`], probe results in `apps`.

mod apps;
mod draft;
pub mod init;
pub mod kill;
pub mod plan;
pub mod sandbox;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};

use crate::backoff::{BackoffPolicy, Backoffs};
use crate::pod::PodView;
use crate::types::{Container, ContainerId, ContainerState, RestartPolicy, RuntimePod, Weight};

pub use plan::{Action, BackoffStep, PodPlan};

/// What is known of a pod besides its definition.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub runtime: &'a RuntimePod,
    /// When this agent saw each exit; an exit not listed is taken as seen just now.
    pub exits: &'a BTreeMap<ContainerId, Timestamp>,
    pub backoffs: &'a Backoffs,
    /// By container: the restart count that its log folder suggests
    /// ([`crate::labels::restart_count_from_logs`]), used where the runtime has forgotten it.
    pub log_counts: &'a BTreeMap<String, u32>,
}

/// The worker's own section of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub backoff: BackoffPolicy,
}

/// Decides what to do for a pod that should run.
pub fn compute_pod_actions(
    now: Timestamp,
    pod: &Pod,
    observed: &Observed<'_>,
    policy: &Policy,
) -> PodPlan {
    let mut draft = draft::Draft::new(now, pod, observed, policy);
    if pod.metadata.deletion_timestamp.is_some() {
        draft.why(
            None,
            Weight::Note,
            "Deleting",
            "the pod is being deleted: nothing starts any more",
        );
        return draft.finish();
    }
    match sandbox::judge(pod, observed.runtime) {
        sandbox::Verdict::Replace(change) => replace_sandbox(&mut draft, &change),
        sandbox::Verdict::Keep(current) => {
            draft.use_sandbox(current);
            draft.kill_leftovers();
            match init::progress(pod, observed.runtime, current) {
                init::Progress::Done => apps::sync(&mut draft),
                init::Progress::Running(name) => {
                    draft.why(
                        Some(name),
                        Weight::Note,
                        "PodInitializing",
                        "the init container is still running",
                    );
                }
                init::Progress::Next(container) => draft.start(container),
                init::Progress::Failed(name) => {
                    draft.why(
                        Some(name),
                        Weight::Note,
                        "PodFailed",
                        "an init container failed, and restartPolicy is Never",
                    );
                    draft.kill_pod();
                }
            }
        }
    }
    let plan = draft.finish();
    debug_assert_eq!(plan.broken_promise(pod, observed.runtime), None);
    plan
}

/// Everything of the pod starts over in a new sandbox, unless there is nothing left to run.
fn replace_sandbox(draft: &mut draft::Draft<'_>, change: &sandbox::Change<'_>) {
    let (pod, runtime) = (draft.pod, draft.observed.runtime);
    draft.kill_pod();

    let runs_once = pod.restart_policy() == RestartPolicy::Never;
    if runs_once && change.attempt != 0 && !runtime.containers.is_empty() {
        draft.why(
            None,
            Weight::Note,
            "PodCompleted",
            "restartPolicy is Never, and the pod has run",
        );
        return;
    }
    let to_start: Vec<&core::Container> = pod
        .app_containers()
        .iter()
        .filter(|c| !is_finished(pod, c, runtime))
        .collect();
    if to_start.is_empty() && init::any_app_created(pod, runtime) {
        draft.why(
            None,
            Weight::Note,
            "PodCompleted",
            "every container has finished",
        );
        return;
    }

    if let Some(old) = change.old {
        draft.stop_sandbox(old);
        let message = "Pod sandbox changed, it will be killed and re-created.";
        draft.why(None, Weight::Normal, "SandboxChanged", message);
    }
    draft.why(None, Weight::Note, "CreatingSandbox", change.reason);
    draft.purge_old_sandbox();
    draft.create_sandbox(change.attempt);
    match pod.init_containers().first() {
        Some(first) => draft.start(first),
        None => to_start.into_iter().for_each(|c| draft.start(c)),
    }
}

/// Succeeded under `restartPolicy: OnFailure`: a new sandbox is no reason to run it again.
fn is_finished(pod: &Pod, container: &core::Container, runtime: &RuntimePod) -> bool {
    pod.restart_policy() == RestartPolicy::OnFailure
        && runtime
            .newest(&container.name)
            .is_some_and(Container::succeeded)
}

/// Whether a container that is not running is to be started (again).
///
/// A container's own policy and exit code rules come before the pod's policy.
pub fn should_start(pod: &Pod, container: &core::Container, newest: Option<&Container>) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let Some(newest) = newest else { return true };
    match newest.state {
        ContainerState::Running => false,
        ContainerState::Created | ContainerState::Unknown => true,
        ContainerState::Exited => restarts_after(pod, container, newest.exit_code),
    }
}

/// Whether an exit with this code is followed by a restart.
pub fn restarts_after(pod: &Pod, container: &core::Container, exit_code: i32) -> bool {
    let own = container.restart_policy.as_deref();
    match own.and_then(RestartPolicy::from_name) {
        Some(own) => matches_rule(container, exit_code) || own.restarts(exit_code),
        None => pod.restart_policy().restarts(exit_code),
    }
}

fn matches_rule(container: &core::Container, exit_code: i32) -> bool {
    let rules = container
        .restart_policy_rules
        .as_deref()
        .unwrap_or_default();
    let matching = rules.iter().find(|rule| {
        let Some(codes) = &rule.exit_codes else {
            return false;
        };
        let listed = codes
            .values
            .as_ref()
            .is_some_and(|v| v.contains(&exit_code));
        match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    });
    matching.is_some_and(|rule| rule.action == "Restart")
}

/// The restart count of the next instance of a container.
pub(crate) fn next_restart_count(name: &str, observed: &Observed<'_>) -> u32 {
    match observed.runtime.newest(name) {
        // It never ran: an interrupted start is finished under the same number.
        Some(newest) if newest.state == ContainerState::Created => newest.restart_count,
        Some(newest) => newest.restart_count.saturating_add(1),
        None => observed.log_counts.get(name).copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
