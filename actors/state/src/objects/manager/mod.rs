//! Objects of the API that this node's pods need: fetched or watched, and put into the object store.
//!
//! - **Owns** what is known of each object that a pod of this node needs, tokens and certificates among them, and the
//!   [`StoreWriter`] of the store.
//! - **Hears** which pods there are, what the API server answers, and that something is due.
//! - **Tells** the subscribers for which pods every object has been requested once: the others had better wait. The
//!   recorder, the outcome of pods' certificates.
//! - **Never** takes "not requested yet" for "not found"; never retries without a wait after a failure; never keeps
//!   what no pod needs; never takes from a pod that ends what it has: where the API has removed the pod already, its
//!   objects are frozen until its worker is done.
//!
//! ConfigMaps and Secrets go by `configMapAndSecretChangeDetectionStrategy`; services are watched by namespace, claims,
//! volumes and attachments are fetched by name, because a node may not list them. Which of them a pod needs says
//! `logic_pods::api::needed::needed`.
//!
//! Upstream: pkg/kubelet/{secret,configmap,token,runtimeclass,podcertificate}, pkg/kubelet/util/manager (1.36). Unlike
//! there, a watched object stays watched while a pod refers to it, used or not, so that no container starts with an
//! old one.

mod entry;
mod fetch_request;
mod fetching;
mod issuing;
mod keys;
mod progress;
mod publishing;
mod requests;
mod tokens;
mod trust_bundles;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::watch;
use kernel::{Actor, Context, Exit, Recipient};
use logic_api::objects::{
    ChangeDetection, IssuancePolicy, ObjectRequest, RefetchSchedule, StaticObjects,
};
use logic_api::pod::{PodView, has_ended};
use logic_api::types::PodUid;
use logic_pods::api::needed::needed;
use logic_pods::api::references::{PodReferences, references};
use serde::Serialize;
use tokio::sync::Semaphore;

use self::entry::{ObjectEntry, ResponseState};
pub use self::fetching::ObjectResponse;
use self::fetching::UnwatchableKind;
use super::{ObjectStore, StoreWriter};
use crate::events::Recorder;

/// Answers for a thousand pods at once wait in their tasks, not here.
pub const MAILBOX: usize = 256;
/// Requests under way at once; established watches are not counted.
const AT_ONCE: usize = 32;
/// How long after a pod came a refusal may mean that the API server has not seen yet that the pod is this node's.
const LAG: Duration = Duration::from_secs(2);
/// The wait before a subscriber with a full mailbox is notified again.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Messages of the object manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes these as all pods, and requests exactly what they need.
    Pods { pods: Vec<Arc<Pod>> },
    /// Drops what this pod needed: all its containers have ended for good.
    Ended { uid: PodUid },
    /// Drops what other pods needed that the API has removed: only these have workers.
    Workers { pods: BTreeSet<PodUid> },
    /// Keeps ConfigMaps and Secrets for this long from now on (the annotation `node.alpha.kubernetes.io/ttl` of the
    /// node's object); and requests certificates as the node of this UID.
    Node {
        ttl: Option<Duration>,
        uid: Option<String>,
    },
    /// Takes in an answer, and waits for the next.
    Heard(Box<ObjectResponse>),
    /// Requests this object again.
    Due {
        wanted: Box<ObjectRequest>,
        generation: u64,
    },
    /// Puts what has changed into the store, and tells the subscribers which pods are supplied.
    Publish,
    /// Takes note that the folder of manifests has changed.
    FolderChanged,
}

/// The object manager's section of the configuration.
#[derive(Debug, Clone)]
pub struct SupplyRules {
    pub node_name: String,
    pub detection: ChangeDetection,
    /// `syncFrequency`.
    pub period: Duration,
    /// Whether pods' certificates are requested.
    pub asking: IssuancePolicy,
    /// The pods that a checkpoint restored with all that they need.
    pub supplied: BTreeSet<PodUid>,
}

/// The clients and actors that the object manager works with.
#[derive(Clone)]
pub struct Peers {
    /// The client with the rate limit for work.
    pub api: kube::Client,
    /// Its store holds what the checkpoint and the folder held at the start.
    pub store_writer: StoreWriter,
    /// Objects of manifests; objects of the API take precedence.
    pub folder: Option<ObjectStore>,
    /// Get the UIDs of the pods for which every object has been requested.
    pub supplied: Vec<Recipient<BTreeSet<PodUid>>>,
    recorder: Option<Recorder>,
    /// The newest pods, and those of them that have ended: they outlive the actor.
    pods: watch::Sender<Vec<Arc<Pod>>>,
    over: watch::Sender<BTreeSet<PodUid>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Peers")
    }
}

