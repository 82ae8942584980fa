//! The workers of all pods. They and their list outlive a pod manager that fails.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::watch;
use kernel::{Addr, ChildSpec, Recipient, Supervisor};
use logic_api::pod::requests::{
    self, CPU, MEMORY, OverheadPolicy, RequestBasis, ResourceAmounts, pod_requests,
};
use logic_api::quantity::{Quantity, compare};
use logic_api::types::{HistoryEvent, PodUid};
use logic_pods::PodWorkerConfig;
use logic_pods::admission::total_requests;
use logic_pods::resize::ResizeRefusal;
use logic_resources::container_gc::{PodStanding, Standings};
use state::events::{EventType, InvolvedObject};
use state::{status, user_namespaces};

use super::names::full_name;
use crate::cgroups::pod_cgroups::PodCgroups;
use crate::worker::{self, Peers, PodGoal};

/// A worker receives messages about its own pod alone: room for a burst of events of a pod with many containers.
const MAILBOX: usize = 64;

/// The workers; clones share one list.
#[derive(Debug, Clone)]
pub struct PodWorkers {
    supervisor: Supervisor,
    peers: Peers,
    /// Those of [`Peers::rules`], with the node's addresses as they are now.
    rules: Rc<watch::Sender<Arc<PodWorkerConfig>>>,
    list: Rc<RefCell<BTreeMap<PodUid, WorkerHandle>>>,
}

/// The pod manager's handle of one worker.
#[derive(Debug)]
struct WorkerHandle {
    addr: Addr<worker::Msg>,
    goal: watch::Sender<PodGoal>,
    /// Set when a message did not fit: the worker must fetch the state itself.
    missed: Rc<Cell<bool>>,
    /// Set when nothing of the pod runs any more: its allocated resources are free.
    stopped: Cell<bool>,
    /// Set when nothing of the pod is mounted any more either.
    unmounted: Cell<bool>,
    /// What the pod holds: computed once, read by the admission of every other pod.
    held: RefCell<ResourceAmounts>,
}

/// Whether a pod holds less CPU or memory than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldResources {
    Less,
    NoLess,
}

impl PodWorkers {
    pub fn new(supervisor: Supervisor, peers: Peers) -> Self {
        PodWorkers {
            supervisor,
            rules: Rc::new(watch::Sender::new(peers.rules.clone())),
            peers,
            list: Rc::default(),
        }
    }

    pub(super) fn spawn(&self, uid: &PodUid, desired: PodGoal) {
        let (addr, port) = kernel::mailbox(MAILBOX);
        let held = RefCell::new(total_requests(&desired.allocated));
        let (sender, receiver) = watch::channel(desired);
        let missed = Rc::new(Cell::new(false));
        let updates = worker::PodUpdates {
            goal: receiver,
            missed: missed.clone(),
            rules: self.rules.subscribe(),
        };
        let (peers, owned) = (self.peers.clone(), uid.clone());
        self.supervisor
            .spawn(ChildSpec::transient(uid.as_str()), port, move || {
                worker::PodWorker::new(owned.clone(), updates.clone(), peers.clone())
            });
        let worker = WorkerHandle {
            addr,
            goal: sender,
            missed,
            stopped: Cell::new(false),
            unmounted: Cell::new(false),
            held,
        };
        self.list.borrow_mut().insert(uid.clone(), worker);
    }

    /// The goal of a pod that has a worker.
    pub(super) fn desired(&self, uid: &PodUid) -> Option<PodGoal> {
        let list = self.list.borrow();
        Some(list.get(uid)?.goal.borrow().clone())
    }

    /// Changes the goal of a pod, and wakes its worker if it differs.
    pub(super) fn set_goal(&self, uid: &PodUid, desired: PodGoal) {
        let list = self.list.borrow();
        let Some(worker) = list.get(uid) else { return };
        let changed = worker.goal.send_if_modified(|current| {
            let differs = *current != desired;
            *current = desired;
            differs
        });
        if changed {
            worker.hold_allocated_too();
            worker.tell(worker::Msg::Wake);
        }
    }

    /// A pod's containers have what it is allocated: what it had beyond is free.
    pub(super) fn mark_resized(&self, uid: &PodUid) -> HeldResources {
        let list = self.list.borrow();
        list.get(uid)
            .map_or(HeldResources::NoLess, WorkerHandle::hold_allocated_only)
    }

    /// Sets the node's addresses that pods' statuses show, from the node's object; while that has none, those of
    /// the configuration count.
    pub(super) fn set_host_ips(&self, host_ips: Vec<String>) {
        let moved = !host_ips.is_empty() && self.rules.borrow().node.host_ips != host_ips;
        if moved {
            let mut rules = PodWorkerConfig::clone(&self.rules.borrow());
            rules.node.host_ips = host_ips;
            self.rules.send_replace(Arc::new(rules));
            self.tell_all(|| worker::Msg::Wake);
        }
    }

