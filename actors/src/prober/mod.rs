//! Probes of running containers: one actor and one timer for all of them.
//!
//! - **Owns** every probe of the node: its schedule, its streak, and the attempt under way.
//! - **Hears** `Watch` and `Forget` from the pod workers, its timer, and the ends of its own attempts.
//! - **Tells** a pod's worker each change of a verdict, and the recorder what users look for: Unhealthy,
//!   ProbeWarning.
//! - **Never** decides what becomes of a container: its worker does, by its health. Never guesses: until a
//!   probe has spoken again, an instance's health is what its worker says it was.
//!
//! A probe is a few hundred bytes; connections and buffers exist only while an attempt runs. A successor of
//! this actor begins with nothing: it has the workers tell it everything again.
//!
//! Upstream: pkg/kubelet/prober/{prober_manager,worker,prober}.go (1.36). Decisions: `logic::probes`.

mod attempt;
mod execs;
mod probe;
mod schedule;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Addr, Context, Exit};
use logic::probes::verdict::Outcome;
use logic::probes::{self as decide, ProbeKind, Stage};
use logic::types::{ContainerId, Health, PodUid, Verdict};
use serde::Serialize;

use self::execs::Execs;
use self::probe::{Probe, ProbeId, Work};
use self::schedule::Schedule;
use crate::reach::Reach;
use crate::runtime::Runtime;
use crate::{directory, worker};
use cluster::events::Recorder;

/// Room for what each of 1,000 pods has to say when the agent starts, and for the end of an attempt of
/// each of their three probes.
pub const MAILBOX: usize = 4096;

/// What the prober is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Probes these containers of the pod, and no others; a probe that is known already goes on as it was.
    Watch(Box<Watch>),
    /// Ends all probes of a pod.
    Forget { uid: PodUid },
    /// Begins the attempts that are due.
    Due,
    /// Takes in what an attempt found.
    Attempted(Box<Attempted>),
    /// Gives the place of an exec that takes long to the next one.
    Lingers { probe: ProbeId },
    /// Tells the workers what they had no room for.
    Tell,
}

/// All that is to be known of a pod.
#[derive(Debug)]
pub struct Watch {
    pub uid: PodUid,
    pub pod: Arc<Pod>,
    pub worker: Addr<worker::Msg>,
    /// The pod's addresses, the one to be probed first.
    pub ips: Vec<String>,
    /// Its running containers, by name.
    pub instances: BTreeMap<String, Instance>,
    pub stage: Stage,
}

/// One running instance of a container.
#[derive(Debug, Clone)]
pub struct Instance {
    pub id: ContainerId,
    /// Since when it runs, as far as it was seen.
    pub started: Instant,
    /// What its probes said last, or [`decide::initial_health`].
    pub health: Health,
}

/// A probe's verdict has changed.
#[derive(Debug)]
pub struct Probed {
    pub container: String,
    pub id: ContainerId,
    /// What all probes of the instance say now.
    pub health: Health,
    /// The one that spoke, and what it said.
    pub probe: ProbeKind,
    pub output: String,
}

impl Probed {
    /// What the probe that spoke says now.
    pub fn verdict(&self) -> Verdict {
        self.probe.verdict(&self.health)
    }
}

/// What an attempt found, or why it could not be made.
#[derive(Debug)]
pub struct Attempted {
    probe: ProbeId,
    outcome: Result<Outcome, String>,
    took: Duration,
}

/// How much there is to do, and how well it is kept up with.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    pub probes: usize,
    pub running: usize,
    pub execs_running: usize,
    pub execs_waiting: usize,
    /// Attempts since the start, by their end.
    pub attempts: BTreeMap<&'static str, u64>,
    /// The longest that an attempt began after its turn.
    pub latest_ms: u128,
}

/// Whom the prober works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: Runtime,
    pub reach: Reach,
    pub recorder: Recorder,
    pub directory: Addr<directory::Msg>,
}

/// The prober of the node.
#[derive(Debug)]
pub struct Prober {
    peers: Peers,

    since: Option<Instant>,
    pods: BTreeMap<PodUid, Watched>,
    probes: BTreeMap<ProbeId, Probe>,
    next_id: ProbeId,
    schedule: Schedule,
    execs: Execs,
    /// What could not be told yet: which probe changed its verdict, and what it said.
    untold: BTreeMap<ProbeId, String>,
    attempts: BTreeMap<&'static str, u64>,
    latest: Duration,
}

/// A pod and its probes.
#[derive(Debug)]
struct Watched {
    watch: Watch,
    probes: Vec<ProbeId>,
}

impl Actor for Prober {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A successor begins with nothing, and has the workers say it all again.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.since = Some(ctx.now());
        if let Err(full) = self.peers.directory.tell(directory::Msg::Republish) {
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
            Msg::Lingers { probe } => self.lingers(probe, ctx),
            Msg::Tell => self.tell_again(ctx),
        }
        self.schedule.arm(ctx);
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let running = |probe: &&Probe| matches!(probe.work, Work::Running { .. });
        Snapshot {
            pods: self.pods.len(),
            probes: self.probes.len(),
            running: self.probes.values().filter(running).count(),
            execs_running: self.execs.running(),
            execs_waiting: self.execs.waiting(),
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
            schedule: Schedule::default(),
            execs: Execs::default(),
            untold: BTreeMap::new(),
            attempts: BTreeMap::new(),
            latest: Duration::ZERO,
        }
    }

    fn watch(&mut self, mut watch: Watch, ctx: &mut Context<Msg>) {
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
        let new: Vec<Probe> = new.collect();
        let uid = watch.uid.clone();
        self.pods.insert(uid.clone(), Watched { watch, probes });
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

impl Watch {
    /// Keeps what is known better here: of an instance that both know, the earlier word counts, since the
    /// worker's comes from here.
    fn keep(&mut self, before: &Watch) {
        for (name, instance) in &mut self.instances {
            let known = before.instances.get(name);
            if let Some(known) = known.filter(|known| known.id == instance.id) {
                *instance = known.clone();
            }
        }
    }

    /// Every probe that the pod is to be given.
    fn probes(&self) -> impl Iterator<Item = Probe> {
        self.instances.iter().flat_map(|(name, instance)| {
            let kinds = decide::wanted(&self.pod, name, self.stage);
            let probe = |kind| Probe::new(&self.uid, name, &instance.id, kind);
            kinds.into_iter().map(probe)
        })
    }

    fn wants(&self, probe: &Probe) -> bool {
        let instance = self.instances.get(&probe.container);
        instance.is_some_and(|instance| instance.id == probe.instance)
            && decide::wanted(&self.pod, &probe.container, self.stage).contains(&probe.kind)
    }
}
