//! Every pod's status, as the API would show it, and its patches to the API.
//!
//! - **Owns** the newest `PodStatus` of each pod, which `/pods` serves, and how much of it the API has.
//! - **Hears** `Changed` and `Forget` from the pod workers, `Pods` from the source of API pods.
//! - **Tells** the API server, by patches, what is new; and deletes a pod there of which nothing is left here.
//! - **Never** makes up the status of a pod that has a worker (the worker computes it, `logic_pods::status`), writes
//!   what the API shows already, or has two requests for one pod under way.
//!
//! A node without an API server keeps its statuses here all the same. What is patched, and in which order:
//! `logic_pods::status::status_patch`.
//!
//! Upstream: pkg/kubelet/status/status_manager.go (1.36).

mod entry;
mod feed;
mod known_pods;
mod sync_queue;
mod sync_request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use entry::{PodOwnership, StatusEntry, StatusNews};
use feed::StatusFeed;
pub use feed::{StatusChange, StatusWatch};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{Actor, Context, Exit, Recipient, Reply};
use known_pods::KnownPods;
use logic_api::types::PodUid;
use serde::Serialize;
pub use sync_queue::StatusClient;
use sync_queue::SyncQueue;
use sync_request::SyncOutcome;
pub use sync_request::SyncReport;

/// Room for two changes from each of 1,000 pods at once.
pub const MAILBOX: usize = 2048;

/// Messages of the status manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Keeps the status of this pod, and patches it into the API.
    Changed { uid: PodUid, status: Arc<PodStatus> },
    /// Drops a pod of which nothing is left; deletes it in the API, if it is being deleted there.
    Forget { uid: PodUid },
    /// Takes these as all pods that the API has for this node, mirrors included.
    Pods { pods: Vec<Arc<Pod>> },
    /// Takes in the result of a request.
    Came(Box<SyncReport>),
    /// Tries again what had to wait.
    Tick,
    /// Answers with every kept status.
    All {
        reply: Reply<BTreeMap<PodUid, Arc<PodStatus>>>,
    },
    /// Answers with every kept status, and a stream of the changes after it.
    Watch { reply: Reply<StatusWatch> },
}

/// Asks for everything again that the status manager has lost.
#[derive(Debug, Clone, Copy)]
pub struct PodResync;

/// The actors and the client that the status manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    /// Has every pod's status sent again.
    pub republish: Recipient<PodResync>,
    /// None for a node without an API server.
    pub api: Option<StatusClient>,
    /// The offline checkpoint, which keeps statuses that the API may not have yet.
    pub kept: Option<Recipient<(PodUid, Arc<PodStatus>)>>,
}

impl From<Recipient<PodResync>> for Peers {
    fn from(republish: Recipient<PodResync>) -> Self {
        Peers {
            republish,
            api: None,
            kept: None,
        }
    }
}

/// Snapshot: pods by phase, and what the API lacks.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    pub changes: u64,
    pub phases: BTreeMap<String, usize>,
    /// Whether the API's pods are known.
    pub synced: bool,
    /// Pods of which the API lacks the newest status.
    pub untold: usize,
    /// Pods that wait for a request.
    pub waiting: usize,
    pub under_way: usize,
    pub written: u64,
    pub deleted: u64,
    pub failed: u64,
}

/// Keeps pods' statuses and patches them into the API.
#[derive(Debug)]
pub struct StatusManager {
    peers: Peers,

    entries: BTreeMap<PodUid, StatusEntry>,
    /// None until the API's pods are known.
    shown: Option<KnownPods>,
    queue: SyncQueue,
    feed: StatusFeed,
    changes: u64,
    written: u64,
    deleted: u64,
    failed: u64,
}

