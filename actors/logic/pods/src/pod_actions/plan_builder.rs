//! A plan in the making: what kills, starts and waits come to, step by step.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::backoff::container_key;
use logic_api::pod::PodView;
use logic_api::pod::hash::container_hash;
use logic_api::text::go_duration::go_duration;
use logic_api::types::{
    ContainerKind, ContainerState, EventLevel, HistoryEvent, RuntimeContainer, RuntimePod,
    RuntimeSandbox, WaitingReason,
};

use super::kill::{KillReason, kill, kill_all, kill_grace, killing};
use super::plan::{BackoffUpdate, PodAction, PodPlan, RemovedLog};
use super::running::ContainerAction;
use super::{PodActionPolicy, PodObservation, next_restart_count};
use crate::resize::{ResizeDirections, allocated_and_actuated, directions, pod_level_differs};

/// A plan being made: facts beside, steps in their phases.
pub(super) struct PlanBuilder<'a> {
    pub(super) pod: &'a Pod,
    pub(super) observed: &'a PodObservation<'a>,
    now: Timestamp,
    policy: &'a PodActionPolicy,

    kills: Vec<PodAction>,
    stops: Vec<PodAction>,
    removals: Vec<PodAction>,
    create: Option<u32>,
    starts: Vec<PodAction>,
    /// The pod as a whole gets other resources: its own changed, or containers are restarted for theirs.
    resizes_pod: bool,
    /// Decreases before increases.
    resizes: Vec<(ResizeDirections, PodAction)>,
    plan: PodPlan,
}

impl<'a> PlanBuilder<'a> {
    pub(super) fn new(
        now: Timestamp,
        pod: &'a Pod,
        observed: &'a PodObservation<'a>,
        policy: &'a PodActionPolicy,
    ) -> Self {
        Self {
            pod,
            observed,
            now,
            policy,
            kills: Vec::new(),
            stops: Vec::new(),
            removals: Vec::new(),
            create: None,
            starts: Vec::new(),
            resizes_pod: false,
            resizes: Vec::new(),
            plan: PodPlan::default(),
        }
    }

    pub(super) fn why(
        &mut self,
        object: Option<&str>,
        weight: EventLevel,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.plan.why.push(HistoryEvent {
            object: object.map(str::to_owned),
            weight,
            reason: reason.to_owned(),
            message: message.into(),
        });
    }

    pub(super) fn use_sandbox(&mut self, sandbox: &RuntimeSandbox) {
        self.plan.sandbox = Some(sandbox.id.clone());
    }

    pub(super) fn create_sandbox(&mut self, attempt: u32) {
        self.create = Some(attempt);
    }

    /// Does what was found to be needed.
    pub(super) fn meet(&mut self, need: ContainerAction<'_>) {
        match need {
            ContainerAction::Start(spec) => self.start(spec),
            ContainerAction::Kill {
                instance,
                cause,
                message,
            } => self.kill(instance, cause, message),
            ContainerAction::Resize { instance, spec } => self.resize(instance, spec),
        }
    }

    pub(super) fn kill(
        &mut self,
        container: &RuntimeContainer,
        cause: KillReason,
        message: String,
    ) {
        self.resizes_pod |= cause == KillReason::Resize;
        let known = |action: &PodAction| matches!(action, PodAction::KillContainer { id, .. } if *id == container.id);
        if !self.kills.iter().any(known) {
            let grace = kill_grace(self.pod, &container.name, cause);
            self.kills
                .push(kill(Some(self.pod), container, grace, message));
        }
    }

    pub(super) fn resize_pod(&mut self) {
        self.resizes_pod |= pod_level_differs(self.pod, self.observed.actuated);
    }

    fn resize(&mut self, container: &RuntimeContainer, spec: &core::Container) {
        let (allocated, actuated) = allocated_and_actuated(self.pod, spec, self.observed.actuated);
        let ways = directions(&allocated, &actuated.unwrap_or_default());
        let resize = PodAction::ResizeContainer {
            id: container.id.clone(),
            name: container.name.clone(),
        };
        self.resizes.push((ways, resize));
    }

    pub(super) fn stop_sandbox(&mut self, sandbox: &RuntimeSandbox) {
        let stop = PodAction::StopSandbox {
            sandbox: sandbox.id.clone(),
        };
        if !self.stops.contains(&stop) {
            self.stops.push(stop);
        }
    }

