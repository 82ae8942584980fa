//! Probes of running containers: one actor and one timer for all of them.
//!
//! - **Owns** every probe of the node: its schedule, its run of equal results, and its current attempt.
//! - **Hears** `Watch` and `Forget` from the pod workers, its timer, and the results of its own attempts.
//! - **Tells** a pod's worker each change of a probe's result, and the recorder what users look for: Unhealthy,
//!   ProbeWarning.
//! - **Never** decides what happens to a container: its worker does, by its health. Never guesses: until a
//!   probe has a new result, an instance's health is the one that its worker sent.
//!
//! A probe is a few hundred bytes; connections and buffers exist only during an attempt. A restarted
//! prober begins empty and has the workers send their pods again.
//!
//! Upstream: pkg/kubelet/prober/{prober_manager,worker,prober}.go (1.36). Decisions: `logic_pods::probes`.

mod attempt;
mod exec_limit;
mod probe;
mod run_probe;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::probe_client::ProbeClient;
use clients::runtime::RuntimeClient;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Context, Exit, Recipient};
use logic_api::pod::PodView;
pub use logic_api::types::{ContainerHealth, ContainerId, PodUid, ProbeResult};
use logic_pods::probes as decide;
pub use logic_pods::probes::result::{ProbeError, ProbeOutcome};
use logic_pods::probes::{ProbeKind, ProbeStage};
use serde::Serialize;
use state::events::Recorder;
use state::status::PodResync;

use self::exec_limit::ExecLimit;
use self::probe::{ProbeId, ProbeState, ProbeWorker};
use self::schedule::ProbeSchedule;

/// Room for the pods of 1,000 workers when the agent starts, and for the end of an attempt of
/// each of their three probes.
pub const MAILBOX: usize = 4096;

/// Messages of the prober.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Probes these containers of the pod, and no others; a known probe keeps its state.
    Watch(Box<ProbedPod>),
    /// Ends all probes of a pod.
    Forget { uid: PodUid },
    /// Begins the attempts that are due.
    Due,
    /// Records the result of an attempt.
    Attempted(Box<AttemptResult>),
    /// Gives the slot of a slow exec probe to the next one.
    SlotExpired { probe: ProbeId },
    /// Sends the workers the updates that found no room.
    Notify,
}

/// A pod and its running containers, as its worker sees them.
#[derive(Debug)]
pub struct ProbedPod {
    pub uid: PodUid,
    pub pod: Arc<Pod>,
    pub worker: Recipient<ProbeUpdate>,
    /// The pod's addresses; the first one is probed.
    pub ips: Vec<String>,
    /// Its running containers, by name.
    pub instances: BTreeMap<String, ProbedInstance>,
    pub stage: ProbeStage,
}

/// One running instance of a container.
#[derive(Debug, Clone)]
pub struct ProbedInstance {
    pub id: ContainerId,
    /// When it started running, as far as the agent saw.
    pub started: Instant,
    /// The last results of its probes, or [`decide::initial_health`].
    pub health: ContainerHealth,
}

/// A changed result of a probe.
#[derive(Debug)]
pub struct ProbeUpdate {
    pub container: String,
    pub id: ContainerId,
    /// The results of all probes of the instance.
    pub health: ContainerHealth,
    /// The probe whose result changed; `output` is its output.
    pub probe: ProbeKind,
    pub output: String,
}

impl ProbeUpdate {
    /// The new result of the probe that changed.
    pub fn verdict(&self) -> ProbeResult {
        self.probe.verdict(&self.health)
    }
}

/// The outcome of an attempt, or why it could not be made.
#[derive(Debug)]
pub struct AttemptResult {
    probe: ProbeId,
    outcome: Result<ProbeOutcome, ProbeError>,
    took: Duration,
}

/// The load of the prober, and how far it is behind.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    pub probes: usize,
    pub running: usize,
    pub execs_running: usize,
    pub execs_waiting: usize,
    /// Attempts since the start, by their outcome.
    pub attempts: BTreeMap<&'static str, u64>,
    /// Milliseconds: the longest delay of an attempt after its scheduled time.
    pub latest_ms: u128,
}

/// The actors and clients that the prober works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    pub probe_client: ProbeClient,
    pub recorder: Recorder,
    pub pod_manager: Recipient<PodResync>,
}

/// The prober of the node.
#[derive(Debug)]
pub struct Prober {
    peers: Peers,

    since: Option<Instant>,
    pods: BTreeMap<PodUid, ProbedPodEntry>,
    probes: BTreeMap<ProbeId, ProbeWorker>,
    next_id: ProbeId,
    schedule: ProbeSchedule,
    exec_limit: ExecLimit,
    /// Updates that found no room in a worker's mailbox: the probe, and its output.
    unnotified: BTreeMap<ProbeId, String>,
    attempts: BTreeMap<&'static str, u64>,
    latest: Duration,
}