impl Peers {
    pub fn new(
        api: kube::Client,
        store_writer: StoreWriter,
        folder: Option<ObjectStore>,
        supplied: Vec<Recipient<BTreeSet<PodUid>>>,
    ) -> Peers {
        let (pods, _) = watch::channel(Vec::new());
        let (over, _) = watch::channel(BTreeSet::new());
        Peers {
            api,
            store_writer,
            folder,
            supplied,
            recorder: None,
            pods,
            over,
        }
    }

    /// Sets the recorder for events about pods' certificates.
    pub fn with_recorder(self, recorder: Recorder) -> Peers {
        Peers {
            recorder: Some(recorder),
            ..self
        }
    }
}

/// Snapshot: numbers of objects, and errors.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    /// Pods of which every object has been requested.
    pub supplied: usize,
    /// Objects that pods refer to.
    pub wanted: usize,
    /// Of these, those that the API has answered for.
    pub answered: usize,
    /// Watched, or a request is under way.
    pub asking: usize,
    pub tokens: usize,
    /// Issued, whether the next is awaited or not.
    pub certificates: usize,
    /// To the API, since the start.
    pub requests: u64,
    /// Changes of the store, since the start.
    pub published: u64,
    /// By object: the error of the API server, or why it does not answer.
    pub troubles: BTreeMap<String, String>,
}

/// A pod, and whether all that it needs has been requested.
#[derive(Debug)]
struct Consumer {
    pod: Arc<Pod>,
    references: PodReferences,
    supplied: bool,
    /// It needs nothing any more, whatever its definition refers to.
    ended: bool,
    /// The API has removed it, and its worker may still be ending it.
    is_removed: bool,
}

/// Fetches and watches the objects that pods need.
#[derive(Debug)]
pub struct ObjectManager {
    peers: Peers,
    cadence: RefetchSchedule,
    /// The kinds of objects that the API server does not let this node watch: they are fetched.
    unwatchable: BTreeSet<UnwatchableKind>,
    asking: IssuancePolicy,
    node_name: String,
    /// The UID of the node's object, once that is known.
    node_uid: Option<String>,

    consumers: BTreeMap<PodUid, Consumer>,
    entries: BTreeMap<ObjectRequest, ObjectEntry>,
    /// The objects of all entries together, as the store holds them.
    held: StaticObjects,
    /// What the store held at the start, until it is known which of it is needed.
    remembered: Option<Arc<StaticObjects>>,
    /// Pods of the checkpoint that no source has brought yet.
    awaited: BTreeSet<PodUid>,
    notified: Option<BTreeSet<PodUid>>,
    slots: Rc<Semaphore>,
    generation: u64,
    publishing: bool,
    requests: u64,
    published: u64,
}

impl Actor for ObjectManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.await_folder(ctx);
        let pods = self.peers.pods.borrow().clone();
        if !pods.is_empty() {
            self.take_pods(pods, ctx);
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Pods { pods } => self.take_pods(pods, ctx),
            Msg::Ended { uid } => self.end(&uid, ctx),
            Msg::Workers { pods } => self.retain_removed(&pods, ctx),
            Msg::Node { ttl, uid } => (self.cadence.ttl, self.node_uid) = (ttl, uid),
            Msg::Heard(heard) => self.on_response(*heard, ctx),
            Msg::Due { wanted, generation } => self.due(&wanted, generation, ctx),
            Msg::Publish => self.publish(ctx),
            Msg::FolderChanged => self.await_folder(ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let entries = || self.entries.values();
        let asking = entries().filter(|entry| entry.asking.is_some());
        let troubles = self.entries.iter().filter_map(|(wanted, entry)| {
            let trouble = entry.trouble.clone()?;
            Some((wanted.to_string(), trouble))
        });
        Snapshot {
            pods: self.consumers.len(),
            supplied: self.consumers.values().filter(|c| c.supplied).count(),
            wanted: self.entries.len(),
            answered: entries()
                .filter(|e| e.answer == ResponseState::Given)
                .count(),
            asking: asking.count(),
            tokens: entries().filter(|entry| entry.token.is_some()).count(),
            certificates: entries().filter(|entry| entry.course.is_held()).count(),
            requests: self.requests,
            published: self.published,
            troubles: troubles.collect(),
        }
    }
}

