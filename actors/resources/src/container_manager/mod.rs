//! The cgroups above the pods, and what the node reserves for itself.
//!
//! - **Owns** the pods' root, its classes, and the limits that were written to them last.
//! - **Hears** that pods have come, gone or changed, and the results of its own work.
//! - **Tells** the node status manager what the machine refuses, and records events of what is enforced.
//! - **Never** touches a pod's own cgroup (`pods::cgroups::pod_cgroups`), and never ends because the machine refuses something.
//!
//! Upstream: pkg/kubelet/cm/{container_manager_linux,node_container_manager_linux,qos_container_manager_linux}.go (1.36).

mod enforcer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clients::runtime::{RuntimeClient, RuntimeError};
use host::tunables::TunablePolicy;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Addr, AskError, Context, Exit, Recipient, TimerId};
use logic_api::pod::requests::ResourceAmounts;
use logic_resources::cgroups::tree::{self, Enforcement, GroupLimits, NodeLimits};
use logic_resources::cgroups::{CgroupDriver, CgroupPolicy};
use logic_resources::resources::{MEMORY_LOW, MEMORY_MIN};
use pods::cgroups::CgroupManager;
use pods::pod_manager;
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};

use self::enforcer::Enforcer;
pub use self::enforcer::{Duty, DutyOutcome};

/// The reasons of events, as upstream's.
const ENFORCED: &str = "NodeAllocatableEnforced";
const FAILED: &str = "FailedNodeAllocatableEnforcement";
/// Room for its own results, and for changes of pods, of which one stands for all.
pub const MAILBOX: usize = 16;
/// Changes of pods within this time are taken together.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// Between attempts of what failed, and looks at where the node's own processes are; as upstream.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
/// Between questions to a runtime that does not tell its driver yet.
const RUNTIME_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// The pod manager answers from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// The area's section of the configuration.
#[derive(Debug, Clone, Default)]
pub struct ContainerManagerConfig {
    pub node_name: String,
    /// None without `cgroupsPerQOS`.
    pub policy: Option<CgroupPolicy>,
    pub node: NodeLimits,
    /// What is enforced on groups that the operator has made.
    pub reserved: Vec<ReservedGroup>,
    pub processes: ProcessPlacement,
}

/// A reservation that is enforced on a group of its own.
#[derive(Debug, Clone)]
pub struct ReservedGroup {
    pub kind: Enforcement,
    /// As the configuration has it, in the driver's form.
    pub group: String,
    /// kubeReserved or systemReserved.
    pub amounts: ResourceAmounts,
}

/// Where the node's own processes are to be.
#[derive(Debug, Clone, Default)]
pub struct ProcessPlacement {
    /// `kubeletCgroups`: the group of the agent and its plugins; empty leaves them where they are.
    pub kubelet: String,
    /// `systemCgroups`: the group of processes that are in none; empty leaves them there.
    pub system: String,
    /// `oomScoreAdj` of the agent and its plugins; none leaves them as they are.
    pub oom_score: Option<i32>,
    /// None leaves the kernel's settings as they are.
    pub tunables: Option<TunablePolicy>,
}

/// Messages of the container manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Pods have come, gone or changed.
    PodsChanged,
    /// The runtime has told its driver, or could not.
    Runtime(Result<(), RuntimeError>),
    /// Asks for the pods.
    Settled,
    /// Brings the groups in line with these pods.
    Pods(Result<Vec<Arc<Pod>>, AskError>),
    /// Takes in what has come of duties.
    Done(Vec<DutyOutcome>),
    /// Tries again what failed, and looks at the node's own processes.
    Tick,
    /// Reports the refusals again: the node status manager restarted.
    Resync,
}

/// The groups and what the machine refuses.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// None before the runtime has told.
    pub driver: Option<CgroupDriver>,
    /// The limits in force above the pods.
    pub groups: Vec<GroupLimits>,
    /// What the machine refuses, by duty, with the reason.
    pub refused: BTreeMap<String, String>,
    /// Changes of groups, since the start.
    pub updates: u64,
}

/// The actors and clients that the container manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    pub cgroups: CgroupManager,
    pub pod_manager: Addr<pod_manager::Msg>,
    /// The node status manager; none on a node without an API server.
    pub node: Option<Recipient<Vec<String>>>,
    pub recorder: Recorder,
}

/// The container manager.
#[derive(Debug)]
pub struct ContainerManager {
    config: ContainerManagerConfig,
    peers: Peers,

