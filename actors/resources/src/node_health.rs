//! The node's health and capacity, gathered from the runtime and the managers for the node's object.
//!
//! - **Owns** what it reported last.
//! - **Hears** its own ticks and the results of its checks; and the node's pod CIDRs.
//! - **Tells** the node status manager, fact by fact; and the runtime the pod CIDRs.
//! - **Never** derives a condition from a fact: the node status manager does (`logic_node::node_status`).
//!
//! Upstream: pkg/kubelet/kubelet.go (updateRuntimeUp), kubelet_node_status.go (sources of setters), kubelet_network.go
//! (updatePodCIDR), 1.36.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clients::runtime::{RuntimeClient, RuntimeError};
use kernel::{Actor, Addr, Context, Exit, Recipient, Supervisor};
use logic_node::node_status::{NodeFact, NodeImage, PartProblem, RuntimeStatus};
use logic_pods::runtime::pleg::PlegProblem;
use pods::pod_manager;
use pods::runtime::pleg;
use serde::Serialize;

/// Room for its own checks, and for requests to report everything again.
pub const MAILBOX: usize = 16;

/// Between checks of the runtime, as upstream's `updateRuntimeUp`.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// The same until the runtime is ready for the first time: the node should be ready as soon as its runtime is.
const STARTUP_CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Between lists of the images: they are many, and scheduling by them tolerates delay.
const IMAGES_PERIOD: Duration = Duration::from_secs(60);
/// Between attempts to send the runtime the pod CIDRs, as upstream's sync of the node.
const POD_CIDRS_RETRY_PERIOD: Duration = Duration::from_secs(10);
/// How often the log repeats why the runtime does not report its status, as long as the reason stays the same.
const REPEAT_PERIOD: Duration = Duration::from_secs(60);
/// The managers answer from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Messages of the node health monitor.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Asks the runtime and the managers for their health.
    Check,
    /// Reports the results of a check.
    Checked(Box<HealthReport>),
    /// Asks the runtime for its images.
    ListImages,
    /// Reports the images; none if the runtime did not list them.
    Images(Option<Vec<NodeImage>>),
    /// Reports everything again: the node status manager restarted.
    Resync,
    /// Sends the runtime the node's pod CIDRs, separated by commas.
    PodCidrs(String),
    /// Sends the pod CIDRs if the runtime does not have them.
    SendPodCidrs,
    /// Records which CIDRs the runtime accepted, or retries later.
    PodCidrsSent(Result<String, RuntimeError>),
}

/// The result of one check.
#[derive(Debug)]
pub struct HealthReport {
    /// The error's text if the runtime did not answer.
    runtime: Result<RuntimeStatus, String>,
    unhealthy: BTreeMap<String, PartProblem>,
    /// None if the volume manager did not answer.
    stuck: Option<Vec<String>>,
    /// None if the pod manager did not answer.
    stuck_pods: Option<Vec<String>>,
}

/// What was reported last.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Since the start.
    pub looks: u64,
    pub runtime_answers: bool,
    /// Parts that do not answer, with the reason.
    pub unhealthy: BTreeMap<String, String>,
    /// That the runtime has.
    pub images: usize,
    /// The pod CIDRs that the runtime accepted.
    pub pod_ranges: String,
}

/// The clients and actors that the monitor asks.
#[derive(Debug, Clone)]
pub struct HealthPeers {
    pub runtime: RuntimeClient,
    pub pleg: Addr<pleg::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub pods: Addr<pod_manager::Msg>,
    pub root: Supervisor,
}

/// The node health monitor.
#[derive(Debug)]
pub struct NodeHealthMonitor {
    sources: HealthPeers,
    node: Recipient<NodeFact>,

    looks: u64,
    was_ready: bool,
    runtime_answers: bool,
    unhealthy: BTreeMap<String, PartProblem>,
    images: usize,
    pod_cidrs: PodCidrs,
    silence: RepeatedWarning,
}

/// A warning about something that lasts: its text and when it was last logged.
#[derive(Debug, Default)]
struct RepeatedWarning(Option<(String, Instant)>);

impl RepeatedWarning {
    /// Whether to log `text` now: it is new, or was logged [`REPEAT_PERIOD`] ago.
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let is_due = self
            .0
            .as_ref()
            .is_none_or(|(logged, at)| logged != text || now - *at >= REPEAT_PERIOD);
        if is_due {
            self.0 = Some((text.to_owned(), now));
        }
        is_due
    }

    /// What it warned of is over.
    fn clear(&mut self) {
        self.0 = None;
    }
}

/// The node's pod CIDRs, separated by commas: those to send, and those that the runtime has; empty for none.
#[derive(Debug, Default)]
struct PodCidrs {
    wanted: String,
    told: String,
    telling: bool,
}

