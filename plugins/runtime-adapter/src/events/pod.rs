//! A pod as an event tells it, and what an exit says of it before CRI does. Pure.
//!
//! containerd tells of an exit some 40 ms before its CRI part has cleaned up and shows it. The event says all that
//! an agent needs to act, so it is sent at once; what CRI shows in the end is sent again where it differs.

use proto::cri::{ContainerState, ContainerStatus, PodSandboxStatus};

use super::containerd_event::ContainerExit;

/// A pod: its sandbox, and its containers in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodStatuses {
    pub(crate) status: Option<PodSandboxStatus>,
    pub(crate) containers: Vec<ContainerStatus>,
}

impl PodStatuses {
    pub(crate) fn new(
        status: Option<PodSandboxStatus>,
        mut containers: Vec<ContainerStatus>,
    ) -> Self {
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        Self { status, containers }
    }

    pub(crate) fn container(&self, id: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|container| container.id == id)
    }

    /// Returns the pod with this container that has ended; one that was sent as ended already stays as it is.
    pub(crate) fn with_ended(mut self, ended: ContainerStatus) -> Self {
        match self
            .containers
            .binary_search_by(|container| container.id.cmp(&ended.id))
        {
            Ok(at) if self.containers[at].state() == ContainerState::ContainerExited => {}
            Ok(at) => self.containers[at] = ended,
            Err(at) => self.containers.insert(at, ended),
        }
        self
    }

    /// Returns the pod as it is sent after `sent`: a container that was sent as ended does not come back to life,
    /// though CRI may still show it alive.
    pub(crate) fn after(mut self, sent: Option<&Self>) -> Self {
        let Some(sent) = sent else { return self };
        for container in &mut self.containers {
            if container.state() == ContainerState::ContainerExited {
                continue;
            }
            if let Some(ended) = sent
                .container(&container.id)
                .filter(|sent| sent.state() == ContainerState::ContainerExited)
            {
                container.clone_from(ended);
            }
        }
        self
    }
}

/// Returns the status as CRI will show it when it has seen this exit, or as it is if CRI has.
///
/// Nothing for a container whose start CRI has not finished: if that fails, CRI knows why and the exit does not.
pub(crate) fn ended(status: ContainerStatus, exit: ContainerExit) -> Option<ContainerStatus> {
    match status.state() {
        ContainerState::ContainerExited => Some(status),
        ContainerState::ContainerCreated => None,
        ContainerState::ContainerRunning | ContainerState::ContainerUnknown => {
            // containerd's CRI part keeps a reason that it has already, and makes up these two where it has none.
            let reason = match (status.reason.as_str(), exit.code) {
                ("", 0) => "Completed".to_owned(),
                ("", _) => "Error".to_owned(),
                _ => status.reason,
            };
            Some(ContainerStatus {
                state: ContainerState::ContainerExited.into(),
                exit_code: exit.code,
                finished_at: exit.at,
                reason,
                ..status
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str, state: ContainerState) -> ContainerStatus {
        ContainerStatus {
            id: id.to_owned(),
            state: state.into(),
            started_at: 5,
            ..Default::default()
        }
    }

    #[test]
    fn an_exit_says_what_cri_will_say() {
        use ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};
        for (state, reason, code, expected) in [
            (ContainerRunning, "", 0, Some((0, 9, "Completed"))),
            (ContainerRunning, "", 7, Some((7, 9, "Error"))),
            (
                ContainerRunning,
                "OOMKilled",
                137,
                Some((137, 9, "OOMKilled")),
            ),
            (
                ContainerState::ContainerUnknown,
                "",
                1,
                Some((1, 9, "Error")),
            ),
            (ContainerExited, "StartError", 7, Some((0, 0, "StartError"))),
            (ContainerCreated, "", 7, None),
        ] {
            let status = ContainerStatus {
                reason: reason.to_owned(),
                ..container("c", state)
            };
            let ended = ended(status, ContainerExit { code, at: 9 });
            let seen = ended.as_ref().map(|status| {
                assert_eq!(status.state(), ContainerExited);
                assert_eq!(status.started_at, 5, "all else stays");
                (status.exit_code, status.finished_at, status.reason.as_str())
            });
            assert_eq!(seen, expected, "{state:?} {reason:?} {code}");
        }
    }

    #[test]
    fn a_container_that_was_told_as_ended_does_not_come_back_to_life() {
        use ContainerState::{ContainerExited, ContainerRunning};
        let sent = PodStatuses::new(None, vec![container("b", ContainerRunning)])
            .with_ended(container("a", ContainerExited));
        let late = vec![
            container("c", ContainerRunning),
            container("b", ContainerExited),
            container("a", ContainerRunning),
        ];
        let next = PodStatuses::new(None, late).after(Some(&sent));
        let states: Vec<_> = next
            .containers
            .iter()
            .map(|container| (container.id.as_str(), container.state()))
            .collect();
        assert_eq!(
            states,
            [
                ("a", ContainerExited),
                ("b", ContainerExited),
                ("c", ContainerRunning)
            ]
        );
    }

    #[test]
    fn what_cri_said_of_an_end_outlives_what_an_exit_says_of_it() {
        let known = ContainerStatus {
            reason: "OOMKilled".to_owned(),
            ..container("a", ContainerState::ContainerExited)
        };
        let sent = PodStatuses::new(None, vec![known.clone()])
            .with_ended(container("a", ContainerState::ContainerExited));
        assert_eq!(sent.containers, [known]);
    }
}
