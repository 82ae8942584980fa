//! Whom a worker keeps up to date on its containers: the prober, the keeper of logs, the directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kernel::Context;
use logic::pod::PodView;
use logic::probes::{self, initial_health};
use logic::seen::Seen;
use logic::types::{Container, ContainerId, ContainerState};

use super::{Msg, SOON, Stage, Worker, timestamp};
use crate::logs::{self, Watched};
use crate::{directory, prober};

/// What others were told last: they are not told the same again.
#[derive(Debug, Default)]
pub(super) struct Told {
    settled: bool,
    over: bool,
    probed: Option<ToProbe>,
    logged: Vec<Watched>,
}

/// What a prober's picture of the pod depends on.
#[derive(Debug, PartialEq)]
struct ToProbe {
    instances: BTreeMap<String, ContainerId>,
    ips: Vec<String>,
    stage: probes::Stage,
    generation: Option<i64>,
}

impl Worker {
    /// Tells what has changed; what found no room is told again.
    pub(super) fn tell_watchers(&mut self, ctx: &mut Context<Msg>) {
        let told = [
            self.tell_settled(),
            self.tell_over(),
            self.tell_prober(ctx),
            self.tell_logs(),
        ];
        if told.contains(&false) {
            self.retry_after(SOON, ctx);
        }
    }

    fn tell_settled(&mut self) -> bool {
        if self.stage == Stage::Terminated && !self.told.settled {
            let uid = self.uid.clone();
            let settled = directory::Msg::Settled { uid };
            self.told.settled = self.peers.directory.tell(settled).is_ok();
            return self.told.settled;
        }
        true
    }

    /// Nothing of the pod runs any more, and its volumes are gone: it needs nothing.
    fn tell_over(&mut self) -> bool {
        let is_over = self.stage == Stage::Terminated && self.volumes.is_released();
        if let Some(keeper) = self.peers.over.as_ref().filter(|_| is_over)
            && !self.told.over
        {
            self.told.over = keeper.tell(self.uid.clone()).is_ok();
            return self.told.over;
        }
        true
    }

    fn tell_prober(&mut self, ctx: &mut Context<Msg>) -> bool {
        let pod = self.wish.desired.borrow().pod.clone();
        let running = self.running();
        let next = ToProbe {
            instances: running
                .iter()
                .filter(|c| has_probe(&*pod, &c.name))
                .map(|c| (c.name.clone(), c.id.clone()))
                .collect(),
            ips: self.addresses(&pod),
            stage: match self.stage {
                Stage::Syncing => probes::Stage::Live,
                Stage::Terminating | Stage::Terminated => probes::Stage::Terminating,
            },
            generation: pod.metadata.generation,
        };
        let nothing = next.instances.is_empty()
            && self
                .told
                .probed
                .as_ref()
                .is_none_or(|told| told.instances.is_empty());
        if nothing || self.told.probed.as_ref() == Some(&next) {
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
            false => prober::Msg::Watch(Box::new(prober::Watch {
                uid: self.uid.clone(),
                worker: ctx.addr().clone(),
                ips: next.ips.clone(),
                instances: instances.collect(),
                stage: next.stage,
                pod: pod.clone(),
            })),
        };
        let told = self.peers.prober.tell(msg).is_ok();
        if told {
            self.told.probed = Some(next);
        }
        told
    }

    fn tell_logs(&mut self) -> bool {
        let mut containers: Vec<Watched> = self.running().into_iter().filter_map(watched).collect();
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        if containers == self.told.logged {
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
        let told = self.peers.logs.tell(msg).is_ok();
        if told {
            self.told.logged = containers;
        }
        told
    }

    /// Tells everybody everything again: a keeper has lost it.
    pub(super) fn forget_told(&mut self) {
        self.told.probed = None;
        self.told.logged.clear();
    }

    /// The newest instance of each container, where it runs and its postStart hook has ended.
    pub(super) fn running(&self) -> Vec<&Container> {
        let Some(seen) = self.seen.as_ref().map(Seen::pod) else {
            return Vec::new();
        };
        let runs = |c: &&Container| {
            c.state == ContainerState::Running
                && !self.hooked.contains(&c.name)
                && seen.newest(&c.name).is_some_and(|newest| newest.id == c.id)
        };
        seen.containers.iter().filter(runs).collect()
    }

    fn instance(
        &self,
        pod: &impl PodView,
        container: &Container,
        ctx: &Context<Msg>,
    ) -> prober::Instance {
        let record = &self.memory.record;
        let known = record.health.get(&container.id).copied();
        let initial = || {
            pod.container(&container.name)
                .map(|(_, spec)| initial_health(&spec))
        };
        prober::Instance {
            id: container.id.clone(),
            started: since(record.runs.get(&container.id), ctx),
            health: known.or_else(initial).unwrap_or_default(),
        }
    }
}

/// When something of the wall clock was, on the clock that measures.
fn since(at: Option<&Timestamp>, ctx: &Context<Msg>) -> Instant {
    let ago = at.map(|at| timestamp(ctx).duration_since(*at));
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

/// A log of no known place cannot be kept short.
fn watched(container: &Container) -> Option<Watched> {
    let path = Path::new(&container.log_path);
    path.is_absolute().then(|| Watched {
        id: container.id.clone(),
        path: path.to_owned(),
    })
}
