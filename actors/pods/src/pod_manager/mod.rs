//! The pods that this node should run, and the worker of each.
//!
//! - **Owns** the desired pods by source, one worker per pod, and the name reservations.
//! - **Hears** complete sets of desired pods from the sources, observations from PLEG, `Finished` from workers.
//! - **Tells** each worker its pod's goal and what PLEG observed of its pod.
//! - **Never** decides what happens inside a pod, and never ends a pod before every source has sent its pods
//!   once: only then orphans are known.
//!
//! Upstream: pkg/kubelet/kubelet.go (syncLoopIteration), pkg/kubelet/pod_workers.go (UpdatePod,
//! allowPodStart), pkg/kubelet/kubelet_pods.go (HandlePodCleanups), 1.36.

mod admit;
mod assignments;
pub mod claims;
pub mod devices;
mod leftovers;
mod listing;
mod messages;
mod names;
mod orphans;
mod pod_folders;
mod resize;
mod sources;
mod standing;
#[cfg(test)]
mod tests;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kernel::{Actor, Addr, Context, Exit, Recipient, TimerId};
use logic_api::pod::PodView;
use logic_api::types::{PodFailure, PodUid};
use logic_placement::devices::{DevicePreferences, PreferenceQuestion};
use logic_pods::admission::NodeShutdown;
use logic_pods::api::mirrors::StaticPodSet;
use logic_pods::status::terminal_on_arrival::{PodArrival, classify_arrival};
use logic_resources::node::{NodeFacts, Support};
use logic_resources::thresholds::Signal;
use serde::Serialize;
use state::checkpoints;

use self::admit::DeferredPod;
pub use self::leftovers::Leftovers;
pub use self::listing::PodLookup;
pub use self::messages::{Msg, NodeChange, PodQuery, PodSource, RefusedManifests};
use self::names::{PodNameReservations, by_creation, full_name, uid_of};
use self::orphans::UnmanagedPods;
use self::resize::{PodResizes, RetryTrigger};
use self::sources::SourcedPods;
use self::workers::HeldResources;
pub use self::workers::PodWorkers;
use crate::runtime::pleg::{self, RuntimeReport};
use crate::worker::{self, PodGoal, WorkerReport};

/// Room for an event from each of 1,000 pods starting at once, four times: PLEG sends the most.
pub const MAILBOX: usize = 4096;

/// How many pods there are, and which are deferred.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: BTreeMap<String, &'static str>,
    pub sources: BTreeMap<PodSource, usize>,
    pub missing_sources: Vec<PodSource>,
    /// Deferred pods by full name, with the reason.
    pub deferred: BTreeMap<String, String>,
}

/// The actors that the pod manager works with, besides the workers.
#[derive(Debug, Clone)]
pub struct Peers {
    pub pleg: Addr<pleg::Msg>,
    pub checkpoints: Addr<checkpoints::Msg>,
    /// The mirror pod manager; none on a node without an API server.
    pub mirrors: Option<Recipient<StaticPodSet>>,
    /// The container manager; none where no cgroups are managed.
    pub changed: Option<Recipient<PodsChanged>>,
    /// Gets the pods that have a worker: the object manager; none on a node without an API server.
    pub workers: Option<Recipient<BTreeSet<PodUid>>>,
}

/// Pods that hold resources have come, gone or changed. One stands for any number before it.
#[derive(Debug, Clone, Copy)]
pub struct PodsChanged;

/// The pod manager.
#[derive(Debug)]
pub struct PodManager {
    peers: Peers,
    workers: PodWorkers,
    node: NodeState,

    sources: SourcedPods,
    refused: BTreeMap<PodSource, RefusedManifests>,
    reservations: PodNameReservations,
    unmanaged: UnmanagedPods,
    /// Deleted pods of which nothing is left on the node; their API objects still exist.
    ended: BTreeSet<PodUid>,
    /// Ended pods that the runtime does not remove: what is left of each, by name.
    stuck: BTreeMap<PodUid, String>,
    deferred: BTreeMap<PodUid, DeferredPod>,
    /// What device plugins have answered about pods that are not admitted yet.
    preferences: BTreeMap<PodUid, DevicePreferences>,
    /// What device plugins are to be asked about them.
    questions: Vec<(PodUid, Vec<PreferenceQuestion>)>,
    resizes: PodResizes,
    clean_up_timer: Option<TimerId>,
}

/// The node as admission sees it.
#[derive(Debug)]
struct NodeState {
    facts: Arc<NodeFacts>,
    pressures: BTreeSet<Signal>,
    shutting_down: NodeShutdown,
}

