//! Kills containers: in termination order, each with its preStop hook within its grace period.
//!
//! Upstream: kuberuntime_container.go (killContainer, executePreStopHook) and
//! kuberuntime_termination_order.go, 1.36. Beyond upstream: a grace period continues when a plan is
//! carried out anew, and a hook that was run is not run again.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use clients::runtime::RuntimeError;
use futures_util::future::{Either, join_all, select};
use k8s_openapi::api::core::v1::Pod;
use kernel::watch;
use logic_api::pod::PodView;
use logic_api::types::ContainerId;
use logic_pods::pod_actions::PodAction;
use logic_pods::pod_actions::kill::{KillReason, MINIMUM_GRACE, PreStopHooks, kill_grace};
use logic_pods::runtime::call_limit::RuntimeCall;
use state::events::EventType;

use crate::hooks;
use crate::runtime::grace_periods::TURN_TIMEOUT;
use crate::worker::context::{KillProgress, PlanExecutor, PreStopState};
use crate::worker::{PodGoal, PodWorkerState, history};

/// How much longer than the grace period a preStop hook may run: its container has been killed by then.
const HOOK_MARGIN: Duration = Duration::from_secs(MINIMUM_GRACE.as_secs() + 3);

/// One container to kill.
#[derive(Debug)]
struct ContainerKill {
    id: ContainerId,
    name: String,
    grace: Duration,
    hooks: PreStopHooks,
    /// Containers that must have ended first.
    before: Vec<ContainerId>,
}

/// Why the killing of a batch ended.
#[derive(Debug)]
pub(super) enum KillOutcome {
    Done,
    /// The goal has changed: a shorter grace period, or the end of the whole pod.
    Superseded,
}

