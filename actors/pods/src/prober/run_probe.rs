//! Runs due probes: whether an attempt is made, what its result changes, and which worker is told.

use std::time::{Duration, Instant};

use kernel::Context;
use logic_api::pod::PodView;
use logic_api::types::{ContainerHealth, ProbeResult};
use logic_pods::probes::result::{self, ProbeError, ProbeGate, ProbeOutcome};
use logic_pods::probes::schedule::{FirstProbe, ProbeTiming};
use logic_pods::probes::{messages, schedule as times};
use metrics::pods::prober::ProbeMetricResult;
use state::events::{EventType, InvolvedObject};

use super::attempt::Attempt;
use super::exec_limit::EXEC_SLOT_TIMEOUT;
use super::probe::{ProbeId, ProbeState, ProbeWorker};
use super::{AttemptResult, Msg, ProbeUpdate, ProbedInstance, ProbedPod, Prober};

/// Between attempts to tell a worker whose mailbox was full.
const NOTIFY_RETRY_PERIOD: Duration = Duration::from_secs(1);

impl Prober {
    /// Adds a new probe and schedules its first attempt.
    pub(super) fn begin(&mut self, probe: ProbeWorker, ctx: &mut Context<Msg>) -> ProbeId {
        let id = self.next_id;
        self.next_id = id.next();
        let wait = self.first_wait(&probe, ctx.now());
        self.probes.insert(id, probe);
        let at = ctx.now() + wait;
        self.schedule_at(id, at, at);
        id
    }

    fn first_wait(&self, probe: &ProbeWorker, now: Instant) -> Duration {
        let Some((timing, instance)) = self.facts(probe) else {
            return Duration::ZERO;
        };
        let since = self.since.unwrap_or(now);
        let acquaintance = match instance.started < since {
            true => FirstProbe::Adopted {
                part: times::part(probe.pod.as_str(), &probe.container, probe.kind),
            },
            false => FirstProbe::New,
        };
        let age = now.saturating_duration_since(instance.started);
        times::first_delay(probe.kind, &timing, age, acquaintance)
    }

    /// A probe's timing and its container instance.
    fn facts(&self, probe: &ProbeWorker) -> Option<(ProbeTiming, &ProbedInstance)> {
        let watch = &self.pods.get(&probe.pod)?.watch;
        let (_, container) = watch.pod.container(&probe.container)?;
        let timing = ProbeTiming::of(probe.kind.of(&container)?);
        Some((timing, watch.instances.get(&probe.container)?))
    }

    fn schedule_at(&mut self, id: ProbeId, at: Instant, beat: Instant) {
        if let Some(probe) = self.probes.get_mut(&id) {
            (probe.at, probe.beat, probe.work) = (Some(at), Some(beat), ProbeState::Idle);
            self.schedule.add(at, id);
        }
    }

    pub(super) fn due(&mut self, ctx: &mut Context<Msg>) {
        for (_, id) in self.schedule.due(ctx.now()) {
            self.run_due(id, ctx);
        }
    }

    fn run_due(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some((_, instance)) = self.facts(probe) else {
            return;
        };
        match result::probe_gate(probe.kind, &instance.health) {
            ProbeGate::Probe if !self.runs_command(probe) => self.run(id, ctx),
            ProbeGate::Probe => match self.exec_limit.enter(id) {
                true => self.run(id, ctx),
                false => self.queue(id),
            },
            ProbeGate::Pass => self.schedule_next(id, ctx.now()),
            ProbeGate::Hold => {}
        }
    }

    fn queue(&mut self, id: ProbeId) {
        if let Some(probe) = self.probes.get_mut(&id) {
            probe.work = ProbeState::Queued;
        }
    }

    fn runs_command(&self, probe: &ProbeWorker) -> bool {
        let watched = self.pods.get(&probe.pod);
        let found = watched.and_then(|watched| watched.watch.pod.container(&probe.container));
        let found = found.as_ref();
        found.is_some_and(|(_, container)| {
            let probe = probe.kind.of(container);
            probe.is_some_and(|probe| probe.exec.is_some())
        })
    }

