//! What the node knows: records, and of containers also what their monitors told.

use std::collections::{BTreeMap, BTreeSet};

use proto::cri::{ContainerState, PodSandboxState};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::layout::short;
use crate::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord, is_id};

/// A sandbox in memory.
#[derive(Debug)]
pub(crate) struct SandboxEntry {
    pub(crate) record: SandboxRecord,
    /// The task that follows its monitor.
    pub(super) follower: Option<AbortHandle>,
}

/// A container in memory.
#[derive(Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) record: ContainerRecord,
    /// The process id of its init while it lives.
    pub(crate) pid: Option<i32>,
    /// Turns true at its end.
    pub(crate) ended: watch::Sender<bool>,
    /// Whether a call is making it right now.
    pub(crate) in_making: bool,
    /// Whether a call is removing it right now: its record may be gone from the disk already.
    pub(crate) in_removal: bool,
}

impl ContainerEntry {
    pub(crate) fn new(record: ContainerRecord) -> ContainerEntry {
        let ended = matches!(record.phase, ContainerPhase::Exited(_));
        ContainerEntry {
            record,
            pid: None,
            ended: watch::Sender::new(ended),
            in_making: false,
            in_removal: false,
        }
    }
}

impl ContainerRecord {
    /// Returns the state that CRI shows; none while it is being made.
    pub(crate) fn state(&self) -> Option<ContainerState> {
        match (&self.phase, self.started) {
            (ContainerPhase::Making, _) => None,
            (ContainerPhase::Made, 0) => Some(ContainerState::ContainerCreated),
            (ContainerPhase::Made, _) => Some(ContainerState::ContainerRunning),
            (ContainerPhase::Exited(_), _) => Some(ContainerState::ContainerExited),
        }
    }

    pub(crate) fn running(&self) -> bool {
        self.state() == Some(ContainerState::ContainerRunning)
    }
}

impl SandboxRecord {
    /// Returns the state that CRI shows; none while it is being made.
    pub(crate) fn state(&self) -> Option<PodSandboxState> {
        match self.phase {
            SandboxPhase::Making => None,
            SandboxPhase::Ready => Some(PodSandboxState::SandboxReady),
            SandboxPhase::NotReady => Some(PodSandboxState::SandboxNotready),
        }
    }
}

/// All of them, by id.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    sandboxes: BTreeMap<String, SandboxEntry>,
    containers: BTreeMap<String, ContainerEntry>,
}

/// Finds the entry of an id, or of the one id that begins so.
fn find<'a, T>(entries: &'a BTreeMap<String, T>, id: &str) -> Option<&'a T> {
    if id.is_empty() {
        return None;
    }
    let from = entries.range(id.to_owned()..);
    let mut begun = from.take_while(|(key, _)| key.starts_with(id));
    let (key, first) = begun.next()?;
    (key == id || begun.next().is_none()).then_some(first)
}

impl NodeState {
    /// Returns a sandbox that has been told of.
    pub(crate) fn sandbox(&self, id: &str) -> Option<&SandboxEntry> {
        find(&self.sandboxes, id).filter(|entry| entry.record.state().is_some())
    }

    /// Returns a container that has been told of.
    pub(crate) fn container(&self, id: &str) -> Option<&ContainerEntry> {
        find(&self.containers, id).filter(|entry| entry.record.state().is_some())
    }

    /// Returns a copy of a sandbox's record, in the making or not.
    pub(crate) fn any_sandbox(&self, id: &str) -> Option<SandboxRecord> {
        self.sandboxes.get(id).map(|entry| entry.record.clone())
    }

    /// Returns a copy of a container's record, in the making or not.
    pub(crate) fn any_container(&self, id: &str) -> Option<ContainerRecord> {
        self.containers.get(id).map(|entry| entry.record.clone())
    }

    pub(crate) fn container_mut(&mut self, id: &str) -> Option<&mut ContainerEntry> {
        self.containers.get_mut(id)
    }

    /// Returns every sandbox that has been told of.
    pub(crate) fn sandboxes(&self) -> impl Iterator<Item = &SandboxEntry> {
        let all = self.sandboxes.values();
        all.filter(|entry| entry.record.state().is_some())
    }