/// The kills of a batch, each with those that it waits for.
fn kills(batch: &[PodAction]) -> Vec<ContainerKill> {
    let id = |action: &PodAction| match action {
        PodAction::KillContainer { id, .. } => Some(id.clone()),
        PodAction::StopSandbox { .. }
        | PodAction::RemoveContainer { .. }
        | PodAction::CreateSandbox { .. }
        | PodAction::ResizePod
        | PodAction::ResizeContainer { .. }
        | PodAction::StartContainer { .. } => None,
    };
    let kill = |action: &PodAction| match action {
        PodAction::KillContainer {
            id: own,
            name,
            grace,
            hooks,
            ..
        } => Some(ContainerKill {
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
        PodAction::StopSandbox { .. }
        | PodAction::RemoveContainer { .. }
        | PodAction::CreateSandbox { .. }
        | PodAction::ResizePod
        | PodAction::ResizeContainer { .. }
        | PodAction::StartContainer { .. } => None,
    };
    batch.iter().filter_map(kill).collect()
}

impl PlanExecutor {
    /// The kill of a container whose postStart hook failed.
    pub(super) fn post_start_kill(&self, id: ContainerId, name: &str) -> PodAction {
        let message = "FailedPostStartHook".to_owned();
        history::event(
            &self.peers.recorder,
            &self.pod,
            Some(name),
            EventType::Normal,
            "Killing",
            message.clone(),
        );
        PodAction::KillContainer {
            id,
            name: name.to_owned(),
            kind: self.pod.container(name).map(|(kind, _)| kind),
            grace: kill_grace(&self.pod, name, KillReason::Other),
            turn: 0,
            hooks: PreStopHooks::Run,
            message,
        }
    }

    /// Kills containers concurrently, each after those that must end first.
    pub(super) async fn kill(
        &mut self,
        batch: Vec<PodAction>,
    ) -> Result<KillOutcome, RuntimeError> {
        let kills = kills(&batch);
        for kill in &kills {
            let until = kernel::now() + kill.grace;
            let ending = self.progress.kills_in_progress.entry(kill.id.clone());
            let ending = ending.or_insert(KillProgress {
                until,
                hook: PreStopState::Due,
            });
            ending.until = ending.until.min(until);
        }
        let (ended, _) = watch::channel(BTreeSet::new());
        let (hooked, mut hooks_run) = tokio::sync::mpsc::channel(kills.len().max(1));
        let result = {
            let executor = &*self;
            let work = kills.iter().map(|kill| {
                let (ended, hooked) = (ended.clone(), hooked.clone());
                async move {
                    let result = executor.kill_in_order(kill, &ended, &hooked).await;
                    ended.send_modify(|ended| {
                        ended.insert(kill.id.clone());
                    });
                    result
                }
            });
            match select(pin!(join_all(work)), pin!(executor.wait_superseded())).await {
                Either::Left((results, _)) => results
                    .into_iter()
                    .collect::<Result<(), _>>()
                    .map(|()| KillOutcome::Done),
                Either::Right(((), _)) => Ok(KillOutcome::Superseded),
            }
        };
        while let Ok(id) = hooks_run.try_recv() {
            if let Some(ending) = self.progress.kills_in_progress.get_mut(&id) {
                ending.hook = PreStopState::Run;
            }
        }
        result
    }

    /// Ends one container: its hook, its turn, its stop. A hook that uses the grace period up runs on until the container is
    /// dead, as upstream.
    async fn kill_in_order(
        &self,
        kill: &ContainerKill,
        ended: &watch::Sender<BTreeSet<ContainerId>>,
        hooked: &tokio::sync::mpsc::Sender<ContainerId>,
    ) -> Result<(), RuntimeError> {
        let Some(ending) = self.progress.kills_in_progress.get(&kill.id) else {
            return Ok(());
        };
        let left = ending.until.saturating_duration_since(kernel::now());
        let runs_hook = (kill.hooks, ending.hook) == (PreStopHooks::Run, PreStopState::Due);
        if !runs_hook || left.is_zero() {
            return self.stop_in_turn(kill, ending.until, ended).await;
        }
        let hook = pin!(self.pre_stop(kill, left + HOOK_MARGIN));
        let used_up = pin!(tokio::time::sleep(left));
        let hook = select(hook, used_up).await;
        // The channel has room for each of them.
        drop(hooked.try_send(kill.id.clone()));
        let stop = pin!(self.stop_in_turn(kill, ending.until, ended));
        match hook {
            Either::Left(((), _)) => stop.await,
            Either::Right(((), hook)) => match select(stop, hook).await {
                Either::Left((stopped, _)) => stopped,
                Either::Right(((), stop)) => stop.await,
            },
        }
    }

    /// Waits for those that must end first, and stops the container.
    async fn stop_in_turn(
        &self,
        kill: &ContainerKill,
        until: Instant,
        ended: &watch::Sender<BTreeSet<ContainerId>>,
    ) -> Result<(), RuntimeError> {
        let left = || until.saturating_duration_since(kernel::now());
        let mut others = ended.subscribe();
        let turn = others.wait_for(|ended| kill.before.iter().all(|id| ended.contains(id)));
        // A timeout is no error: the container's own grace period is used up, so it is killed now.
        if tokio::time::timeout(left(), turn).await.is_err() {
            tracing::debug!(container = %kill.name, "ended before its turn: its grace is over");
        }
        self.stop(&kill.id, left().max(MINIMUM_GRACE)).await
    }

    /// Has the runtime end a container; when its grace is over, the runtime kills it, or of a crowd this does in its turn.
    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
        let (runtime, gate) = (&self.peers.runtime, &self.peers.gate);
        let period = gate.graces.begin();
        if !period.is_of_a_crowd() {
            return runtime.stop_container(id, grace).await;
        }
        let stopped = pin!(runtime.stop_container(id, grace.saturating_add(TURN_TIMEOUT)));
        let killed = pin!(async {
            tokio::time::sleep(grace).await;
            let permit = gate.stops.enter(RuntimeCall::Kill, self.rank).await;
            runtime.stop_container(id, Duration::ZERO).await?;
            permit.end();
            Ok(())
        });
        match select(stopped, killed).await {
            Either::Left((stopped, _)) => stopped,
            Either::Right((Ok(()), _)) => Ok(()),
            Either::Right((Err(error), stopped)) => {
                tracing::debug!(%id, "left to the runtime to kill: {}", RuntimeError::describe(&error));
                stopped.await
            }
        }
    }

    /// Runs the hook. Its failure is logged and does not delay the kill.
    async fn pre_stop(&self, kill: &ContainerKill, within: Duration) {
        let Some((_, container)) = self.pod.container(&kill.name) else {
            return;
        };
        let handler = container
            .lifecycle
            .as_ref()
            .and_then(|l| l.pre_stop.as_ref());
        let Some(handler) = handler else { return };
        let hook = hooks::LifecycleHook {
            kind: hooks::HookKind::PreStop,
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

    /// Resolves when kills should be faster: the pod's deletion has a shorter grace period, or the
    /// whole pod is to end while only a container is being replaced.
    async fn wait_superseded(&self) {
        let (grace, syncing) = (
            deletion_grace(&self.pod),
            self.stage == PodWorkerState::Syncing,
        );
        let sooner = |desired: &PodGoal| {
            let shorter = match (deletion_grace(&desired.allocated), grace) {
                (Some(new), Some(old)) => new < old,
                (Some(_), None) => true,
                (None, _) => false,
            };
            shorter || (syncing && !desired.is_run())
        };
        let mut desired = self.goal.clone();
        if desired.wait_for(sooner).await.is_err() {
            std::future::pending().await
        }
    }
}

fn deletion_grace(pod: &Pod) -> Option<i64> {
    pod.metadata.deletion_grace_period_seconds
}