/// A pod and its probes.
#[derive(Debug)]
struct ProbedPodEntry {
    watch: ProbedPod,
    probes: Vec<ProbeId>,
}

impl Actor for Prober {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A restarted prober begins empty and has the workers send their pods again.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.since = Some(ctx.now());
        if let Err(full) = self.peers.pod_manager.tell(PodResync) {
            tracing::warn!("probes come back as their pods change: {full}");
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Watch(watch) => self.watch(*watch, ctx),
            Msg::Forget { uid } => self.forget(&uid, ctx),
            Msg::Due => self.due(ctx),
            Msg::Attempted(attempted) => self.attempted(*attempted, ctx),
            Msg::SlotExpired { probe } => self.slot_expired(probe, ctx),
            Msg::Notify => self.retry_notify(ctx),
        }
        self.schedule.arm(ctx);
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let running = |probe: &&ProbeWorker| matches!(probe.work, ProbeState::Running { .. });
        Snapshot {
            pods: self.pods.len(),
            probes: self.probes.len(),
            running: self.probes.values().filter(running).count(),
            execs_running: self.exec_limit.running(),
            execs_waiting: self.exec_limit.waiting(),
            attempts: self.attempts.clone(),
            latest_ms: self.latest.as_millis(),
        }
    }
}

impl Prober {
    pub fn new(peers: Peers) -> Self {
        Prober {
            peers,
            since: None,
            pods: BTreeMap::new(),
            probes: BTreeMap::new(),
            next_id: ProbeId::default(),
            schedule: ProbeSchedule::default(),
            exec_limit: ExecLimit::default(),
            unnotified: BTreeMap::new(),
            attempts: BTreeMap::new(),
            latest: Duration::ZERO,
        }
    }

    fn watch(&mut self, mut watch: ProbedPod, ctx: &mut Context<Msg>) {
        let before = self.pods.remove(&watch.uid);
        let mut probes = Vec::new();
        if let Some(before) = before {
            watch.keep(&before.watch);
            for id in before.probes {
                match self.probes.get(&id).is_some_and(|probe| watch.wants(probe)) {
                    true => probes.push(id),
                    false => self.end(id, ctx),
                }
            }
        }
        let known: Vec<(String, ProbeKind)> = probes
            .iter()
            .filter_map(|id| self.probes.get(id))
            .map(|probe| (probe.container.clone(), probe.kind))
            .collect();
        let new = watch.probes().filter(|probe| {
            let same = |(container, kind): &(String, ProbeKind)| {
                *container == probe.container && *kind == probe.kind
            };
            !known.iter().any(same)
        });
        let new: Vec<ProbeWorker> = new.collect();
        let uid = watch.uid.clone();
        self.pods
            .insert(uid.clone(), ProbedPodEntry { watch, probes });
        for probe in new {
            let id = self.begin(probe, ctx);
            if let Some(watched) = self.pods.get_mut(&uid) {
                watched.probes.push(id);
            }
        }
    }

    fn forget(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        let watched = self.pods.remove(uid);
        for id in watched.into_iter().flat_map(|watched| watched.probes) {
            self.end(id, ctx);
        }
    }
}

impl ProbedPod {
    /// Keeps the known health of instances that `before` has too: the prober's own is newer than the worker's,
    /// which came from here.
    fn keep(&mut self, before: &ProbedPod) {
        for (name, instance) in &mut self.instances {
            let known = before.instances.get(name);
            if let Some(known) = known.filter(|known| known.id == instance.id) {
                *instance = known.clone();
            }
        }
    }

    /// Every probe that the pod has in its stage.
    fn probes(&self) -> impl Iterator<Item = ProbeWorker> {
        self.instances.iter().flat_map(|(name, instance)| {
            let kinds = decide::probes_of_container(&self.pod, name, self.stage);
            let probe = |kind| ProbeWorker::new(&self.uid, name, &instance.id, kind);
            kinds.into_iter().map(probe)
        })
    }

    fn wants(&self, probe: &ProbeWorker) -> bool {
        let instance = self.instances.get(&probe.container);
        instance.is_some_and(|instance| instance.id == probe.instance)
            && decide::probes_of_container(&self.pod, &probe.container, self.stage)
                .contains(&probe.kind)
    }
}

/// The labels of a probe's metrics.
pub(crate) fn metric_labels<'a>(
    pod: &'a Pod,
    container: &'a str,
    kind: ProbeKind,
) -> metrics::pods::prober::ProbeLabels<'a> {
    metrics::pods::prober::ProbeLabels {
        kind: kind.as_str(),
        container,
        pod: pod.name(),
        namespace: pod.namespace(),
        uid: pod.metadata.uid.as_deref().unwrap_or_default(),
    }
}