    /// Returns every container that has been told of.
    pub(crate) fn containers(&self) -> impl Iterator<Item = &ContainerEntry> {
        let all = self.containers.values();
        all.filter(|entry| entry.record.state().is_some())
    }

    /// Returns the records of a sandbox's containers, those in the making too, oldest first.
    pub(crate) fn records_of(&self, sandbox: &str) -> Vec<ContainerRecord> {
        let all = self.containers.values();
        let mut own: Vec<_> = all
            .filter(|entry| entry.record.sandbox == sandbox)
            .map(|entry| entry.record.clone())
            .collect();
        own.sort_by_key(|record| record.created);
        own
    }

    /// Returns every sandbox's record, of those in the making too.
    pub(super) fn all_sandboxes(&self) -> Vec<SandboxRecord> {
        let all = self.sandboxes.values();
        all.map(|entry| entry.record.clone()).collect()
    }

    /// Whether a sandbox is known, told of or not, whose monitor has a folder of this name.
    pub(super) fn has_sandbox_of_monitor(&self, name: &str) -> bool {
        let mut from = self.sandboxes.range(name.to_owned()..);
        from.next().is_some_and(|(id, _)| short(id) == name)
    }

    /// Returns the ids of sandboxes that are not known, and have containers.
    pub(super) fn pods_of_orphans(&self) -> BTreeSet<String> {
        self.containers
            .values()
            .map(|entry| &entry.record.sandbox)
            .filter(|sandbox| !self.sandboxes.contains_key(*sandbox) && is_id(sandbox))
            .cloned()
            .collect()
    }

    /// Returns the record of the sandbox that has this name.
    pub(crate) fn sandbox_named(&self, name: &str) -> Option<&SandboxRecord> {
        let mut all = self.sandboxes.values();
        all.find(|entry| entry.record.name == name)
            .map(|entry| &entry.record)
    }

    /// Returns the container that has this name.
    pub(crate) fn container_named(&self, name: &str) -> Option<&ContainerEntry> {
        self.containers
            .values()
            .find(|entry| entry.record.name == name)
    }

    /// Adds a sandbox, or replaces its record.
    pub(crate) fn put_sandbox(&mut self, record: SandboxRecord) {
        match self.sandboxes.get_mut(&record.id) {
            Some(entry) => entry.record = record,
            None => {
                let id = record.id.clone();
                let follower = None;
                self.sandboxes.insert(id, SandboxEntry { record, follower });
            }
        }
    }

    pub(crate) fn put_container(&mut self, entry: ContainerEntry) {
        self.containers.insert(entry.record.id.clone(), entry);
    }

    pub(crate) fn remove_sandbox(&mut self, id: &str) {
        self.unfollow(id);
        self.sandboxes.remove(id);
    }

    pub(crate) fn remove_container(&mut self, id: &str) {
        self.containers.remove(id);
    }

    /// Whether a task follows the sandbox's monitor.
    pub(super) fn followed(&self, id: &str) -> bool {
        let entry = self.sandboxes.get(id);
        let follower = entry.and_then(|entry| entry.follower.as_ref());
        follower.is_some_and(|task| !task.is_finished())
    }

    pub(super) fn set_follower(&mut self, id: &str, task: AbortHandle) {
        match self.sandboxes.get_mut(id) {
            Some(entry) => entry.follower = Some(task),
            None => task.abort(),
        }
    }

    /// Ends the task that follows the sandbox's monitor.
    pub(crate) fn unfollow(&mut self, id: &str) {
        let entry = self.sandboxes.get_mut(id);
        if let Some(task) = entry.and_then(|entry| entry.follower.take()) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_may_be_shortened_until_it_is_another_ones_too() {
        let entries = BTreeMap::from([("ab1".to_owned(), 1), ("ab2".to_owned(), 2)]);
        assert_eq!(find(&entries, "ab1"), Some(&1));
        assert_eq!(find(&entries, "ab"), None);
        assert_eq!(find(&entries, ""), None);
        assert_eq!(find(&entries, "ab12"), None);
        let entries = BTreeMap::from([("ab".to_owned(), 1), ("abc".to_owned(), 2)]);
        assert_eq!(find(&entries, "ab"), Some(&1));
        assert_eq!(find(&entries, "abc"), Some(&2));
    }
}
