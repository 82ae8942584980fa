//! Resizes of the pod's CPU and memory: their progress, conditions and events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use kernel::Context;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, HistoryEvent, WaitingReason};
use logic_pods::pod_actions::PodAction;
use logic_pods::resize::{
    self, POD_LEVEL, PodMemoryLimits, PodResize, ResizeEvent, ResizeState, ResizeStep,
};
use logic_pods::sandbox;
use logic_resources::cgroups::pod_limits;
use logic_resources::resources::{LinuxResources, linux_resources};
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
        let (pending, resized, desired) = {
            let goal = self.updates.goal.borrow();
            (goal.pending.clone(), goal.resized, goal.desired.clone())
        };
        let pending_generation = pending.as_ref().and(desired.metadata.generation);
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
            pending_generation,
        };
        self.published.carried_out = (!next.in_progress).then_some(CarriedOut(resized));
        if next == self.published.resize {
            return;
        }
        let events: Vec<HistoryEvent> = before
            .events(&next)
            .map(|happening| {
                let (pod, generation) = match &happening {
                    ResizeEvent::Completed => (pod, before.generation),
                    ResizeEvent::Failed(_) | ResizeEvent::Started => (pod, next.generation),
                    // The resources that were refused.
                    ResizeEvent::Waits(..) => (&*desired, pending_generation),
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
    /// Has the runtime and the pod's cgroup enforce what is allocated, as one resize of the pod.
    pub(super) async fn resize(&mut self, batch: Vec<PodAction>) {
        let in_place = |action| match action {
            PodAction::ResizeContainer { id, name } => Some((name, id)),
            PodAction::ResizePod
            | PodAction::KillContainer { .. }
            | PodAction::StopSandbox { .. }
            | PodAction::RemoveContainer { .. }
            | PodAction::CreateSandbox { .. }
            | PodAction::StartContainer { .. } => None,
        };
        let running: BTreeMap<String, ContainerId> =
            batch.into_iter().filter_map(in_place).collect();
        let began = kernel::now();
        let resized = self.resize_pod(&running).await;
        count(began, resized.is_ok());
        let Err(message) = resized else { return };
        tracing::warn!(pod = %self.uid, "not resized: {message}");
        let level = self.actuated.contains_key(POD_LEVEL);
        let level = level.then(|| POD_LEVEL.to_owned());
        for name in running.into_keys().chain(level) {
            let problem = SyncProblem {
                waiting: Some(WaitingReason {
                    reason: "Error".to_owned(),
                    message: message.clone(),
                }),
                retry_after: RETRY_BACKOFF,
            };
            self.progress
                .problems
                .push((RetryKey::Resize(name), problem));
        }
    }

    /// Carries the steps out one after the other; the first that fails ends the resize.
    async fn resize_pod(&mut self, running: &BTreeMap<String, ContainerId>) -> Result<(), String> {
        if let Some(why) = self.memory_in_use().await {
            return Err(why);
        }
        let names: Vec<&str> = running.keys().map(String::as_str).collect();
        let node = self.pod_policy();
        for step in resize::resize_steps(&self.pod, &self.actuated, &names, &node) {
            match step {
                ResizeStep::Pod(change) => self.resize_sandbox(&change).await?,
                ResizeStep::Container { name, resources } => {
                    let Some(id) = running.get(&name) else {
                        continue;
                    };
                    self.resize_container(id, &name, &resources).await?;
                    self.progress.started.push((name, *resources));
                }
            }
        }
        self.note_pod_level();
        Ok(())
    }

    /// Notes that the pod as a whole has its own resources as they are allocated.
    pub(super) fn note_pod_level(&mut self) {
        let resources = self.pod.spec().and_then(|spec| spec.resources.clone());
        let noted = (POD_LEVEL.to_owned(), resources.unwrap_or_default());
        self.progress.started.push(noted);
    }

    /// The runtime may refuse what the pod as a whole is to get, before its cgroup is changed.
    async fn resize_sandbox(&self, change: &PodResize) -> Result<(), String> {
        let (pod, peers) = (&self.pod, &self.peers);
        let Some(id) = &self.progress.sandbox else {
            return Ok(());
        };
        let node = self.pod_policy();
        let of = |limits| sandbox::resized(pod, limits, &node);
        let told = peers
            .runtime
            .update_sandbox_resources(id, &of(&change.limits))
            .await;
        told.map_err(|error| {
            let (resource, error) = (change.resource, error.as_grpc_status());
            format!(
                "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); \
                 resize rejected: updatePodSandboxResources failed for sandboxID \"{id}\": {error}"
            )
        })?;
        let Err(error) = peers.cgroups.update(pod, &change.limits).await else {
            return Ok(());
        };
        let told = peers
            .runtime
            .update_sandbox_resources(id, &of(&change.before))
            .await;
        if let Err(error) = told {
            tracing::warn!(pod = %self.uid, "the runtime holds the sandbox for resized: {}", error.describe());
        }
        Err(error.to_string())
    }

    async fn resize_container(
        &self,
        id: &ContainerId,
        name: &str,
        resources: &ResourceRequirements,
    ) -> Result<(), String> {
        let Some((_, container)) = self.pod.container(name) else {
            return Ok(());
        };
        let container = Container {
            resources: Some(resources.clone()),
            ..container.into_owned()
        };
        let peers = &self.peers;
        let resources = linux_resources(&self.pod, &container, &peers.rules.node);
        // The CPUs stay those that it was moved to last.
        let resources = LinuxResources {
            cpus: String::new(),
            memory_nodes: String::new(),
            ..self.placement(name).limit(resources)
        };
        let enforced = peers
            .runtime
            .update_container_resources(id, &resources)
            .await;
        enforced.map_err(|error| error.as_grpc_status())
    }

    /// Why a memory limit cannot be lowered now; none if it can.
    async fn memory_in_use(&self) -> Option<String> {
        let node = &self.peers.rules.node;
        let whole = PodMemoryLimits {
            from: resize::limits_in_force(&self.pod, &self.actuated, node).memory,
            to: pod_limits(&self.pod, node).memory,
        };
        let refusal = |used| resize::memory_refusal(&self.pod, &self.actuated, used, whole);
        let unknown = BTreeMap::new();
        refusal(&unknown)?;
        let used = self.peers.runtime.memory_charged().await;
        let used = used.unwrap_or_default().remove(&self.uid);
        let used = used.unwrap_or_default();
        refusal(&used)
    }
}
