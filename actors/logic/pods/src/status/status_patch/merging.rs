//! The API's copy of a status and ours become one: what others own stays theirs, and nothing goes back.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::conditions::{
    CONTAINERS_READY, DISRUPTION_TARGET, READY, is_kubelet_condition,
};

use super::{condition, is_terminal};

/// Whether something of the pod may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containers {
    MayRun,
    Ended,
}

impl Containers {
    /// Reads it from our own status: no container of it is shown as running.
    pub fn of(ours: &PodStatus) -> Self {
        let inits = ours.init_container_statuses.iter().flatten();
        let apps = ours.container_statuses.iter().flatten();
        let ephemerals = ours.ephemeral_container_statuses.iter().flatten();
        let mut all = inits.chain(apps).chain(ephemerals);
        let runs = all.any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()));
        match runs {
            true => Self::MayRun,
            false => Self::Ended,
        }
    }
}

/// The status to write for a pod whose status in the API is that of `shown`.
///
/// A terminal phase comes when nothing of the pod runs any more, and stays.
pub fn merge(now: Timestamp, shown: &Pod, ours: &PodStatus, containers: Containers) -> PodStatus {
    let none = PodStatus::default();
    let old = shown.status.as_ref().unwrap_or(&none);
    let begins_to_end = !is_terminal(old) && is_terminal(ours);
    let mut new = ours.clone();
    new.conditions = some_list(conditions(
        now,
        old,
        ours,
        begins_to_end && containers == Containers::Ended,
    ));
    // The scheduler's and the claims' controllers'.
    new.resource_claim_statuses
        .clone_from(&old.resource_claim_statuses);
    new.extended_resource_claim_status
        .clone_from(&old.extended_resource_claim_status);
    new.node_allocatable_resource_claim_statuses
        .clone_from(&old.node_allocatable_resource_claim_statuses);

    let delayed = begins_to_end && containers == Containers::MayRun;
    if delayed || is_terminal(old) && !is_terminal(ours) {
        new.phase.clone_from(&old.phase);
        new.reason.clone_from(&old.reason);
        new.message.clone_from(&old.message);
    }
    new.start_time = old.start_time.clone().or(new.start_time);
    new.observed_generation = new.observed_generation.max(old.observed_generation);
    if is_terminal(&new) {
        end_readiness(now, &mut new);
    }
    debug_assert!(!is_terminal(old) || new.phase == old.phase || is_terminal(&new));
    new
}

/// Those of others as they are, then ours.
fn conditions(now: Timestamp, old: &PodStatus, ours: &PodStatus, ends: bool) -> Vec<PodCondition> {
    let given = old.conditions.iter().flatten();
    let mut list: Vec<_> = given
        .filter(|c| !is_kubelet_condition(&c.type_))
        .cloned()
        .collect();
    for new in ours.conditions.iter().flatten() {
        let before = condition(Some(old), &new.type_).filter(|old| old.status == new.status);
        if is_kubelet_condition(&new.type_) {
            list.push(since_then(before, new.clone()));
        } else if new.type_ == DISRUPTION_TARGET && ends {
            let since = before.map_or(Some(Time(now)), |old| old.last_transition_time.clone());
            let new = PodCondition {
                last_transition_time: since,
                ..new.clone()
            };
            match list.iter_mut().find(|c| c.type_ == DISRUPTION_TARGET) {
                Some(place) => *place = new,
                None => list.push(new),
            }
        }
    }
    list
}

/// An agent that forgot since when it is so does not make it younger than it is.
fn since_then(before: Option<&PodCondition>, mut new: PodCondition) -> PodCondition {
    let theirs = before.and_then(|old| old.last_transition_time.as_ref());
    let ours = new.last_transition_time.as_ref();
    if let Some(theirs) = theirs
        && ours.is_none_or(|ours| ours < theirs)
    {
        new.last_transition_time = Some(theirs.clone());
    }
    new
}

/// A pod that has ended is not ready, whatever its last readiness was.
fn end_readiness(now: Timestamp, new: &mut PodStatus) {
    let is_true = |kind| condition(Some(new), kind).is_some_and(|c| c.status == "True");
    if !is_true(READY) && !is_true(CONTAINERS_READY) {
        return;
    }
    let reason = match new.phase.as_deref() {
        Some("Failed") => "PodFailed",
        _ => "PodCompleted",
    };
    let generation = new.observed_generation;
    let list = new.conditions.get_or_insert_default();
    for kind in [CONTAINERS_READY, READY] {
        let at = list.iter().position(|c| c.type_ == kind);
        let before = at.map(|at| &list[at]).filter(|c| c.status == "False");
        let since = before.map_or(Some(Time(now)), |c| c.last_transition_time.clone());
        let ended = PodCondition {
            type_: kind.to_owned(),
            status: "False".to_owned(),
            reason: Some(reason.to_owned()),
            last_transition_time: since,
            observed_generation: generation,
            ..PodCondition::default()
        };
        match at {
            Some(at) => list[at] = ended,
            None => list.push(ended),
        }
    }
}

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