    fn schedule_next(&mut self, id: ProbeId, now: Instant) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some((timing, _)) = self.facts(probe) else {
            return;
        };
        let turn = times::next_tick(probe.beat.unwrap_or(now), timing.period, now);
        self.schedule_at(id, turn.at, turn.beat);
    }

    /// Starts an attempt beside this actor.
    fn run(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some(watch) = self.pods.get(&probe.pod).map(|watched| &watched.watch) else {
            return;
        };
        let attempt = Attempt {
            peers: self.peers.clone(),
            pod: watch.pod.clone(),
            container: probe.container.clone(),
            instance: probe.instance.clone(),
            kind: probe.kind,
            address: watch.ips.first().cloned().unwrap_or_default(),
        };
        let late = ctx
            .now()
            .saturating_duration_since(probe.at.unwrap_or_else(|| ctx.now()));
        self.latest = self.latest.max(late);
        let patience = match self.runs_command(probe) {
            true => Some(ctx.after(EXEC_SLOT_TIMEOUT, Msg::SlotExpired { probe: id })),
            false => None,
        };
        // Boxed: the state of an attempt is large, and a task is as large as its future.
        let attempt = Box::pin(attempt.make());
        let task = ctx.run(async move {
            let began = kernel::now();
            let outcome = attempt.await;
            let took = kernel::now().saturating_duration_since(began);
            Msg::Attempted(Box::new(AttemptResult {
                probe: id,
                outcome,
                took,
            }))
        });
        if let Some(probe) = self.probes.get_mut(&id) {
            probe.work = ProbeState::Running { task, patience };
        }
    }

    /// Ends a probe, whatever its state.
    pub(super) fn end(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.remove(&id) else {
            return;
        };
        if let Some(at) = probe.at {
            self.schedule.remove(at, id);
        }
        if let ProbeState::Running { task, patience } = probe.work {
            ctx.abort(task);
            if let Some(timer) = patience {
                ctx.cancel(timer);
            }
        }
        self.unnotified.remove(&id);
        self.release_slot(id, ctx);
    }

    fn release_slot(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        if let Some(next) = self.exec_limit.leave(id) {
            self.run(next, ctx);
        }
    }

    pub(super) fn slot_expired(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        self.release_slot(id, ctx);
    }

    pub(super) fn attempted(&mut self, attempted: AttemptResult, ctx: &mut Context<Msg>) {
        let id = attempted.probe;
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        if let ProbeState::Running {
            patience: Some(timer),
            ..
        } = std::mem::replace(&mut probe.work, ProbeState::Idle)
        {
            ctx.cancel(timer);
        }
        self.release_slot(id, ctx);
        self.measure(&attempted);
        self.update_verdict(id, &attempted.outcome, ctx);
        self.resume(id, ctx);
    }

    /// Upstream measures only attempts with an outcome, not those that could not be made.
    fn measure(&self, attempted: &AttemptResult) {
        let Some(probe) = self.probes.get(&attempted.probe) else {
            return;
        };
        let watched = self.pods.get(&probe.pod);
        let (Some(watched), Ok(outcome)) = (watched, &attempted.outcome) else {
            return;
        };
        let finding = match outcome {
            ProbeOutcome::Success(_) | ProbeOutcome::Warning(_) => ProbeMetricResult::Successful,
            ProbeOutcome::Failure(_) => ProbeMetricResult::Failed,
        };
        let counted = super::metric_labels(&watched.watch.pod, &probe.container, probe.kind);
        counted.attempted(finding, attempted.took);
    }

    /// Counts an outcome, and tells the worker if the probe's result changes.
    fn update_verdict(
        &mut self,
        id: ProbeId,
        outcome: &Result<ProbeOutcome, ProbeError>,
        ctx: &mut Context<Msg>,
    ) {
        *self.attempts.entry(metric_result(outcome)).or_default() += 1;
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some((timing, instance)) = self.facts(probe) else {
            return;
        };
        let age = ctx.now().saturating_duration_since(instance.started);
        let counted = outcome
            .as_ref()
            .is_ok_and(|outcome| result::counts(probe.kind, &timing, age, outcome));
        if counted || outcome.is_err() {
            self.record(probe, outcome, ctx);
        }
        let (Ok(found), true) = (outcome, counted) else {
            return;
        };
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        if let Some(verdict) = probe.streak.count(&timing, found) {
            self.conclude(id, verdict, found, ctx);
        }
    }

    fn record(
        &self,
        probe: &ProbeWorker,
        outcome: &Result<ProbeOutcome, ProbeError>,
        ctx: &Context<Msg>,
    ) {
        let Some(watched) = self.pods.get(&probe.pod) else {
            return;
        };
        if let Some((reason, message)) = messages::event(probe.kind, outcome) {
            let now = ctx.timestamp();
            let object = InvolvedObject::pod(&watched.watch.pod, Some(&probe.container));
            let recorder = &self.peers.recorder;
            recorder.record(now, EventType::Warning, object, reason, message);
        }
    }

    /// Stores a result; the worker is only told of one that differs.
    fn conclude(
        &mut self,
        id: ProbeId,
        verdict: ProbeResult,
        found: &ProbeOutcome,
        ctx: &mut Context<Msg>,
    ) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let (kind, pod) = (probe.kind, probe.pod.clone());
        let watched = self.pods.get_mut(&pod);
        let instances = watched.map(|watched| &mut watched.watch.instances);
        let Some(instance) = instances.and_then(|all| all.get_mut(&probe.container)) else {
            return;
        };
        if kind.verdict(&instance.health) == verdict {
            return;
        }
        let started = instance.health.startup;
        kind.set(&mut instance.health, verdict);
        let starts = started != instance.health.startup && verdict == ProbeResult::Success;
        let (ProbeOutcome::Success(said)
        | ProbeOutcome::Warning(said)
        | ProbeOutcome::Failure(said)) = found;
        self.unnotified.insert(
            id,
            messages::truncate(said.clone(), messages::MAX_EVENT_BYTES),
        );
        self.retry_notify(ctx);
        if starts {
            self.advance_readiness(id, ctx.now());
        }
    }

    /// Probes readiness at once when a container's startup probe has succeeded.
    fn advance_readiness(&mut self, startup: ProbeId, now: Instant) {
        let Some(started) = self.probes.get(&startup) else {
            return;
        };
        let (pod, container) = (started.pod.clone(), started.container.clone());
        let siblings = self.pods.get(&pod).map(|watched| watched.probes.clone());
        let readiness = siblings.into_iter().flatten().find(|id| {
            self.probes.get(id).is_some_and(|probe| {
                probe.container == container
                    && probe.kind == logic_pods::probes::ProbeKind::Readiness
            })
        });
        let Some((id, at)) = readiness.and_then(|id| Some((id, self.probes.get(&id)?.at?))) else {
            return;
        };
        // The readiness probe's own initial delay still counts.
        let probe = self.probes.get(&id).and_then(|probe| self.facts(probe));
        let delayed = probe.map(|(timing, instance)| instance.started + timing.initial_delay);
        let soon = delayed.map_or(now, |delayed| delayed.max(now));
        if soon < at {
            self.schedule.remove(at, id);
            self.schedule_at(id, soon, soon);
        }
    }

    pub(super) fn retry_notify(&mut self, ctx: &mut Context<Msg>) {
        let unnotified = std::mem::take(&mut self.unnotified);
        for (id, output) in unnotified {
            let Some((watch, probed)) = self.probed(id, output) else {
                continue;
            };
            let output = probed.output.clone();
            if watch.worker.tell(probed).is_err() {
                self.unnotified.insert(id, output);
            }
        }
        if !self.unnotified.is_empty() {
            ctx.after(NOTIFY_RETRY_PERIOD, Msg::Notify);
        }
    }

    fn probed(&self, id: ProbeId, output: String) -> Option<(&ProbedPod, ProbeUpdate)> {
        let probe = self.probes.get(&id)?;
        let watch = &self.pods.get(&probe.pod)?.watch;
        let instance = watch.instances.get(&probe.container)?;
        let probed = ProbeUpdate {
            container: probe.container.clone(),
            id: instance.id.clone(),
            health: instance.health,
            probe: probe.kind,
            output,
        };
        Some((watch, probed))
    }

    /// Schedules the next attempt of a probe that goes on.
    fn resume(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let health: Option<ContainerHealth> =
            self.facts(probe).map(|(_, instance)| instance.health);
        match health.map(|health| result::probe_gate(probe.kind, &health)) {
            Some(ProbeGate::Probe | ProbeGate::Pass) => self.schedule_next(id, ctx.now()),
            Some(ProbeGate::Hold) | None => {}
        }
    }
}

fn metric_result(outcome: &Result<ProbeOutcome, ProbeError>) -> &'static str {
    match outcome {
        Ok(ProbeOutcome::Success(_)) => "success",
        Ok(ProbeOutcome::Warning(_)) => "warning",
        Ok(ProbeOutcome::Failure(_)) => "failure",
        Err(_) => "error",
    }
}