    /// Records an event about a pod.
    pub(super) fn record(&self, pod: &Pod, why: &HistoryEvent, now: Timestamp) {
        let object = InvolvedObject::pod(pod, why.object.as_deref());
        let (level, message) = (EventType::from(why.weight), why.message.clone());
        let recorder = &self.peers.recorder;
        recorder.record(now, level, object, &why.reason, message);
    }

    pub(super) fn tell(&self, uid: &PodUid, msg: worker::Msg) {
        if let Some(worker) = self.list.borrow().get(uid) {
            worker.tell(msg);
        }
    }

    pub(super) fn tell_all(&self, msg: impl Fn() -> worker::Msg) {
        for worker in self.list.borrow().values() {
            worker.tell(msg());
        }
    }

    /// Removes a worker that has ended; returns its last goal.
    pub(super) fn remove(&self, uid: &PodUid) -> Option<PodGoal> {
        self.release(uid);
        let worker = self.list.borrow_mut().remove(uid)?;
        Some(worker.goal.borrow().clone())
    }

    /// How long the dead containers of static pods that are gone are kept.
    pub(super) fn container_gc_period(&self) -> Duration {
        self.rules.borrow().container_gc_period
    }

    pub(super) fn pods(&self) -> BTreeMap<PodUid, Arc<Pod>> {
        let list = self.list.borrow();
        let pods = list
            .iter()
            .map(|(uid, worker)| (uid.clone(), worker.goal.borrow().allocated.clone()));
        pods.collect()
    }

    /// The pods whose resizes are deferred.
    pub(super) fn deferred_resizes(&self) -> Vec<PodUid> {
        let deferred = |goal: &PodGoal| matches!(goal.pending, Some((ResizeRefusal::Deferred, _)));
        let list = self.list.borrow();
        let waiting = list.iter().filter(|(_, worker)| {
            let goal = worker.goal.borrow();
            goal.is_run() && deferred(&goal)
        });
        waiting.map(|(uid, _)| uid.clone()).collect()
    }

    /// The full names of static pods that are ending.
    pub(super) fn ending_statics(&self) -> BTreeSet<String> {
        let list = self.list.borrow();
        let ending = list.values().filter_map(|worker| {
            let desired = worker.goal.borrow();
            desired
                .is_ending_static()
                .then(|| full_name(&desired.allocated))
        });
        ending.collect()
    }

    /// Marks that nothing of a pod runs any more: what it had to itself is free.
    pub(super) fn mark_stopped(&self, uid: &PodUid) {
        if let Some(worker) = self.list.borrow().get(uid) {
            worker.stopped.set(true);
        }
        self.release(uid);
    }

    /// Marks that nothing of a pod is mounted any more.
    pub(super) fn mark_unmounted(&self, uid: &PodUid) {
        if let Some(worker) = self.list.borrow().get(uid) {
            worker.unmounted.set(true);
        }
    }

    /// How far each pod is that has a worker.
    pub(super) fn standings(&self) -> Standings {
        let list = self.list.borrow();
        let standing = |(uid, worker): (&PodUid, &WorkerHandle)| {
            let is_left = worker.stopped.get() && !worker.goal.borrow().is_end();
            let standing = match is_left {
                true => PodStanding::Ended,
                false => PodStanding::Active,
            };
            (uid.clone(), standing)
        };
        list.iter().map(standing).collect()
    }

    /// The pods that hold resources, with their allocated resources.
    pub(super) fn active(&self) -> Vec<Arc<Pod>> {
        let list = self.list.borrow();
        let active = list.values().filter(|worker| !worker.stopped.get());
        active
            .map(|worker| worker.goal.borrow().allocated.clone())
            .collect()
    }

    /// The pods of which something may still run, or is still mounted.
    pub(super) fn unfinished(&self) -> BTreeSet<PodUid> {
        let list = self.list.borrow();
        let unfinished = list.iter().filter(|(_, worker)| !worker.unmounted.get());
        unfinished.map(|(uid, _)| uid.clone()).collect()
    }

