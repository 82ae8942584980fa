//! Runtime state of all pods: events make it fast, the relist makes it true.
//!
//! - **Owns** the last relist of the runtime, with what events have told since, and the stream of container events.
//! - **Hears** events and the end of their stream, relist results, and its own ticks.
//! - **Tells** the pod manager: `PodObservation` for each event, `Relisted` after each relist.
//! - **Never** changes a pod's state: its worker merges each observation (`PodRuntimeState`). A lost event
//!   costs latency, never correctness.
//!
//! Upstream: pkg/kubelet/pleg/{generic,evented}.go (1.36): the periods are theirs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use clients::runtime::{RuntimeClient, RuntimeError, RuntimePodUpdate};
use kernel::{Actor, Context, Exit, Recipient, Reply, TimerId};
use logic_api::types::{PodUid, RuntimePod};
use logic_pods::runtime::pleg::PlegProblem;
use logic_resources::node::Support;
use metrics::runtime::pleg as counted;
use serde::Serialize;

/// Room for every event of a burst while a relist of 1,000 pods is compared.
pub const MAILBOX: usize = 4096;
/// Between relists while events flow; the first ones after a subscription follow at shorter periods, because
/// what a runtime lists may lag behind the events that it sent before the stream began.
const RELIST_PERIOD_WITH_EVENTS: Duration = Duration::from_secs(300);
/// Between relists while the runtime sends no events.
const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// Between attempts to get the event stream back.
const RESUBSCRIBE_PERIOD: Duration = Duration::from_millis(500);
/// Events between two relists that the last relist is brought up to date by. Beyond them the next one is due: a runtime
/// that invents pods in its events fills no memory.
const MAX_NOTED_EVENTS: usize = 10_000;
/// How long one event may wait for room in the mailbox before its stream is given up and opened anew.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages of PLEG.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Sends one event to the pod manager.
    Event(Box<RuntimePodUpdate>),
    /// Relists when events begin to flow: earlier changes were never sent.
    Subscribed,
    /// Falls back to relisting, and tries for events again.
    Unsubscribed(RuntimeError),
    /// Subscribes to the event stream.
    Subscribe,
    /// Relists now, unless one is under way.
    Relist,
    /// Answers with an error if relists fail or are overdue.
    Health {
        reply: Reply<Result<(), PlegProblem>>,
    },
    /// Compares with the last relist and sends the differences to the pod manager.
    Relisted(Result<BTreeMap<PodUid, RuntimePod>, RuntimeError>),
}

/// Whether events flow, and how old the last relist is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Whether the runtime's events come; without them relists are closer.
    pub events_flow: bool,
    /// Since the start.
    pub events: u64,
    /// Since the start.
    pub relists: u64,
    /// Milliseconds of the last one.
    pub relist_took_ms: u128,
    pub pods: usize,
    /// None while the runtime answers.
    pub last_error: Option<String>,
}

/// What PLEG found in the runtime.
#[derive(Debug)]
pub enum RuntimeReport {
    /// What the runtime reported about one pod, for its worker.
    Observed(Box<RuntimePodUpdate>),
    /// All pods of the runtime: the workers of changed ones fetch again, and pods that no source desires end.
    Relisted {
        pods: BTreeMap<PodUid, RuntimePod>,
        changed: Vec<PodUid>,
        /// Whether the runtime honours `supplementalGroupsPolicy: Strict`.
        supplemental_groups_policy: Support,
    },
}

/// The pod lifecycle event generator.
#[derive(Debug)]
pub struct Pleg {
    runtime: RuntimeClient,
    pod_manager: Recipient<RuntimeReport>,

    events_flow: bool,
    relisting_since: Option<Instant>,
    /// When the last relist began; none before the first.
    relisted_last: Option<Instant>,
    relist_again: bool,
    next_relist: Option<TimerId>,
    /// Between the next two relists, while events flow.
    period: Duration,
    last: BTreeMap<PodUid, RuntimePod>,
    /// Events that `last` was brought up to date by since the relist.
    noted: usize,
    events: u64,
    relists: u64,
    relist_took: Duration,
    last_good: Option<Instant>,
    last_error: Option<String>,
}

impl Actor for Pleg {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.relist(ctx);
        self.subscribe(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Event(observed) => self.event(observed, ctx),
            Msg::Subscribed => self.subscribed(ctx),
            Msg::Unsubscribed(error) => self.unsubscribed(&error, ctx),
            Msg::Subscribe => self.subscribe(ctx),
            Msg::Relist => self.relist(ctx),
            Msg::Health { reply } => reply.send(self.health(ctx)),
            Msg::Relisted(answer) => self.relisted(answer, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            events_flow: self.events_flow,
            events: self.events,
            relists: self.relists,
            relist_took_ms: self.relist_took.as_millis(),
            pods: self.last.len(),
            last_error: self.last_error.clone(),
        }
    }
}

