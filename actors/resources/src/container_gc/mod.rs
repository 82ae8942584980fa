//! Removes dead containers and sandboxes of the whole node: by the limits of the flags, and everything that ended pods have
//! left when the disk is short.
//!
//! - **Owns** nothing but the run under way: what is there is the runtime's to tell, what goes on the pod manager's.
//! - **Hears** its own ticks and results, and `DeleteAllUnused` from the eviction manager.
//! - **Tells** the recorder what could not be collected.
//! - **Never** removes the newest container or sandbox of a pod that goes on, nor anything of a pod that it does not know
//!   before every source has told its pods.
//!
//! Logs of pods that are gone, and links to logs that are gone, are the pod manager's. Upstream:
//! pkg/kubelet/kuberuntime/kuberuntime_gc.go and container/container_gc.go (1.36). Decisions: `logic_resources::container_gc`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clients::runtime::{RuntimeClient, RuntimeError};
use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use kernel::{Actor, Addr, AskError, Context, Exit, Reply};
use logic_api::types::{ContainerId, PodUid, RuntimePod};
use logic_resources::container_gc::{self as decide, ContainerGcPolicy, GcScope, Standings};
use logic_resources::node::policy::NodePolicy;
use pods::pod_manager;
use pods::runtime::dead_containers;
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};
use telemetry::{Span, SpanKind};
use thiserror::Error;

/// Room for its own results, and for questions of the eviction manager, which asks one at a time.
pub const MAILBOX: usize = 16;
/// Between two collections where the flag names none: upstream's.
const DEFAULT_PERIOD: Duration = Duration::from_secs(60);
/// Removals side by side: a runtime takes some ten milliseconds for each, and has other work as well.
const REMOVED_AT_ONCE: usize = 4;
/// A run that takes longer leaves the rest to the next one, which looks anew at which pods there are.
const RUN_TIMEOUT: Duration = Duration::from_secs(240);
/// Failures that are named in full; of the others, the number.
const MAX_NAMED: usize = 10;
/// The pod manager answers from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason of events, as upstream's.
const FAILED: &str = "ContainerGCFailed";

/// Messages of the container collector.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Removes what is in excess of the limits.
    Tick,
    /// Removes everything that pods which have ended have left; answers when it is gone.
    DeleteAllUnused {
        reply: Reply<Result<(), ContainerGcError>>,
    },
    /// Takes in what has come of a run.
    Collected(Collected),
}

/// What a run has removed, and what it could not.
#[derive(Debug, Default)]
pub struct Collected {
    containers: u64,
    sandboxes: u64,
    errors: Vec<String>,
}

/// Why a collection failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ContainerGcError(pub String);

impl ContainerGcError {
    /// A later collection finds what is there anew.
    pub fn transient(&self) -> bool {
        true
    }
}

/// What was removed since the start.
#[derive(Debug, Default, Serialize)]
pub struct Snapshot {
    pub containers: u64,
    pub sandboxes: u64,
    /// Why the last collection failed.
    pub last_error: Option<String>,
}

/// The container collector's section of the configuration.
#[derive(Debug, Clone)]
pub struct ContainerGcConfig {
    pub policy: ContainerGcPolicy,
    /// Between two collections; zero for upstream's minute.
    pub period: Duration,
    pub node: NodePolicy,
}

/// The actors and clients that the container collector works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub recorder: Recorder,
}

/// The container collector.
#[derive(Debug)]
pub struct ContainerGc {
    config: ContainerGcConfig,
    peers: Peers,

    /// Whom the run under way is to answer; none where no run is under way.
    run: Option<Vec<Reply<Result<(), ContainerGcError>>>>,
    /// Who waits for the next run of everything.
    asked: Vec<Reply<Result<(), ContainerGcError>>>,
    totals: Snapshot,
}

impl Actor for ContainerGc {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        ctx.after(self.period(), Msg::Tick);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.tick(ctx),
            Msg::DeleteAllUnused { reply } => self.delete_all_unused(reply, ctx),
            Msg::Collected(collected) => self.collected(collected, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            last_error: self.totals.last_error.clone(),
            ..self.totals
        }
    }
}

impl ContainerGc {
    pub fn new(config: ContainerGcConfig, peers: Peers) -> Self {
        ContainerGc {
            config,
            peers,
            run: None,
            asked: Vec::new(),
            totals: Snapshot::default(),
        }
    }

    fn period(&self) -> Duration {
        match self.config.period.is_zero() {
            true => DEFAULT_PERIOD,
            false => self.config.period,
        }
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(self.period(), Msg::Tick);
        if self.run.is_none() {
            self.begin(Vec::new(), GcScope::Excess, ctx);
        }
    }

    fn delete_all_unused(
        &mut self,
        reply: Reply<Result<(), ContainerGcError>>,
        ctx: &mut Context<Msg>,
    ) {
        self.asked.push(reply);
        self.begin_asked(ctx);
    }

    fn begin_asked(&mut self, ctx: &mut Context<Msg>) {
        if self.run.is_none() && !self.asked.is_empty() {
            tracing::info!("attempting to delete unused containers");
            let asked = std::mem::take(&mut self.asked);
            self.begin(asked, GcScope::AllUnused, ctx);
        }
    }

