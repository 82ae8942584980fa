//! Evicts pods when the node runs short of memory, disk or process ids, the least important one first, and pods that
//! take more local storage than they may.
//!
//! - **Owns** which thresholds have been met since when, and which pressures the node is under.
//! - **Hears** its own ticks and results, and that the kernel reports memory to be short.
//! - **Tells** the pod manager which pod to evict, and the recorder what ran short. **Asks** the collectors to remove
//!   what nobody uses before a pod goes.
//! - **Never** evicts a static, mirror or system-critical pod, nor a second pod for a shortage before a fresh sample
//!   has shown that the first was not enough.
//!
//! Upstream: pkg/kubelet/eviction/eviction_manager.go (1.36); the periods are its own. Decisions:
//! `logic_resources::eviction`.

mod notifier;
#[cfg(test)]
mod order_tests;
mod reclaim;
mod round;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kernel::{Actor, Addr, Context, Exit, Recipient};
use logic_api::types::PodUid;
use logic_resources::eviction as decide;
use logic_resources::eviction::{Assessment, EvictedPod, EvictionPolicy, FsLayout};
use logic_resources::thresholds::{Observations, Signal, Threshold, ThresholdState};
use notifier::MemoryNotifier;
use pods::pod_manager;
pub use reclaim::{Collectors, ReclaimError, Reclaimer};
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};

use crate::stats::usage::{SampleError, SampleExtent, UsageSample, UsageSampler};

/// Room for its own ticks and results, and for what the kernel reports: never more than one of each.
pub const MAILBOX: usize = 8;
/// Between two samples: upstream's `evictionMonitoringPeriod`.
const MONITORING_PERIOD: Duration = Duration::from_secs(10);
/// Before the first one: until then the kernel is not asked to report anything.
const FIRST_SAMPLE_DELAY: Duration = Duration::from_secs(1);
/// Between two rounds that the kernel asks for: memory at its threshold crosses it many times.
const NOTIFICATION_PERIOD: Duration = Duration::from_secs(1);
/// The same after a round that found memory left, as the kernel had counted what can be reclaimed: the pod that has
/// gone over the first limit may be at the true one before a second is over.
const EARLY_NOTIFICATION_PERIOD: Duration = Duration::from_millis(100);

/// Messages of the eviction manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Samples the node, and the pods if something runs short.
    Tick,
    /// Samples the memory at once: the kernel has seen a threshold crossed.
    MemoryThresholdCrossed,
    /// Decides whether to evict a pod, or to have the node give something back first.
    Sampled(Box<Result<UsageSample, SampleError>>),
    /// Evicts a pod if what the node gave back is not enough.
    Reclaimed(Box<ReclaimedSample>),
    /// Looks again after an eviction; these pods have not ended in time.
    CleanedUp { left: BTreeSet<PodUid> },
    /// Goes on without the kernel's reports.
    NotificationRefused(String),
    /// Reports the pressures again: the node status manager restarted.
    Resync,
}

/// What is left after the node has given back what it could.
#[derive(Debug)]
pub struct ReclaimedSample {
    shortage: Threshold,
    due: BTreeSet<Threshold>,
    /// Fresh, or the one before where there is no fresh one.
    sample: UsageSample,
    freshness: Freshness,
}

/// Whether a sample was taken after the node had given something back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Fresh,
    Before,
}

/// The pressures that the node is under, and since when thresholds are met.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// That the node is under.
    pub pressures: BTreeSet<Signal>,
    /// By signal, as last measured.
    pub available: Observations,
    /// Where the runtime keeps images and writable layers.
    pub layout: FsLayout,
    /// Pods, since the start.
    pub evicted: u64,
    /// Pods that were evicted and have not ended.
    pub leaving: BTreeSet<PodUid>,
    /// Why the last sample failed, or why nobody can be evicted.
    pub last_error: Option<String>,
    /// Why the kernel does not report thresholds of memory; none where it does, or is not asked.
    pub notification_refused: Option<String>,
}

