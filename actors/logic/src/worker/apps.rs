//! App containers of an initialised pod: which start, which stay, which are replaced.

use super::draft::Draft;
use super::should_start;
use crate::hash::container_hash;
use crate::pod::PodView;
use crate::types::{ContainerState, RestartPolicy, Weight};

/// Adds what the app containers need; a pod with nothing left to run is killed.
pub(super) fn sync(draft: &mut Draft<'_>) {
    let (pod, runtime) = (draft.pod, draft.observed.runtime);
    let mut alive = 0;
    for container in pod.app_containers() {
        let name = container.name.as_str();
        match runtime.newest(name) {
            Some(newest) if newest.state == ContainerState::Running => {
                alive += 1;
                // A container without a hash was not made by a kubelet's kind: it counts as changed.
                if newest.hash != Some(container_hash(container)) {
                    let message = format!("Container {name} definition changed, will be restarted");
                    draft.kill(newest, message);
                    draft.start(container);
                }
            }
            newest if should_start(pod, container, newest) => {
                alive += 1;
                draft.start(container);
            }
            _ => draft.why(
                Some(name),
                Weight::Note,
                "Completed",
                finished(pod.restart_policy()),
            ),
        }
    }
    if alive == 0 {
        draft.why(
            None,
            Weight::Note,
            "PodCompleted",
            "no container runs, and none is to be started",
        );
        draft.kill_pod();
    }
}

fn finished(policy: RestartPolicy) -> String {
    format!("it has ended, and restartPolicy {policy:?} does not start it again")
}
