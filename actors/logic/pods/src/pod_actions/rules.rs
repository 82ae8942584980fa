//! Which container is started, and which is started again after its end.
//!
//! Mirrors upstream's `ShouldContainerBeRestarted` (pkg/kubelet/container/helpers.go) and
//! `ContainerShouldRestart` (pkg/api/v1/pod/util.go) at v1.36.

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::pod::PodView;
use logic_api::types::{ContainerState, RestartPolicy, RuntimeContainer};

/// The action of a container's `restartPolicyRules` for an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleAction {
    Restart,
    RestartAllContainers,
}

/// Whether a container that is not running is to be started (again).
///
/// A container's own policy and exit code rules come before the pod's policy.
pub fn should_start(
    pod: &Pod,
    container: &core::Container,
    newest: Option<&RuntimeContainer>,
) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let Some(newest) = newest else { return true };
    if newest.never_ran() {
        return true;
    }
    match newest.state {
        ContainerState::Running => false,
        ContainerState::Created | ContainerState::Unknown => true,
        ContainerState::Exited => restarts_after(pod, container, newest.exit_code),
    }
}

/// Whether an exit with this code is followed by a restart, be it with all the others.
pub fn restarts_after(pod: &Pod, container: &core::Container, exit_code: i32) -> bool {
    match own_policy(container) {
        Some(own) => rule_for(container, exit_code).is_some() || own.restarts(exit_code),
        None => pod.restart_policy().restarts(exit_code),
    }
}

/// The action of the first rule that matches the exit code; none where none matches.
pub fn rule_for(container: &core::Container, exit_code: i32) -> Option<RuleAction> {
    let rules = container.restart_policy_rules.iter().flatten();
    let matching = rules.into_iter().find(|rule| {
        let Some(codes) = &rule.exit_codes else {
            return false;
        };
        let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
        match codes.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    })?;
    match matching.action.as_str() {
        "Restart" => Some(RuleAction::Restart),
        "RestartAllContainers" => Some(RuleAction::RestartAllContainers),
        _ => None,
    }
}

/// Whether a container that is killed while it runs is started again: rules don't apply, for there is no exit code
/// yet.
pub(super) fn restarts_when_killed(pod: &Pod, container: &core::Container) -> bool {
    own_policy(container).unwrap_or(pod.restart_policy()) != RestartPolicy::Never
}

/// Succeeded under the policy `OnFailure`: a new sandbox is no reason to run it again.
pub(super) fn is_finished(
    pod: &Pod,
    container: &core::Container,
    newest: Option<&RuntimeContainer>,
) -> bool {
    own_policy(container).unwrap_or(pod.restart_policy()) == RestartPolicy::OnFailure
        && newest.is_some_and(RuntimeContainer::succeeded)
}

fn own_policy(container: &core::Container) -> Option<RestartPolicy> {
    let name = container.restart_policy.as_deref()?;
    RestartPolicy::from_name(name)
}