/// The actors that the eviction manager asks and tells.
#[derive(Debug, Clone)]
pub struct Peers {
    pub pod_manager: Addr<pod_manager::Msg>,
    /// The node status manager; none on a node without an API server.
    pub node: Option<Recipient<BTreeSet<Signal>>>,
    pub recorder: Recorder,
    pub collectors: Collectors,
}

/// The eviction manager.
#[derive(Debug)]
pub struct EvictionManager {
    policy: EvictionPolicy,
    sampler: UsageSampler,
    peers: Peers,
    node_name: String,

    thresholds: ThresholdState,
    round: Round,
    notifier: MemoryNotifier,
    pressures: BTreeSet<Signal>,
    /// The pressures that the node status manager was sent last; none before the first sample.
    last_reported: Option<BTreeSet<Signal>>,
    seen: LastSeen,
}

/// Whether a round is under way: rounds do not overlap.
#[derive(Debug, Default)]
struct Round {
    is_running: bool,
    /// The kernel reported while one was running.
    notified: bool,
    /// The kernel reported soon after a round that it had asked for: a timer runs for the next one.
    is_postponed: bool,
    /// When the kernel's last report led to a round.
    last_notified: Option<Instant>,
    /// Whether the last round found something short.
    was_short: bool,
    /// Pods that were evicted and have not ended in time: the next one goes in their stead.
    leaving: BTreeSet<PodUid>,
}

/// For the snapshot.
#[derive(Debug, Default)]
struct LastSeen {
    available: Observations,
    layout: FsLayout,
    evicted: u64,
    error: Option<String>,
}

impl Actor for EvictionManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if !self.policy.is_idle() {
            ctx.after(FIRST_SAMPLE_DELAY, Msg::Tick);
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.tick(ctx),
            Msg::MemoryThresholdCrossed => self.memory_threshold_crossed(ctx),
            Msg::Sampled(answer) => self.sampled(*answer, ctx),
            Msg::Reclaimed(reclaimed) => self.reclaimed(*reclaimed, ctx),
            Msg::CleanedUp { left } => self.cleaned_up(left, ctx),
            Msg::NotificationRefused(why) => self.notifier.refused(why),
            Msg::Resync => self.resync(),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pressures: self.pressures.clone(),
            available: self.seen.available.clone(),
            layout: self.seen.layout,
            evicted: self.seen.evicted,
            leaving: self.round.leaving.clone(),
            last_error: self.seen.error.clone(),
            notification_refused: self.notifier.refusal.clone(),
        }
    }
}

impl EvictionManager {
    pub fn new(
        policy: EvictionPolicy,
        sampler: UsageSampler,
        peers: Peers,
        node_name: String,
    ) -> Self {
        EvictionManager {
            policy,
            sampler,
            peers,
            node_name,
            thresholds: ThresholdState::default(),
            round: Round::default(),
            notifier: MemoryNotifier::default(),
            pressures: BTreeSet::new(),
            last_reported: None,
            seen: LastSeen::default(),
        }
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(MONITORING_PERIOD, Msg::Tick);
        if !self.round.is_running {
            self.begin(SampleExtent::Everything, ctx);
        }
    }

    fn memory_threshold_crossed(&mut self, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        if self.round.is_running {
            self.round.notified = true;
            return;
        }
        let since = |last: Instant| now.saturating_duration_since(last);
        let since = self.round.last_notified.map(since);
        let period = match self.round.was_short {
            true => NOTIFICATION_PERIOD,
            false => EARLY_NOTIFICATION_PERIOD,
        };
        if let Some(since) = since.filter(|since| *since < period) {
            if !std::mem::replace(&mut self.round.is_postponed, true) {
                ctx.after(period - since, Msg::MemoryThresholdCrossed);
            }
            return;
        }
        self.round.is_postponed = false;
        tracing::info!("the kernel reports a memory eviction threshold as crossed");
        self.round.last_notified = Some(now);
        self.begin(SampleExtent::Memory, ctx);
    }

