//! One pod's worker: makes the runtime match what is desired of the pod, serially, until it is gone.
//!
//! - **Owns** everything that is known of one pod: what was seen of it, its back-offs, its stage.
//! - **Hears** that its desire changed, what PLEG observed, and the reports of its own work.
//! - **Tells** the status keeper its pod's status, the record keeper what must outlive the agent, the
//!   directory when the pod is gone.
//! - **Never** has two pieces of work under way, waits in a handler, or acts on a guess: before it acts
//!   for the first time, and after every interrupted call, it looks at what exists.
//!
//! A state machine: [`Stage::Syncing`] -> [`Stage::Terminating`] -> [`Stage::Terminated`]. The newest
//! desire wins, because it lies in a watch and not in the mailbox.
//!
//! Upstream: pkg/kubelet/pod_workers.go and kubelet.go (SyncPod, SyncTerminatingPod, SyncTerminatedPod),
//! pkg/kubelet/kuberuntime/kuberuntime_manager.go, 1.36. Decisions: `logic::worker`, `logic::status`.

mod carry;
mod files;
mod memory;
mod remove;
mod start;
#[cfg(test)]
mod tests;
mod why;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kernel::{Actor, Addr, Context, Exit, Reply, TimerId};
use logic::seen::Seen;
use logic::status::{self, Stage as Shown, StatusInput};
use logic::types::{Failure, PodUid, RuntimePod, Waiting, Weight, Why};
use logic::worker::{Action, Observed, PodPlan, compute_pod_actions, kill};
use serde::Serialize;
use tokio::sync::watch;

use self::carry::{Carrier, Report};
use self::memory::Memory;
use self::why::Whys;
pub(crate) use self::why::object;
pub use self::why::{Explanation, Line};
use crate::directory::Desired;
use crate::events::Recorder;
use crate::runtime::{Runtime, RuntimeError};
use crate::{directory, images, pleg, records, status as keeper};

/// Between attempts at what failed for a passing reason: a plugin that restarts, a runtime that is busy.
const SOON: Duration = Duration::from_secs(1);
/// Between attempts at what failed otherwise; upstream's `backOffPeriod`.
const LATER: Duration = Duration::from_secs(10);

/// What a worker is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Looks at what is desired now.
    Wake,
    /// Joins what the runtime reported, and acts on what is new.
    Observed(Box<pleg::Observed>),
    /// Looks at the runtime again: a relist saw a difference.
    Recheck,
    /// Ends the pod as failed, within this grace.
    Fail { failure: Failure, grace: Duration },
    /// Takes in everything that exists of the pod.
    Fetched(Box<Result<Fetched, RuntimeError>>),
    /// Takes in what came of a plan.
    Carried(Box<Report>),
    /// Takes in what came of removing everything.
    Removed(Result<(), RuntimeError>),
    /// Computes again: a back-off or deadline has passed.
    Retry,
    /// Tells the status again to a keeper that lost it.
    Publish,
    /// Answers with the causal line of the pod.
    Why { reply: Reply<Explanation> },
}

/// Whom a worker works with, and by which rules.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: Runtime,
    pub images: Addr<images::Msg>,
    pub statuses: Addr<keeper::Msg>,
    pub records: Addr<records::Msg>,
    pub directory: Addr<directory::Msg>,
    pub recorder: Recorder,
    pub rules: Arc<Rules>,
}

/// The worker's section of the configuration.
#[derive(Debug, Clone)]
pub struct Rules {
    pub policy: logic::worker::Policy,
    pub node: logic::sandbox::NodePolicy,
}

/// A first or renewed look at everything that exists of the pod.
#[derive(Debug)]
pub struct Fetched {
    runtime: RuntimePod,
    log_counts: BTreeMap<String, u32>,
}

/// Where in its life the pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// Made to match its spec.
    Syncing,
    /// Being stopped.
    Terminating,
    /// Nothing runs any more; kept for its status until nobody desires it.
    Terminated,
}

/// Where the worker is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pod: String,
    pub stage: Stage,
    pub working: Option<&'static str>,
    pub phase: Option<String>,
    pub sandboxes: usize,
    pub containers: usize,
    pub held: Vec<String>,
}