impl Actor for StatusManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A successor begins with nothing, and requests all statuses and pods again.
    async fn start(&mut self, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Err(full) = self.peers.republish.tell(PodResync) {
            tracing::warn!("statuses come back as they change: {full}");
        }
        if let Some(api) = &self.peers.api {
            api.ask_for_pods();
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Changed { uid, status } => self.changed(uid, status, ctx),
            Msg::Forget { uid } => self.forget(&uid, ctx),
            Msg::Pods { pods } => self.pods(pods, ctx),
            Msg::Came(report) => self.on_synced(*report, ctx),
            Msg::Tick => self.tick(ctx),
            Msg::All { reply } => reply.send(self.all()),
            Msg::Watch { reply } => reply.send(self.watch()),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let statuses = || self.entries.values().filter_map(|e| e.status.as_ref());
        let mut phases = BTreeMap::new();
        for status in statuses() {
            let phase = status.phase.clone().unwrap_or_default();
            *phases.entry(phase).or_default() += 1;
        }
        Snapshot {
            pods: statuses().count(),
            changes: self.changes,
            phases,
            synced: self.shown.is_some(),
            untold: self.entries.values().filter(|e| e.has_news()).count(),
            waiting: self.queue.len(),
            under_way: self.queue.flying,
            written: self.written,
            deleted: self.deleted,
            failed: self.failed,
        }
    }
}

impl StatusManager {
    pub fn new(peers: impl Into<Peers>) -> Self {
        StatusManager {
            peers: peers.into(),
            entries: BTreeMap::new(),
            shown: None,
            queue: SyncQueue::default(),
            feed: StatusFeed::default(),
            changes: 0,
            written: 0,
            deleted: 0,
            failed: 0,
        }
    }

    fn changed(&mut self, uid: PodUid, status: Arc<PodStatus>, ctx: &mut Context<Msg>) {
        self.changes += 1;
        if let Some(kept) = &self.peers.kept
            && let Err(full) = kept.tell((uid.clone(), status.clone()))
        {
            tracing::warn!(%uid, "a status is not kept for a time without the API server: {full}");
        }
        let entry = self.entries.entry(uid.clone()).or_default();
        if entry.life == PodOwnership::Over {
            // A manifest that came back has the UID that it had.
            entry.life = PodOwnership::Worker;
        }
        if entry.set_status(status.clone(), ctx.now()) == StatusNews::Changed {
            self.feed.changed(&uid, &status);
        }
        self.consider(&uid, ctx);
        self.dispatch(ctx);
    }

    fn forget(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        self.feed.removed(uid);
        let is_here = self.shown.as_ref().is_none_or(|shown| shown.has(uid));
        if self.peers.api.is_none() || !is_here {
            self.drop_entry(uid);
            return;
        }
        let entry = self.entries.entry(uid.clone()).or_default();
        if entry.life == PodOwnership::Worker {
            entry.life = PodOwnership::Over;
        }
        self.consider(uid, ctx);
        self.dispatch(ctx);
    }

    fn pods(&mut self, pods: Vec<Arc<Pod>>, ctx: &mut Context<Msg>) {
        let before = self.shown.replace(KnownPods::new(pods));
        self.queue.resume();
        let of = |shown: &Option<KnownPods>, uid: &PodUid| shown.as_ref()?.of(uid).cloned();
        let is_new = |uid: &&PodUid| match (of(&before, uid), of(&self.shown, uid)) {
            (Some(old), Some(new)) => !Arc::ptr_eq(&old, &new),
            _ => true,
        };
        let uids: Vec<PodUid> = self.entries.keys().filter(is_new).cloned().collect();
        for uid in uids {
            self.sync_if_needed(&uid, ctx);
        }
        self.dispatch(ctx);
    }

    /// The API shows the pod otherwise than before, or not at all.
    fn sync_if_needed(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        let pod = self.shown.as_ref().and_then(|shown| shown.of(uid));
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        match pod {
            Some(pod) => {
                entry.set_pod(uid, pod);
                self.consider(uid, ctx);
            }
            None if entry.life != PodOwnership::Worker => self.drop_entry(uid),
            None => {
                entry.lose();
                self.queue.leave(uid);
            }
        }
    }

