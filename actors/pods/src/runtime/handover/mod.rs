//! Hands this node's pods over from one runtime to another, so that nothing ever runs in both.
//!
//! - **Owns** the record of which runtime the pods are on, and the gate that lets pods start.
//! - **Hears** the operator's swaps, and what became of a hand-over.
//! - **Tells** the pod manager that the gate has moved; asks the runtime's host to try and to swap the plugin.
//! - **Never** swaps to another backend before the old one has nothing left that runs, and never opens the gate before the
//!   new one is on record.
//!
//! The way of a hand-over: the new runtime is tried; the intent is written down; pods end within their grace periods
//! (`End`); what they were is written down and removed (`Clear`); the plugin is swapped, and pods go on as after a reboot of the node.
//! A kill at any moment leaves a record from which the next life goes on. A swap to a plugin of the same backend is none.
//!
//! Upstream has nothing of this: its kubelet forgets what runs in the runtime that it had before.

mod gate;
mod neighbour;
mod passage;
mod record;
mod record_file;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clients::runtime::RuntimeClient;
use kernel::{Actor, Addr, AskError, Context, Exit, Reply, watch};
use plugin_host::{Declaration, HostError};
use serde::{Deserialize, Serialize};
use state::checkpoints;
use state::events::{EventType, InvolvedObject, Recorder};
use thiserror::Error;

pub use self::gate::{HandoverStep, RuntimeGate, RuntimeInUse};
pub use self::neighbour::NeighbourRuntime;
use self::passage::{COMPLAINT_PERIOD, Passage};
pub use self::record::{PendingHandover, RuntimeChoice, RuntimeRecord};
pub use self::record_file::{FoundRecord, RecordFile};
use crate::cgroups::pod_cgroups::PodCgroups;
use crate::pod_manager;

/// Room for an operator's requests.
pub const MAILBOX: usize = 16;
/// Before a runtime that the configuration names, and that is not well yet, is tried again.
const RETRY_PERIOD: Duration = Duration::from_secs(10);

/// The actors and clients that the hand-over works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    /// The runtime plugin's host.
    pub host: Addr<plugin_host::Msg>,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub checkpoints: Addr<checkpoints::Msg>,
    pub recorder: Recorder,
    pub gate: RuntimeGate,
    /// What tells that nothing runs any more where the old runtime is out of reach.
    pub cgroups: PodCgroups,
    /// Tells which pods the new runtime runs already.
    pub neighbour: NeighbourRuntime,
}

/// What a hand-over is decided by.
#[derive(Debug, Clone)]
pub struct HandoverConfig {
    pub node_name: String,
    pub file: RecordFile,
    /// The name of the runtime's host.
    pub host: String,
    /// The declared runtimes by name.
    pub declared: BTreeMap<String, Declaration>,
}

/// Whether pods may be ended for a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodConsent {
    EndPods,
    LeavePods,
}

/// What a swap would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapPlan {
    /// The runtimes' names as declared.
    pub from: String,
    pub to: String,
    /// Whether the new one is another backend, which doesn't know the pods of the old one.
    pub is_handover: bool,
    /// The pods of which something runs, by namespace and name.
    pub pods: Vec<EndingPod>,
}

/// A pod that a hand-over ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndingPod {
    pub pod: String,
    /// Seconds that its containers get to end.
    pub grace: u64,
    /// Whether it goes on in the new runtime; one of `restartPolicy: Never` does not.
    pub goes_on: bool,
}

/// Messages of the hand-over.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Answers with what a swap to this declared runtime would do.
    Plan {
        to: String,
        reply: Reply<Result<SwapPlan, SwapError>>,
    },
    /// Swaps to this declared runtime; answers with the plugin's new generation when pods may start in it.
    Swap {
        to: String,
        consent: PodConsent,
        reply: Reply<Result<u64, SwapError>>,
    },
    /// Answers how far a hand-over is.
    Progress { reply: Reply<Snapshot> },
    /// Begins or continues the hand-over that is on record.
    Proceed,
    /// Answers with a plan that was made.
    Planned(Box<PlanEnd>),
    /// Takes the end of a swap or a hand-over.
    Ended(Box<SwapEnd>),
}

