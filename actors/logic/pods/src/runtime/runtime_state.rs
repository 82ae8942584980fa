//! The runtime state of one pod: states observed at different times, merged into one that never goes back.
//!
//! Events, lists and our own calls arrive out of order. An instance moves one way only (created, running, exited; a
//! sandbox from ready to not ready) and its id is never used again, so merging any two states in any order gives the
//! later state of each instance. No clock is needed for that.

use std::collections::{BTreeSet, VecDeque};

use logic_api::types::{
    ContainerId, ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxId,
    SandboxState,
};

/// Removed ids that are remembered, the newest: a late event must not bring them back. More than a pod has in one
/// burst.
const MAX_REMOVED_IDS: usize = 64;

/// The merged state of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRuntimeState {
    pod: RuntimePod,
    /// In the order of their removal.
    gone: VecDeque<String>,
    /// What came since the last complete state.
    unconfirmed: BTreeSet<String>,
    /// Whether the last complete state lacked some of it.
    doubtful: bool,
}

impl PodRuntimeState {
    pub fn new(pod: RuntimePod) -> Self {
        let mut seen = PodRuntimeState::default();
        seen.pod.uid = pod.uid.clone();
        seen.pod.name.clone_from(&pod.name);
        seen.pod.namespace.clone_from(&pod.namespace);
        seen.merge(pod);
        seen.unconfirmed.clear();
        seen
    }

    pub fn pod(&self) -> &RuntimePod {
        &self.pod
    }

    /// Merges a state that may be old or partial; returns whether anything changed.
    pub fn merge(&mut self, picture: RuntimePod) -> bool {
        let before = self.pod.clone();
        for sandbox in picture.sandboxes {
            self.merge_sandbox(sandbox);
        }
        for container in picture.containers {
            self.merge_container(container);
        }
        self.pod.sort();
        self.pod != before
    }

    /// Merges a complete state, read after every change that the caller made: what it lacks is gone, but for what
    /// came since the one before. That may have come while this one was read, and shows in [`Self::is_doubtful`].
    pub fn replace(&mut self, picture: RuntimePod) -> bool {
        let sandboxes: BTreeSet<&SandboxId> = picture.sandboxes.iter().map(|s| &s.id).collect();
        let containers: BTreeSet<&ContainerId> = picture.containers.iter().map(|c| &c.id).collect();
        let mut lost: Vec<String> = Vec::new();
        for sandbox in self
            .pod
            .sandboxes
            .iter()
            .filter(|s| !sandboxes.contains(&s.id))
        {
            lost.push(sandbox.id.as_str().to_owned());
        }
        for container in self
            .pod
            .containers
            .iter()
            .filter(|c| !containers.contains(&c.id))
        {
            lost.push(container.id.as_str().to_owned());
        }
        let (came, lost): (Vec<String>, Vec<String>) = lost
            .into_iter()
            .partition(|id| self.unconfirmed.contains(id));
        let changed = !lost.is_empty();
        for id in lost {
            self.remove(&id);
        }
        let merged = self.merge(picture);
        self.unconfirmed.clear();
        self.doubtful = !came.is_empty();
        merged || changed
    }

    /// Whether the last complete state lacked something that may have come while it was read: no decision may rest on
    /// it, and the next complete state tells.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// The runtime removed the sandbox or container of this id; true if it was known.
    pub fn remove(&mut self, id: &str) -> bool {
        let known = self.pod.sandboxes.len() + self.pod.containers.len();
        self.pod
            .sandboxes
            .retain(|sandbox| sandbox.id.as_str() != id);
        self.pod
            .containers
            .retain(|container| container.id.as_str() != id);
        self.gone.retain(|gone| gone != id);
        self.unconfirmed.remove(id);
        if self.gone.len() == MAX_REMOVED_IDS {
            self.gone.pop_front();
        }
        self.gone.push_back(id.to_owned());
        self.pod.sandboxes.len() + self.pod.containers.len() != known
    }

    fn is_gone(&self, id: &str) -> bool {
        self.gone.iter().any(|gone| gone == id)
    }

    fn merge_sandbox(&mut self, new: RuntimeSandbox) {
        if self.is_gone(new.id.as_str()) {
            return;
        }
        match self.pod.sandboxes.iter_mut().find(|old| old.id == new.id) {
            Some(old)
                if old.state == SandboxState::NotReady && new.state == SandboxState::Ready => {}
            Some(old) => *old = new,
            None => {
                self.unconfirmed.insert(new.id.as_str().to_owned());
                self.pod.sandboxes.push(new);
            }
        }
    }

