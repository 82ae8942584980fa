//! One swap from its beginning to its end, step by step; see the page of the module for their order.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use kernel::{AskError, Reply, watch};
use logic_api::pod::PodView;
use logic_api::types::{PodUid, RestartPolicy, RuntimePod};
use plugin_host::{Declaration, HostError};
use state::checkpoints;
use state::events::{EventType, InvolvedObject};

use super::gate::{HandoverStep, RuntimeInUse};
use super::record::{PendingHandover, RuntimeChoice, RuntimeRecord};
use super::{
    EndingPod, HandoverConfig, Msg, Peers, PodConsent, Snapshot, SwapEnd, SwapError, SwapPlan,
};
use crate::pod_manager::{self, NodeChange};

/// Between two looks at what is left in the old runtime.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// What is dead may stay in the old runtime if it is not removed within this time: it harms nobody.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(10);
/// A pod manager or checkpoint manager that does not answer within this time is stuck.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// A new generation may start, and an old one drain and be killed: each has its own deadline at the host.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two events about what holds a hand-over up.
pub(super) const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

/// A swap that is under way.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) config: Rc<HandoverConfig>,
    pub(super) peers: Peers,
    pub(super) state: Rc<watch::Sender<RuntimeInUse>>,
    pub(super) progress: Rc<RefCell<Snapshot>>,
    pub(super) record: Rc<RefCell<RuntimeRecord>>,
    pub(super) to: RuntimeChoice,
    pub(super) declaration: Declaration,
}

impl Passage {
    pub(super) async fn run(
        self,
        consent: PodConsent,
        reply: Option<Reply<Result<u64, SwapError>>>,
    ) -> Msg {
        let outcome = match self.is_handover() {
            true => self.hand_over(consent).await,
            false => self.swap_plugin().await,
        };
        Msg::Ended(Box::new(SwapEnd { outcome, reply }))
    }

    /// Looks at what a swap would do.
    pub(super) async fn plan(&self) -> Result<SwapPlan, SwapError> {
        let pods = match self.is_handover() {
            true => self.ending().await?,
            false => Vec::new(),
        };
        Ok(SwapPlan {
            from: self.from(),
            to: self.to(),
            is_handover: self.is_handover(),
            pods,
        })
    }

    fn record(&self) -> RuntimeRecord {
        self.record.borrow().clone()
    }

    fn from(&self) -> String {
        self.record.borrow().current.describe(&self.to)
    }

    fn to(&self) -> String {
        self.to.describe(&self.record.borrow().current)
    }

    fn is_handover(&self) -> bool {
        self.record.borrow().current.backend != self.to.backend
    }

    fn has_begun(&self) -> bool {
        let record = self.record.borrow();
        record
            .handover
            .as_ref()
            .is_some_and(|pending| pending.begun)
    }

    async fn ending(&self) -> Result<Vec<EndingPod>, SwapError> {
        let all = self
            .peers
            .pod_manager
            .ask(ASK_TIMEOUT, pod_manager::Msg::all);
        let all = all.await.map_err(silent("the pod manager"))?;
        let goes_on = |uid: &PodUid| {
            let found = all.iter().find(|pod| pod.uid() == *uid);
            found.is_some_and(|pod| pod.restart_policy() != RestartPolicy::Never)
        };
        let alive = self.alive().await?;
        let ending = alive.iter().map(|pod| EndingPod {
            pod: name(pod),
            grace: pod
                .containers
                .iter()
                .filter_map(|c| c.termination_grace)
                .max()
                .unwrap_or(0),
            goes_on: goes_on(&pod.uid),
        });
        Ok(ending.collect())
    }

    /// The pods of which something is left in the old runtime. One that does not answer has none if no pod has a process, or
    /// if the new runtime runs those that have one.
    async fn alive(&self) -> Result<Vec<RuntimePod>, SwapError> {
        match self.peers.runtime.pods().await {
            Ok(listed) => {
                let alive = listed.into_values().filter(|pod| !pod.is_stopped());
                Ok(alive.collect())
            }
            Err(_) if self.peers.cgroups.are_empty().await == Some(true) => Ok(Vec::new()),
            Err(error) => match self.unclaimed().await {
                None => Ok(Vec::new()),
                Some(held) => Err(SwapError::Unlisted {
                    from: self.from(),
                    why: error.describe(),
                    held,
                }),
            },
        }
    }

