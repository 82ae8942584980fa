//! The worker's reports on its containers: to the prober, the log manager, the pod manager.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kernel::{Context, Recipient};
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, ContainerState, PodFailure, PodUid, RuntimeContainer};
use logic_pods::probes::{self, initial_health};

use super::{Msg, PodWorker, PodWorkerState, RETRY_PERIOD};
use crate::logs::{self, RunningLog};
use crate::prober;

/// What a pod's worker has come to.
#[derive(Debug)]
pub enum WorkerReport {
    /// Nothing of the pod runs any more: its resources are free.
    Stopped { uid: PodUid },
    /// Nothing of the pod runs or is mounted any more.
    Unmounted { uid: PodUid },
    /// The pod's containers have what it is allocated: what they had beyond is free.
    Resized { uid: PodUid },
    /// Nothing of the pod runs, but the runtime does not remove what is left of it, named here: its name is free.
    Stuck { uid: PodUid, left: String },
    /// The worker has ended: the pod is gone, and its name is free.
    Finished { uid: PodUid },
    /// The pod has no room on this node: the pod manager has it failed.
    Rejected {
        uid: PodUid,
        failure: Box<PodFailure>,
    },
}

/// What was sent last; the same is not sent again.
#[derive(Debug, Default)]
pub(super) struct LastNotified {
    ending: bool,
    settled: bool,
    unmounted: bool,
    resized: Option<CarriedOut>,
    over: bool,
    probed: Option<ProberInput>,
    logged: Vec<RunningLog>,
}

/// The resize that was carried out last: the pod's generation, if this life of the agent allocated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CarriedOut(pub(super) Option<i64>);

/// The part of a pod that the prober depends on.
#[derive(Debug, PartialEq)]
struct ProberInput {
    instances: BTreeMap<String, ContainerId>,
    ips: Vec<String>,
    stage: probes::ProbeStage,
    generation: Option<i64>,
}

impl PodWorker {
    /// Sends changes to the peers; one that found no room is sent again.
    pub(super) fn notify_peers(&mut self, ctx: &mut Context<Msg>) {
        let sent = [
            self.notify_ending(),
            self.notify_stopped(),
            self.notify_unmounted(),
            self.notify_resized(),
            self.notify_over(),
            self.notify_prober(ctx),
            self.notify_logs(),
        ];
        if sent.contains(&false) {
            self.retry_after(RETRY_PERIOD, ctx);
        }
    }

    /// Tells the volume manager that no container of the pod starts any more.
    fn notify_ending(&mut self) -> bool {
        let is_ending = self.sync_status.state != PodWorkerState::Syncing;
        if is_ending && self.volumes.is_wanted() && !self.published.last_notified.ending {
            let uid = self.uid.clone();
            let ending = volumes::Msg::Ending { uid };
            self.published.last_notified.ending = self.peers.volumes.tell(ending).is_ok();
            return self.published.last_notified.ending;
        }
        true
    }

    fn notify_stopped(&mut self) -> bool {
        if self.sync_status.state == PodWorkerState::Terminated
            && !self.published.last_notified.settled
        {
            let uid = self.uid.clone();
            let settled = WorkerReport::Stopped { uid };
            self.published.last_notified.settled = self.peers.pod_manager.tell(settled).is_ok();
            return self.published.last_notified.settled;
        }
        true
    }

    fn notify_unmounted(&mut self) -> bool {
        if self.is_over() && !self.published.last_notified.unmounted {
            let uid = self.uid.clone();
            let report = WorkerReport::Unmounted { uid };
            self.published.last_notified.unmounted = self.peers.pod_manager.tell(report).is_ok();
            return self.published.last_notified.unmounted;
        }
        true
    }

    /// Whether nothing of the pod runs or is mounted any more.
    fn is_over(&self) -> bool {
        self.sync_status.state == PodWorkerState::Terminated && self.volumes.is_released()
    }

    /// Reports each resize that has been carried out; a pod that was adopted may have been in the middle of one.
    fn notify_resized(&mut self) -> bool {
        let carried_out = self.published.carried_out;
        if carried_out.is_none() || self.published.last_notified.resized == carried_out {
            return true;
        }
        let uid = self.uid.clone();
        let sent = self.peers.pod_manager.tell(WorkerReport::Resized { uid });
        if sent.is_ok() {
            self.published.last_notified.resized = carried_out;
        }
        sent.is_ok()
    }

    /// Reports once that the pod's volumes are gone and that it needs no objects any more.
    fn notify_over(&mut self) -> bool {
        let is_over = self.is_over();
        if let Some(keeper) = self.peers.over.as_ref().filter(|_| is_over)
            && !self.published.last_notified.over
        {
            self.published.last_notified.over = keeper.tell(self.uid.clone()).is_ok();
            return self.published.last_notified.over;
        }
        true
    }