impl Pleg {
    pub fn new(runtime: RuntimeClient, pod_manager: Recipient<RuntimeReport>) -> Self {
        Pleg {
            runtime,
            pod_manager,
            events_flow: false,
            relisting_since: None,
            relisted_last: None,
            relist_again: false,
            next_relist: None,
            period: RELIST_PERIOD,
            last: BTreeMap::new(),
            noted: 0,
            events: 0,
            relists: 0,
            relist_took: Duration::ZERO,
            last_good: None,
            last_error: None,
        }
    }

    fn event(&mut self, observed: Box<RuntimePodUpdate>, ctx: &mut Context<Msg>) {
        self.events += 1;
        let mut told = std::mem::take(&mut self.last);
        if self.noted < MAX_NOTED_EVENTS {
            self.noted += 1;
            logic_pods::runtime::pleg::note(&mut told, &observed.pod, observed.removed.as_deref());
            if self.noted == MAX_NOTED_EVENTS {
                self.relist(ctx);
            }
        }
        match self.pod_manager.tell(RuntimeReport::Observed(observed)) {
            Ok(()) => self.last = told,
            Err(full) => {
                counted::DISCARD_EVENTS.inc();
                tracing::warn!("event not handed on: {full}");
                self.start_over(ctx);
            }
        }
    }

    /// Relists soon, and sends the pod manager everything as if it were new.
    fn start_over(&mut self, ctx: &mut Context<Msg>) {
        self.last.clear();
        self.relist_after(RELIST_PERIOD, ctx);
    }

    fn relist_after(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.next_relist.replace(ctx.after(wait, Msg::Relist)) {
            ctx.cancel(timer);
        }
    }

    fn subscribed(&mut self, ctx: &mut Context<Msg>) {
        counted::STREAMS.inc();
        self.events_flow = true;
        self.period = RELIST_PERIOD;
        self.relist(ctx);
    }

    fn unsubscribed(&mut self, error: &RuntimeError, ctx: &mut Context<Msg>) {
        counted::STREAM_ERRORS.inc();
        if self.events_flow {
            tracing::warn!(
                "container events ended, relisting meanwhile: {}",
                error.describe()
            );
            self.relist(ctx);
        }
        self.events_flow = false;
        let wait = match error.is_unimplemented() {
            true => RELIST_PERIOD_WITH_EVENTS,
            false => RESUBSCRIBE_PERIOD,
        };
        ctx.after(wait, Msg::Subscribe);
    }

    fn health(&self, ctx: &Context<Msg>) -> Result<(), PlegProblem> {
        let ago = self.last_good.map(|at| ctx.now().duration_since(at));
        let threshold = match self.events_flow {
            true => logic_pods::runtime::pleg::THRESHOLD_WITH_EVENTS,
            false => logic_pods::runtime::pleg::THRESHOLD,
        };
        logic_pods::runtime::pleg::health(ago, threshold)
    }

    /// Reads the event stream beside this actor until it ends.
    fn subscribe(&mut self, ctx: &mut Context<Msg>) {
        let (runtime, addr) = (self.runtime.clone(), ctx.addr().clone());
        ctx.run(async move {
            let mut events = match runtime.events().await {
                Ok(events) => events,
                Err(error) => return Msg::Unsubscribed(error),
            };
            if addr.send(Msg::Subscribed, EVENT_TIMEOUT).await.is_err() {
                return Msg::Unsubscribed(RuntimeError::EventsLost);
            }
            loop {
                match events.next().await {
                    Ok(Some(observed)) => {
                        let event = Msg::Event(Box::new(observed));
                        if addr.send(event, EVENT_TIMEOUT).await.is_err() {
                            return Msg::Unsubscribed(RuntimeError::EventsLost);
                        }
                    }
                    Ok(None) => return Msg::Unsubscribed(RuntimeError::EventsEnded),
                    Err(error) => return Msg::Unsubscribed(error),
                }
            }
        });
    }

    fn relist(&mut self, ctx: &mut Context<Msg>) {
        if self.relisting_since.is_some() {
            self.relist_again = true;
            return;
        }
        if let Some(timer) = self.next_relist.take() {
            ctx.cancel(timer);
        }
        if let Some(last) = self.relisted_last.replace(ctx.now()) {
            let interval = ctx.now().duration_since(last);
            counted::RELIST_INTERVAL.observe(interval.as_secs_f64());
        }
        self.relisting_since = Some(ctx.now());
        let runtime = self.runtime.clone();
        ctx.run(async move {
            // The version comes first: container ids have the runtime's name as scheme, and it may have been swapped.
            let listed = async {
                runtime.version().await?;
                // No pod begins before the first relist: its admission and its cgroup's name depend on these.
                runtime.learn_features().await?;
                runtime.pods().await
            };
            Msg::Relisted(listed.await)
        });
    }