/// What the directory wants of the worker, newest first and whatever the mailbox has room for.
#[derive(Debug, Clone)]
pub struct Wish {
    pub desired: watch::Receiver<Desired>,
    /// A message did not fit into the mailbox: what it said is to be looked up.
    pub missed: Rc<Cell<bool>>,
}

/// One pod's worker.
#[derive(Debug)]
pub struct Worker {
    uid: PodUid,
    wish: Wish,
    peers: Peers,

    stage: Stage,
    /// What is under way; one thing at a time.
    working: Option<&'static str>,
    /// The picture is missing or doubted: look before acting.
    stale: bool,
    seen: Option<Seen>,
    memory: Memory,
    log_counts: BTreeMap<String, u32>,
    /// Why a container could not be started, until it is.
    problems: BTreeMap<String, Waiting>,
    /// What is not tried again before its time: a container's name, or [`SANDBOX`].
    held: BTreeMap<String, Instant>,
    failure: Option<Failure>,
    /// The grace of a pod that is failed by decree.
    grace: Option<Duration>,
    status: Option<Arc<PodStatus>>,
    whys: Whys,
    retry: Option<TimerId>,
}

/// The key of the sandbox among the held.
const SANDBOX: &str = "";
/// The key of kills, stops and removals among the held.
const ENDING: &str = "\u{0}ending";

impl Actor for Worker {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.memory.load(&self.uid, &self.peers.records).await;
        self.memory.begin(timestamp(ctx));
        self.begin(ctx);
        self.advance(ctx)
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Wake => self.advance(ctx),
            Msg::Observed(observed) => self.observed(*observed, ctx),
            Msg::Recheck => self.recheck(ctx),
            Msg::Fail { failure, grace } => self.fail(failure, grace, ctx),
            Msg::Fetched(answer) => self.fetched(*answer, ctx),
            Msg::Carried(report) => self.carried(*report, ctx),
            Msg::Removed(result) => self.removed(result, ctx),
            Msg::Retry => self.advance(ctx),
            Msg::Publish => self.publish_again(),
            Msg::Why { reply } => self.explain(reply).await,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let runtime = self.seen.as_ref().map(Seen::pod);
        Snapshot {
            pod: self.pod_name(),
            stage: self.stage,
            working: self.working,
            phase: self.status.as_ref().and_then(|status| status.phase.clone()),
            sandboxes: runtime.map_or(0, |pod| pod.sandboxes.len()),
            containers: runtime.map_or(0, |pod| pod.containers.len()),
            held: self.held.keys().cloned().collect(),
        }
    }
}

impl Worker {
    pub fn new(uid: PodUid, wish: Wish, peers: Peers) -> Self {
        Worker {
            uid,
            wish,
            peers,
            stage: Stage::Syncing,
            working: None,
            stale: true,
            seen: None,
            memory: Memory::default(),
            log_counts: BTreeMap::new(),
            problems: BTreeMap::new(),
            held: BTreeMap::new(),
            failure: None,
            grace: None,
            status: None,
            whys: Whys::default(),
            retry: None,
        }
    }

    /// The first status goes on from what is remembered; what of the spec is not acted on is said once.
    fn begin(&mut self, ctx: &Context<Msg>) {
        self.status = Some(Arc::new(PodStatus {
            start_time: self.memory.record.started.map(Time),
            ..PodStatus::default()
        }));
        let pod = self.wish.desired.borrow().pod().clone();
        let fields = logic::honoured::not_honoured(&pod);
        if !fields.is_empty() && self.memory.is_new() {
            let message = format!("this version does not act on: {}", fields.join(", "));
            let why = Why {
                object: None,
                weight: Weight::Warning,
                reason: "FieldsNotHonoured".to_owned(),
                message,
            };
            self.whys
                .tell(&pod, &[why], timestamp(ctx), &self.peers.recorder);
        }
    }

    fn observed(&mut self, observed: pleg::Observed, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        // Before the first look is back this is a part of the picture; nothing is planned on it yet.
        let seen = self.seen.get_or_insert_default();
        let removed = observed.removed.is_some_and(|id| seen.remove(&id));
        let joined = seen.join(observed.pod);
        if removed || joined {
            self.memory.note_exits(seen.pod(), timestamp(ctx));
            self.advance(ctx)?;
        }
        Ok(())
    }