/// A plan, and who asked for it.
#[derive(Debug)]
pub struct PlanEnd {
    plan: Result<SwapPlan, SwapError>,
    reply: Reply<Result<SwapPlan, SwapError>>,
}

/// What became of a swap.
#[derive(Debug)]
pub struct SwapEnd {
    outcome: Result<u64, SwapError>,
    reply: Option<Reply<Result<u64, SwapError>>>,
}

/// Why a swap came to nothing.
#[derive(Debug, Error)]
pub enum SwapError {
    #[error("there is no plugin {name}, expected one of {expected}")]
    Undeclared { name: String, expected: String },
    #[error(
        "{to} does not know the {pods} pods that run on {from}: they would have to end there first, which has to be asked for by name (--end-pods)"
    )]
    NeedsConsent {
        from: String,
        to: String,
        pods: usize,
    },
    #[error("the pods are being handed over from {from} to {to}")]
    UnderWay { from: String, to: String },
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{who} does not answer now")]
    Silent { who: &'static str, source: AskError },
    #[error("which runtime the pods are on could not be written down: {0}")]
    Record(String),
    /// It goes on by itself when the old runtime answers, or when nothing of its pods runs.
    #[error(
        "the pods of runtime {from} could not be listed: {why}; {held}; start {from} again, end these processes, or name its endpoint again"
    )]
    Unlisted {
        from: String,
        why: String,
        held: String,
    },
}

/// How far a hand-over is.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snapshot {
    /// The runtime that the pods are on.
    pub runtime: String,
    /// The one that they go to; none while they stay.
    pub to: Option<String>,
    /// What is being done, in words; empty while nothing is.
    pub step: String,
    /// The pods that it waits for, by namespace and name.
    pub waits_for: Vec<String>,
}

/// The hand-over.
#[derive(Debug)]
pub struct RuntimeHandover {
    config: Rc<HandoverConfig>,
    peers: Peers,
    state: Rc<watch::Sender<RuntimeInUse>>,
    /// Outlives the actor: a restarted one goes on with the record as it is.
    record: Rc<RefCell<RuntimeRecord>>,
    progress: Rc<RefCell<Snapshot>>,
    is_under_way: bool,
    /// What holds up a hand-over that the configuration asks for, and when it was last told.
    held_up: Option<(String, Instant)>,
}

impl Actor for RuntimeHandover {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.proceed(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Plan { to, reply } => self.plan(&to, reply, ctx),
            Msg::Swap { to, consent, reply } => self.swap(&to, consent, reply, ctx),
            Msg::Progress { reply } => reply.send(self.snapshot()),
            Msg::Proceed => self.proceed(ctx),
            Msg::Planned(end) => end.reply.send(end.plan),
            Msg::Ended(end) => self.ended(*end, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let record = self.record.borrow();
        Snapshot {
            runtime: match &record.handover {
                Some(pending) => record.current.describe(&pending.to),
                None => record.current.name.clone(),
            },
            to: record
                .handover
                .as_ref()
                .map(|pending| pending.to.describe(&record.current)),
            ..self.progress.borrow().clone()
        }
    }
}

impl RuntimeHandover {
    /// `record` is what holds at the start; the file has it already.
    pub fn new(
        config: Rc<HandoverConfig>,
        peers: Peers,
        state: Rc<watch::Sender<RuntimeInUse>>,
        record: Rc<RefCell<RuntimeRecord>>,
    ) -> Self {
        RuntimeHandover {
            config,
            peers,
            state,
            record,
            progress: Rc::default(),
            is_under_way: false,
            held_up: None,
        }
    }

    fn choice(&self, name: &str) -> Result<(RuntimeChoice, Declaration), SwapError> {
        let declared = &self.config.declared;
        let found = declared.get(name).ok_or_else(|| SwapError::Undeclared {
            name: name.to_owned(),
            expected: declared.keys().cloned().collect::<Vec<_>>().join(", "),
        })?;
        Ok((RuntimeChoice::of(name, found), found.clone()))
    }