impl Actor for PodManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A restarted pod manager finds the workers as they are; the relist reports the other pods, and the
    /// sources send theirs again.
    async fn start(&mut self, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.workers.begin_to_count();
        self.resizes.load(&self.peers.checkpoints).await;
        for (uid, pod) in self.workers.pods() {
            self.reservations.claim(&uid, &pod);
        }
        for uid in self.workers.deferred_resizes() {
            self.resizes.push(&uid);
        }
        if let Err(full) = self.peers.pleg.tell(pleg::Msg::Relist) {
            tracing::warn!("no relist for the pod manager yet: {full}");
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let changes = msg.may_change_pods();
        match msg {
            Msg::SetPods { source, pods } => self.set(source, pods, ctx),
            Msg::SetRefused { source, manifests } => drop(self.refused.insert(source, manifests)),
            Msg::Restored { pods } => self.restored(pods, ctx),
            Msg::Runtime(RuntimeReport::Observed(observed)) => self.observed(observed),
            Msg::Runtime(RuntimeReport::Relisted {
                pods,
                changed,
                supplemental_groups_policy,
            }) => {
                self.set_supplemental_groups_policy(supplemental_groups_policy);
                self.relisted(&pods, &changed, ctx);
            }
            Msg::Worker(WorkerReport::Stopped { uid }) => self.stopped(&uid, ctx),
            Msg::Worker(WorkerReport::Unmounted { uid }) => self.workers.mark_unmounted(&uid),
            Msg::Worker(WorkerReport::Stuck { uid, left }) => self.stuck(&uid, left, ctx),
            Msg::Worker(WorkerReport::Finished { uid }) => self.finished(&uid, ctx),
            Msg::Worker(WorkerReport::Resized { uid }) => self.resized(&uid, ctx),
            Msg::Worker(WorkerReport::Rejected { uid, failure }) => {
                self.fail(&uid, *failure, Duration::ZERO);
            }
            Msg::Node(change) => self.node_changed(change, ctx),
            Msg::Fail {
                uid,
                failure,
                grace,
            } => self.fail(&uid, *failure, grace),
            Msg::CleanUp => self.clean_up(ctx),
            Msg::LeftoversListed(listed) => self.remove_leftovers(*listed, ctx),
            Msg::FoldersKept(kept) => self.note_kept_folders(kept, ctx),
            Msg::Resync => self.resync(ctx),
            Msg::Preferred { uid, answers } => self.preferred(uid, answers),
            Msg::Query(query) => self.answer_query(query),
        }
        self.ask(ctx);
        if changes && let Some(changed) = &self.peers.changed {
            // A mailbox that is full holds such a message already.
            let _ = changed.tell(PodsChanged);
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pods: self.workers.goals(),
            sources: self.sources.counts(),
            missing_sources: self.sources.missing(),
            deferred: self
                .deferred
                .values()
                .map(|deferred| (full_name(&deferred.pod), deferred.why.clone()))
                .collect(),
        }
    }
}

impl PodManager {
    /// `sources` are those that this node is configured with: all must send their pods before orphans end. `node` is what
    /// the node has for all pods.
    pub fn new(
        peers: Peers,
        workers: PodWorkers,
        sources: BTreeSet<PodSource>,
        node: Arc<NodeFacts>,
    ) -> Self {
        PodManager {
            peers,
            workers,
            node: NodeState {
                facts: node,
                pressures: BTreeSet::new(),
                shutting_down: NodeShutdown::No,
            },
            sources: SourcedPods::new(sources),
            refused: BTreeMap::new(),
            reservations: PodNameReservations::default(),
            unmanaged: UnmanagedPods::default(),
            ended: BTreeSet::new(),
            stuck: BTreeMap::new(),
            deferred: BTreeMap::new(),
            preferences: BTreeMap::new(),
            questions: Vec::new(),
            resizes: PodResizes::default(),
            clean_up_timer: None,
        }
    }

    fn set(&mut self, source: PodSource, pods: Vec<Arc<Pod>>, ctx: &Context<Msg>) {
        let new: BTreeMap<PodUid, Arc<Pod>> =
            pods.into_iter().map(|pod| (uid_of(&pod), pod)).collect();
        for uid in self.sources.replace(source, new.clone()) {
            // Another source may have a pod of this UID.
            let other = self.sources.with_uid(&uid).next().cloned();
            match other {
                Some(pod) => self.set_goal(uid, pod, ctx),
                None => {
                    self.ended.remove(&uid);
                    self.end_pod(&uid, ctx);
                }
            }
        }
        self.end_orphans(ctx);
        for (uid, pod) in by_creation(new) {
            self.set_goal(uid, pod, ctx);
        }
        self.decide_new_resizes(ctx);
        if source != PodSource::Api {
            self.show_static_pods();
        }
    }

