//! Which pods are preempted so that a critical pod fits.
//!
//! As few and as small ones as possible, best-effort pods before burstable ones before guaranteed ones.
//! Mirrors upstream's pkg/kubelet/preemption/preemption.go at v1.36.
//!
//! **Invariant:** no pod is preempted that is as important as the new one.

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::requests::{CPU, MEMORY, request};
use logic_api::types::{PodFailure, PodUid};
use logic_resources::qos::{Qos, pod_qos};

use super::fit::Insufficient;
use super::refuse;

/// How much of a resource is still missing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PreemptionNeed {
    resource: String,
    amount: i64,
}

/// Whether a pod may be ended for another one: the other is critical and it is not, or it has the lower of
/// two priorities.
pub fn is_preemptable(coming: &Pod, going: &Pod) -> bool {
    let priority = |pod: &Pod| pod.spec().and_then(|spec| spec.priority);
    if coming.is_critical() && !going.is_critical() {
        return true;
    }
    let both = priority(coming).zip(priority(going));
    both.is_some_and(|(coming, going)| coming > going)
}

/// How a pod fails that had to go.
pub fn preempted() -> PodFailure {
    let disruption = "Pod was preempted by Kubelet to accommodate a critical pod.";
    PodFailure {
        reason: "Preempting".to_owned(),
        message: "Preempted in order to admit critical pod".to_owned(),
        disruption: Some(disruption.to_owned()),
        ..PodFailure::default()
    }
}

/// The pods that have to go; the order of `others` decides between equals.
pub(super) fn make_room(
    pod: &Pod,
    others: &[&Pod],
    missing: &[Insufficient],
) -> Result<Vec<PodUid>, PodFailure> {
    let need = |missing: &Insufficient| PreemptionNeed {
        resource: missing.resource.clone(),
        amount: missing.missing(),
    };
    let needs: Vec<_> = missing.iter().map(need).collect();
    let victims = victims(pod, others, needs).map_err(|left| {
        let message = format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error \
             finding a set of pods to preempt: no set of running pods found to reclaim resources: {}",
            printed(&left)
        );
        refuse("UnexpectedAdmissionError", message)
    })?;
    debug_assert!(victims.iter().all(|victim| is_preemptable(pod, victim)));
    Ok(victims.into_iter().map(PodView::uid).collect())
}

/// The pods to preempt, or what is missing even if all candidates were preempted.
fn victims<'a>(
    pod: &Pod,
    others: &[&'a Pod],
    needs: Vec<PreemptionNeed>,
) -> Result<Vec<&'a Pod>, Vec<PreemptionNeed>> {
    let class = |qos: Qos| -> Vec<&'a Pod> {
        let mut pods = others.to_vec();
        pods.retain(|other| is_preemptable(pod, other) && pod_qos(other) == qos);
        pods
    };
    let (best_effort, burstable) = (class(Qos::BestEffort), class(Qos::Burstable));
    let guaranteed = class(Qos::Guaranteed);
    let unmet = without(&needs, [&best_effort[..], &burstable, &guaranteed].concat());
    if !unmet.is_empty() {
        return Err(unmet);
    }
    // Guaranteed pods go only for what all others together cannot free; then burstable ones likewise.
    let left = without(&needs, [&best_effort[..], &burstable].concat());
    let guaranteed = nearest(guaranteed, left)?;
    let left = without(&needs, [&best_effort[..], &guaranteed].concat());
    let burstable = nearest(burstable, left)?;
    let left = without(&needs, [&burstable[..], &guaranteed].concat());
    let best_effort = nearest(best_effort, left)?;
    Ok([best_effort, burstable, guaranteed].concat())
}

/// Takes the pod that leaves least to be freed, the smaller one of equals, until nothing is missing.
fn nearest(
    mut pods: Vec<&Pod>,
    mut needs: Vec<PreemptionNeed>,
) -> Result<Vec<&Pod>, Vec<PreemptionNeed>> {
    let mut taken = Vec::new();
    while !needs.is_empty() {
        let mut best: Option<(usize, f64)> = None;
        for (index, pod) in pods.iter().enumerate() {
            let far = distance(&needs, pod);
            let better = best.is_none_or(|(index, least)| {
                far < least || (far == least && is_smaller(pod, pods[index]))
            });
            if better {
                best = Some((index, far));
            }
        }
        let Some((index, _)) = best else {
            return Err(needs);
        };
        let pod = pods.swap_remove(index);
        needs = without(&needs, vec![pod]);
        taken.push(pod);
    }
    Ok(taken)
}

/// The sum of the squared parts of each need that the pod does not meet.
#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of amounts is only compared with others"
)]
fn distance(needs: &[PreemptionNeed], pod: &Pod) -> f64 {
    let part = |need: &PreemptionNeed| {
        let left = need.amount.saturating_sub(request(pod, &need.resource));
        (left.max(0) as f64 / need.amount as f64).powi(2)
    };
    needs.iter().map(part).sum()
}

/// What is still missing when these pods are gone.
fn without(needs: &[PreemptionNeed], pods: Vec<&Pod>) -> Vec<PreemptionNeed> {
    let left = |need: &PreemptionNeed| {
        let freed = pods.iter().map(|pod| request(pod, &need.resource));
        PreemptionNeed {
            resource: need.resource.clone(),
            amount: freed.fold(need.amount, i64::saturating_sub),
        }
    };
    let left = needs.iter().map(left);
    left.filter(|need| need.amount > 0).collect()
}

/// Whether the first requests no more memory, and no more CPU where the memory is the same.
fn is_smaller(first: &Pod, second: &Pod) -> bool {
    let size = |pod| (request(pod, MEMORY), request(pod, CPU));
    size(first) <= size(second)
}

fn printed(needs: &[PreemptionNeed]) -> String {
    let one = |need: &PreemptionNeed| format!("(res: {}, q: {}), ", need.resource, need.amount);
    format!("[{}]", needs.iter().map(one).collect::<String>())
}

#[cfg(test)]
mod tests;