    fn begin(
        &mut self,
        asked: Vec<Reply<Result<(), ContainerGcError>>>,
        scope: GcScope,
        ctx: &mut Context<Msg>,
    ) {
        self.run = Some(asked);
        let (config, peers, now) = (self.config.clone(), self.peers.clone(), ctx.timestamp());
        ctx.run(async move {
            let span = Span::begin("Containers/GarbageCollect", SpanKind::Internal, Vec::new);
            let work = span.scope().run(collect(&config, &peers, scope, now));
            let collected = tokio::time::timeout(RUN_TIMEOUT, work).await;
            let collected = collected.unwrap_or_else(|_| Collected {
                errors: vec![format!(
                    "not all was removed within {} s",
                    RUN_TIMEOUT.as_secs()
                )],
                ..Collected::default()
            });
            if let Some(error) = collected.errors.first() {
                span.fail(error);
            }
            Msg::Collected(collected)
        });
    }

    fn collected(&mut self, collected: Collected, ctx: &mut Context<Msg>) {
        self.totals.containers += collected.containers;
        self.totals.sandboxes += collected.sandboxes;
        let error = complaint(collected.errors);
        let asked = self.run.take().unwrap_or_default();
        for reply in asked {
            let error = error.clone().map(ContainerGcError);
            reply.send(error.map_or(Ok(()), Err));
        }
        if let Some(error) = &error {
            tracing::error!("container garbage collection failed: {error}");
            let node = InvolvedObject::node(&self.config.node.node_name);
            let (now, recorder) = (ctx.timestamp(), &self.peers.recorder);
            recorder.record(now, EventType::Warning, node, FAILED, error.clone());
        } else if self.totals.last_error.is_some() {
            tracing::info!("container garbage collection succeeded");
        }
        self.totals.last_error = error;
        self.begin_asked(ctx);
    }
}

/// One event for all that failed.
fn complaint(mut errors: Vec<String>) -> Option<String> {
    let unnamed = errors.len().saturating_sub(MAX_NAMED);
    errors.truncate(MAX_NAMED);
    if unnamed > 0 {
        errors.push(format!("{unnamed} more"));
    }
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// The runtime is listed before the pods are: a pod that comes in between has nothing in the list, and none is taken for gone.
async fn collect(
    config: &ContainerGcConfig,
    peers: &Peers,
    scope: GcScope,
    now: Timestamp,
) -> Collected {
    let mut collected = Collected::default();
    let pods = match peers.runtime.pods().await {
        Ok(pods) => pods,
        Err(error) => {
            collected.errors.push(error.describe());
            return collected;
        }
    };
    let standings = standings(peers).await.unwrap_or_else(|error| {
        tracing::warn!("only what is in excess of pods' own limits is collected: {error}");
        None
    });
    let gone = remove_containers(
        config,
        peers,
        (&pods, standings.as_ref()),
        (scope, now),
        &mut collected,
    );
    let gone = gone.await;
    let gone: BTreeSet<&ContainerId> = gone.iter().collect();
    let sandboxes = decide::sandboxes(&pods, standings.as_ref(), &gone, scope);
    let removals = stream::iter(sandboxes).map(async |id| {
        let removed = dead_containers::remove_sandbox(&peers.runtime, id).await;
        (id, removed)
    });
    let mut removals = removals.buffered(REMOVED_AT_ONCE);
    while let Some((id, removed)) = removals.next().await {
        match removed {
            Ok(()) => collected.sandboxes += 1,
            Err(error) => collected.failed("sandbox", id.as_str(), &error),
        }
    }
    collected
}

async fn standings(peers: &Peers) -> Result<Option<Standings>, AskError> {
    let ask = pod_manager::Msg::standings;
    peers.pod_manager.ask(ASK_TIMEOUT, ask).await
}

/// Removes the containers that are to go; returns those that have gone.
async fn remove_containers(
    config: &ContainerGcConfig,
    peers: &Peers,
    (pods, standings): (&BTreeMap<PodUid, RuntimePod>, Option<&Standings>),
    (scope, now): (GcScope, Timestamp),
    collected: &mut Collected,
) -> Vec<ContainerId> {
    let dead = decide::containers(now, &config.policy, pods, standings, scope);
    let removals = stream::iter(dead).map(async |dead| {
        let id = dead.container.id.clone();
        let removed = dead_containers::remove_container(&peers.runtime, &config.node, dead).await;
        (id, removed)
    });
    let mut removals = removals.buffered(REMOVED_AT_ONCE);
    let mut gone = Vec::new();
    while let Some((id, removed)) = removals.next().await {
        match removed {
            Ok(()) => {
                collected.containers += 1;
                gone.push(id);
            }
            Err(error) => collected.failed("container", id.as_str(), &error),
        }
    }
    gone
}

impl Collected {
    fn failed(&mut self, what: &str, id: &str, error: &RuntimeError) {
        self.errors
            .push(format!("{what} {id}: {}", error.describe()));
    }
}