    fn restored(&mut self, pods: Vec<Arc<Pod>>, ctx: &Context<Msg>) {
        if !self.sources.restore() {
            return;
        }
        for (uid, pod) in by_creation(pods.into_iter().map(|pod| (uid_of(&pod), pod))) {
            self.set_goal(uid, pod, ctx);
        }
        self.decide_new_resizes(ctx);
    }

    /// Has the API show the static pods. Sent with every set, so that a lost message is soon made up for.
    fn show_static_pods(&self) {
        let Some(mirrors) = &self.peers.mirrors else {
            return;
        };
        let missing = self.sources.missing();
        if missing.iter().any(|source| *source != PodSource::Api) {
            return;
        }
        let statics = StaticPodSet {
            pods: self.sources.statics().cloned().collect(),
            ending: self.workers.ending_statics(),
        };
        if mirrors.tell(statics).is_err() {
            tracing::warn!("static pods are shown in the API later: a mailbox is full");
        }
    }

    fn node_changed(&mut self, change: NodeChange, ctx: &Context<Msg>) {
        match change {
            NodeChange::Object(Some(node)) => self.set_node_object(&node),
            NodeChange::Object(None) => {}
            NodeChange::Pressures(pressures) => self.node.pressures = pressures,
            NodeChange::Shutdown(state) => self.node.shutting_down = state,
            NodeChange::Devices { inventory, pods } => {
                self.workers.set_devices(inventory, &pods);
                self.admit_deferred();
            }
            NodeChange::ClaimDevices { pods } => return self.workers.wake(&pods),
            NodeChange::RuntimeHandover => return self.workers.tell_all(|| worker::Msg::Wake),
        }
        self.retry_resizes(RetryTrigger::NodeChanged, ctx);
    }

    fn set_node_object(&mut self, node: &Node) {
        let mut facts = NodeFacts::clone(&self.node.facts);
        let labels = node.metadata.labels.iter().flatten();
        facts.labels = labels
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        facts.taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        self.node.facts = Arc::new(facts);
        self.workers
            .set_host_ips(logic_node::node_status::host_ips(node));
    }

    fn set_supplemental_groups_policy(&mut self, supported: Support) {
        if self.node.facts.supplemental_groups_policy != supported {
            let mut facts = NodeFacts::clone(&self.node.facts);
            facts.supplemental_groups_policy = supported;
            self.node.facts = Arc::new(facts);
        }
    }

    fn answer_query(&self, query: PodQuery) {
        match query {
            PodQuery::All { reply } => reply.send(self.all()),
            PodQuery::Pod { uid, reply } => reply.send(self.pod(&uid)),
            PodQuery::Stuck { reply } => reply.send(self.stuck.values().cloned().collect()),
            PodQuery::Active { reply } => reply.send(self.workers.active()),
            PodQuery::Unfinished { reply } => reply.send(self.workers.unfinished()),
            PodQuery::Standings { reply } => reply.send(self.standings()),
            PodQuery::Unended { asker } => {
                if asker.tell(self.unended()).is_err() {
                    tracing::debug!("which pods have ended is told when it is asked again");
                }
            }
            PodQuery::Refused { reply } => {
                let all = self.refused.values().flatten();
                reply.send(
                    all.map(|(manifest, problems)| (manifest.clone(), problems.clone()))
                        .collect(),
                );
            }
            PodQuery::Worker { pod, reply } => reply.send(self.find(&pod)),
        }
    }

    /// Runs the pod: now, or when the pod that holds its name or UID has ended. Before the first relist it
    /// is unknown which names are held.
    fn set_goal(&mut self, uid: PodUid, pod: Arc<Pod>, ctx: &Context<Msg>) {
        if pod.metadata.deletion_timestamp.is_some() {
            return self.delete(&uid, pod, ctx);
        }
        match self.workers.desired(&uid) {
            Some(desired) if desired.is_end() => return self.reservations.wait(uid, pod),
            Some(desired) if !desired.is_run() => return,
            Some(desired) => return self.change(&uid, desired, pod, ctx),
            None => {}
        }
        let may_start = self.unmanaged.pods.is_some();
        if may_start && classify_arrival(&pod) != PodArrival::Live {
            self.resume(uid, pod);
        } else if may_start && self.reservations.claim(&uid, &pod) {
            self.admit(uid, pod);
        } else {
            self.reservations.wait(uid, pod);
        }
    }

    /// Ends a pod whose object is being deleted; a second deletion may shorten its grace period.
    fn delete(&mut self, uid: &PodUid, pod: Arc<Pod>, ctx: &Context<Msg>) {
        self.stop_waiting(uid, ctx);
        if self.workers.desired(uid).is_some() {
            self.workers.set_goal(uid, PodGoal::end(pod));
            return;
        }
        match &self.unmanaged.pods {
            // Before the first relist it is unknown whether anything of it exists.
            None => self.reservations.wait(uid.clone(), pod),
            // Its worker reports its end, even if it never began.
            Some(_) if !self.ended.contains(uid) => {
                self.reservations.claim(uid, &pod);
                self.workers.spawn(uid, PodGoal::end(pod));
            }
            Some(_) => {}
        }
    }