    fn begin(&mut self, extent: SampleExtent, ctx: &mut Context<Msg>) {
        self.round.is_running = true;
        let (sampler, policy) = (self.sampler.clone(), self.policy.clone());
        let unresolved = self.thresholds.unresolved.clone();
        ctx.run(async move {
            let sample = sampler.sample(&policy, &unresolved, extent).await;
            Msg::Sampled(Box::new(sample))
        });
    }

    /// Ends a round; what the kernel reported meanwhile begins the next one.
    fn end(&mut self, ctx: &mut Context<Msg>) {
        self.round.is_running = false;
        if std::mem::take(&mut self.round.notified) {
            self.memory_threshold_crossed(ctx);
        }
    }

    fn sampled(&mut self, answer: Result<UsageSample, SampleError>, ctx: &mut Context<Msg>) {
        match answer {
            Ok(sample) => self.assess(sample, ctx),
            Err(error) => {
                let told = kernel::error_chain(&error);
                tracing::warn!("the node cannot be sampled for eviction: {told}");
                self.seen.error = Some(told);
                self.end(ctx);
            }
        }
    }

    fn assess(&mut self, mut sample: UsageSample, ctx: &mut Context<Msg>) {
        self.seen.error.clone_from(&sample.missing);
        // What was not looked at stays as it was; it is no news, so that nobody goes for it.
        for (signal, before) in &self.seen.available {
            sample.observations.entry(*signal).or_insert(*before);
        }
        if !sample.pods.is_empty() {
            let is_there = |uid: &PodUid| sample.pods.iter().any(|pod| pod.uid == *uid);
            self.round.leaving.retain(is_there);
        }
        self.notifier
            .update(&self.policy, &self.sampler, &sample.memory, ctx);
        let policy = self.policy.on(sample.layout);
        let found = decide::assess(
            ctx.now(),
            &policy,
            &self.thresholds,
            (&sample.observations, &sample.pods),
            &self.round.leaving,
        );
        (self.seen.layout, self.seen.available) = (sample.layout, sample.observations.clone());
        let Assessment {
            over_limit,
            shortage,
            due,
            pressures,
            state,
        } = found;
        self.thresholds = state;
        self.round.was_short = shortage.is_some() || !over_limit.is_empty();
        self.set_pressures(pressures);
        if !over_limit.is_empty() {
            let gone = over_limit.into_iter().filter_map(|pod| self.evict(pod));
            let gone = gone.collect();
            return self.await_cleanup(gone, ctx);
        }
        match shortage {
            Some(shortage) => self.act(shortage, due, sample, ctx),
            None => self.end(ctx),
        }
    }

    /// Has the node give back what it can, else evicts a pod.
    fn act(
        &mut self,
        shortage: Threshold,
        due: BTreeSet<Threshold>,
        sample: UsageSample,
        ctx: &mut Context<Msg>,
    ) {
        let message = format!("Attempting to reclaim {}", shortage.signal.resource());
        let node = InvolvedObject::node(&self.node_name);
        let (now, warning) = (ctx.timestamp(), EventType::Warning);
        let recorder = &self.peers.recorder;
        recorder.record(now, warning, node, "EvictionThresholdMet", message);
        let reclaims = sample.layout.reclaims(shortage.signal);
        let before = ReclaimedSample {
            shortage,
            due,
            sample,
            freshness: Freshness::Before,
        };
        if !self.peers.collectors.have(reclaims) {
            return self.reclaimed(before, ctx);
        }
        let (collectors, sampler) = (self.peers.collectors.clone(), self.sampler.clone());
        let (policy, unresolved) = (self.policy.clone(), self.thresholds.unresolved.clone());
        ctx.run(async move {
            collectors.reclaim(reclaims).await;
            let fresh = sampler.sample(&policy, &unresolved, SampleExtent::Everything);
            let reclaimed = match fresh.await {
                Ok(sample) => ReclaimedSample {
                    sample,
                    freshness: Freshness::Fresh,
                    ..before
                },
                Err(error) => {
                    let told = kernel::error_chain(&error);
                    tracing::warn!("what is left after reclaiming is not known: {told}");
                    before
                }
            };
            Msg::Reclaimed(Box::new(reclaimed))
        });
    }

