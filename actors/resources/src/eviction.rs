//! Evicts pods when the node runs short of memory: the least important one first.
//!
//! - **Owns** which thresholds have been met since when, and which pressures the node is under.
//! - **Hears** its own ticks and samples.
//! - **Tells** the pod manager which pod to evict, and the recorder what ran short.
//! - **Never** evicts a static, mirror or system-critical pod, nor a second pod before a fresh sample has
//!   shown that the first was not enough.
//!
//! Upstream: pkg/kubelet/eviction/eviction_manager.go (1.36); the period is its `monitoringInterval`.
//! Acts on `memory.available`; the other signals come with resource management. Decisions: `logic_resources::eviction`.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kernel::{Actor, Addr, Context, Exit, Recipient};
use logic_resources::eviction as decide;
use logic_resources::eviction::{EvictionPolicy, PodUsage};
use logic_resources::thresholds::{Observations, Signal, ThresholdState};
use pods::pod_manager;
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};

use crate::stats::usage::{self, UsageSampler};

/// Room for its own ticks and samples: never more than one of each.
pub const MAILBOX: usize = 8;
/// Between two samples.
const MONITORING_PERIOD: Duration = Duration::from_secs(10);

/// Messages of the eviction manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Samples the node, and the pods if something runs short.
    Tick,
    /// Decides whether to evict a pod, and schedules the next tick.
    Sampled(Box<Result<UsageSample, usage::SampleError>>),
    /// Reports the pressures again: the node status manager restarted.
    Resync,
}

/// Use of the node and its pods at one moment.
#[derive(Debug)]
pub struct UsageSample {
    /// By signal.
    pub observations: Observations,
    pub pods: Vec<PodUsage>,
}

/// The pressures that the node is under, and since when thresholds are met.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// That the node is under.
    pub pressures: BTreeSet<Signal>,
    /// By signal, as last measured.
    pub available: Observations,
    /// Pods, since the start.
    pub evicted: u64,
    /// Why the last sample failed.
    pub last_error: Option<String>,
}

/// The actors that the eviction manager tells.
#[derive(Debug, Clone)]
pub struct Peers {
    pub pod_manager: Addr<pod_manager::Msg>,
    /// The node status manager; none on a node without an API server.
    pub node: Option<Recipient<BTreeSet<Signal>>>,
    pub recorder: Recorder,
}

/// The eviction manager.
#[derive(Debug)]
pub struct EvictionManager {
    policy: EvictionPolicy,

    sampler: UsageSampler,
    peers: Peers,
    node_name: String,

    memory: ThresholdState,
    pressures: BTreeSet<Signal>,
    /// The pressures that the node status manager was sent last; none before the first sample.
    last_reported: Option<BTreeSet<Signal>>,
    available: Observations,
    evicted: u64,
    last_error: Option<String>,
}

impl Actor for EvictionManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        ctx.after(MONITORING_PERIOD, Msg::Tick);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.tick(ctx),
            Msg::Sampled(answer) => self.sampled(*answer, ctx),
            Msg::Resync => self.resync(),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pressures: self.pressures.clone(),
            available: self.available.clone(),
            evicted: self.evicted,
            last_error: self.last_error.clone(),
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
            memory: ThresholdState::default(),
            pressures: BTreeSet::new(),
            last_reported: None,
            available: Observations::new(),
            evicted: 0,
            last_error: None,
        }
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        let (sampler, thresholds) = (
            self.sampler.clone(),
            self.policy.pressure.thresholds.clone(),
        );
        let unresolved = !self.memory.unresolved.is_empty();
        ctx.run(async move {
            let sample = sampler.sample(&thresholds, unresolved).await;
            Msg::Sampled(Box::new(sample))
        });
    }

    fn sampled(&mut self, answer: Result<UsageSample, usage::SampleError>, ctx: &mut Context<Msg>) {
        match answer {
            Ok(sample) => self.decide(sample, ctx),
            Err(error) => {
                tracing::warn!("the node cannot be sampled for eviction: {error}");
                self.last_error = Some(error.to_string());
            }
        }
        ctx.after(MONITORING_PERIOD, Msg::Tick);
    }

    fn decide(&mut self, sample: UsageSample, ctx: &mut Context<Msg>) {
        let now = ctx.timestamp();
        let decision = decide::decide(
            now,
            &self.policy,
            &self.memory,
            &sample.observations,
            &sample.pods,
        );
        for signal in decision.pressures.difference(&self.pressures) {
            let message = format!("Attempting to reclaim {}", signal.resource());
            self.peers.recorder.record(
                now,
                EventType::Warning,
                self.node(),
                "EvictionThresholdMet",
                message,
            );
        }
        if let Some(eviction) = decision.evict {
            tracing::warn!(pod = %eviction.uid, "evicting: {}", eviction.failure.message);
            let signal = eviction.threshold.signal;
            let observed = sample.observations.get(&signal);
            let sampled_at = observed.map(|observed| observed.sampled_at);
            let order = pod_manager::Msg::Fail {
                uid: eviction.uid,
                failure: Box::new(eviction.failure),
                grace: eviction.grace,
            };
            match self.peers.pod_manager.tell(order) {
                Ok(()) => {
                    self.evicted += 1;
                    count(signal, sampled_at, now);
                }
                Err(full) => {
                    tracing::warn!("not evicted now, the next sample decides again: {full}")
                }
            }
        }
        self.last_error = None;
        self.memory = decision.memory;
        self.set_pressures(decision.pressures);
        self.available = sample.observations;
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

    fn node(&self) -> InvolvedObject {
        InvolvedObject::node(&self.node_name)
    }
}