impl Actor for NodeHealthMonitor {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.check(ctx);
        self.list_images(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Check => self.check(ctx),
            Msg::Checked(found) => self.found(*found, ctx),
            Msg::ListImages => self.list_images(ctx),
            Msg::Images(images) => self.images_listed(images, ctx),
            // The next check comes soon and reports everything.
            Msg::Resync => self.was_ready = false,
            Msg::PodCidrs(pod_cidrs) => self.set_pod_cidrs(pod_cidrs, ctx),
            Msg::SendPodCidrs => self.send_pod_cidrs(ctx),
            Msg::PodCidrsSent(outcome) => self.pod_cidrs_sent(outcome, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            looks: self.looks,
            runtime_answers: self.runtime_answers,
            unhealthy: self.unhealthy_by_name(),
            images: self.images,
            pod_ranges: self.pod_cidrs.told.clone(),
        }
    }
}

impl NodeHealthMonitor {
    pub fn new(sources: HealthPeers, node: Recipient<NodeFact>) -> Self {
        NodeHealthMonitor {
            sources,
            node,
            looks: 0,
            was_ready: false,
            runtime_answers: false,
            unhealthy: BTreeMap::new(),
            images: 0,
            pod_cidrs: PodCidrs::default(),
            silence: RepeatedWarning::default(),
        }
    }

    fn unhealthy_by_name(&self) -> BTreeMap<String, String> {
        let text = |problem: &PartProblem| match problem {
            PartProblem::NotYet(text) | PartProblem::Failing(text) => text.clone(),
        };
        let parts = self.unhealthy.iter();
        parts.map(|(name, why)| (name.clone(), text(why))).collect()
    }

    fn check(&mut self, ctx: &mut Context<Msg>) {
        self.looks += 1;
        let sources = self.sources.clone();
        ctx.run(async move {
            let pleg = sources
                .pleg
                .ask(ASK_TIMEOUT, |reply| pleg::Msg::Health { reply });
            let volumes = sources.volumes.ask(ASK_TIMEOUT, volumes::Msg::stuck);
            let pods = sources.pods.ask(ASK_TIMEOUT, pod_manager::Msg::stuck);
            let runtime = sources.runtime.reported_status();
            let (pleg, volumes, pods, runtime) =
                futures_util::future::join4(pleg, volumes, pods, runtime).await;
            let mut unhealthy = BTreeMap::new();
            if let Ok(Err(problem)) = pleg {
                let text = problem.to_string();
                let problem = match problem {
                    PlegProblem::NotYet => PartProblem::NotYet(text),
                    PlegProblem::Overdue { .. } => PartProblem::Failing(text),
                };
                unhealthy.insert("PLEG".to_owned(), problem);
            }
            Msg::Checked(Box::new(HealthReport {
                runtime: runtime.map_err(|error| error.describe()),
                unhealthy,
                stuck: volumes.ok(),
                stuck_pods: pods.ok(),
            }))
        });
    }

    fn found(&mut self, found: HealthReport, ctx: &mut Context<Msg>) {
        self.runtime_answers = found.runtime.is_ok();
        self.unhealthy = found.unhealthy;
        let is_up = |told: &RuntimeStatus| {
            let up = |condition: &Option<logic_node::node_status::RuntimeCondition>| {
                let yes = logic_resources::node::Support::Yes;
                condition.as_ref().is_some_and(|one| one.state == yes)
            };
            up(&told.ready) && up(&told.network)
        };
        let is_well = self.unhealthy.is_empty() && found.runtime.as_ref().is_ok_and(is_up);
        self.was_ready |= is_well;
        match found.runtime {
            Ok(runtime) => {
                self.silence.clear();
                self.tell(NodeFact::Runtime(Box::new(runtime)));
            }
            // Checked ten times a second until the runtime is ready: not one line per check.
            Err(why) if self.silence.is_due(&why, ctx.now()) => {
                tracing::warn!("the runtime does not report its status: {why}");
            }
            Err(_) => {}
        }
        self.tell(NodeFact::Unhealthy(self.unhealthy.clone()));
        if let Some(stuck) = found.stuck {
            self.tell(NodeFact::Stuck(stuck));
        }
        if let Some(stuck) = found.stuck_pods {
            self.tell(NodeFact::StuckPods(stuck));
        }
        let degraded = self.sources.root.degraded();
        let degraded = degraded.into_iter().map(|child| (child.id, child.why));
        self.tell(NodeFact::Degraded(degraded.collect()));
        let pause = match self.was_ready {
            true => CHECK_PERIOD,
            false => STARTUP_CHECK_PERIOD,
        };
        ctx.after(pause, Msg::Check);
    }

    fn list_images(&mut self, ctx: &mut Context<Msg>) {
        let runtime = self.sources.runtime.clone();
        ctx.run(async move {
            let listed = runtime.images().await.ok();
            let image = |image: clients::runtime::ListedImage| NodeImage {
                id: image.reference.to_string(),
                names: image.names,
                bytes: image.bytes,
            };
            Msg::Images(listed.map(|images| images.into_iter().map(image).collect()))
        });
    }

