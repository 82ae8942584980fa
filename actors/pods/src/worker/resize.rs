//! Resizes of the pod's CPU and memory: their progress, conditions and events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, HistoryEvent, WaitingReason};
use logic_pods::resize::{self, ResizeEvent, ResizeState};
use logic_resources::resources::linux_resources;
use state::checkpoints::ContainerResources;

use super::context::{PlanExecutor, SyncProblem};
use super::notify::CarriedOut;
use super::retries::RetryKey;
use super::{Msg, PodWorker, PodWorkerState, RETRY_BACKOFF};

impl PodWorker {
    /// Compares allocated with actuated resources, and records an event for each change.
    pub(super) fn follow_resize(&mut self, pod: &Pod, ctx: &Context<Msg>) {
        let Some(seen) = self.observed.pod() else {
            return;
        };
        let before = match &self.published.status {
            Some(_) => self.published.resize.clone(),
            None => {
                ResizeState::from_status(self.published.previous.as_deref().or(pod.status.as_ref()))
            }
        };
        let syncing = self.sync_status.state == PodWorkerState::Syncing;
        let (pending, resized) = {
            let goal = self.updates.goal.borrow();
            (goal.pending.clone(), goal.resized)
        };
        if resized.is_some() && resized != before.generation {
            // What failed was the allocation before.
            self.retries.forget_resizes();
        }
        let mut names = self.checkpoint.record.actuated.keys();
        let next = ResizeState {
            in_progress: syncing && resize::in_progress(pod, &self.actuated(pod), seen),
            error: names
                .find_map(|name| self.retries.reason(&RetryKey::Resize(name.clone())))
                .map(|problem| problem.message.clone()),
            generation: before.carried_out(resized, pod.metadata.generation),
            pending,
        };
        self.published.carried_out = (!next.in_progress).then_some(CarriedOut(resized));
        if next == self.published.resize {
            return;
        }
        let events: Vec<HistoryEvent> = before
            .events(&next)
            .map(|happening| {
                let generation = match &happening {
                    ResizeEvent::Completed => before.generation,
                    ResizeEvent::Failed(_) | ResizeEvent::Started => next.generation,
                    ResizeEvent::Waits(..) => pod.metadata.generation,
                };
                happening.event(pod, generation.unwrap_or_default())
            })
            .collect();
        for why in &events {
            self.history
                .record(pod, why, ctx.timestamp(), &self.peers.recorder);
        }
        self.published.resize = next;
    }
}

impl PodWorker {
    /// The resources that the containers run with; one that is being started has those that it is allocated.
    fn actuated(&self, pod: &Pod) -> Cow<'_, ContainerResources> {
        let actuated = &self.checkpoint.record.actuated;
        if self.operation.starting.is_empty() {
            return Cow::Borrowed(actuated);
        }
        let mut actuated = actuated.clone();
        for name in &self.operation.starting {
            let container = pod.container(name).map(|(_, container)| container);
            let resources = container.and_then(|container| container.resources.clone());
            actuated.insert(name.clone(), resources.unwrap_or_default());
        }
        Cow::Owned(actuated)
    }
}

fn count(began: Instant, success: bool) {
    let success = if success { "true" } else { "false" };
    let took = kernel::now().saturating_duration_since(began);
    let duration = metrics::pods::resizes::DURATION.with_label_values(&[success]);
    duration.observe(took.as_secs_f64() * 1000.0);
}

impl PlanExecutor {
    /// Has the runtime and the pod's cgroup enforce the resources allocated to a container.
    pub(super) async fn resize(&mut self, id: &ContainerId, name: String) {
        let began = kernel::now();
        let enforced = self.enforce(id, &name).await;
        count(began, enforced.is_ok());
        match enforced {
            Ok(()) => {
                let resources = self.resources(&name);
                self.progress
                    .started
                    .extend(resources.map(|resources| (name, resources)));
            }
            Err(message) => {
                tracing::warn!(pod = %self.uid, container = name, "not resized: {message}");
                let problem = SyncProblem {
                    waiting: Some(WaitingReason {
                        reason: "Error".to_owned(),
                        message,
                    }),
                    retry_after: RETRY_BACKOFF,
                };
                self.progress
                    .problems
                    .push((RetryKey::Resize(name), problem));
            }
        }
    }

    async fn enforce(&self, id: &ContainerId, name: &str) -> Result<(), String> {
        let Some((_, container)) = self.pod.container(name) else {
            return Ok(());
        };
        if let Some(why) = self.memory_in_use().await {
            return Err(why);
        }
        let (node, cgroups) = (&self.peers.rules.node, &self.peers.cgroups);
        let resources = linux_resources(&self.pod, &container, node);
        // The parent must grow before its child and shrink after it: a first update that fails is repeated.
        let grown = cgroups.update(&self.pod, node).await;
        let runtime = &self.peers.runtime;
        let enforced = runtime.update_container_resources(id, &resources).await;
        enforced.map_err(|error| error.message())?;
        match grown {
            Ok(()) => Ok(()),
            Err(_) => cgroups
                .update(&self.pod, node)
                .await
                .map_err(|error| error.to_string()),
        }
    }

    /// Why a memory limit cannot be lowered now; none if it can.
    async fn memory_in_use(&self) -> Option<String> {
        let unknown = resize::memory_refusal(&self.pod, &self.actuated, &BTreeMap::new());
        unknown?;
        let used = self.peers.runtime.memory_use().await;
        let used = used.unwrap_or_default().remove(&self.uid);
        resize::memory_refusal(&self.pod, &self.actuated, &used.unwrap_or_default())
    }
}