    fn reclaimed(&mut self, reclaimed: ReclaimedSample, ctx: &mut Context<Msg>) {
        let ReclaimedSample {
            shortage,
            due,
            sample,
            freshness,
        } = reclaimed;
        let policy = self.policy.on(sample.layout);
        let is_relieved = decide::is_relieved(&policy, &sample.observations);
        if freshness == Freshness::Fresh && is_relieved {
            tracing::info!(
                "able to reduce pressure on {} without evicting pods",
                shortage.signal.resource()
            );
            return self.end(ctx);
        }
        let figures = (&sample.observations, sample.pods.as_slice());
        let leaving = &self.round.leaving;
        let (evicted, ranking) = decide::choose(&policy, shortage, sample.layout, figures, leaving);
        round::log_ranking(&ranking);
        round::observe_ages(&due, &sample.observations, ctx.now());
        let Some(evicted) = evicted else {
            let told = "unable to evict any pods from the node";
            tracing::warn!("{told}, which is short of {}", shortage.signal.resource());
            self.seen.error = Some(match sample.missing {
                Some(why) => format!("{told}: {why}"),
                None => told.to_owned(),
            });
            return self.end(ctx);
        };
        let gone = self.evict(evicted).into_iter().collect();
        self.await_cleanup(gone, ctx);
    }

    /// Has the pod manager fail a pod; none where it has no room for the order.
    fn evict(&mut self, pod: EvictedPod) -> Option<PodUid> {
        let EvictedPod {
            uid,
            cause,
            grace,
            failure,
        } = pod;
        tracing::warn!(pod = %uid, "evicting: {}", failure.message);
        let order = pod_manager::Msg::Fail {
            uid: uid.clone(),
            failure: Box::new(failure),
            grace,
        };
        match self.peers.pod_manager.tell(order) {
            Ok(()) => {
                self.seen.evicted += 1;
                let counter = metrics::pods::EVICTIONS.with_label_values(&[cause.signal()]);
                counter.inc();
                Some(uid)
            }
            Err(full) => {
                tracing::warn!("not evicted now, the next sample decides again: {full}");
                None
            }
        }
    }

    /// Waits until the pods have ended, and looks again at once; not where nobody goes.
    fn await_cleanup(&mut self, pods: BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        if pods.is_empty() {
            return self.end(ctx);
        }
        let sampler = self.sampler.clone();
        ctx.run(async move {
            Msg::CleanedUp {
                left: round::await_cleanup(&sampler, pods).await,
            }
        });
    }

    fn cleaned_up(&mut self, left: BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        if !left.is_empty() {
            tracing::warn!(
                "timed out waiting for {} evicted pods to be cleaned up",
                left.len()
            );
        }
        self.round.leaving.extend(left);
        self.round.notified = false;
        self.begin(SampleExtent::Everything, ctx);
    }

    /// Tells the pod manager the pressures for admission; a report that found no room is sent again.
    fn set_pressures(&mut self, pressures: BTreeSet<Signal>) {
        self.report_pressures(&pressures);
        if pressures == self.pressures {
            return;
        }
        let last_reported = self.peers.pod_manager.tell(pod_manager::Msg::Node(
            pod_manager::NodeChange::Pressures(pressures.clone()),
        ));
        match last_reported {
            Ok(()) => self.pressures = pressures,
            Err(full) => {
                tracing::warn!("pressure not told now, the next sample tells: {full}")
            }
        }
    }

    fn report_pressures(&mut self, pressures: &BTreeSet<Signal>) {
        let Some(node) = &self.peers.node else {
            return;
        };
        if self.last_reported.as_ref() == Some(pressures) {
            return;
        }
        match node.tell(pressures.clone()) {
            Ok(()) => self.last_reported = Some(pressures.clone()),
            Err(full) => {
                tracing::warn!("the node's object shows pressure with the next sample: {full}");
            }
        }
    }

    /// Before the first sample there are no pressures to report.
    fn resync(&mut self) {
        if let Some(last_reported) = self.last_reported.take() {
            self.report_pressures(&last_reported);
        }
    }
}