    fn end_pod(&mut self, uid: &PodUid, ctx: &Context<Msg>) {
        self.stop_waiting(uid, ctx);
        match self.workers.desired(uid) {
            Some(desired) => self.workers.set_goal(uid, PodGoal::end(desired.desired)),
            // No worker tells that nothing is left.
            None => self.workers.tell_ended([uid]),
        }
    }

    /// A pod that waited to start no longer does; its name goes to the next one.
    fn stop_waiting(&mut self, uid: &PodUid, ctx: &Context<Msg>) {
        self.reservations.stop_waiting(uid);
        let Some(deferred) = self.deferred.remove(uid) else {
            return;
        };
        for (uid, pod) in self.reservations.release(uid, &full_name(&deferred.pod)) {
            self.set_goal(uid, pod, ctx);
        }
    }

    fn observed(&mut self, observed: Box<clients::runtime::RuntimePodUpdate>) {
        let uid = observed.pod.uid.clone();
        self.workers.note_started(&observed.pod);
        self.workers.tell(&uid, worker::Msg::Observed(observed));
    }

    /// Nothing of the pod runs: another one may have its name.
    fn stuck(&mut self, uid: &PodUid, left: String, ctx: &Context<Msg>) {
        let Some(goal) = self.workers.desired(uid) else {
            return;
        };
        let name = full_name(&goal.allocated);
        self.stuck.insert(uid.clone(), format!("{name}: {left}"));
        for (next, pod) in self.reservations.release(uid, &name) {
            self.set_goal(next, pod, ctx);
        }
    }

    fn finished(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        self.stuck.remove(uid);
        let Some(goal) = self.workers.remove(uid) else {
            return;
        };
        let pod = goal.allocated.clone();
        if let Some(unmanaged) = &mut self.unmanaged.pods {
            unmanaged.remove(uid);
        }
        if goal.is_ending_static() {
            self.keep_dead_containers(uid, &pod, ctx);
        } else if goal.leaves_logs() {
            self.keep_logs(uid, ctx);
        }
        let is_deleted = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_some();
        if self.sources.with_uid(uid).any(is_deleted) {
            self.ended.insert(uid.clone());
        }
        self.resizes.forget(uid);
        if goal.is_ending_static() {
            self.show_static_pods();
        }
        for (next, pod) in self.reservations.release(uid, &full_name(&pod)) {
            if next == *uid {
                count_restart(&pod);
            }
            self.set_goal(next, pod, ctx);
        }
        self.retry_deferred(RetryTrigger::PodsRemoved, ctx);
        self.schedule_clean_up(ctx);
    }

    fn stopped(&mut self, uid: &PodUid, ctx: &Context<Msg>) {
        self.workers.mark_stopped(uid);
        self.resizes.stop_waiting(uid);
        let trigger = match self.is_desired(uid) {
            true => RetryTrigger::PodTerminated,
            false => RetryTrigger::PodsRemoved,
        };
        self.retry_deferred(trigger, ctx);
    }

    fn resized(&mut self, uid: &PodUid, ctx: &Context<Msg>) {
        if self.workers.mark_resized(uid) == HeldResources::Less {
            self.retry_deferred(RetryTrigger::PodResized, ctx);
        }
    }

    fn retry_deferred(&mut self, trigger: RetryTrigger, ctx: &Context<Msg>) {
        self.admit_deferred();
        self.retry_resizes(trigger, ctx);
    }

    fn fail(&mut self, uid: &PodUid, failure: PodFailure, grace: Duration) {
        if let Some(desired) = self.workers.desired(uid).filter(PodGoal::is_run) {
            let failed = PodGoal::fail(desired.desired, failure, Some(grace));
            self.workers.set_goal(uid, failed);
        }
    }

    fn resync(&mut self, ctx: &mut Context<Msg>) {
        self.schedule_clean_up(ctx);
        self.workers.tell_all(|| worker::Msg::Resync);
        self.workers.tell_ended(&self.ended);
    }

    fn is_desired(&self, uid: &PodUid) -> bool {
        self.sources.contains(uid)
    }

    /// Whether all pods of this node are known, and those that run have their workers.
    fn all_pods_known(&self) -> bool {
        self.unmanaged.pods.is_some() && self.sources.are_known()
    }
}

/// Counts a pod that starts again under the same UID.
fn count_restart(pod: &Pod) {
    let is_static = match pod.is_static() {
        true => metrics::pods::STATIC,
        false => "",
    };
    let restarted = metrics::pods::RESTARTED.with_label_values(&[is_static]);
    restarted.inc();
}
