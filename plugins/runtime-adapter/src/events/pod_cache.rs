//! What is known of containers and pods: so that an exit can be sent before CRI is asked, and an event about a
//! deleted one still says whose it was.

use std::collections::BTreeMap;

use prost::Message;
use proto::cri::{ContainerEventResponse, PodSandbox, PodSandboxState, PodSandboxStatus};

use super::containerd_event::ContainerdEventKind;
use super::pod::PodStatuses;

/// Entries: eight times the pods and containers of a crowded node; some 1 MB when full.
const MAX_CONTAINERS: usize = 8192;
/// Bytes. A pod of two containers takes some 3 kB: a crowded node fills a third.
const MAX_STATUS_BYTES: usize = 10 << 20;
/// Bytes. The names of a pod take half a kilobyte.
const MAX_NAME_BYTES: usize = 2 << 20;

/// Which pod each container is in, what each pod is called, and what was sent of it last. A cache: lists fill it,
/// events keep it. Pods are kept as they are on the wire, which takes a third of the room.
#[derive(Debug)]
pub(crate) struct PodCache {
    /// Container to sandbox; a sandbox to itself.
    sandboxes: WeightedCache<String>,
    /// By sandbox: a [`PodSandboxStatus`] with its names alone, of pods without an event so far, and of deleted ones.
    names: WeightedCache<Vec<u8>>,
    last_sent: WeightedCache<SentPod>,
}

/// A pod as it was sent.
#[derive(Debug)]
struct SentPod {
    /// A [`ContainerEventResponse`] with the pod alone.
    event: Vec<u8>,
    extent: Extent,
}

/// What of a pod is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of its containers were read, or told since.
    Whole,
    /// An exit was told before the pod was read.
    Part,
}

impl PodCache {
    pub(crate) fn new() -> Self {
        Self {
            sandboxes: WeightedCache::new(MAX_CONTAINERS),
            names: WeightedCache::new(MAX_NAME_BYTES),
            last_sent: WeightedCache::new(MAX_STATUS_BYTES),
        }
    }

    pub(crate) fn sandbox_of(&self, container: &str) -> Option<&String> {
        self.sandboxes.get(container)
    }

    /// Remembers the sandbox of a container; an empty sandbox id is ignored.
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

    /// Remembers what is sent of a pod, and what has become of the container that the event is about.
    pub(crate) fn learn_sent(
        &mut self,
        sandbox: &str,
        pod: &PodStatuses,
        extent: Extent,
        (container, what): (&str, ContainerdEventKind),
    ) {
        if what == ContainerdEventKind::Deleted {
            self.sandboxes.remove(container);
        }
        if what == ContainerdEventKind::Deleted && container == sandbox {
            self.last_sent.remove(sandbox);
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
        let sent = SentPod { event, extent };
        self.last_sent.insert(sandbox, sent, weight);
    }

    /// Returns what was sent of a pod last.
    pub(crate) fn last_sent(&self, sandbox: &str) -> Option<PodStatuses> {
        let sent = self.last_sent.get(sandbox)?;
        let event = ContainerEventResponse::decode(sent.event.as_slice()).ok()?;
        Some(PodStatuses {
            status: event.pod_sandbox_status,
            containers: event.containers_statuses,
        })
    }

    /// How much of a pod what was sent of it last has.
    pub(crate) fn extent(&self, sandbox: &str) -> Extent {
        let sent = self.last_sent.get(sandbox);
        sent.map_or(Extent::Part, |sent| sent.extent)
    }

    /// Returns the status of a pod that the runtime does not know any more: its names, not ready.
    pub(crate) fn names(&self, sandbox: &str) -> Option<PodSandboxStatus> {
        if let Some(status) = self.last_sent(sandbox).and_then(|sent| sent.status) {
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
struct WeightedCache<V> {
    most: usize,
    weight: usize,
    values: BTreeMap<String, CacheEntry<V>>,
    oldest_first: BTreeMap<u64, String>,
    turn: u64,
}

#[derive(Debug)]
struct CacheEntry<V> {
    value: V,
    weight: usize,
    turn: u64,
}

impl<V> WeightedCache<V> {
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
        let kept = CacheEntry {
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
        let mut map = WeightedCache::new(2);
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
        let mut map = WeightedCache::new(2);
        for turn in 0..1000 {
            map.insert(&turn.to_string(), (), 1);
            map.remove(&turn.to_string());
        }
        assert!(map.values.is_empty() && map.oldest_first.is_empty());
        assert_eq!(map.weight, 0);
    }

    fn pod() -> PodStatuses {
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
        PodStatuses::new(Some(status), vec![container])
    }

    #[test]
    fn a_pod_is_remembered_as_it_was_told_and_by_its_names_when_it_is_gone() {
        let mut memory = PodCache::new();
        memory.learn_container("c", "s");
        assert_eq!(memory.extent("s"), Extent::Part);
        memory.learn_sent(
            "s",
            &pod(),
            Extent::Whole,
            ("c", ContainerdEventKind::Started),
        );
        assert_eq!(memory.extent("s"), Extent::Whole);
        assert_eq!(memory.sandbox_of("c").map(String::as_str), Some("s"));
        assert_eq!(memory.last_sent("s"), Some(pod()));

        memory.learn_sent(
            "s",
            &pod(),
            Extent::Whole,
            ("s", ContainerdEventKind::Deleted),
        );
        assert_eq!(memory.last_sent("s"), None);
        memory.learn_sent(
            "s",
            &pod(),
            Extent::Whole,
            ("c", ContainerdEventKind::Deleted),
        );
        assert_eq!(memory.last_sent("s"), None, "a pod that is gone stays so");
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
        let mut memory = PodCache::new();
        memory.learn_container("c", "");
        assert_eq!(memory.sandbox_of("c"), None);
    }
}