    fn relisted(
        &mut self,
        answer: Result<BTreeMap<PodUid, RuntimePod>, RuntimeError>,
        ctx: &mut Context<Msg>,
    ) {
        let began = self.relisting_since.take().unwrap_or_else(|| ctx.now());
        self.relist_took = ctx.now().duration_since(began);
        counted::RELIST_DURATION.observe(self.relist_took.as_secs_f64());
        if answer.is_ok() {
            let now = ctx.wall().duration_since(SystemTime::UNIX_EPOCH);
            counted::LAST_SEEN.set(now.unwrap_or_default().as_secs_f64().floor());
            self.last_good = Some(ctx.now());
        }
        let period = match answer {
            Ok(pods) => match self.compare(pods) && self.events_flow {
                true => {
                    let longer = (self.period * 2).min(RELIST_PERIOD_WITH_EVENTS);
                    std::mem::replace(&mut self.period, longer)
                }
                false => RELIST_PERIOD,
            },
            Err(error) => {
                tracing::warn!("relist failed: {}", error.describe());
                self.last_error = Some(error.describe());
                RELIST_PERIOD
            }
        };
        if std::mem::take(&mut self.relist_again) {
            self.relist(ctx);
        } else {
            self.relist_after(period, ctx);
        }
    }

    /// Sends the differences; returns false if the pod manager had no room, and everything must be sent again.
    fn compare(&mut self, pods: BTreeMap<PodUid, RuntimePod>) -> bool {
        self.relists += 1;
        self.last_error = None;
        let events = logic_pods::runtime::pleg::diff(&self.last, &pods);
        let mut changed: Vec<PodUid> = events.into_iter().map(|event| event.uid).collect();
        changed.dedup();
        self.last.clone_from(&pods);
        self.noted = 0;
        let sent = self.pod_manager.tell(RuntimeReport::Relisted {
            pods,
            changed,
            supplemental_groups_policy: self.runtime.supplemental_groups_policy(),
        });
        if let Err(full) = &sent {
            tracing::warn!("relist not handed on: {full}");
            self.last.clear();
        }
        sent.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::{Inbox, inbox, pass, run_paused};
    use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
    use logic_api::testing::yaml::pod;
    use logic_resources::cgroups::CgroupDriver;

    use super::*;
    use crate::pod_manager;
    use crate::testing::TestNode;

    const WEB: &str = "
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";

    const OTHER: &str = "
metadata: {name: other}
spec: {containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]}
";

    const WITHOUT_EVENTS: &str =
        r#"{"faults": [{"call": "GetContainerEvents", "code": "Unimplemented"}]}"#;

    /// A PLEG beside the node's own, whose pod manager has room for so many reports.
    struct Rig {
        node: TestNode,
        root: Supervisor,
        addr: Addr<Msg>,
        pod_manager: Addr<pod_manager::Msg>,
        reports: Inbox<pod_manager::Msg>,
    }

    impl Rig {
        async fn start(room: usize) -> Rig {
            Self::start_with(room, "{}").await
        }

        /// On a runtime with this script.
        async fn start_with(room: usize, script: &str) -> Rig {
            let node = TestNode::start().await;
            node.script(script);
            node.desire(&[pod(WEB)]);
            node.until("web", |status| status.phase.as_deref() == Some("Running"))
                .await;
            let (pod_manager, reports) = inbox(room);
            let root = Supervisor::root("test", Intensity::UNLIMITED);
            let (addr, port) = mailbox(MAILBOX);
            let (runtime, told) = (node.runtime.clone(), pod_manager.clone());
            root.spawn(ChildSpec::permanent("pleg"), port, move || {
                let reports = Recipient::new(told.clone(), pod_manager::Msg::Runtime);
                Pleg::new(runtime.clone(), reports)
            });
            Rig {
                node,
                root,
                addr,
                pod_manager,
                reports,
            }
        }

        /// How many pods PLEG holds in memory.
        async fn pods(&self) -> u64 {
            let tree = self.root.tree().await;
            tree.children[0].snapshot["pods"].as_u64().unwrap()
        }

        /// The relists since the last call: the pods, and those that have changed.
        fn relists(&mut self) -> Vec<(Vec<String>, Vec<String>)> {
            let names = |uids: &mut dyn Iterator<Item = &PodUid>| {
                uids.map(ToString::to_string).collect::<Vec<_>>()
            };
            let relisted = |msg| {
                let pod_manager::Msg::Runtime(RuntimeReport::Relisted { pods, changed, .. }) = msg
                else {
                    return None;
                };
                Some((names(&mut pods.keys()), names(&mut changed.iter())))
            };
            self.reports
                .drain()
                .into_iter()
                .filter_map(relisted)
                .collect()
        }
    }