impl ObjectManager {
    pub fn new(peers: Peers, rules: SupplyRules) -> ObjectManager {
        let mut remembered = StaticObjects::clone(&peers.store_writer.borrow());
        if let Some(folder) = &peers.folder {
            remembered = remembered.missing_in(&folder.snapshot());
        }
        ObjectManager {
            peers,
            cadence: RefetchSchedule {
                detection: rules.detection,
                period: rules.period,
                ttl: None,
            },
            unwatchable: BTreeSet::new(),
            asking: rules.asking,
            node_name: rules.node_name,
            node_uid: None,
            consumers: BTreeMap::new(),
            entries: BTreeMap::new(),
            held: StaticObjects::default(),
            remembered: Some(Arc::new(remembered)),
            awaited: rules.supplied,
            notified: None,
            slots: Rc::new(Semaphore::new(AT_ONCE)),
            generation: 0,
            publishing: false,
            requests: 0,
            published: 0,
        }
    }

    fn take_pods(&mut self, pods: Vec<Arc<Pod>>, ctx: &mut Context<Msg>) {
        self.peers.pods.send_replace(pods.clone());
        let there: BTreeSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        let over = &self.peers.over;
        over.send_modify(|over| over.retain(|uid| there.contains(uid)));
        let mut before = std::mem::take(&mut self.consumers);
        let (asked_before, mut came) = (self.generation, Vec::new());
        for pod in pods {
            let uid = pod.uid();
            let known = before.remove(&uid);
            let consumer = match known {
                Some(known) if Arc::ptr_eq(&known.pod, &pod) => Consumer {
                    is_removed: false,
                    ..known
                },
                known => self.consumer(known, pod, &mut came),
            };
            self.consumers.insert(uid, consumer);
        }
        // Upstream unmounts nothing of a pod before its containers have ended. Its worker reports that.
        let removed = before.into_iter().filter(|(_, consumer)| !consumer.ended);
        self.consumers.extend(removed.map(|(uid, consumer)| {
            let is_removed = true;
            (
                uid,
                Consumer {
                    is_removed,
                    ..consumer
                },
            )
        }));
        self.want(ctx);
        self.refresh(&came, asked_before, ctx);
        // Whatever of it is needed has its entry by now.
        self.remembered = None;
        self.publish_soon(ctx);
    }

    fn consumer(
        &mut self,
        known: Option<Consumer>,
        pod: Arc<Pod>,
        came: &mut Vec<PodUid>,
    ) -> Consumer {
        let uid = pod.uid();
        // For a pod that had ended when it came nothing is started any more.
        let ended = match &known {
            Some(known) => known.ended,
            None => self.peers.over.borrow().contains(&uid) || has_ended(&pod),
        };
        let references = match ended {
            true => PodReferences::default(),
            false => references(&pod),
        };
        // A pod that was supplied once, and refers to more now, waits again.
        let is_remembered = self.awaited.remove(&uid) && known.is_none();
        let same = known.filter(|known| known.references == references);
        let supplied = match &same {
            Some(known) => known.supplied,
            None => is_remembered,
        };
        if same.is_none() {
            came.push(uid);
        }
        Consumer {
            pod,
            references,
            supplied,
            ended,
            is_removed: false,
        }
    }

    /// Drops the removed pods without a worker: they never started, or their worker has ended.
    fn retain_removed(&mut self, workers: &BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        let before = self.consumers.len();
        self.consumers
            .retain(|uid, consumer| !consumer.is_removed || workers.contains(uid));
        if self.consumers.len() != before {
            self.want(ctx);
        }
    }

    fn end(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        if self.consumers.get(uid).is_some_and(|own| own.is_removed) {
            self.consumers.remove(uid);
            self.want(ctx);
        } else if let Some(consumer) = self.consumers.get_mut(uid) {
            consumer.references = PodReferences::default();
            consumer.ended = true;
            let over = &self.peers.over;
            over.send_if_modified(|over| over.insert(uid.clone()));
            self.want(ctx);
        }
    }

