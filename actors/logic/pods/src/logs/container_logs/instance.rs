//! Which container's log is meant by a name.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go (validateContainerLogStatus), 1.36.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use logic_api::types::ContainerId;

/// Returns the container whose log is shown, or why there is none to show.
pub fn find_instance(
    pod: &str,
    status: Option<&PodStatus>,
    container: &str,
    previous: bool,
) -> Result<ContainerId, String> {
    let Some(found) = status.and_then(|status| named(status, container)) else {
        return Err(format!(
            "container {container:?} in pod {pod:?} is not available"
        ));
    };
    id(found, previous)
        .map(|id| ContainerId::from(bare(id)))
        .map_err(|why| why.sentence(pod, container))
}

enum MissingInstance<'a> {
    NoPrevious,
    Terminated,
    Waiting(&'a str),
    Nothing,
}

impl MissingInstance<'_> {
    fn sentence(&self, pod: &str, container: &str) -> String {
        let who = format!("container {container:?} in pod {pod:?}");
        match self {
            MissingInstance::NoPrevious => format!("previous terminated {who} not found"),
            MissingInstance::Terminated => format!("{who} is terminated"),
            MissingInstance::Waiting("ErrImagePull") => {
                format!("{who} is waiting to start: image can't be pulled")
            }
            MissingInstance::Waiting("ImagePullBackOff") => {
                format!("{who} is waiting to start: trying and failing to pull image")
            }
            MissingInstance::Waiting(reason) => format!("{who} is waiting to start: {reason}"),
            MissingInstance::Nothing => format!("{who} is waiting to start - no logs yet"),
        }
    }
}

fn named<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|status| status.name == name)
}

fn id(status: &ContainerStatus, previous: bool) -> Result<&str, MissingInstance<'_>> {
    let given = |id: Option<&'_ String>| id.filter(|id| !id.is_empty()).is_some();
    let last = status.last_state.as_ref();
    let last = last.and_then(|state| state.terminated.as_ref());
    let last_id = last.and_then(|last| last.container_id.as_deref());
    let last_id = last_id.filter(|id| !id.is_empty());
    if previous {
        return last_id.ok_or(MissingInstance::NoPrevious);
    }
    let state = status.state.as_ref();
    let terminated = state.and_then(|state| state.terminated.as_ref());
    if state.is_some_and(|state| state.running.is_some()) {
        return Ok(status.container_id.as_deref().unwrap_or_default());
    }
    if let Some(terminated) = terminated {
        let own = terminated.container_id.as_ref();
        return match own.filter(|_| given(own)) {
            Some(id) => Ok(id),
            None => last_id.ok_or(MissingInstance::Terminated),
        };
    }
    if last.is_some() {
        return last_id.ok_or(MissingInstance::Terminated);
    }
    match state.and_then(|state| state.waiting.as_ref()) {
        Some(waiting) => Err(MissingInstance::Waiting(
            waiting.reason.as_deref().unwrap_or_default(),
        )),
        None => Err(MissingInstance::Nothing),
    }
}

/// `containerd://ID`, without the name of the runtime.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    };

    use super::*;

    fn ended(id: &str) -> ContainerState {
        ContainerState {
            terminated: Some(ContainerStateTerminated {
                container_id: Some(id.to_owned()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        }
    }

    fn running() -> ContainerState {
        ContainerState {
            running: Some(ContainerStateRunning::default()),
            ..ContainerState::default()
        }
    }

    fn waiting(reason: &str) -> ContainerState {
        ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.to_owned()),
                ..ContainerStateWaiting::default()
            }),
            ..ContainerState::default()
        }
    }

    /// Upstream's TestValidateContainerLogStatus.
    #[test]
    fn a_log_is_that_of_the_container_that_ran_last() {
        let none = ContainerState::default;
        let cases = [
            (running(), none(), Some("now"), None),
            (running(), ended("fake://then"), Some("now"), Some("then")),
            (ended("fake://now"), none(), Some("now"), None),
            (ended("fake://now"), ended(""), Some("now"), None),
            (ended(""), ended("fake://then"), Some("then"), Some("then")),
            (ended(""), ended(""), None, None),
            (none(), none(), None, None),
            (none(), ended("fake://then"), Some("then"), Some("then")),
            (
                waiting("CrashLoopBackOff"),
                ended("then"),
                Some("then"),
                Some("then"),
            ),
            (waiting("ContainerCreating"), none(), None, None),
            (waiting("ErrImagePull"), none(), None, None),
            (waiting("ImagePullBackOff"), none(), None, None),
        ];
        for (state, last_state, current, previous) in cases {
            let status = PodStatus {
                container_statuses: Some(vec![ContainerStatus {
                    name: "c".into(),
                    container_id: Some("fake://now".into()),
                    state: Some(state),
                    last_state: Some(last_state),
                    ..ContainerStatus::default()
                }]),
                ..PodStatus::default()
            };
            let found = |previous| find_instance("p", Some(&status), "c", previous).ok();
            assert_eq!(found(false), current.map(ContainerId::from), "{status:?}");
            assert_eq!(found(true), previous.map(ContainerId::from), "{status:?}");
        }
        let said = find_instance("p", None, "c", false).unwrap_err();
        assert_eq!(said, "container \"c\" in pod \"p\" is not available");
    }
}
