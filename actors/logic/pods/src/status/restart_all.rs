//! A pod whose containers all start over because one of them ended in a certain way: what its statuses say.
//!
//! Mirrors `ShouldAllContainersRestart` of upstream's container/helpers.go and `AllContainersCouldRestart`
//! of its api/v1/pod/util.go at v1.36. What is done about it, [`crate::pod_actions::restart_all`] decides.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use logic_api::pod::PodView;
use logic_api::pod::conditions::ALL_RESTARTING;
use logic_api::types::RuntimePod;

use crate::pod_actions::restart_all::trigger;

/// Why a container ended or waits: the whole pod starts over.
pub const RESTARTING_ALL: &str = "RestartingAllContainers";

/// Whether any container has a rule for it.
pub fn could_restart_all(pod: &Pod) -> bool {
    pod.all_containers().any(|(_, container)| {
        let mut rules = container.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    })
}

/// Whether what is gone from the runtime was removed to start over: that goes on, or did at last sight.
pub(super) fn removes_all(pod: &Pod, runtime: &RuntimePod, said: Option<&PodStatus>) -> bool {
    let mut conditions = said.into_iter().flat_map(|s| s.conditions.iter().flatten());
    let was_on = conditions.any(|c| c.type_ == ALL_RESTARTING && c.status == "True");
    was_on || trigger(pod, runtime).is_some()
}