    /// Has the user namespace manager release the ids of pods of an earlier life that are unknown now.
    pub(super) fn retain_user_namespaces<'a>(&self, unmanaged: impl Iterator<Item = &'a PodUid>) {
        let list = self.list.borrow();
        let mut pods: BTreeSet<PodUid> = unmanaged.cloned().collect();
        pods.extend(list.keys().cloned());
        // Sent again with the next clean-up; until then only ids stay in use.
        drop(
            self.peers
                .state
                .users
                .tell(user_namespaces::Msg::Retain { pods }),
        );
    }

    /// Tells the status manager and the object manager of pods of which nothing is left.
    pub(super) fn tell_ended<'a>(&self, ended: impl IntoIterator<Item = &'a PodUid>) {
        for uid in ended {
            let forget = status::Msg::Forget { uid: uid.clone() };
            if let Err(full) = self.peers.state.statuses.tell(forget) {
                tracing::warn!("the end of a pod is told later: {full}");
            }
            if let Some(objects) = &self.peers.over {
                // Without it the objects stay until the next clean-up.
                let _ = objects.tell(uid.clone());
            }
        }
    }

    /// Tells which pods have a worker.
    pub(super) fn tell_uids(&self, listener: Option<&Recipient<BTreeSet<PodUid>>>) {
        if let Some(listener) = listener {
            // Sent again with the next clean-up; until then objects of pods that are gone stay.
            let _ = listener.tell(self.list.borrow().keys().cloned().collect());
        }
    }

    /// Has the volume manager remove the volumes of unknown pods.
    pub(super) fn retain_volumes<'a>(&self, others: impl Iterator<Item = &'a PodUid>) {
        let mut pods: BTreeSet<PodUid> = others.cloned().collect();
        pods.extend(self.list.borrow().keys().cloned());
        // Sent again with the next relist; until then leftovers stay.
        drop(self.peers.volumes.tell(volumes::Msg::Pods(pods)));
    }

    /// Has the storage plugins list what is on the node of pods that are gone, so that it is unmounted and removed.
    pub(super) fn find_volumes(&self) {
        // Asked again for the next folder that is found.
        drop(self.peers.volumes.tell(volumes::Msg::FindLeftovers));
    }

    /// Upstream's `/var/lib/kubelet`.
    pub(super) fn root_dir(&self) -> PathBuf {
        self.peers.rules.node.root_dir.clone()
    }

    /// The folder of pods' logs, and that of the links to them.
    pub(super) fn log_folders(&self) -> (PathBuf, PathBuf) {
        let node = &self.peers.rules.node;
        (node.pod_logs_dir.clone(), node.container_logs_dir.clone())
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(super) fn volumes(&self) -> Addr<volumes::Msg> {
        self.peers.volumes.clone()
    }

    pub(super) fn cgroups(&self) -> PodCgroups {
        self.peers.cgroups.clone()
    }

    /// The sum of what all pods but this one hold.
    pub(super) fn used(&self, except: &PodUid) -> ResourceAmounts {
        let list = self.list.borrow();
        let others = list
            .iter()
            .filter(|(uid, worker)| *uid != except && !worker.stopped.get());
        let mut used = ResourceAmounts::new();
        for (_, worker) in others {
            requests::add(&mut used, &worker.held.borrow());
        }
        used
    }

    /// The UIDs of the pods that should run.
    pub(super) fn running(&self) -> Vec<PodUid> {
        let list = self.list.borrow();
        let running = list
            .iter()
            .filter(|(_, worker)| !worker.goal.borrow().is_end());
        running.map(|(uid, _)| uid.clone()).collect()
    }

    /// The worker of the pod of this UID, namespace/name or name; a static pod's name also without the
    /// node's, as its manifest has it.
    pub(super) fn find(&self, wanted: &str) -> Option<Addr<worker::Msg>> {
        let list = self.list.borrow();
        let by_name = || {
            // Of two pods of one name the one that goes on is meant.
            let (ending, current): (Vec<_>, Vec<_>) = list
                .values()
                .partition(|worker| worker.goal.borrow().is_end());
            current.into_iter().chain(ending).find(|worker| {
                let desired = worker.goal.borrow();
                let name = full_name(&desired.allocated);
                let node = desired
                    .allocated
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.node_name.clone());
                let own = name.strip_suffix(&format!("-{}", node.unwrap_or_default()));
                let named = |full: &str| {
                    full == wanted || full.split_once('/').is_some_and(|(_, name)| name == wanted)
                };
                named(&name) || own.is_some_and(named)
            })
        };
        let worker = list.get(&PodUid::from(wanted)).or_else(by_name)?;
        Some(worker.addr.clone())
    }

    /// Each pod's full name, and whether its goal is to run or to end.
    pub(super) fn goals(&self) -> BTreeMap<String, &'static str> {
        let list = self.list.borrow();
        let goals = list.values().map(|worker| {
            let desired = worker.goal.borrow();
            (full_name(&desired.allocated), desired.word())
        });
        goals.collect()
    }
}

impl WorkerHandle {
    /// Adds what the pod is allocated now: until that is carried out it holds what it had as well.
    fn hold_allocated_too(&self) {
        let allocated = self.allocated();
        requests::raise(&mut self.held.borrow_mut(), allocated);
    }

    fn hold_allocated_only(&self) -> HeldResources {
        let before = self.held.replace(self.allocated());
        let now = self.held.borrow();
        let none = Quantity::zero();
        let shrank = |name| {
            let (now, before) = (now.get(name), before.get(name));
            compare(now.unwrap_or(&none), before.unwrap_or(&none)).is_lt()
        };
        match [CPU, MEMORY].into_iter().any(shrank) {
            true => HeldResources::Less,
            false => HeldResources::NoLess,
        }
    }

    fn allocated(&self) -> ResourceAmounts {
        let goal = self.goal.borrow();
        pod_requests(&goal.allocated, RequestBasis::Spec, OverheadPolicy::Counted)
    }

    /// A full mailbox loses nothing: the goal is in the watch, and the worker fetches the runtime's state
    /// when it handles the messages that did fit.
    fn tell(&self, msg: worker::Msg) {
        if let Err(full) = self.addr.tell(msg) {
            tracing::warn!("pod worker is behind: {full}");
            self.missed.set(true);
        }
    }
}