    /// Why pods with processes may be the old runtime's; none if the new one runs all of them: another agent that ran
    /// meanwhile made them there.
    async fn unclaimed(&self) -> Option<String> {
        let to = self.to();
        let Some(running) = self.peers.cgroups.with_processes().await else {
            return Some("which pods have processes is unknown".to_owned());
        };
        let own = match self.peers.neighbour.pods(&self.declaration).await {
            Ok(own) => own,
            Err(why) => return Some(format!("which pods {to} runs is unknown: {why}")),
        };
        let unclaimed: Vec<&str> = running.difference(&own).map(PodUid::as_str).collect();
        if unclaimed.is_empty() {
            tracing::info!("{to} runs all {} pods that have processes", running.len());
            return None;
        }
        let unclaimed = unclaimed.join(", ");
        Some(format!(
            "{to} does not run these pods, which have processes: {unclaimed}"
        ))
    }

    /// A plugin of the same backend shows the same pods: they run on.
    async fn swap_plugin(&self) -> Result<u64, SwapError> {
        let generation = self.swap().await?;
        self.save(RuntimeRecord {
            current: self.to.clone(),
            handover: None,
            ..self.record()
        })
        .await?;
        self.show_gate(None).await;
        Ok(generation)
    }

    async fn hand_over(&self, consent: PodConsent) -> Result<u64, SwapError> {
        if !self.has_begun() {
            self.begin(consent).await?;
        }
        self.show_gate(Some(HandoverStep::End)).await;
        self.until_stopped().await;
        self.show_gate(Some(HandoverStep::Clear)).await;
        self.until_cleared().await;
        self.report("storing what the pods were", &[]);
        let stored = |reply| checkpoints::Msg::Stored { reply };
        let stored = self.peers.checkpoints.ask(ASK_TIMEOUT, stored).await;
        stored.map_err(silent("the checkpoint manager"))?;
        self.report("swapping the plugin", &[]);
        let swapped = self.swap().await;
        self.finish(&swapped).await?;
        swapped
    }

    /// Asks for consent, tries the new runtime, and writes the intent down.
    async fn begin(&self, consent: PodConsent) -> Result<(), SwapError> {
        let (from, to) = (self.from(), self.to());
        let pods = self.ending().await?.len();
        if consent == PodConsent::LeavePods && pods > 0 {
            return Err(SwapError::NeedsConsent { from, to, pods });
        }
        self.report("trying the new runtime", &[]);
        let declaration = Box::new(self.declaration.clone());
        let tried = |reply| plugin_host::Msg::Try { declaration, reply };
        let tried = self.peers.host.ask(PLUGIN_TIMEOUT, tried).await;
        tried.map_err(silent("the plugin's host"))??;
        let pending = PendingHandover {
            to: self.to.clone(),
            begun: true,
        };
        self.save(RuntimeRecord {
            handover: Some(pending),
            ..self.record()
        })
        .await?;
        let message = match pods {
            0 => format!("no pod is left in runtime {from}: the node goes on in {to}"),
            _ => format!(
                "{pods} pods are handed over from runtime {from} to {to}: they end there first"
            ),
        };
        self.tell(EventType::Normal, "RuntimeHandover", message);
        Ok(())
    }

