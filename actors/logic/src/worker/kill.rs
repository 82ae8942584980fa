//! The end of a pod or container: how long it gets, and in what order things stop.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::plan::{Action, PodPlan};
use crate::pod::PodView;
use crate::types::{Container, RuntimePod, Weight, Why};

/// Every container gets at least this long, so that a short grace is not a bare SIGKILL.
pub const MINIMUM_GRACE: Duration = Duration::from_secs(2);
/// How long a container may take to stop.
///
/// The override wins (eviction, orphans); then the deletion's grace, then the definition's. Where the
/// pod is gone, the container's own annotation stands in.
pub fn kill_grace(pod: Option<&Pod>, container: &Container, given: Option<Duration>) -> Duration {
    let noted = container.termination_grace.map(Duration::from_secs);
    let grace = given.or_else(|| pod.map_or(noted, pod_grace));
    grace.unwrap_or(MINIMUM_GRACE).max(MINIMUM_GRACE)
}

fn pod_grace(pod: &Pod) -> Option<Duration> {
    let deletion = pod.metadata.deletion_grace_period_seconds;
    let seconds = deletion.or(pod.spec()?.termination_grace_period_seconds)?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// What ends a pod: every container that may run is killed, then every sandbox is stopped.
///
/// It is done when [`RuntimePod::is_stopped`]. Sandboxes are stopped even when they are not ready: only
/// that gives back their addresses. `pod` is none for an orphan that only the runtime knows.
pub fn termination_plan(
    pod: Option<&Pod>,
    runtime: &RuntimePod,
    given: Option<Duration>,
) -> PodPlan {
    let mut sorted = runtime.clone();
    sorted.sort();
    let mut plan = PodPlan::default();
    for container in sorted.containers.iter().filter(|c| c.may_run()) {
        let message = format!("Stopping container {}", container.name);
        plan.why.push(Why {
            object: Some(container.name.clone()),
            weight: Weight::Normal,
            reason: "Killing".to_owned(),
            message: message.clone(),
        });
        plan.actions.push(Action::KillContainer {
            id: container.id.clone(),
            name: container.name.clone(),
            grace: kill_grace(pod, container, given),
            message,
        });
    }
    let sandboxes = sorted.sandboxes.into_iter();
    plan.actions
        .extend(sandboxes.map(|s| Action::StopSandbox { sandbox: s.id }));
    plan
}