    fn notify_prober(&mut self, ctx: &mut Context<Msg>) -> bool {
        let pod = self.updates.goal.borrow().allocated.clone();
        let running = self.running();
        let next = ProberInput {
            instances: running
                .iter()
                .filter(|c| has_probe(&*pod, &c.name))
                .map(|c| (c.name.clone(), c.id.clone()))
                .collect(),
            ips: self.addresses(&pod),
            stage: match self.sync_status.state {
                PodWorkerState::Syncing => probes::ProbeStage::Live,
                PodWorkerState::Terminating | PodWorkerState::Terminated => {
                    probes::ProbeStage::Terminating
                }
            },
            generation: pod.metadata.generation,
        };
        let nothing = next.instances.is_empty()
            && self
                .published
                .last_notified
                .probed
                .as_ref()
                .is_none_or(|told| told.instances.is_empty());
        if nothing || self.published.last_notified.probed.as_ref() == Some(&next) {
            return true;
        }
        let instances = running
            .iter()
            .filter(|c| next.instances.contains_key(&c.name));
        let instances = instances.map(|c| (c.name.clone(), self.instance(&*pod, c, ctx)));
        let msg = match next.instances.is_empty() {
            true => prober::Msg::Forget {
                uid: self.uid.clone(),
            },
            false => prober::Msg::Watch(Box::new(prober::ProbedPod {
                uid: self.uid.clone(),
                worker: Recipient::new(ctx.addr().clone(), |probed| Msg::Probed(Box::new(probed))),
                ips: next.ips.clone(),
                instances: instances.collect(),
                stage: next.stage,
                pod: pod.clone(),
            })),
        };
        let sent = self.peers.prober.tell(msg).is_ok();
        if sent {
            self.published.last_notified.probed = Some(next);
        }
        sent
    }

    fn notify_logs(&mut self) -> bool {
        let mut containers: Vec<RunningLog> =
            self.running().into_iter().filter_map(watched).collect();
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        if containers == self.published.last_notified.logged {
            return true;
        }
        let uid = self.uid.clone();
        let msg = match containers.is_empty() {
            true => logs::Msg::Forget { uid },
            false => logs::Msg::Watch {
                uid,
                containers: containers.clone(),
            },
        };
        let sent = self.peers.logs.tell(msg).is_ok();
        if sent {
            self.published.last_notified.logged = containers;
        }
        sent
    }

    /// Has everything sent again: a manager restarted and lost it.
    pub(super) fn forget_notified(&mut self) {
        self.published.last_notified.probed = None;
        self.published.last_notified.logged.clear();
    }

    /// The newest instance of each container, if it runs and its postStart hook has ended.
    pub(super) fn running(&self) -> Vec<&RuntimeContainer> {
        let Some(seen) = self.observed.pod() else {
            return Vec::new();
        };
        let runs = |c: &&RuntimeContainer| {
            c.state == ContainerState::Running
                && !self.operation.awaiting_post_start.contains(&c.name)
                && seen.newest(&c.name).is_some_and(|newest| newest.id == c.id)
        };
        seen.containers.iter().filter(runs).collect()
    }

    fn instance(
        &self,
        pod: &impl PodView,
        container: &RuntimeContainer,
        ctx: &Context<Msg>,
    ) -> prober::ProbedInstance {
        let record = &self.checkpoint.record;
        let known = record.health.get(&container.id).copied();
        let initial = || {
            pod.container(&container.name)
                .map(|(_, spec)| initial_health(&spec))
        };
        prober::ProbedInstance {
            id: container.id.clone(),
            started: since(record.runs.get(&container.id), ctx),
            health: known.or_else(initial).unwrap_or_default(),
        }
    }
}

/// Converts a time of the wall clock to the monotonic clock.
fn since(at: Option<&Timestamp>, ctx: &Context<Msg>) -> Instant {
    let ago = at.map(|at| ctx.timestamp().duration_since(*at));
    let ago = ago.and_then(|ago| Duration::try_from(ago).ok());
    let now = ctx.now();
    now.checked_sub(ago.unwrap_or_default()).unwrap_or(now)
}

fn has_probe(pod: &impl PodView, name: &str) -> bool {
    pod.container(name).is_some_and(|(_, c)| {
        let probes = [&c.startup_probe, &c.liveness_probe, &c.readiness_probe];
        probes.into_iter().any(Option::is_some)
    })
}

/// None if the log's path is unknown: it cannot be rotated.
fn watched(container: &RuntimeContainer) -> Option<RunningLog> {
    let path = Path::new(&container.log_path);
    path.is_absolute().then(|| RunningLog {
        id: container.id.clone(),
        path: path.to_owned(),
    })
}