    /// None before the runtime has told its driver.
    driver: Option<CgroupDriver>,
    /// The limits that were written last, by the group's path.
    applied: BTreeMap<String, GroupLimits>,
    /// Reservations in force, by the group that the configuration names.
    enforced: BTreeSet<(Enforcement, String)>,
    /// By the duty's name.
    refused: BTreeMap<String, String>,
    /// The refusals that the node status manager was sent last.
    last_reported: Vec<String>,
    settling: Option<TimerId>,
    working: bool,
    /// Whether pods changed during the work.
    stale: bool,
    updates: u64,
}

impl Actor for ContainerManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.working = true;
        self.perform(self.duties_of_processes(), ctx);
        self.ask_runtime(Duration::ZERO, ctx);
        ctx.after(RETRY_PERIOD, Msg::Tick);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::PodsChanged => self.pods_changed(ctx),
            Msg::Runtime(Ok(())) => self.runtime_told(ctx),
            Msg::Runtime(Err(error)) => {
                tracing::debug!("no cgroups yet: {}", error.describe());
                self.ask_runtime(RUNTIME_RETRY_PERIOD, ctx);
            }
            Msg::Settled => self.ask_for_pods(ctx),
            Msg::Pods(Ok(pods)) => self.follow(&pods, ctx),
            Msg::Pods(Err(error)) => {
                tracing::debug!("the pods are not known now: {error}");
                self.working = false;
                self.pods_changed(ctx);
            }
            Msg::Done(outcomes) => self.done(outcomes, ctx),
            Msg::Tick => self.tick(ctx),
            Msg::Resync => self.report_again(),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            driver: self.driver,
            groups: self.applied.values().cloned().collect(),
            refused: self.refused.clone(),
            updates: self.updates,
        }
    }
}

impl ContainerManager {
    pub fn new(config: ContainerManagerConfig, peers: Peers) -> Self {
        ContainerManager {
            config,
            peers,
            driver: None,
            applied: BTreeMap::new(),
            enforced: BTreeSet::new(),
            refused: BTreeMap::new(),
            last_reported: Vec::new(),
            settling: None,
            working: false,
            stale: false,
            updates: 0,
        }
    }

    /// Groups have the driver's names: nothing is made before the runtime has told it.
    fn ask_runtime(&self, after: Duration, ctx: &mut Context<Msg>) {
        let runtime = self.peers.runtime.clone();
        ctx.run(async move {
            tokio::time::sleep(after).await;
            Msg::Runtime(runtime.learn_features().await)
        });
    }

    fn runtime_told(&mut self, ctx: &mut Context<Msg>) {
        self.follow_driver();
        self.pods_changed(ctx);
    }

    /// A runtime that was exchanged may have another driver: its groups are others.
    fn follow_driver(&mut self) {
        let driver = self.peers.cgroups.driver();
        if self.driver != Some(driver) {
            self.driver = Some(driver);
            self.applied.clear();
        }
    }

    fn pods_changed(&mut self, ctx: &mut Context<Msg>) {
        if self.driver.is_none() {
            return;
        }
        self.stale = true;
        if self.settling.is_none() && !self.working {
            self.settling = Some(ctx.after(SETTLED_AFTER, Msg::Settled));
        }
    }

