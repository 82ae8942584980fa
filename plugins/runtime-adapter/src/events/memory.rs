//! What is known of containers and pods: so that an exit can be told before CRI is asked, and an event about a
//! deleted one still says whose it was.

use std::collections::BTreeMap;

use prost::Message;
use proto::cri::{ContainerEventResponse, PodSandbox, PodSandboxState, PodSandboxStatus};

use super::happening::What;
use super::pod::Pod;

/// Eight times the pods and containers of a crowded node; some 1 MB when full.
const MOST_CONTAINERS: usize = 8192;
/// Bytes. A pod of two containers takes some 3 kB: a crowded node fills a third.
const MOST_TOLD: usize = 10 << 20;
/// Bytes. The names of a pod take half a kilobyte.
const MOST_NAMES: usize = 2 << 20;

/// Which pod each container is in, what each pod is called, and what was told of it last. A cache: lists fill it,
/// events keep it. Pods are kept as they are on the wire, which takes a third of the room.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Container to sandbox; a sandbox to itself.
    sandboxes: Bounded<String>,
    /// By sandbox: a [`PodSandboxStatus`] with its names alone, of pods that nothing was told of yet or that are gone.
    names: Bounded<Vec<u8>>,
    /// By sandbox: a [`ContainerEventResponse`] with the pod alone.
    told: Bounded<Vec<u8>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            sandboxes: Bounded::new(MOST_CONTAINERS),
            names: Bounded::new(MOST_NAMES),
            told: Bounded::new(MOST_TOLD),
        }
    }

    pub(crate) fn sandbox_of(&self, container: &str) -> Option<&String> {
        self.sandboxes.get(container)
    }

    /// Remembers whose a container is; an empty sandbox is nobody's.
    pub(crate) fn learn_container(&mut self, container: &str, sandbox: &str) {
        if sandbox.is_empty() || self.sandboxes.get(container).is_some() {
            return;
        }
        for id in [container, sandbox] {
            self.sandboxes.insert(id, sandbox.to_owned(), 1);
        }
    }

    pub(crate) fn learn_pod(&mut self, sandbox: PodSandbox) {
        let status = PodSandboxStatus {
            id: sandbox.id,
            metadata: sandbox.metadata,
            labels: sandbox.labels,
            ..Default::default()
        };
        self.learn_names(status);
    }

    fn learn_names(&mut self, status: PodSandboxStatus) {
        let names = PodSandboxStatus {
            id: status.id.clone(),
            metadata: status.metadata,
            labels: status.labels,
            state: PodSandboxState::SandboxNotready.into(),
            ..Default::default()
        };
        let names = names.encode_to_vec();
        let weight = names.len();
        self.names.insert(&status.id, names, weight);
    }

    /// Remembers what is told of a pod, and what has become of the container that it is told for.
    pub(crate) fn learn_told(&mut self, sandbox: &str, pod: &Pod, container: &str, what: What) {
        if what == What::Deleted {
            self.sandboxes.remove(container);
        }
        if what == What::Deleted && container == sandbox {
            self.told.remove(sandbox);
            if let Some(status) = &pod.status {
                self.learn_names(status.clone());
            }
        }
        // Of a pod that is gone events of its containers may still come: its names are enough for those.
        if self.sandboxes.get(sandbox).is_none() {
            return;
        }
        let event = ContainerEventResponse {
            pod_sandbox_status: pod.status.clone(),
            containers_statuses: pod.containers.clone(),
            ..Default::default()
        };
        let event = event.encode_to_vec();
        let weight = event.len();
        self.told.insert(sandbox, event, weight);
    }

    /// Returns what was told of a pod last.
    pub(crate) fn told(&self, sandbox: &str) -> Option<Pod> {
        let event = ContainerEventResponse::decode(self.told.get(sandbox)?.as_slice()).ok()?;
        Some(Pod {
            status: event.pod_sandbox_status,
            containers: event.containers_statuses,
        })
    }

    /// Returns the status of a pod that the runtime does not know any more: its names, not ready.
    pub(crate) fn names(&self, sandbox: &str) -> Option<PodSandboxStatus> {
        if let Some(status) = self.told(sandbox).and_then(|told| told.status) {
            return Some(PodSandboxStatus {
                id: status.id,
                metadata: status.metadata,
                labels: status.labels,
                state: PodSandboxState::SandboxNotready.into(),
                ..Default::default()
            });
        }
        PodSandboxStatus::decode(self.names.get(sandbox)?.as_slice()).ok()
    }
}

