//! What is known of containers and pods, so that an event about a deleted one still says whose it was.

use std::collections::{BTreeMap, VecDeque};

use proto::cri::{PodSandboxMetadata, PodSandboxState, PodSandboxStatus};

/// Eight times the pods and containers of a crowded node; some 2 MB when full.
const MOST: usize = 8192;

/// Which pod each container is in, and what each pod is called. A cache: lists fill it, events keep it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Container to sandbox; a sandbox to itself.
    sandboxes: Bounded<String>,
    pods: Bounded<PodSandboxMetadata>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            sandboxes: Bounded::new(MOST),
            pods: Bounded::new(MOST),
        }
    }

    pub(crate) fn sandbox_of(&self, container: &str) -> Option<&String> {
        self.sandboxes.get(container)
    }

    pub(crate) fn learn_container(&mut self, container: &str, sandbox: &str) {
        self.sandboxes.insert(container, sandbox.to_owned());
    }

    pub(crate) fn learn_pod(&mut self, sandbox: &str, metadata: PodSandboxMetadata) {
        self.pods.insert(sandbox, metadata);
    }

    pub(crate) fn forget(&mut self, id: &str) {
        self.sandboxes.remove(id);
        self.pods.remove(id);
    }

    /// Returns the status of a pod that the runtime does not know any more: its names, not ready.
    pub(crate) fn remembered(&self, sandbox: &str) -> Option<PodSandboxStatus> {
        Some(PodSandboxStatus {
            id: sandbox.to_owned(),
            metadata: Some(self.pods.get(sandbox)?.clone()),
            state: PodSandboxState::SandboxNotready.into(),
            ..Default::default()
        })
    }
}

/// A map that forgets its oldest key when it is full.
#[derive(Debug)]
struct Bounded<V> {
    most: usize,
    values: BTreeMap<String, V>,
    oldest_first: VecDeque<String>,
}

impl<V> Bounded<V> {
    fn new(most: usize) -> Self {
        Self {
            most,
            values: BTreeMap::new(),
            oldest_first: VecDeque::new(),
        }
    }

    fn get(&self, key: &str) -> Option<&V> {
        self.values.get(key)
    }

    fn insert(&mut self, key: &str, value: V) {
        if self.values.insert(key.to_owned(), value).is_some() {
            return;
        }
        self.oldest_first.push_back(key.to_owned());
        // Removed keys stay in the queue until they are the oldest: ids do not come again.
        while self.oldest_first.len() > self.most {
            if let Some(oldest) = self.oldest_first.pop_front() {
                self.values.remove(&oldest);
            }
        }
    }

    fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_when_it_is_full() {
        let mut map = Bounded::new(2);
        for key in ["a", "b", "b", "c"] {
            map.insert(key, key.to_uppercase());
        }
        assert_eq!(map.get("a"), None);
        assert_eq!(map.get("b").map(String::as_str), Some("B"));
        assert_eq!(map.get("c").map(String::as_str), Some("C"));
    }

    #[test]
    fn a_pod_is_remembered_by_its_names_until_it_is_forgotten() {
        let mut memory = Memory::new();
        memory.learn_container("c", "s");
        memory.learn_pod(
            "s",
            PodSandboxMetadata {
                uid: "u".to_owned(),
                ..Default::default()
            },
        );
        assert_eq!(memory.sandbox_of("c").map(String::as_str), Some("s"));
        assert_eq!(memory.remembered("s").unwrap().metadata.unwrap().uid, "u");
        memory.forget("s");
        assert_eq!(memory.remembered("s"), None);
    }
}
