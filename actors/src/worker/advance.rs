//! What a worker does next: one thing at a time, from what is desired and what was seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Context, Exit};
use logic::pod::PodView;
use logic::runtime_class::HandlerFeatures;
use logic::types::{ContainerId, Failure};
use logic::worker::{Action, BackoffStep, Observed, PodPlan, Wait, compute_pod_actions, kill};

use super::again::Work;
use super::carry::Carrier;
use super::resize::resize_key;
use super::volumes::asks_for_recursive_read_only;
use super::{ENDING, Fetched, Msg, SANDBOX, Stage, Worker, files, remove, timestamp};

/// What is under way while a plan is carried out.
pub(super) const CARRYING: &str = "carrying out a plan";

impl Worker {
    /// Does the next thing, if nothing is under way.
    pub(super) fn advance(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.peers.rules.clone_from(&self.wish.rules.borrow());
        if self.working.is_some() {
            self.publish_meanwhile(ctx);
            self.tell_watchers(ctx);
            return Ok(());
        }
        if self.wish.desired.has_changed().unwrap_or(false) {
            self.counted.note_change();
            self.begun.forget();
        }
        let desired = self.wish.desired.borrow_and_update().clone();
        self.stale |= self.wish.missed.take();
        if !desired.is_run() && self.stage == Stage::Syncing {
            self.decree(&desired, ctx);
        }
        if self.stage == Stage::Syncing {
            self.want_volumes(&desired.pod, ctx);
        }
        if self.stale || self.seen.is_none() {
            self.fetch(&desired.pod, ctx);
            return Ok(());
        }
        match self.stage {
            Stage::Syncing => self.sync(&desired.pod, ctx),
            Stage::Terminating => self.terminate(&desired.pod, ctx),
            Stage::Terminated => {}
        }
        self.release_volumes(ctx);
        let is_over = self.stage == Stage::Terminated && self.volumes.is_released();
        if is_over && desired.is_end() && self.working.is_none() {
            self.remove(&desired.pod, ctx);
        }
        self.tell_watchers(ctx);
        Ok(())
    }