    fn merge_container(&mut self, new: RuntimeContainer) {
        if self.is_gone(new.id.as_str()) {
            return;
        }
        match self.pod.containers.iter_mut().find(|old| old.id == new.id) {
            Some(old) if age(new.state) < age(old.state) => {}
            // The sandbox stays as it was first observed: an event has to guess it.
            Some(old) => {
                *old = RuntimeContainer {
                    sandbox: old.sandbox.clone(),
                    ..new
                }
            }
            None => {
                self.unconfirmed.insert(new.id.as_str().to_owned());
                self.pod.containers.push(new);
            }
        }
    }
}

/// How far an instance has moved on its way; unknown ranks as running, so it replaces nothing later.
fn age(state: ContainerState) -> u8 {
    match state {
        ContainerState::Created => 0,
        ContainerState::Running | ContainerState::Unknown => 1,
        ContainerState::Exited => 2,
    }
}

#[cfg(test)]
mod tests {
    use logic_api::testing::bare;

    use super::*;

    fn picture(containers: &[(&str, ContainerState)]) -> RuntimePod {
        RuntimePod {
            containers: containers
                .iter()
                .map(|(id, state)| bare(id, "sandbox", id, *state))
                .collect(),
            ..RuntimePod::default()
        }
    }

    #[test]
    fn pictures_in_any_order_give_the_same_join() {
        use ContainerState::{Created, Exited, Running};
        let pictures = [
            picture(&[("a", Created)]),
            picture(&[("a", Running), ("b", Created)]),
            picture(&[("a", Exited), ("b", Running)]),
        ];
        let orders = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        for order in orders {
            let mut seen = PodRuntimeState::default();
            for at in order {
                seen.merge(pictures[at].clone());
            }
            assert_eq!(seen.pod(), &pictures[2], "order {order:?}");
        }
    }

    #[test]
    fn a_removed_instance_does_not_come_back_with_a_late_picture() {
        let mut seen = PodRuntimeState::new(picture(&[("a", ContainerState::Exited)]));
        assert!(seen.remove("a"));
        assert!(!seen.merge(picture(&[("a", ContainerState::Running)])));
        assert!(seen.pod().containers.is_empty());
    }

    /// As in a pod that restarts for days: ids come in no order.
    #[test]
    fn the_latest_removals_are_remembered_whatever_their_ids() {
        let mut seen = PodRuntimeState::default();
        for nth in (0..MAX_REMOVED_IDS * 3).rev() {
            let id = format!("{nth:04}");
            seen.remove(&id);
            seen.remove("9999");
            for late in [id.as_str(), "9999"] {
                assert!(
                    !seen.merge(picture(&[(late, ContainerState::Running)])),
                    "{late}"
                );
            }
        }
        assert_eq!(seen.gone.len(), MAX_REMOVED_IDS);
    }

    #[test]
    fn a_complete_picture_removes_what_it_lacks() {
        let mut seen = PodRuntimeState::new(picture(&[
            ("a", ContainerState::Exited),
            ("b", ContainerState::Running),
        ]));
        assert!(seen.replace(picture(&[("b", ContainerState::Running)])));
        assert_eq!(seen.pod().containers.len(), 1);
        assert!(!seen.replace(picture(&[("b", ContainerState::Running)])));
    }

    /// As when a call of a worker that died has its effect after its successor's list and before its statuses.
    #[test]
    fn what_came_while_a_complete_picture_was_taken_is_kept_until_the_next_one() {
        let running = picture(&[("a", ContainerState::Running)]);
        let mut seen = PodRuntimeState::default();
        seen.merge(running.clone());
        assert!(!seen.replace(RuntimePod::default()));
        assert_eq!((seen.pod(), seen.is_doubtful()), (&running, true));
        let mut gone = seen.clone();
        assert!(!seen.replace(running.clone()));
        assert_eq!((seen.pod(), seen.is_doubtful()), (&running, false));
        assert!(gone.replace(RuntimePod::default()));
        assert_eq!(
            (gone.pod(), gone.is_doubtful()),
            (&RuntimePod::default(), false)
        );
    }

    #[test]
    fn a_sandbox_that_was_not_ready_stays_so() {
        let sandbox = |state| RuntimePod {
            sandboxes: vec![RuntimeSandbox {
                id: "s".into(),
                attempt: 0,
                state,
                created_at: None,
                ips: Vec::new(),
                host_network: false,
                runtime_handler: String::new(),
            }],
            ..RuntimePod::default()
        };
        let mut seen = PodRuntimeState::new(sandbox(SandboxState::NotReady));
        assert!(!seen.merge(sandbox(SandboxState::Ready)));
        assert_eq!(seen.pod().sandboxes[0].state, SandboxState::NotReady);
    }
}