    fn images_listed(&mut self, images: Option<Vec<NodeImage>>, ctx: &mut Context<Msg>) {
        if let Some(images) = images {
            self.images = images.len();
            self.tell(NodeFact::Images(images));
        }
        ctx.after(IMAGES_PERIOD, Msg::ListImages);
    }

    fn set_pod_cidrs(&mut self, pod_cidrs: String, ctx: &mut Context<Msg>) {
        if !pod_cidrs.is_empty() {
            self.pod_cidrs.wanted = pod_cidrs;
            self.send_pod_cidrs(ctx);
        }
    }

    fn send_pod_cidrs(&mut self, ctx: &mut Context<Msg>) {
        let PodCidrs {
            wanted,
            told,
            telling,
        } = &mut self.pod_cidrs;
        if wanted == told || std::mem::replace(telling, true) {
            return;
        }
        let (runtime, pod_cidrs) = (self.sources.runtime.clone(), wanted.clone());
        ctx.run(async move {
            let told = runtime.tell_pod_ranges(&pod_cidrs).await;
            Msg::PodCidrsSent(told.map(|()| pod_cidrs))
        });
    }

    fn pod_cidrs_sent(&mut self, outcome: Result<String, RuntimeError>, ctx: &mut Context<Msg>) {
        self.pod_cidrs.telling = false;
        match outcome {
            Ok(pod_cidrs) => {
                tracing::info!(
                    ranges = pod_cidrs,
                    "the runtime knows the addresses of pods"
                );
                self.pod_cidrs.told = pod_cidrs;
                // They may have changed meanwhile.
                self.send_pod_cidrs(ctx);
            }
            Err(error) => {
                tracing::warn!(
                    "the runtime is not told the addresses of pods: {}",
                    error.describe()
                );
                ctx.after(POD_CIDRS_RETRY_PERIOD, Msg::SendPodCidrs);
            }
        }
    }

    fn tell(&self, fact: NodeFact) {
        if self.node.tell(fact).is_err() {
            tracing::warn!("a fact of the node is told with the next look: a mailbox is full");
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::{inbox, pass, run_paused};
    use kernel::{ChildSpec, mailbox};
    use pods::testing::TestNode;

    use super::*;

    /// Upstream's TestUpdateNodeStatusWithLease, its part on pod CIDRs.
    #[test]
    fn the_runtime_is_told_the_addresses_of_pods_until_it_has_heard_them() {
        run_paused(|| async {
            let node = TestNode::start().await;
            let fault = r#"{"call": "UpdateRuntimeConfig", "times": 1, "code": "Internal", "message": "no"}"#;
            node.script(&format!(r#"{{"faults": [{fault}]}}"#));
            let (addr, _facts) = inbox(MAILBOX);
            let facts = Recipient::new(addr, cluster::node::Msg::Learned);
            let sources = HealthPeers {
                runtime: node.runtime.clone(),
                pleg: node.node.pleg.clone(),
                volumes: node.node.volumes.clone(),
                pods: node.node.pod_manager.clone(),
                root: node.node.root.clone(),
            };
            let (node_health, port) = mailbox(MAILBOX);
            let root = &node.node.root;
            root.spawn(ChildSpec::permanent("node-health"), port, move || {
                NodeHealthMonitor::new(sources.clone(), facts.clone())
            });
            let known = async || {
                let tree = root.tree().await;
                let node_health = &tree.find("oxlet/node-health").unwrap().snapshot;
                node_health["pod_ranges"].as_str().unwrap().to_owned()
            };
            node_health.tell(Msg::PodCidrs(String::new())).unwrap();
            let both = "10.0.0.0/24,2000::/10";
            node_health.tell(Msg::PodCidrs(both.to_owned())).unwrap();
            pass(Duration::from_secs(5)).await;
            assert_eq!(known().await, "");
            pass(Duration::from_secs(10)).await;
            assert_eq!(known().await, both);
            // A node object without pod CIDRs changes nothing.
            node_health.tell(Msg::PodCidrs(String::new())).unwrap();
            pass(Duration::from_secs(1)).await;
            assert_eq!(known().await, both);
        });
    }

    #[test]
    fn a_lasting_problem_is_logged_once_a_minute_and_when_its_text_changes() {
        let mut warning = RepeatedWarning::default();
        let began = kernel::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        for (seconds, text, expected) in [
            (0, "refused", true),
            (1, "refused", false),
            (59, "refused", false),
            (60, "refused", true),
            (61, "no socket", true),
            (62, "no socket", false),
            (63, "refused", true),
        ] {
            assert_eq!(
                warning.is_due(text, after(seconds)),
                expected,
                "{seconds} s"
            );
        }
        warning.clear();
        assert!(warning.is_due("refused", after(64)));
    }
}