    /// Kills what may run, in its order, and stops the ready sandboxes; what is down already is left alone,
    /// so that a finished pod's plan becomes empty.
    pub(super) fn kill_pod(&mut self) {
        self.plan.sandbox = None;
        let (pod, runtime) = (self.pod, self.observed.runtime);
        self.kills = kill_all(Some(pod), runtime, |c| {
            kill_grace(pod, &c.name, KillReason::Other)
        });
        let mut ready: Vec<_> = runtime.sandboxes.iter().filter(|s| s.is_ready()).collect();
        ready.sort_by(|a, b| b.attempt.cmp(&a.attempt).then_with(|| a.id.cmp(&b.id)));
        ready.into_iter().for_each(|s| self.stop_sandbox(s));
    }

    /// Kills what runs without being wanted: a name that the pod does not define, or an older instance
    /// beside a newer one. Upstream leaves both alone; two instances of one container are never right.
    pub(super) fn kill_leftovers(&mut self) {
        let runtime = self.observed.runtime;
        for container in in_order(runtime).into_iter().filter(|c| c.may_run()) {
            let name = &container.name;
            if self.pod.container(name).is_none() {
                self.kill(
                    container,
                    KillReason::Other,
                    format!("Container {name} is not in the pod's definition"),
                );
            } else if runtime
                .newest(name)
                .is_some_and(|newest| newest.id != container.id)
            {
                let message = format!("Container {name} has a newer instance");
                self.kill(container, KillReason::Other, message);
            }
        }
    }

    /// A new sandbox starts from the beginning: no trace of earlier initialisation may remain, nor a
    /// container that was made for the old sandbox and never ran.
    pub(super) fn purge_old_sandbox(&mut self) {
        for container in in_order(self.observed.runtime) {
            if self.init_container(container) || container.never_ran() {
                self.remove(container, RemovedLog::Removed);
            }
        }
    }

    /// Starts a container, unless it has to back off.
    pub(super) fn start(&mut self, container: &core::Container) {
        self.prune_init_containers();
        let name = &container.name;
        for instance in in_order(self.observed.runtime)
            .into_iter()
            .filter(|c| c.name == *name)
        {
            match instance.state {
                ContainerState::Running => {}
                // Its name is taken by an instance that never ran.
                ContainerState::Exited if instance.start_was_cancelled() => {
                    self.remove(instance, RemovedLog::Removed);
                }
                ContainerState::Exited => {}
                ContainerState::Unknown => {
                    let kind = if self.init_container(instance) {
                        "Init container"
                    } else {
                        "Container"
                    };
                    let state = instance.state.as_str();
                    self.kill(
                        instance,
                        KillReason::Other,
                        format!("{kind} is in {state:?} state, try killing it before restart"),
                    );
                }
                // Left by a start that was interrupted: it is started, or out of the way, for its name is taken.
                ContainerState::Created if self.is_startable(instance, container) => {}
                ContainerState::Created => self.remove(instance, RemovedLog::Removed),
            }
        }
        let Some((kind, _)) = self.pod.container(name) else {
            return;
        };
        let step = self.backoff_step(container);
        if let Some(step) = &step
            && self.backs_off(container, step)
        {
            return;
        }
        self.starts.push(PodAction::StartContainer {
            name: name.clone(),
            kind,
            restart_count: next_restart_count(name, self.observed),
            message: start_reason(self.observed.runtime.newest(name)),
            backoff: step,
        });
    }

    /// Whether an instance that was made and not started is the one that would be made now.
    fn is_startable(&self, instance: &RuntimeContainer, container: &core::Container) -> bool {
        let newest = self.observed.runtime.newest(&container.name);
        newest.is_some_and(|newest| newest.id == instance.id)
            && self.plan.sandbox.as_ref() == Some(&instance.sandbox)
            && instance.hash == Some(container_hash(container))
    }

    /// Keeps only the newest ended instance of each init container.
    fn prune_init_containers(&mut self) {
        let mut seen = BTreeSet::new();
        for container in in_order(self.observed.runtime) {
            let ended = matches!(
                container.state,
                ContainerState::Exited | ContainerState::Unknown
            );
            if ended && self.init_container(container) && !seen.insert(&container.name) {
                self.remove(container, RemovedLog::Removed);
            }
        }
    }