    #[test]
    fn pods_that_a_runtime_invents_in_its_events_fill_no_memory() {
        run_paused(|| async {
            let mut rig = Rig::start(2 * MAX_NOTED_EVENTS).await;
            pass(Duration::from_secs(600)).await;
            rig.relists();
            let web = rig.node.runtime.pod(&"web".into()).await.unwrap();
            for number in 0..MAX_NOTED_EVENTS {
                let invented = RuntimePod {
                    uid: format!("invented-{number}").as_str().into(),
                    ..web.clone()
                };
                let event = RuntimePodUpdate {
                    pod: invented,
                    removed: None,
                    at: kernel::now(),
                };
                let event = Msg::Event(Box::new(event));
                rig.addr.send(event, EVENT_TIMEOUT).await.unwrap();
            }
            pass(Duration::from_secs(1)).await;
            assert_eq!(rig.relists().len(), 1, "long before the period is over");
            assert_eq!(rig.pods().await, 1);
        });
    }

    /// Upstream's TestRelistWithCache, TestRemoveCacheEntry and TestDetectingContainerDeaths, as far as they are about
    /// whom a relist tells.
    #[test]
    fn a_relist_tells_all_pods_and_once_which_have_changed() {
        run_paused(|| async {
            let mut rig = Rig::start_with(4096, WITHOUT_EVENTS).await;
            let web = || vec!["web".to_owned()];
            pass(Duration::from_secs(60)).await;
            let relists = rig.relists();
            assert_eq!(relists[0], (web(), web()));
            assert!(relists.len() > 2);
            for relist in &relists[1..] {
                assert_eq!(*relist, (web(), vec![]));
            }
            rig.node.desire(&[]);
            rig.node.until_gone("web").await;
            pass(RELIST_PERIOD_WITH_EVENTS).await;
            let relists = rig.relists();
            assert_eq!(*relists.last().unwrap(), (vec![], vec![]));
            let told = relists.iter().filter(|(pods, changed)| {
                pods.is_empty() && changed.iter().any(|uid| uid == "web")
            });
            assert_eq!(told.count(), 1, "{relists:?}");
        });
    }

    /// Each worker would ask the runtime for its whole pod again.
    #[test]
    fn what_an_event_has_told_no_relist_tells_again() {
        run_paused(|| async {
            let mut rig = Rig::start(4096).await;
            pass(Duration::from_secs(60)).await;
            rig.relists();
            rig.node.desire(&[pod(WEB), pod(OTHER)]);
            rig.node
                .until("other", |status| status.phase.as_deref() == Some("Running"))
                .await;
            rig.node.desire(&[pod(OTHER)]);
            rig.node.until_gone("web").await;
            pass(RELIST_PERIOD_WITH_EVENTS * 2).await;
            let relists = rig.relists();
            let other = vec!["other".to_owned()];
            assert_eq!(relists.last().unwrap(), &(other, vec![]));
            // The event of a removed sandbox doesn't say whose it was.
            let mut told = relists.iter().flat_map(|(_, changed)| changed);
            assert!(told.all(|uid| uid == "web"), "{relists:?}");
        });
    }

    #[test]
    fn the_cgroup_driver_is_known_before_any_pod_begins() {
        run_paused(|| async {
            let node = TestNode::start().await;
            node.script(r#"{"cgroup_driver": "systemd", "delays": {"RuntimeConfig": "3s"}}"#);
            node.desire(&[pod(WEB)]);
            pass(Duration::from_secs(2)).await;
            assert_eq!(node.fake.calls(runtime_fake::Rpc::RunPodSandbox), 0);
            node.until("web", |status| status.phase.as_deref() == Some("Running"))
                .await;
            let driver = *node.runtime.cgroup_driver().borrow();
            assert_eq!(driver, Some(CgroupDriver::Systemd));
        });
    }

    /// Upstream's TestEventChannelFull, but that nothing is lost by it.
    #[test]
    fn what_the_pod_manager_had_no_room_for_is_told_again() {
        run_paused(|| async {
            let mut rig = Rig::start(1).await;
            let fill = || {
                let (node, full) = (
                    pod_manager::NodeChange::Object(None),
                    pod_manager::Msg::Node,
                );
                rig.pod_manager.tell(full(node)).unwrap();
            };
            fill();
            pass(Duration::from_secs(10)).await;
            assert_eq!(rig.relists(), []);
            let mut relists = Vec::new();
            for _ in 0..40 {
                pass(RELIST_PERIOD / 2).await;
                relists.append(&mut rig.relists());
            }
            let web = || vec!["web".to_owned()];
            assert_eq!(relists[0], (web(), web()));
            assert!(relists.len() > 2);
            for relist in &relists[1..] {
                assert_eq!(*relist, (web(), vec![]));
            }
        });
    }
}