    fn passage(&self, to: RuntimeChoice, declaration: Declaration) -> Passage {
        Passage {
            config: self.config.clone(),
            peers: self.peers.clone(),
            state: self.state.clone(),
            progress: self.progress.clone(),
            record: self.record.clone(),
            to,
            declaration,
        }
    }

    fn plan(&self, to: &str, reply: Reply<Result<SwapPlan, SwapError>>, ctx: &mut Context<Msg>) {
        let passage = match self.choice(to) {
            Ok((to, declaration)) => self.passage(to, declaration),
            Err(error) => return reply.send(Err(error)),
        };
        ctx.run(async move {
            let plan = passage.plan().await;
            Msg::Planned(Box::new(PlanEnd { plan, reply }))
        });
    }

    fn swap(
        &mut self,
        to: &str,
        consent: PodConsent,
        reply: Reply<Result<u64, SwapError>>,
        ctx: &mut Context<Msg>,
    ) {
        let (to, declaration) = match self.choice(to) {
            Ok(found) => found,
            Err(error) => return reply.send(Err(error)),
        };
        let pending = self.record.borrow().handover.clone();
        if self.is_under_way || pending.as_ref().is_some_and(|pending| pending.begun) {
            let record = self.record.borrow();
            let to = pending.map_or(to, |pending| pending.to);
            let (from, to) = (record.current.describe(&to), to.describe(&record.current));
            return reply.send(Err(SwapError::UnderWay { from, to }));
        }
        self.is_under_way = true;
        let passage = self.passage(to, declaration);
        ctx.run(async move { passage.run(consent, Some(reply)).await });
    }

    fn proceed(&mut self, ctx: &mut Context<Msg>) {
        let pending = self.record.borrow().handover.clone();
        let Some(PendingHandover { to, .. }) = pending.filter(|_| !self.is_under_way) else {
            return;
        };
        self.is_under_way = true;
        let declaration = to.declaration(&self.config.host, &self.config.declared);
        let passage = self.passage(to, declaration);
        ctx.run(async move { passage.run(PodConsent::EndPods, None).await });
    }

    fn ended(&mut self, end: SwapEnd, ctx: &mut Context<Msg>) {
        self.is_under_way = false;
        self.progress.take();
        let pending = self.record.borrow().handover.clone();
        if pending.is_some() {
            ctx.after(RETRY_PERIOD, Msg::Proceed);
        }
        match (&end.outcome, end.reply.is_some(), pending) {
            (Err(error), false, Some(pending)) => self.hold_up(error, &pending.to, ctx),
            (Err(error), _, _) => tracing::warn!("runtime not swapped: {error}"),
            (Ok(_), _, _) => self.held_up = None,
        }
        if let Some(reply) = end.reply {
            reply.send(end.outcome);
        }
    }

    /// Tells what holds up a hand-over that nobody waits for: at once, when it is another reason, and each minute.
    fn hold_up(&mut self, error: &SwapError, to: &RuntimeChoice, ctx: &Context<Msg>) {
        let text = error.to_string();
        self.progress.borrow_mut().step = format!("held up: {text}");
        let is_told = self.held_up.as_ref().is_some_and(|(told, at)| {
            *told == text && ctx.now().saturating_duration_since(*at) < COMPLAINT_PERIOD
        });
        if is_told {
            return;
        }
        self.held_up = Some((text.clone(), ctx.now()));
        let record = self.record.borrow();
        let (from, to) = (record.current.describe(to), to.describe(&record.current));
        let message = format!("the hand-over from runtime {from} to {to} is held up: {text}");
        tracing::warn!("{message}");
        let node = InvolvedObject::node(&self.config.node_name);
        let recorder = &self.peers.recorder;
        recorder.record(
            ctx.timestamp(),
            EventType::Warning,
            node,
            "RuntimeHandover",
            message,
        );
    }
}
