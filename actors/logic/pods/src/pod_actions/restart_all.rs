//! The exit of a container that restarts all containers of its pod, in the same sandbox.
//!
//! Mirrors upstream's `getContainersToReset` (kuberuntime_manager.go) and KEP-5532 at v1.36. Upstream keeps in a pod
//! condition that a restart is under way; here the runtime state shows it: the instance that triggered it is removed
//! last.

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::pod::PodView;
use logic_api::types::{ContainerState, EventLevel, RuntimeContainer, RuntimePod};

use super::kill::KillReason;
use super::plan::RemovedLog;
use super::plan_builder::PlanBuilder;
use super::rules::{RuleAction, rule_for};

/// The instance whose exit restarts all containers; none where there is no such exit.
pub fn trigger<'a>(pod: &Pod, runtime: &'a RuntimePod) -> Option<&'a RuntimeContainer> {
    pod.all_containers().find_map(|(_, spec)| {
        let newest = runtime.newest(&spec.name)?;
        sets_off(spec, newest).then_some(newest)
    })
}

fn sets_off(spec: &core::Container, instance: &RuntimeContainer) -> bool {
    instance.state == ContainerState::Exited
        && !instance.start_was_cancelled()
        && rule_for(spec, instance.exit_code) == Some(RuleAction::RestartAllContainers)
}

/// Kills and removes every instance of init and app containers. Their logs stay: restart counts go on
/// from them. Ephemeral containers are left alone.
pub(super) fn reset(draft: &mut PlanBuilder<'_>, trigger: &RuntimeContainer) {
    let reason = format!(
        "container {} exited with code {}: all containers are restarted",
        trigger.name, trigger.exit_code
    );
    draft.why(None, EventLevel::Note, "RestartAllContainers", reason);
    let (pod, runtime) = (draft.pod, draft.observed.runtime);
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for spec in pod.app_containers().iter().chain(pod.init_containers()) {
        let mut instances: Vec<_> = runtime.instances(&spec.name).collect();
        instances.sort_by_key(|c| (c.attempt, c.created_at, &c.id));
        let (source, target): (Vec<_>, Vec<_>) =
            instances.into_iter().partition(|c| sets_off(spec, c));
        sources.extend(source);
        targets.extend(target);
    }
    for instance in targets.iter().filter(|c| c.may_run()) {
        draft.kill(
            instance,
            KillReason::RestartAllContainers,
            "killing".to_owned(),
        );
    }
    for instance in targets.into_iter().chain(sources) {
        draft.remove(instance, RemovedLog::Kept);
    }
}