    fn recheck(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.stale = true;
        self.advance(ctx)
    }

    fn fail(
        &mut self,
        failure: Failure,
        grace: Duration,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        if self.stage == Stage::Syncing {
            let why = Why {
                object: None,
                weight: Weight::Warning,
                reason: failure.reason.clone(),
                message: failure.message.clone(),
            };
            let pod = self.wish.desired.borrow().pod().clone();
            self.whys
                .tell(&pod, &[why], timestamp(ctx), &self.peers.recorder);
            (self.failure, self.grace) = (Some(failure), Some(grace));
            self.stage = Stage::Terminating;
        }
        self.advance(ctx)
    }

    fn fetched(
        &mut self,
        answer: Result<Fetched, RuntimeError>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.working = None;
        match answer {
            Ok(fetched) => {
                self.log_counts = fetched.log_counts;
                self.take_in(fetched.runtime, ctx);
                self.advance(ctx)
            }
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "cannot look at the pod: {}", error.told());
                self.stale = true;
                self.retry_after(SOON, ctx);
                Ok(())
            }
        }
    }

    fn carried(&mut self, report: Report, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.working = None;
        let now = ctx.now();
        for (name, problem) in report.problems {
            self.held.insert(name.clone(), now + problem.again_after);
            if let Some(waiting) = problem.waiting {
                self.problems.insert(name, waiting);
            }
        }
        for name in report.started {
            self.problems.remove(&name);
        }
        match report.runtime {
            Ok(runtime) => self.take_in(runtime, ctx),
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "cannot look at the pod: {}", error.told());
                self.stale = true;
                self.retry_after(SOON, ctx);
                return Ok(());
            }
        }
        self.advance(ctx)
    }

    fn removed(
        &mut self,
        result: Result<(), RuntimeError>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.working = None;
        if let Err(error) = result {
            tracing::warn!(pod = %self.pod_name(), "cannot remove what is left of the pod: {}", error.told());
            self.stale = true;
            self.retry_after(SOON, ctx);
            return Ok(());
        }
        // Each of these keepers has room for every pod; what is told here is only tidying up.
        let uid = &self.uid;
        let told = [
            self.peers
                .records
                .tell(records::Msg::Forget { uid: uid.clone() })
                .is_ok(),
            self.peers
                .statuses
                .tell(keeper::Msg::Forget { uid: uid.clone() })
                .is_ok(),
            self.peers
                .directory
                .tell(directory::Msg::Finished { uid: uid.clone() })
                .is_ok(),
        ];
        if told.contains(&false) {
            self.retry_after(SOON, ctx);
            return Ok(());
        }
        Err(Exit::Done)
    }

    /// Does the next thing, if nothing is under way.
    fn advance(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if self.working.is_some() {
            return Ok(());
        }
        let desired = self.wish.desired.borrow_and_update().clone();
        self.stale |= self.wish.missed.take();
        if desired.is_end() && self.stage == Stage::Syncing {
            self.stage = Stage::Terminating;
        }
        if self.stale || self.seen.is_none() {
            self.fetch(desired.pod(), ctx);
            return Ok(());
        }
        match self.stage {
            Stage::Syncing => self.sync(desired.pod(), ctx),
            Stage::Terminating => self.terminate(desired.pod(), ctx),
            Stage::Terminated => {}
        }
        if self.stage == Stage::Terminated && desired.is_end() && self.working.is_none() {
            self.remove(desired.pod(), ctx);
        }
        Ok(())
    }

    fn fetch(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        // What is doubted from now on needs another look: this one may be older.
        self.stale = false;
        self.working = Some("looking at what exists");
        let (runtime, uid, pod) = (self.peers.runtime.clone(), self.uid.clone(), pod.clone());
        let logs = self.peers.rules.node.pod_logs_dir.clone();
        ctx.run(async move {
            let log_counts = files::log_counts(logs, pod).await;
            let answer = runtime.pod(&uid).await;
            Msg::Fetched(Box::new(answer.map(|runtime| Fetched {
                runtime,
                log_counts,
            })))
        });
    }

    fn take_in(&mut self, runtime: RuntimePod, ctx: &mut Context<Msg>) {
        let seen = match &mut self.seen {
            Some(seen) => {
                seen.replace(runtime);
                seen
            }
            None => self.seen.insert(Seen::new(runtime)),
        };
        self.memory.note_exits(seen.pod(), timestamp(ctx));
    }

    fn sync(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        if self.deadline_passed(pod, ctx) {
            self.stage = Stage::Terminating;
            self.terminate(pod, ctx);
            return;
        }
        let Some(seen) = &self.seen else { return };
        if let Some(waiting) = start::blocked_by_volumes(pod) {
            self.whys
                .tell(pod, &waiting.why, timestamp(ctx), &self.peers.recorder);
            self.publish(pod, &waiting.containers, ctx);
            return;
        }
        let observed = Observed {
            runtime: seen.pod(),
            exits: &self.memory.record.exits,
            backoffs: &self.memory.record.backoffs,
            log_counts: &self.log_counts,
        };
        let plan = compute_pod_actions(timestamp(ctx), pod, &observed, &self.peers.rules.policy);
        self.whys
            .tell(pod, &plan.why, timestamp(ctx), &self.peers.recorder);
        let plan = self.without_held(plan, ctx.now());
        self.publish(pod, &plan.waiting, ctx);
        self.memory.save(&self.uid, &self.peers.records);

        let phase = self
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            self.stage = Stage::Terminating;
            self.terminate(pod, ctx);
        } else if plan.actions.is_empty() {
            self.retry_when_due(&plan, pod, ctx);
            self.collect_garbage(ctx);
        } else {
            self.carry(plan, pod, ctx);
        }
    }

    fn terminate(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.held.retain(|_, until| *until > now);
        let Some(seen) = &self.seen else { return };
        if seen.pod().is_stopped() {
            self.stage = Stage::Terminated;
            self.publish(pod, &BTreeMap::new(), ctx);
            return;
        }
        let plan = kill::termination_plan(Some(pod), seen.pod(), self.grace);
        self.whys
            .tell(pod, &plan.why, timestamp(ctx), &self.peers.recorder);
        self.publish(pod, &BTreeMap::new(), ctx);
        if self.held.contains_key(ENDING) {
            self.retry_when_due(&plan, pod, ctx);
        } else {
            self.carry(plan, pod, ctx);
        }
    }

    fn carry(&mut self, plan: PodPlan, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        self.working = Some("carrying out a plan");
        for step in plan.actions.iter().filter_map(backoff_step) {
            let policy = &self.peers.rules.policy.backoff;
            self.memory
                .record
                .backoffs
                .next(&step.key, step.since, timestamp(ctx), policy);
        }
        self.memory.save(&self.uid, &self.peers.records);
        let carrier = Carrier {
            peers: self.peers.clone(),
            uid: self.uid.clone(),
            pod: pod.clone(),
            desired: (self.stage == Stage::Syncing).then(|| self.wish.desired.clone()),
            ips: self
                .seen
                .as_ref()
                .map(|seen| seen.pod().ips().to_vec())
                .unwrap_or_default(),
        };
        ctx.run(async move { Msg::Carried(Box::new(carrier.carry(plan).await)) });
    }

    fn collect_garbage(&mut self, ctx: &mut Context<Msg>) {
        let Some(seen) = &self.seen else { return };
        let garbage = logic::gc::garbage(seen.pod());
        if garbage.is_empty() || self.held.contains_key(remove::GARBAGE) {
            return;
        }
        self.working = Some("removing dead instances");
        let (peers, uid) = (self.peers.clone(), self.uid.clone());
        ctx.run(
            async move { Msg::Carried(Box::new(remove::garbage(&peers, &uid, garbage).await)) },
        );
    }

    fn remove(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let Some(seen) = &self.seen else { return };
        self.working = Some("removing what is left");
        let (peers, pod, runtime) = (self.peers.clone(), pod.clone(), seen.pod().clone());
        ctx.run(async move { Msg::Removed(remove::everything(&peers, &pod, &runtime).await) });
    }

    /// Drops the starts whose time has not come, everything after a sandbox whose time has not come, and
    /// everything at all until what must end may be tried again.
    fn without_held(&mut self, mut plan: PodPlan, now: Instant) -> PodPlan {
        self.held.retain(|_, until| *until > now);
        let held = &self.held;
        if held.contains_key(ENDING) {
            plan.actions.clear();
        }
        let sandbox_held = held.contains_key(SANDBOX);
        plan.actions.retain(|action| match action {
            Action::CreateSandbox { .. } => !sandbox_held,
            Action::StartContainer { name, .. } => !sandbox_held && !held.contains_key(name),
            Action::KillContainer { .. }
            | Action::StopSandbox { .. }
            | Action::RemoveContainer { .. } => true,
        });
        for (name, waiting) in &self.problems {
            plan.waiting
                .entry(name.clone())
                .or_insert_with(|| waiting.clone());
        }
        plan
    }

    fn publish(
        &mut self,
        pod: &Arc<Pod>,
        waiting: &BTreeMap<String, Waiting>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(seen) = &self.seen else { return };
        let input = StatusInput {
            now: timestamp(ctx),
            pod,
            runtime: seen.pod(),
            runtime_name: &self.peers.runtime.name(),
            waiting,
            previous: self.status.as_deref(),
            host_ips: &self.peers.rules.node.host_ips,
            stage: match self.stage {
                Stage::Syncing => Shown::Syncing,
                Stage::Terminating => Shown::Terminating,
                Stage::Terminated => Shown::Terminated,
            },
            failure: self.failure.as_ref(),
        };
        let status = status::pod_status(&input);
        if self.status.as_deref() != Some(&status) {
            self.status = Some(Arc::new(status));
            self.publish_now();
        }
    }

    fn publish_again(&mut self) -> Result<(), Exit> {
        self.publish_now();
        Ok(())
    }

    fn publish_now(&self) {
        let Some(status) = self.status.clone() else {
            return;
        };
        let uid = self.uid.clone();
        if let Err(full) = self
            .peers
            .statuses
            .tell(keeper::Msg::Changed { uid, status })
        {
            tracing::warn!("status not kept: {full}");
        }
    }

    /// Fails a pod that has been active for longer than it may.
    fn deadline_passed(&mut self, pod: &Pod, ctx: &Context<Msg>) -> bool {
        let Some(deadline) = self.deadline(pod) else {
            return false;
        };
        if timestamp(ctx) < deadline {
            return false;
        }
        self.failure = Some(Failure {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
        });
        true
    }

    fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.memory.record.started?;
        started
            .checked_add(jiff::SignedDuration::from_secs(seconds))
            .ok()
    }

    fn retry_when_due(&mut self, plan: &PodPlan, pod: &Pod, ctx: &mut Context<Msg>) {
        let now = timestamp(ctx);
        let times = [plan.retry_at, self.deadline(pod)];
        let waits = times
            .into_iter()
            .flatten()
            .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let held = self
            .held
            .values()
            .map(|until| until.saturating_duration_since(ctx.now()));
        if let Some(wait) = waits.chain(held).min() {
            self.retry_after(wait, ctx);
        }
    }

    fn retry_after(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.retry.take() {
            ctx.cancel(timer);
        }
        self.retry = Some(ctx.after(wait, Msg::Retry));
    }

    async fn explain(&self, reply: Reply<Explanation>) -> Result<(), Exit> {
        let events = self.peers.recorder.about(self.uid.as_str()).await;
        reply.send(Explanation {
            pod: self.pod_name(),
            stage: format!("{:?}", self.stage),
            phase: self
                .status
                .as_ref()
                .and_then(|status| status.phase.clone())
                .unwrap_or_default(),
            containers: self
                .status
                .as_deref()
                .map(why::containers)
                .unwrap_or_default(),
            lines: self.whys.lines_with(events),
        });
        Ok(())
    }

    fn pod_name(&self) -> String {
        let desired = self.wish.desired.borrow();
        let metadata = &desired.pod().metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        format!(
            "{namespace}/{}",
            metadata.name.as_deref().unwrap_or_default()
        )
    }
}

fn backoff_step(action: &Action) -> Option<&logic::worker::BackoffStep> {
    match action {
        Action::StartContainer { backoff, .. } => backoff.as_ref(),
        Action::KillContainer { .. }
        | Action::StopSandbox { .. }
        | Action::RemoveContainer { .. }
        | Action::CreateSandbox { .. } => None,
    }
}

/// The context's wall clock, as the API writes time.
fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}
