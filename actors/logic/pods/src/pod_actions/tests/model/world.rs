//! A runtime and an agent's memory, small enough to be driven by random events; and what must always hold.

use std::collections::BTreeSet;

use logic_api::pod::is_sidecar;
use logic_api::types::{ContainerInstance, ContainerKind, SandboxId};

use super::super::*;
use super::events::PodModelFault;
use super::shape::PodShape;
use crate::pod_actions::kill::PreStopHooks;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ActionResult {
    Done,
    Refused,
    Half,
}

#[derive(Debug)]
pub(super) struct PodModel {
    pub(super) pod: Pod,
    pub(super) runtime: RuntimePod,
    pub(super) facts: FactsRow,
    longest_grace: i64,
    pub(super) clock: i64,
    pub(super) serial: u32,
    logs: BTreeSet<(String, u32)>,
    attempts: BTreeSet<u32>,
    /// Init containers that have done their work since all last began.
    initialised: BTreeSet<String>,
    /// Ephemeral containers that have run.
    debugged: BTreeSet<String>,
    /// The pod is being deleted, or has ended by itself.
    pub(super) ending: bool,
}

impl PodModel {
    pub(super) fn new(shape: &PodShape) -> Self {
        let pod = shape.pod();
        let mut runtime = runtime(&pod);
        runtime.sandboxes.clear();
        Self {
            pod,
            runtime,
            facts: FactsRow::default(),
            longest_grace: shape.longest_grace(),
            clock: 0,
            serial: 0,
            logs: BTreeSet::new(),
            attempts: BTreeSet::new(),
            initialised: BTreeSet::new(),
            debugged: BTreeSet::new(),
            ending: false,
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Computes and carries out one plan.
    pub(super) fn sync(&mut self, upset: PodModelFault) -> PodPlan {
        for container in &self.runtime.containers {
            if container.state == ContainerState::Exited {
                let seen = self.facts.exits.entry(container.id.clone());
                seen.or_insert(at(self.clock));
            }
        }
        let next = |(name, attempt): &(String, u32)| (name.clone(), attempt + 1);
        self.facts.log_counts = self.logs.iter().map(next).collect();
        let plan = self.plan();
        if self.pod.metadata.deletion_timestamp.is_some() {
            let syncing = self.facts.plan_at(self.clock, &self.pod, &self.runtime);
            assert_eq!(steps(&syncing), [""; 0], "nothing happens in a deleted pod");
        }
        // As the worker does when the pod's phase is final.
        self.ending |= plan
            .why
            .iter()
            .any(|why| matches!(why.reason.as_str(), "PodCompleted" | "PodFailed"));
        for action in &plan.actions {
            if let PodAction::StartContainer {
                backoff: Some(step),
                ..
            } = action
            {
                let policy = BackoffPolicy::default();
                let (table, now) = (&mut self.facts.backoffs, at(self.clock));
                table.next(&step.key, step.since, now, &policy);
            }
        }
        self.carry(&plan, upset);
        self.runtime.sort();
        plan
    }

    fn plan(&self) -> PodPlan {
        let compute = |runtime: &RuntimePod| match self.ending {
            true => termination_plan(Some(&self.pod), runtime, None),
            false => self.facts.plan_at(self.clock, &self.pod, runtime),
        };
        let plan = compute(&self.runtime);
        assert_eq!(plan.broken_promise(&self.pod, &self.runtime), None);
        let mut turned = self.runtime.clone();
        turned.containers.reverse();
        turned.sandboxes.reverse();
        assert_eq!(plan, compute(&turned), "the order of lists means nothing");
        plan
    }

    fn carry(&mut self, plan: &PodPlan, upset: PodModelFault) {
        let ends = plan
            .actions
            .iter()
            .any(|a| matches!(a, PodAction::StopSandbox { .. }));
        let mut sandbox = plan.sandbox.clone();
        // Who may start whatever its policy says: its start was broken off, or it is killed for it.
        let is_created = |name: &String| {
            let newest = self.runtime.newest(name);
            newest.is_some_and(|container| container.state == ContainerState::Created)
        };
        let names = self.runtime.containers.iter().map(|c| c.name.clone());
        let mut replaced: BTreeSet<String> = names.filter(is_created).collect();
        let kills: Vec<_> = plan.actions.iter().filter(|a| is_kill(a)).collect();
        let rest = plan.actions.iter().filter(|a| !is_kill(a));
        for (index, action) in in_turns(kills).into_iter().chain(rest).enumerate() {
            let outcome = match upset {
                PodModelFault::Refused(at) if at == index => ActionResult::Refused,
                PodModelFault::Half(at) if at == index => ActionResult::Half,
                PodModelFault::Exit(at) if at == index => {
                    self.exit_one(0, 1);
                    ActionResult::Done
                }
                PodModelFault::No
                | PodModelFault::Refused(_)
                | PodModelFault::Half(_)
                | PodModelFault::Exit(_) => ActionResult::Done,
            };
            self.watch();
            match action {
                PodAction::KillContainer {
                    id,
                    name,
                    grace,
                    hooks,
                    ..
                } => {
                    self.check_grace(*grace);
                    // Without a grace period a kill waits for no other, as upstream has it.
                    self.check_turn(name, ends && *hooks == PreStopHooks::Run);
                    replaced.insert(name.clone());
                    if outcome != ActionResult::Refused {
                        self.end(id);
                    }
                }
                PodAction::StopSandbox { sandbox } if outcome != ActionResult::Refused => {
                    self.stop_sandbox(sandbox);
                }
                PodAction::RemoveContainer { instance, log }
                    if outcome != ActionResult::Refused =>
                {
                    self.remove(instance, *log);
                }
                PodAction::StopSandbox { .. } | PodAction::RemoveContainer { .. } => {}
                PodAction::CreateSandbox { attempt } => {
                    sandbox = self.create_sandbox(*attempt, outcome);
                }
                PodAction::StartContainer {
                    name,
                    kind,
                    restart_count,
                    ..
                } => {
                    self.check_start(name, *kind, replaced.contains(name));
                    let sandbox = sandbox.as_ref().unwrap();
                    self.start((name, *kind, *restart_count), sandbox, outcome);
                }
                PodAction::ResizeContainer { name, .. } if outcome == ActionResult::Done => {
                    self.actuate(name);
                }
                PodAction::ResizePod | PodAction::ResizeContainer { .. } => {}
            }
            self.watch();
            let goes_on = matches!(
                action,
                PodAction::StartContainer { .. }
                    | PodAction::ResizePod
                    | PodAction::ResizeContainer { .. }
            );
            if outcome == ActionResult::Half || (outcome == ActionResult::Refused && !goes_on) {
                return;
            }
        }
    }

    fn check_grace(&self, grace: Duration) {
        let grace = i64::try_from(grace.as_secs()).unwrap();
        assert!(grace >= 2, "{grace} s are too short");
        let deletion = self.pod.metadata.deletion_grace_period_seconds;
        let longest = deletion.map_or(self.longest_grace, |grace| grace.max(2));
        assert!(grace <= longest, "{grace} s are longer than {longest} s");
    }

    /// Where the whole pod ends, sidecars outlive the app containers and end in reverse.
    fn check_turn(&self, name: &str, ends: bool) {
        let inits = self.pod.init_containers();
        let place = inits.iter().position(|c| c.name == name && is_sidecar(c));
        let Some(place) = place.filter(|_| ends) else {
            return;
        };
        let later = inits.iter().skip(place + 1).filter(|c| is_sidecar(c));
        for other in self.pod.app_containers().iter().chain(later) {
            let alive = self
                .runtime
                .instances(&other.name)
                .any(RuntimeContainer::may_run);
            assert!(!alive, "{name} ends before {}", other.name);
        }
    }

    fn check_start(&self, name: &str, kind: ContainerKind, replaced: bool) {
        assert!(!self.ending, "{name} starts in a pod that ends");
        let alive = self.runtime.instances(name).any(RuntimeContainer::may_run);
        assert!(!alive, "{name} has two live instances");
        let inits = self.pod.init_containers();
        let before = inits.iter().take_while(|c| c.name != name);
        let waits_for = before.filter(|_| kind != ContainerKind::Ephemeral);
        for init in waits_for {
            let done = self.initialised.contains(&init.name);
            assert!(done, "{name} starts before {} is done", init.name);
        }
        if kind == ContainerKind::Ephemeral {
            assert!(!self.debugged.contains(name), "{name} runs twice");
        }
        let Some((ContainerKind::App, spec)) = self.pod.container(name) else {
            return;
        };
        let Some(newest) = self.runtime.newest(name) else {
            return;
        };
        let here = self
            .runtime
            .newest_sandbox()
            .is_some_and(|s| s.id == newest.sandbox);
        let ended = newest.state == ContainerState::Exited && here && !replaced;
        assert!(
            !ended || restarts_after(&self.pod, &spec, newest.exit_code),
            "{name} starts against its policy"
        );
    }

    fn start(
        &mut self,
        (name, kind, count): (&str, ContainerKind, u32),
        sandbox: &SandboxId,
        outcome: ActionResult,
    ) {
        let ready = self
            .runtime
            .sandboxes
            .iter()
            .any(|s| s.id == *sandbox && s.is_ready());
        if outcome == ActionResult::Refused || !ready {
            return;
        }
        self.serial += 1;
        let state = match outcome {
            ActionResult::Half => ContainerState::Created,
            ActionResult::Done | ActionResult::Refused => ContainerState::Running,
        };
        let made = RuntimeContainer {
            id: format!("{name}-{}", self.serial).as_str().into(),
            sandbox: sandbox.clone(),
            attempt: count,
            restart_count: count,
            ..instance(&self.pod, name, state)
        };
        let mut instances = self.runtime.containers.iter_mut();
        match instances.find(|c| c.name == name && c.attempt == count) {
            // What was made and not started is started as it is, where it is what would be made now.
            Some(taken) => {
                let startable = taken.state == ContainerState::Created
                    && taken.sandbox == *sandbox
                    && taken.hash == made.hash;
                assert!(startable, "the name of {name}, attempt {count}, is taken");
                taken.state = state;
            }
            None => self.runtime.containers.push(made),
        }
        self.logs.insert((name.to_owned(), count));
        self.actuate(name);
        if kind == ContainerKind::Ephemeral && state == ContainerState::Running {
            self.debugged.insert(name.to_owned());
        }
    }

    fn create_sandbox(&mut self, attempt: u32, outcome: ActionResult) -> Option<SandboxId> {
        assert!(!self.ending, "a sandbox is made for a pod that ends");
        if outcome == ActionResult::Refused {
            return None;
        }
        assert!(
            self.attempts.insert(attempt),
            "sandbox {attempt} is made twice"
        );
        let state = match outcome {
            ActionResult::Half => SandboxState::NotReady,
            ActionResult::Done | ActionResult::Refused => SandboxState::Ready,
        };
        let ready = self.runtime.sandboxes.iter().any(|s| s.is_ready());
        assert!(!ready, "a pod has one ready sandbox");
        let made = sandbox(attempt, state);
        let id = made.id.clone();
        self.runtime.sandboxes.push(made);
        self.runtime.sort();
        self.initialised.clear();
        Some(id)
    }

    fn actuate(&mut self, name: &str) {
        let spec = self.pod.container(name).map(|(_, spec)| spec.into_owned());
        let resources = spec.and_then(|spec| spec.resources).unwrap_or_default();
        self.facts.actuated.insert(name.to_owned(), resources);
    }

    pub(super) fn remove(&mut self, gone: &ContainerInstance, log: RemovedLog) {
        let alive = self
            .runtime
            .containers
            .iter()
            .any(|c| c.id == gone.id && c.may_run());
        assert!(!alive, "{} is removed while it may run", gone.id);
        self.runtime.containers.retain(|c| c.id != gone.id);
        match log {
            RemovedLog::Removed => drop(self.logs.remove(&(gone.name.clone(), gone.attempt))),
            // All start over.
            RemovedLog::Kept => drop(self.initialised.remove(&gone.name)),
        }
    }

    fn end(&mut self, id: &ContainerId) {
        let found = self.runtime.containers.iter_mut().find(|c| c.id == *id);
        if let Some(container) = found.filter(|c| c.may_run()) {
            container.state = ContainerState::Exited;
            container.exit_code = 137;
        }
    }

    pub(super) fn stop_sandbox(&mut self, id: &SandboxId) {
        for sandbox in self.runtime.sandboxes.iter_mut().filter(|s| s.id == *id) {
            sandbox.state = SandboxState::NotReady;
        }
        for container in self
            .runtime
            .containers
            .iter_mut()
            .filter(|c| c.sandbox == *id)
        {
            if container.may_run() {
                container.state = ContainerState::Exited;
                container.exit_code = 137;
            }
        }
    }

    /// Notes which init containers have done their work.
    pub(super) fn watch(&mut self) {
        let Some(sandbox) = self.runtime.newest_sandbox().map(|s| s.id.clone()) else {
            return;
        };
        for spec in self.pod.init_containers() {
            let newest = self.runtime.newest(&spec.name);
            let Some(newest) = newest.filter(|c| c.sandbox == sandbox) else {
                continue;
            };
            let health = self.facts.health.get(&newest.id).copied();
            let health = health.unwrap_or_else(|| crate::probes::initial_health(spec));
            let started =
                newest.state == ContainerState::Running && health.startup == ProbeResult::Success;
            if newest.succeeded() && !is_sidecar(spec) || started && is_sidecar(spec) {
                self.initialised.insert(spec.name.clone());
            }
        }
    }

    /// Lets everything work until nothing is left to be done.
    pub(super) fn come_to_rest(&mut self) {
        for _ in 0..80 {
            let plan = self.sync(PodModelFault::No);
            let goes_on = self.work();
            self.watch();
            let over = self.ending && self.runtime.is_stopped();
            let idle = plan.actions.is_empty() && plan.retry_at.is_none() && !goes_on;
            if over || (idle && !self.ending) {
                return;
            }
            let retry = plan.retry_at.map(|retry| retry.as_second() - NOW);
            self.clock = retry.unwrap_or(self.clock + 1).max(self.clock);
        }
        panic!("it does not come to rest: {:?}", steps(&self.plan()));
    }

    /// Init containers end well, and probes succeed.
    fn work(&mut self) -> bool {
        let mut changed = false;
        for container in &mut self.runtime.containers {
            if container.state != ContainerState::Running {
                continue;
            }
            let good = ContainerHealth {
                startup: ProbeResult::Success,
                liveness: ProbeResult::Success,
                readiness: ProbeResult::Success,
            };
            changed |= self.facts.health.insert(container.id.clone(), good) != Some(good);
            let mut inits = self.pod.init_containers().iter();
            if inits.any(|c| c.name == container.name && !is_sidecar(c)) {
                container.state = ContainerState::Exited;
                container.exit_code = 0;
                changed = true;
            }
        }
        changed
    }
}

fn is_kill(action: &PodAction) -> bool {
    matches!(action, PodAction::KillContainer { .. })
}

/// The kills in an order that their turns allow: those that wait for no other go first, the last such first.
fn in_turns(mut kills: Vec<&PodAction>) -> Vec<&PodAction> {
    let mut order = Vec::new();
    while !kills.is_empty() {
        let free = |kill: &&PodAction| !kills.iter().any(|other| kill.waits_for(other));
        let index = kills
            .iter()
            .rposition(free)
            .expect("turns have a beginning");
        order.push(kills.remove(index));
    }
    order
}