    fn sync(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        if self.deadline_passed(pod, ctx) {
            self.stage = Stage::Terminating;
            self.terminate(pod, ctx);
            return;
        }
        let Some(seen) = &self.seen else { return };
        let observed = Observed {
            runtime: seen.pod(),
            exits: &self.memory.record.exits,
            backoffs: &self.memory.record.backoffs,
            log_counts: &self.log_counts,
            health: &self.memory.record.health,
            actuated: &self.memory.record.actuated,
        };
        let plan = compute_pod_actions(timestamp(ctx), pod, &observed, &self.peers.rules.policy);
        self.whys
            .tell(pod, &plan.why, timestamp(ctx), &self.peers.recorder);
        let plan = self.without_held(plan, ctx.now());
        self.waiting.clone_from(&plan.waiting);
        self.publish(pod, &plan.waiting, ctx);
        self.memory.allocate(pod);
        self.memory.save(&self.uid, &self.peers.records);

        let phase = self
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            self.stage = Stage::Terminating;
            self.terminate(pod, ctx);
        } else if plan.actions.is_empty() {
            self.retry_when_due(&plan, pod, ctx);
            self.collect_garbage(pod, ctx);
        } else {
            self.carry(plan, pod, ctx);
        }
    }

    fn terminate(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.held.retain(|_, until| *until > now);
        let Some(seen) = &self.seen else { return };
        if seen.pod().is_stopped() {
            // Nothing is published while last words are read, and nothing follows the last status: who has
            // heard them comes back here.
            if self.hearing.is_empty() {
                self.stage = Stage::Terminated;
                self.publish(pod, &BTreeMap::new(), ctx);
            }
            return;
        }
        let plan = kill::termination_plan(Some(pod), seen.pod(), self.grace);
        self.whys
            .tell(pod, &plan.why, timestamp(ctx), &self.peers.recorder);
        self.publish(pod, &BTreeMap::new(), ctx);
        if self.held.contains_key(ENDING) {
            self.retry_when_due(&plan, pod, ctx);
        } else {
            self.carry(plan, pod, ctx);
        }
    }

    fn carry(&mut self, plan: PodPlan, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        if !self.may_begin(Work::Plan(plan.actions.clone()), ctx) {
            return;
        }
        self.working = Some(CARRYING);
        self.counted.begin(self.stage, pod, ctx);
        for step in plan.actions.iter().filter_map(backoff_step) {
            let policy = &self.peers.rules.policy.backoff;
            self.memory
                .record
                .backoffs
                .next(&step.key, step.since, timestamp(ctx), policy);
        }
        self.memory.save(&self.uid, &self.peers.records);
        let starts = plan.actions.iter().filter_map(started);
        self.hooked = starts
            .filter(|name| has_post_start(pod, name))
            .cloned()
            .collect();
        let carrier = Carrier {
            peers: self.peers.clone(),
            uid: self.uid.clone(),
            pod: pod.clone(),
            desired: self.wish.desired.clone(),
            stage: self.stage,
            endings: self.endings.clone(),
            actuated: self.memory.record.actuated.clone(),
            ips: self.addresses(pod),
            running: self.running_ids(),
            volumes: self.volumes.mounted().cloned().unwrap_or_default(),
            sandbox: None,
            made: None,
            problems: Vec::new(),
            started: Vec::new(),
            pulls: self.counted.pulls.clone(),
        };
        ctx.run(async move { Msg::Carried(Box::new(carrier.carry(plan).await)) });
    }

    /// Whether this work may begin now; if not, it is looked at again when it may.
    fn may_begin(&mut self, work: Work, ctx: &mut Context<Msg>) -> bool {
        let begun = self.begun.begin(work, ctx.now());
        if let Err(wait) = begun {
            self.retry_after(wait, ctx);
        }
        begun.is_ok()
    }

    pub(super) fn addresses(&self, pod: &Pod) -> Vec<String> {
        let found = self.seen.as_ref().map_or(&[][..], |seen| seen.pod().ips());
        addresses(pod, found, &self.peers.rules.node.host_ips)
    }

    fn running_ids(&self) -> BTreeMap<String, ContainerId> {
        let running = self.running().into_iter();
        running.map(|c| (c.name.clone(), c.id.clone())).collect()
    }

    fn collect_garbage(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let Some(seen) = &self.seen else { return };
        let garbage = logic::gc::garbage(seen.pod());
        if garbage.is_empty() {
            self.begun.forget();
            return;
        }
        let is_held = self.held.contains_key(remove::GARBAGE);
        if is_held || !self.may_begin(Work::Garbage(garbage.clone()), ctx) {
            return;
        }
        self.working = Some("removing dead instances");
        let (peers, pod, endings) = (self.peers.clone(), pod.clone(), self.endings.clone());
        ctx.run(async move {
            let report = remove::garbage(&peers, &pod, garbage, endings).await;
            Msg::Carried(Box::new(report))
        });
    }

    fn fetch(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        // What is doubted from now on needs another look: this one may be older.
        self.stale = false;
        self.working = Some("looking at what exists");
        let (runtime, uid, pod) = (self.peers.runtime.clone(), self.uid.clone(), pod.clone());
        let logs = self.peers.rules.node.pod_logs_dir.clone();
        let objects = self.peers.objects.clone();
        ctx.run(async move {
            let log_counts = files::log_counts(logs, pod.clone()).await;
            let features = match asks_for_recursive_read_only(&pod) {
                true => runtime.features(&pod, &*objects).await,
                false => HandlerFeatures::default(),
            };
            let answer = runtime.pod(&uid).await;
            Msg::Fetched(Box::new(answer.map(|runtime| Fetched {
                runtime,
                log_counts,
                features,
            })))
        });
    }

    fn remove(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let Some(seen) = &self.seen else { return };
        self.working = Some("removing what is left");
        self.counted.begin(self.stage, pod, ctx);
        let (peers, pod, runtime) = (self.peers.clone(), pod.clone(), seen.pod().clone());
        ctx.run(async move { Msg::Removed(remove::everything(&peers, &pod, &runtime).await) });
    }

    /// Drops what was tried in vain and may not be tried again yet, and what needs volumes that are not mounted.
    fn without_held(&mut self, plan: PodPlan, now: Instant) -> PodPlan {
        self.held.retain(|_, until| *until > now);
        let Some(seen) = &self.seen else { return plan };
        let (held, mounted) = (&self.held, self.volumes.mounted().is_some());
        let mut plan = plan.due(seen.pod(), |wait| match wait {
            Wait::End => held.contains_key(ENDING),
            Wait::Sandbox => held.contains_key(SANDBOX) || !mounted,
            Wait::Start(name) => held.contains_key(name),
            Wait::Resize(name) => held.contains_key(&resize_key(name)),
        });
        let of_containers = self
            .problems
            .iter()
            .filter(|(name, _)| !name.starts_with('\u{0}'));
        for (name, waiting) in of_containers {
            plan.waiting
                .entry(name.clone())
                .or_insert_with(|| waiting.clone());
        }
        plan
    }

    fn retry_when_due(&mut self, plan: &PodPlan, pod: &Pod, ctx: &mut Context<Msg>) {
        let now = timestamp(ctx);
        let times = [plan.retry_at, self.deadline(pod)];
        let waits = times
            .into_iter()
            .flatten()
            .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let held = self
            .held
            .values()
            .map(|until| until.saturating_duration_since(ctx.now()));
        if let Some(wait) = waits.chain(held).min() {
            self.retry_after(wait, ctx);
        }
    }

    pub(super) fn retry_after(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.retry.take() {
            ctx.cancel(timer);
        }
        self.retry = Some(ctx.after(wait, Msg::Retry));
    }

    /// Fails a pod that has been active for longer than it may.
    fn deadline_passed(&mut self, pod: &Pod, ctx: &Context<Msg>) -> bool {
        let Some(deadline) = self.deadline(pod) else {
            return false;
        };
        if timestamp(ctx) < deadline {
            return false;
        }
        self.failure = Some(Failure {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
            disruption: None,
        });
        true
    }

    fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.memory.record.started?;
        started
            .checked_add(jiff::SignedDuration::from_secs(seconds))
            .ok()
    }
}

fn backoff_step(action: &Action) -> Option<&BackoffStep> {
    match action {
        Action::StartContainer { backoff, .. } => backoff.as_ref(),
        Action::KillContainer { .. }
        | Action::StopSandbox { .. }
        | Action::RemoveContainer { .. }
        | Action::CreateSandbox { .. }
        | Action::ResizeContainer { .. } => None,
    }
}

fn started(action: &Action) -> Option<&String> {
    match action {
        Action::StartContainer { name, .. } => Some(name),
        Action::KillContainer { .. }
        | Action::StopSandbox { .. }
        | Action::RemoveContainer { .. }
        | Action::CreateSandbox { .. }
        | Action::ResizeContainer { .. } => None,
    }
}

fn has_post_start(pod: &Pod, name: &str) -> bool {
    let lifecycle = pod.container(name).and_then(|(_, c)| c.lifecycle.clone());
    lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some())
}

/// Where the pod is reached: the node's own addresses where it shares the node's network.
pub(super) fn addresses(pod: &Pod, found: &[String], host_ips: &[String]) -> Vec<String> {
    match pod.host_network() {
        true => host_ips.to_vec(),
        false => logic::status::pod_addresses(found, host_ips),
    }
}