fn count(signal: Signal, sampled_at: Option<Timestamp>, now: Timestamp) {
    let word = match signal {
        Signal::MemoryAvailable => "memory.available",
        Signal::PidAvailable => "pid.available",
    };
    metrics::pods::EVICTIONS.with_label_values(&[word]).inc();
    if let Some(sampled_at) = sampled_at {
        let age = now.duration_since(sampled_at).as_secs_f64();
        metrics::pods::EVICTION_STATS_AGE
            .with_label_values(&[word])
            .observe(age.max(0.0));
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::{pass, run_paused};
    use kernel::{ChildSpec, mailbox};
    use logic_api::testing::yaml::pod;
    use logic_resources::thresholds::{self, Threshold, ThresholdLimit};
    use pods::testing::TestNode;

    use super::*;

    /// A threshold that is always met: less than all of the memory is available.
    fn always_short() -> EvictionPolicy {
        let threshold = Threshold {
            signal: Signal::MemoryAvailable,
            grace: Duration::ZERO,
            limit: ThresholdLimit::PerMillion(1_000_000),
            min_reclaim: ThresholdLimit::Amount(0),
        };
        EvictionPolicy {
            pressure: thresholds::ThresholdPolicy {
                thresholds: [threshold].into(),
                transition: Duration::from_secs(300),
            },
            max_pod_grace: Duration::ZERO,
        }
    }

    fn spawn(node: &TestNode, policy: EvictionPolicy) {
        spawn_with_node(node, policy, None);
    }

    fn spawn_with_node(
        node: &TestNode,
        policy: EvictionPolicy,
        object: Option<Recipient<BTreeSet<Signal>>>,
    ) -> Addr<Msg> {
        let (addr, port) = mailbox(MAILBOX);
        let sampler = UsageSampler::new(node.runtime.clone(), node.node.pod_manager.clone());
        let peers = Peers {
            pod_manager: node.node.pod_manager.clone(),
            node: object,
            recorder: node.node.recorder.clone(),
        };
        node.node
            .root
            .spawn(ChildSpec::permanent("eviction"), port, move || {
                EvictionManager::new(
                    policy.clone(),
                    sampler.clone(),
                    peers.clone(),
                    "node".into(),
                )
            });
        addr
    }

    #[derive(Debug, strum::IntoStaticStr)]
    enum EvictionMessage {
        Pressures(BTreeSet<Signal>),
    }

    #[test]
    fn the_nodes_object_is_told_what_changes_and_again_when_it_asks() {
        run_paused(|| async {
            let node = TestNode::start().await;
            let (to_object, mut object) = kernel::testing::inbox(64);
            let to_object = Recipient::new(to_object, EvictionMessage::Pressures);
            let eviction = spawn_with_node(&node, always_short(), Some(to_object));
            eviction.tell(Msg::Resync).unwrap();
            pass(MONITORING_PERIOD / 2).await;
            assert_eq!(object.drain().len(), 0, "there is no sample yet");
            pass(MONITORING_PERIOD * 10).await;
            let last_reported = object.drain();
            let [EvictionMessage::Pressures(pressures)] = last_reported.as_slice() else {
                panic!("{last_reported:?}");
            };
            assert_eq!(*pressures, BTreeSet::from([Signal::MemoryAvailable]));
            eviction.tell(Msg::Resync).unwrap();
            pass(MONITORING_PERIOD / 2).await;
            assert_eq!(object.drain().len(), 1);
        });
    }

    const GUEST: &str = "
metadata: {name: guest}
spec:
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";
    const STATIC: &str = "
metadata: {name: static, annotations: {kubernetes.io/config.source: file}}
spec:
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

    #[test]
    fn a_node_short_of_memory_evicts_its_guest_and_spares_its_static_pod() {
        run_paused(|| async {
            let node = TestNode::start().await;
            node.desire(&[pod(GUEST), pod(STATIC)]);
            let running = |status: &_| phase(status) == Some("Running");
            node.until("guest", running).await;
            node.until("static", running).await;
            spawn(&node, always_short());
            let status = node
                .until("guest", |status| phase(status) == Some("Failed"))
                .await;
            assert_eq!(status.reason.as_deref(), Some("Evicted"));
            pass(Duration::from_secs(120)).await;
            node.until("static", running).await;
            assert!(
                node.reasons()
                    .await
                    .contains(&"EvictionThresholdMet".to_owned())
            );
        });
    }

    #[test]
    fn a_node_with_memory_to_spare_evicts_nobody() {
        run_paused(|| async {
            let node = TestNode::start().await;
            node.desire(&[pod(GUEST)]);
            spawn(&node, EvictionPolicy::default());
            pass(Duration::from_secs(120)).await;
            node.until("guest", |status| phase(status) == Some("Running"))
                .await;
        });
    }

    fn phase(status: &k8s_openapi::api::core::v1::PodStatus) -> Option<&str> {
        status.phase.as_deref()
    }
}