    fn ask_for_pods(&mut self, ctx: &mut Context<Msg>) {
        (self.settling, self.stale, self.working) = (None, false, true);
        let pod_manager = self.peers.pod_manager.clone();
        ctx.run(async move {
            let pods = pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::active);
            Msg::Pods(pods.await)
        });
    }

    fn follow(&mut self, pods: &[Arc<Pod>], ctx: &mut Context<Msg>) {
        self.follow_driver();
        let mut duties = Vec::new();
        if let Some(policy) = &self.config.policy {
            let pods = pods.iter().map(AsRef::as_ref);
            let groups = tree::groups(policy, &self.config.node, pods);
            observe(&groups);
            let changed = groups.into_iter().filter(|group| !self.is_applied(group));
            duties.extend(changed.map(|group| Duty::Group(Box::new(group))));
        }
        let reserved = self.config.reserved.iter();
        let left = reserved.filter(|group| !self.enforced.contains(&group.key()));
        duties.extend(left.cloned().map(Duty::Reserved));
        self.perform(duties, ctx);
    }

    /// Whether the group had limits before: those of pods that come and go are no event.
    fn was_done(&self, duty: &Duty) -> bool {
        match duty {
            Duty::Group(group) => {
                let path = group.name.path(self.peers.cgroups.driver());
                self.applied.contains_key(&path)
            }
            Duty::Reserved(_)
            | Duty::KubeletProcesses(_)
            | Duty::SystemProcesses(_)
            | Duty::OomScore(_)
            | Duty::Tunables(_) => false,
        }
    }

    fn is_applied(&self, group: &GroupLimits) -> bool {
        let path = group.name.path(self.peers.cgroups.driver());
        self.applied.get(&path) == Some(group)
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(RETRY_PERIOD, Msg::Tick);
        self.stale |= !self.refused.is_empty();
        if !self.working {
            self.working = true;
            self.perform(self.duties_of_processes(), ctx);
        }
    }

    /// Those that the configuration asks for.
    fn duties_of_processes(&self) -> Vec<Duty> {
        let ProcessPlacement {
            kubelet,
            system,
            oom_score,
            tunables,
        } = &self.config.processes;
        let group = |group: &String| Some(group.clone()).filter(|group| !group.is_empty());
        let duties = [
            group(kubelet).map(Duty::KubeletProcesses),
            group(system).map(Duty::SystemProcesses),
            oom_score.map(Duty::OomScore),
            tunables.map(Duty::Tunables),
        ];
        duties.into_iter().flatten().collect()
    }

    fn perform(&self, duties: Vec<Duty>, ctx: &mut Context<Msg>) {
        let enforcer = Enforcer {
            cgroups: self.peers.cgroups.clone(),
            node: self.config.node.clone(),
        };
        ctx.run(async move {
            let mut outcomes = Vec::new();
            for duty in duties {
                let result = enforcer.perform(&duty).await;
                outcomes.push(DutyOutcome { duty, result });
            }
            Msg::Done(outcomes)
        });
    }

    fn done(&mut self, outcomes: Vec<DutyOutcome>, ctx: &mut Context<Msg>) {
        self.working = false;
        for DutyOutcome { duty, result } in outcomes {
            match result {
                Ok(()) => self.fulfilled(duty, ctx),
                Err(why) => self.refused(&duty, why, ctx),
            }
        }
        self.report();
        if self.stale {
            self.pods_changed(ctx);
        }
    }

    fn fulfilled(&mut self, duty: Duty, ctx: &Context<Msg>) {
        let was_refused = self.refused.remove(&duty.to_string()).is_some();
        let is_news = was_refused || !self.was_done(&duty);
        if let Some(message) = duty.success(self.config.policy.as_ref())
            && is_news
        {
            self.record(EventType::Normal, ENFORCED, message, ctx);
        }
        match duty {
            Duty::Group(group) => {
                self.updates += 1;
                let path = group.name.path(self.peers.cgroups.driver());
                self.applied.insert(path, *group);
            }
            Duty::Reserved(group) => {
                self.enforced.insert(group.key());
            }
            Duty::KubeletProcesses(_)
            | Duty::SystemProcesses(_)
            | Duty::OomScore(_)
            | Duty::Tunables(_) => {}
        }
    }

    /// What is refused again for the same reason is neither logged nor recorded again.
    fn refused(&mut self, duty: &Duty, why: String, ctx: &Context<Msg>) {
        let name = duty.to_string();
        if self.refused.get(&name) == Some(&why) {
            return;
        }
        tracing::warn!("{name}: {why}; tried again each minute");
        if let Some(message) = duty.failure(&why) {
            self.record(EventType::Warning, FAILED, message, ctx);
        }
        self.refused.insert(name, why);
    }

    fn record(&self, kind: EventType, reason: &str, message: String, ctx: &Context<Msg>) {
        let node = InvolvedObject::node(&self.config.node_name);
        let recorder = &self.peers.recorder;
        recorder.record(ctx.timestamp(), kind, node, reason, message);
    }

    fn report(&mut self) {
        let refusals = self.refused.iter();
        let refusals: Vec<String> = refusals
            .map(|(duty, why)| format!("{duty}: {why}"))
            .collect();
        if refusals == self.last_reported {
            return;
        }
        let Some(node) = &self.peers.node else { return };
        match node.tell(refusals.clone()) {
            Ok(()) => self.last_reported = refusals,
            Err(full) => tracing::warn!("the node's object shows refusals later: {full}"),
        }
    }

    fn report_again(&mut self) {
        self.last_reported.clear();
        self.report();
    }
}

impl ReservedGroup {
    fn key(&self) -> (Enforcement, String) {
        (self.kind, self.group.clone())
    }
}

/// Shows the memory that the kernel keeps for the pods' classes; the root's covers both.
fn observe(groups: &[GroupLimits; 3]) {
    let [root, burstable, _] = groups;
    let bytes = |group: &GroupLimits, file: &str| group.limits.unified.get(file)?.parse().ok();
    let of_both = (bytes(root, MEMORY_MIN), bytes(burstable, MEMORY_LOW));
    if let (Some(both), Some(low)) = of_both {
        let (both, low): (f64, f64) = (both, low);
        metrics::node::cgroups::MEMORY_MIN.set(both - low);
        metrics::node::cgroups::MEMORY_LOW.set(low);
    }
}