/// A map that forgets what was put in longest ago when its values weigh too much.
#[derive(Debug)]
struct Bounded<V> {
    most: usize,
    weight: usize,
    values: BTreeMap<String, Kept<V>>,
    oldest_first: BTreeMap<u64, String>,
    turn: u64,
}

#[derive(Debug)]
struct Kept<V> {
    value: V,
    weight: usize,
    turn: u64,
}

impl<V> Bounded<V> {
    fn new(most: usize) -> Self {
        Self {
            most,
            weight: 0,
            values: BTreeMap::new(),
            oldest_first: BTreeMap::new(),
            turn: 0,
        }
    }

    fn get(&self, key: &str) -> Option<&V> {
        self.values.get(key).map(|kept| &kept.value)
    }

    fn insert(&mut self, key: &str, value: V, weight: usize) {
        self.remove(key);
        self.turn += 1;
        self.weight += weight;
        self.oldest_first.insert(self.turn, key.to_owned());
        let kept = Kept {
            value,
            weight,
            turn: self.turn,
        };
        self.values.insert(key.to_owned(), kept);
        while self.weight > self.most {
            let Some((_, oldest)) = self.oldest_first.pop_first() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some(kept) = self.values.remove(key) {
            self.weight -= kept.weight;
            self.oldest_first.remove(&kept.turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::cri::{ContainerStatus, PodSandboxMetadata};

    use super::*;

    #[test]
    fn the_oldest_is_forgotten_when_it_is_full() {
        let mut map = Bounded::new(2);
        for key in ["a", "b", "a", "c"] {
            map.insert(key, key.to_uppercase(), 1);
        }
        assert_eq!(map.get("a").map(String::as_str), Some("A"));
        assert_eq!(map.get("b"), None);
        assert_eq!(map.get("c").map(String::as_str), Some("C"));
        map.insert("d", "D".to_owned(), 2);
        assert_eq!(map.values.len(), 1);
        map.insert("heavier than all", String::new(), 3);
        assert!(map.values.is_empty() && map.oldest_first.is_empty());
        assert_eq!(map.weight, 0);
    }

    #[test]
    fn removed_keys_leave_nothing_behind() {
        let mut map = Bounded::new(2);
        for turn in 0..1000 {
            map.insert(&turn.to_string(), (), 1);
            map.remove(&turn.to_string());
        }
        assert!(map.values.is_empty() && map.oldest_first.is_empty());
        assert_eq!(map.weight, 0);
    }

    fn pod() -> Pod {
        let status = PodSandboxStatus {
            id: "s".to_owned(),
            metadata: Some(PodSandboxMetadata {
                uid: "u".to_owned(),
                ..Default::default()
            }),
            labels: [("l".to_owned(), "m".to_owned())].into(),
            annotations: [("a".to_owned(), "b".to_owned())].into(),
            ..Default::default()
        };
        let container = ContainerStatus {
            id: "c".to_owned(),
            ..Default::default()
        };
        Pod::new(Some(status), vec![container])
    }

    #[test]
    fn a_pod_is_remembered_as_it_was_told_and_by_its_names_when_it_is_gone() {
        let mut memory = Memory::new();
        memory.learn_container("c", "s");
        memory.learn_told("s", &pod(), "c", What::Started);
        assert_eq!(memory.sandbox_of("c").map(String::as_str), Some("s"));
        assert_eq!(memory.told("s"), Some(pod()));

        memory.learn_told("s", &pod(), "s", What::Deleted);
        assert_eq!(memory.told("s"), None);
        memory.learn_told("s", &pod(), "c", What::Deleted);
        assert_eq!(memory.told("s"), None, "a pod that is gone stays so");
        let names = memory.names("s").unwrap();
        assert_eq!(names.metadata.unwrap().uid, "u");
        assert_eq!(names.labels["l"], "m");
        assert_eq!(
            PodSandboxState::try_from(names.state),
            Ok(PodSandboxState::SandboxNotready)
        );
        assert_eq!(memory.sandbox_of("c"), None);
    }

    #[test]
    fn a_container_of_no_sandbox_is_nobodys() {
        let mut memory = Memory::new();
        memory.learn_container("c", "");
        assert_eq!(memory.sandbox_of("c"), None);
    }
}