    fn on_synced(&mut self, report: SyncReport, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.queue.flying -= 1;
        self.queue.learn(&report, now);
        let SyncReport {
            sync_request,
            result,
        } = report;
        let uid = sync_request.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            self.dispatch(ctx);
            return;
        };
        entry.flying = false;
        match result {
            Ok(SyncOutcome::Told(wrote)) => {
                self.written += u64::from(wrote.is_some());
                measure(entry.on_synced(&sync_request, wrote, now));
                // The watch may have gone on meanwhile.
                if let Some(pod) = self.shown.as_ref().and_then(|shown| shown.of(&uid)) {
                    entry.set_pod(&uid, pod);
                }
            }
            Ok(SyncOutcome::Deleted) => {
                self.deleted += 1;
                entry.life = PodOwnership::Deleted;
                measure(entry.on_synced(&sync_request, None, now));
            }
            // The watch will show it; until then there is no object to patch.
            Ok(SyncOutcome::Gone) => {
                if entry.life == PodOwnership::Over {
                    entry.life = PodOwnership::Deleted;
                }
                entry.on_synced(&sync_request, None, now);
            }
            Err(trouble) => {
                self.failed += 1;
                tracing::debug!(pod = %uid, "status not told: {trouble}");
                entry.fail(&trouble, now);
            }
        }
        self.consider(&uid, ctx);
        self.dispatch(ctx);
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        self.queue.woken();
        let waits = |entry: &StatusEntry| entry.not_before.is_some() || entry.has_news();
        let all = self.entries.iter().filter(|(_, entry)| waits(entry));
        let waiting: Vec<PodUid> = all.map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.consider(&uid, ctx);
        }
        self.dispatch(ctx);
    }

    fn all(&self) -> BTreeMap<PodUid, Arc<PodStatus>> {
        let kept =
            |(uid, entry): (&PodUid, &StatusEntry)| Some((uid.clone(), entry.status.clone()?));
        self.entries.iter().filter_map(kept).collect()
    }

    fn watch(&mut self) -> StatusWatch {
        StatusWatch {
            statuses: self.all(),
            changes: self.feed.subscribe(),
        }
    }

    /// Queues the pod, if there is something to patch.
    fn consider(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        let pod = self.shown.as_ref().and_then(|shown| shown.of(uid));
        let (Some(pod), Some(entry)) = (pod, self.entries.get_mut(uid)) else {
            return;
        };
        let now = ctx.now();
        entry.close(pod, now);
        entry.not_before = entry.not_before.filter(|at| now < *at);
        let Some(urgency) = entry.need(pod) else {
            self.queue.leave(uid);
            return;
        };
        let api = self.peers.api.as_ref();
        let has_spare_rate = api.is_some_and(StatusClient::has_spare_rate);
        let settled = entry.settles_at(urgency, pod, has_spare_rate);
        let settled = settled.filter(|at| now < *at);
        match entry.not_before.max(settled) {
            None => self.queue.join(uid, urgency),
            Some(at) => {
                self.queue.leave(uid);
                self.queue.wake(at, ctx);
            }
        }
    }

    /// Sends the requests whose turn it is.
    fn dispatch(&mut self, ctx: &mut Context<Msg>) {
        let Some(api) = &self.peers.api else { return };
        while let Some(uid) = self.queue.call(ctx) {
            let pod = self.shown.as_ref().and_then(|shown| shown.of(&uid));
            let (Some(pod), Some(entry)) = (pod, self.entries.get_mut(&uid)) else {
                continue;
            };
            let sync_request = entry.sync_request(&uid, pod);
            if sync_request.is_idle() {
                measure(entry.on_synced(&sync_request, None, ctx.now()));
                continue;
            }
            entry.flying = true;
            self.queue.flying += 1;
            api.send(sync_request, ctx);
        }
    }

    fn drop_entry(&mut self, uid: &PodUid) {
        self.entries.remove(uid);
        self.queue.leave(uid);
    }
}

fn measure(took: Option<std::time::Duration>) {
    if let Some(took) = took {
        metrics::pods::status::SYNC_DURATION.observe(took.as_secs_f64());
    }
}