    /// Requests what all pods need, as far as the held objects show it; drops what no pod needs any more.
    fn want(&mut self, ctx: &mut Context<Msg>) {
        loop {
            let mut wanted = BTreeSet::from([ObjectRequest::CsiDrivers]);
            let mut frozen = BTreeSet::new();
            for consumer in self.consumers.values() {
                let needs = self.needs(consumer);
                match consumer.is_removed {
                    true => frozen.extend(needs),
                    false => wanted.extend(needs),
                }
            }
            let known: Vec<ObjectRequest> = self.entries.keys().cloned().collect();
            for known in &known {
                match (wanted.contains(known), frozen.contains(known)) {
                    (true, _) => self.thaw(known, ctx),
                    (false, true) => self.freeze(known, ctx),
                    (false, false) => self.drop_entry(known, ctx),
                }
            }
            let missing = wanted.into_iter();
            let missing: Vec<ObjectRequest> = missing
                .filter(|wanted| !self.entries.contains_key(wanted))
                .collect();
            if missing.is_empty() {
                return;
            }
            for wanted in missing {
                self.add_entry(wanted, ctx);
            }
            // The restored objects may show that more is needed.
            self.gather();
        }
    }

    fn needs(&self, consumer: &Consumer) -> BTreeSet<ObjectRequest> {
        let mut needs = needed(
            &consumer.pod,
            &consumer.references,
            &self.held,
            &self.node_name,
        );
        if self.asking == IssuancePolicy::Never {
            needs.retain(|wanted| !matches!(wanted, ObjectRequest::Certificate(_)));
        }
        needs
    }

    fn add_entry(&mut self, wanted: ObjectRequest, ctx: &mut Context<Msg>) {
        let mut entry = ObjectEntry {
            lag_until: Some(ctx.now() + LAG),
            ..ObjectEntry::default()
        };
        if let Some(remembered) = &self.remembered {
            entry.adopt(&wanted, remembered);
        }
        self.entries.insert(wanted.clone(), entry);
        self.ask(&wanted, ctx);
        self.publish_soon(ctx);
    }

    /// Keeps the object as it is and makes no more requests: only removed pods need it, for which the API server would
    /// refuse them.
    fn freeze(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) {
        if let Some(entry) = self.entries.get_mut(wanted) {
            entry.freeze(ctx);
        }
    }

    /// Goes on with an object that was frozen and that another pod needs now.
    fn thaw(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) {
        let entry = self.entries.get_mut(wanted);
        if entry.is_some_and(ObjectEntry::thaw) {
            self.ask(wanted, ctx);
        }
    }

    fn drop_entry(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) {
        if let Some(entry) = self.entries.remove(wanted) {
            entry.end(ctx);
            self.publish_soon(ctx);
        }
    }

    /// A new pod is not given what was true before it came: a fetched object may have changed, and one that was not
    /// there may have been made.
    fn refresh(&mut self, came: &[PodUid], asked_before: u64, ctx: &mut Context<Msg>) {
        let consumers = came.iter().filter_map(|uid| self.consumers.get(uid));
        let stale: BTreeSet<ObjectRequest> = consumers
            .flat_map(|consumer| self.needs(consumer))
            .collect();
        for wanted in stale {
            let is_followed = self.is_followed(&wanted);
            let Some(entry) = self.entries.get_mut(&wanted) else {
                continue;
            };
            entry.lag_until = Some(ctx.now() + LAG);
            if entry.generation > asked_before || entry.is_good_for_newcomers(&wanted, is_followed)
            {
                continue;
            }
            if entry.answer == ResponseState::Never && entry.asking.is_some() {
                entry.again = true;
            } else {
                entry.answer = ResponseState::Never;
                self.ask(&wanted, ctx);
            }
        }
    }

    fn await_folder(&mut self, ctx: &mut Context<Msg>) {
        let Some(folder) = &self.peers.folder else {
            return;
        };
        let mut changes = folder.changes();
        ctx.run(async move {
            changes.next().await;
            Msg::FolderChanged
        });
        if self.published > 0 {
            self.publish_soon(ctx);
        }
    }

    fn publish_soon(&mut self, ctx: &mut Context<Msg>) {
        if !std::mem::replace(&mut self.publishing, true) {
            ctx.run(async { Msg::Publish });
        }
    }
}

#[cfg(test)]
mod tests;