    /// Writes down which runtime it is now, and lets pods start in it.
    async fn finish(&self, swapped: &Result<u64, SwapError>) -> Result<(), SwapError> {
        let (from, to, record) = (self.from(), self.to(), self.record());
        let is_configured = record.configured == self.to.backend;
        let next = match swapped {
            Ok(_) => RuntimeRecord {
                current: self.to.clone(),
                handover: None,
                ..record
            },
            // The operator may ask again; what the file names is tried on.
            Err(_) => RuntimeRecord {
                handover: is_configured.then(|| PendingHandover {
                    to: self.to.clone(),
                    begun: false,
                }),
                ..record
            },
        };
        self.save(next).await?;
        self.show_gate(None).await;
        match swapped {
            Ok(_) => {
                let message = format!("the pods were handed over from runtime {from} to {to}");
                self.tell(EventType::Normal, "RuntimeHandover", message);
            }
            Err(error) => {
                let message = format!("the pods go on in runtime {from}: {error}");
                self.tell(EventType::Warning, "FailedRuntimeHandover", message);
            }
        }
        Ok(())
    }

    /// Waits until nothing runs in the old runtime, and nothing is being started there.
    async fn until_stopped(&self) {
        let mut complained = kernel::now();
        loop {
            let left: Vec<String> = match self.alive().await {
                Ok(alive) if alive.is_empty() && self.peers.gate.starts.is_idle() => return,
                Ok(alive) => alive.iter().map(name).collect(),
                Err(error) => vec![error.to_string()],
            };
            self.report("ending the pods in the old runtime", &left);
            if kernel::now().saturating_duration_since(complained) >= COMPLAINT_PERIOD {
                complained = kernel::now();
                let message = format!(
                    "the hand-over to runtime {} waits for: {}",
                    self.to(),
                    left.join(", ")
                );
                self.tell(EventType::Warning, "RuntimeHandover", message);
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }

    /// Waits until the old runtime has nothing of the pods any more, or for a while.
    async fn until_cleared(&self) {
        let until = kernel::now() + CLEAR_TIMEOUT;
        while kernel::now() < until {
            let left: Vec<String> = match self.peers.runtime.pods().await {
                Ok(pods) if pods.is_empty() => return,
                Ok(pods) => pods.values().map(name).collect(),
                // Out of reach, and nothing of it runs: whatever it still has on record stays there.
                Err(_) => return,
            };
            self.report("removing what is left in the old runtime", &left);
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }

    async fn swap(&self) -> Result<u64, SwapError> {
        let declaration = Box::new(self.declaration.clone());
        let swap = |reply| plugin_host::Msg::Swap { declaration, reply };
        let swapped: Result<Result<u64, HostError>, AskError> =
            self.peers.host.ask(PLUGIN_TIMEOUT, swap).await;
        Ok(swapped.map_err(silent("the plugin's host"))??)
    }

    /// Has it on the disk before it counts.
    async fn save(&self, record: RuntimeRecord) -> Result<(), SwapError> {
        let (file, saved) = (self.config.file.clone(), record.clone());
        let written = kernel::spawn_blocking(move || {
            let saved = file.save(&saved);
            saved.map_err(|error| kernel::error_chain(&error))
        });
        let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
        written.map_err(SwapError::Record)?;
        *self.record.borrow_mut() = record;
        Ok(())
    }

    /// Shows every worker what to do.
    async fn show_gate(&self, step: Option<HandoverStep>) {
        self.state.send_replace(RuntimeInUse {
            name: self.from(),
            handover: step.map(|step| (step, self.to())),
        });
        let moved = pod_manager::Msg::Node(NodeChange::RuntimeHandover);
        if let Err(error) = self.peers.pod_manager.send(moved, ASK_TIMEOUT).await {
            tracing::error!("the pods are not told of their runtime's hand-over: {error}");
        }
    }

    fn report(&self, step: &str, waits_for: &[String]) {
        let mut progress = self.progress.borrow_mut();
        step.clone_into(&mut progress.step);
        progress.waits_for = waits_for.to_vec();
    }

    fn tell(&self, level: EventType, reason: &str, message: String) {
        let node = InvolvedObject::node(&self.config.node_name);
        let recorder = &self.peers.recorder;
        recorder.record(kernel::timestamp(), level, node, reason, message);
    }
}

fn silent(who: &'static str) -> impl FnOnce(AskError) -> SwapError {
    move |source| SwapError::Silent { who, source }
}

fn name(pod: &RuntimePod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}
