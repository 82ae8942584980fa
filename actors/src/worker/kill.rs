//! Ending containers: in turns, each with its preStop hook inside its grace.
//!
//! Upstream: kuberuntime_container.go (killContainer, executePreStopHook) and
//! kuberuntime_termination_order.go, 1.36. Beyond upstream: a grace goes on where it was when a plan is
//! carried out anew, and a hook that was run is not run again.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all, select};
use k8s_openapi::api::core::v1::Pod;
use logic::pod::PodView;
use logic::types::ContainerId;
use logic::worker::Action;
use logic::worker::kill::{Cause, Hooks, MINIMUM_GRACE, kill_grace};
use tokio::sync::watch;

use super::carry::Carrier;
use super::{Stage, why};
use crate::directory::Desired;
use crate::hooks;
use crate::runtime::RuntimeError;
use cluster::events::Type;

/// One container to be ended.
#[derive(Debug)]
struct Kill {
    id: ContainerId,
    name: String,
    grace: Duration,
    hooks: Hooks,
    /// Who must have ended first.
    before: Vec<ContainerId>,
}

/// How far the ending of a container has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    /// Never moves back: whoever gives a grace anew can only shorten it.
    until: Instant,
    hook: Hook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    Due,
    Run,
}

/// The endings under way, by instance.
pub(super) type Endings = BTreeMap<ContainerId, Ending>;

/// Why killing stopped.
#[derive(Debug)]
pub(super) enum Killed {
    Done,
    /// The wish has changed: less grace, or the end of the whole pod.
    Superseded,
}

/// Every kill of a batch, with those that it waits for.
fn kills(batch: &[Action]) -> Vec<Kill> {
    let id = |action: &Action| match action {
        Action::KillContainer { id, .. } => Some(id.clone()),
        Action::StopSandbox { .. }
        | Action::RemoveContainer { .. }
        | Action::CreateSandbox { .. }
        | Action::ResizeContainer { .. }
        | Action::StartContainer { .. } => None,
    };
    let kill = |action: &Action| match action {
        Action::KillContainer {
            id: own,
            name,
            grace,
            hooks,
            ..
        } => Some(Kill {
            id: own.clone(),
            name: name.clone(),
            grace: *grace,
            hooks: *hooks,
            before: batch
                .iter()
                .filter(|other| action.waits_for(other))
                .filter_map(id)
                .collect(),
        }),
        Action::StopSandbox { .. }
        | Action::RemoveContainer { .. }
        | Action::CreateSandbox { .. }
        | Action::ResizeContainer { .. }
        | Action::StartContainer { .. } => None,
    };
    batch.iter().filter_map(kill).collect()
}

impl Carrier {
    /// Ends a container whose postStart hook failed.
    pub(super) fn killing(&self, id: ContainerId, name: &str) -> Action {
        let message = "FailedPostStartHook".to_owned();
        why::event(
            &self.peers.recorder,
            &self.pod,
            Some(name),
            Type::Normal,
            "Killing",
            message.clone(),
        );
        Action::KillContainer {
            id,
            name: name.to_owned(),
            kind: self.pod.container(name).map(|(kind, _)| kind),
            grace: kill_grace(&self.pod, name, Cause::Other),
            turn: 0,
            hooks: Hooks::Run,
            message,
        }
    }

    /// Ends containers side by side, each turn after the one before.
    pub(super) async fn kill(&mut self, batch: Vec<Action>) -> Result<Killed, RuntimeError> {
        let kills = kills(&batch);
        for kill in &kills {
            let until = kernel::now() + kill.grace;
            let ending = self.endings.entry(kill.id.clone());
            let ending = ending.or_insert(Ending {
                until,
                hook: Hook::Due,
            });
            ending.until = ending.until.min(until);
        }
        let (ended, _) = watch::channel(BTreeSet::new());
        let (hooked, mut hooks_run) = tokio::sync::mpsc::channel(kills.len().max(1));
        let result = {
            let carrier = &*self;
            let work = kills.iter().map(|kill| {
                let (ended, hooked) = (ended.clone(), hooked.clone());
                async move {
                    let result = carrier.end_in_turn(kill, &ended, &hooked).await;
                    ended.send_modify(|ended| {
                        ended.insert(kill.id.clone());
                    });
                    result
                }
            });
            match select(pin!(join_all(work)), pin!(carrier.superseded())).await {
                Either::Left((results, _)) => results
                    .into_iter()
                    .collect::<Result<(), _>>()
                    .map(|()| Killed::Done),
                Either::Right(((), _)) => Ok(Killed::Superseded),
            }
        };
        while let Ok(id) = hooks_run.try_recv() {
            if let Some(ending) = self.endings.get_mut(&id) {
                ending.hook = Hook::Run;
            }
        }
        result
    }

    async fn end_in_turn(
        &self,
        kill: &Kill,
        ended: &watch::Sender<BTreeSet<ContainerId>>,
        hooked: &tokio::sync::mpsc::Sender<ContainerId>,
    ) -> Result<(), RuntimeError> {
        let Some(ending) = self.endings.get(&kill.id) else {
            return Ok(());
        };
        let left = || ending.until.saturating_duration_since(kernel::now());
        if (kill.hooks, ending.hook) == (Hooks::Run, Hook::Due) && !left().is_zero() {
            self.pre_stop(kill, left()).await;
            // Room for each of them.
            drop(hooked.try_send(kill.id.clone()));
        }
        let mut others = ended.subscribe();
        let turn = others.wait_for(|ended| kill.before.iter().all(|id| ended.contains(id)));
        // Late is as good as in turn: its own grace is used up.
        if tokio::time::timeout(left(), turn).await.is_err() {
            tracing::debug!(container = %kill.name, "ended before its turn: its grace is over");
        }
        let grace = left().max(MINIMUM_GRACE);
        self.peers.runtime.stop_container(&kill.id, grace).await
    }

    /// Runs the hook, at most as long as the grace lasts. What fails is told and does not hold up the end.
    async fn pre_stop(&self, kill: &Kill, within: Duration) {
        let Some((_, container)) = self.pod.container(&kill.name) else {
            return;
        };
        let handler = container
            .lifecycle
            .as_ref()
            .and_then(|l| l.pre_stop.as_ref());
        let Some(handler) = handler else { return };
        let hook = hooks::Hook {
            kind: hooks::Kind::PreStop,
            handler,
            pod: &self.pod,
            container: &container,
            id: &kill.id,
            ips: &self.ips,
        };
        hooks::run(&self.peers.runtime, &self.peers.recorder, &hook, within)
            .await
            .ok();
    }

    /// Resolves when what is being ended should end sooner: the pod's deletion has got less grace, or the
    /// pod as a whole is to end while only a container is being replaced.
    async fn superseded(&self) {
        let (grace, syncing) = (deletion_grace(&self.pod), self.stage == Stage::Syncing);
        let sooner = |desired: &Desired| {
            let shorter = match (deletion_grace(&desired.pod), grace) {
                (Some(new), Some(old)) => new < old,
                (Some(_), None) => true,
                (None, _) => false,
            };
            shorter || (syncing && !desired.is_run())
        };
        let mut desired = self.desired.clone();
        if desired.wait_for(sooner).await.is_err() {
            std::future::pending().await
        }
    }
}

fn deletion_grace(pod: &Pod) -> Option<i64> {
    pod.metadata.deletion_grace_period_seconds
}