    pub(super) fn remove(&mut self, container: &RuntimeContainer, log: RemovedLog) {
        let removal = PodAction::RemoveContainer {
            instance: container.instance(),
            log,
        };
        if !self.removals.contains(&removal) {
            self.removals.push(removal);
        }
    }

    fn init_container(&self, container: &RuntimeContainer) -> bool {
        let inits = self.pod.init_containers();
        inits.iter().any(|c| c.name == container.name)
    }

    /// What a restart counts from: the newest exit of the container.
    fn backoff_step(&self, container: &core::Container) -> Option<BackoffUpdate> {
        let runtime = self.observed.runtime;
        let exited = in_order(runtime)
            .into_iter()
            .filter(|c| c.name == container.name && !c.start_was_cancelled())
            .find(|c| c.state == ContainerState::Exited)?;
        Some(BackoffUpdate {
            key: container_key(self.pod, container),
            since: self
                .observed
                .exits
                .get(&exited.id)
                .copied()
                .unwrap_or(self.now),
        })
    }

    fn backs_off(&mut self, container: &core::Container, step: &BackoffUpdate) -> bool {
        let (table, policy) = (self.observed.backoffs, &self.policy.backoff);
        let Some(left) = table.remaining(&step.key, step.since, self.now, policy) else {
            return false;
        };
        let delay = go_duration(table.delay(&step.key).unwrap_or(left));
        let (name, pod) = (&container.name, self.pod.formatted());
        let waiting = WaitingReason {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!("back-off {delay} restarting failed container={name} pod={pod}"),
        };
        self.plan.waiting.insert(name.clone(), waiting);
        let event = format!("Back-off restarting failed container {name} in pod {pod}");
        self.why(Some(name), EventLevel::Warning, "BackOff", event);

        let left = SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX);
        let at = self.now.checked_add(left).unwrap_or(Timestamp::MAX);
        self.plan.retry_at = Some(self.plan.retry_at.map_or(at, |earlier| earlier.min(at)));
        true
    }

    pub(super) fn finish(mut self) -> PodPlan {
        let mut why: Vec<HistoryEvent> = self.kills.iter().filter_map(killing).collect();
        why.append(&mut self.plan.why);
        self.plan.why = why;
        self.resizes
            .sort_by_key(|(ways, _)| (ways.memory, ways.cpu));
        let (inits, mut others): (Vec<_>, Vec<_>) = self
            .starts
            .into_iter()
            .partition(|start| is_start_of(start, ContainerKind::Init));
        // The sort is stable: app containers come first, in the order of the pod.
        others.sort_by_key(|start| is_start_of(start, ContainerKind::Ephemeral));
        let create = self
            .create
            .map(|attempt| PodAction::CreateSandbox { attempt });
        let resize_pod = self.resizes_pod.then_some(PodAction::ResizePod);
        self.plan.actions = self
            .kills
            .into_iter()
            .chain(self.stops)
            .chain(self.removals)
            .chain(create)
            .chain(inits)
            .chain(resize_pod)
            .chain(self.resizes.into_iter().map(|(_, resize)| resize))
            .chain(others)
            .collect();
        self.plan.replaced = self.plan.find_replaced();
        self.plan
    }
}

fn is_start_of(action: &PodAction, wanted: ContainerKind) -> bool {
    matches!(action, PodAction::StartContainer { kind, .. } if *kind == wanted)
}

/// By name, newest first: the order of decisions does not depend on the order of lists.
fn in_order(runtime: &RuntimePod) -> Vec<&RuntimeContainer> {
    let mut list: Vec<_> = runtime.containers.iter().collect();
    list.sort_by(|a, b| {
        let newest_first =
            |c: &RuntimeContainer| Reverse((c.attempt, c.created_at, Reverse(c.id.clone())));
        a.name
            .cmp(&b.name)
            .then_with(|| newest_first(a).cmp(&newest_first(b)))
    });
    list
}

fn start_reason(newest: Option<&RuntimeContainer>) -> String {
    let Some(newest) = newest else {
        return "it has not run yet".to_owned();
    };
    match newest.state {
        _ if newest.start_was_cancelled() => "an earlier start was broken off".to_owned(),
        ContainerState::Exited => format!("it exited with code {}", newest.exit_code),
        ContainerState::Running => "its running instance is replaced".to_owned(),
        ContainerState::Created => "an earlier start was not finished".to_owned(),
        ContainerState::Unknown => "its state was unknown".to_owned(),
    }
}
