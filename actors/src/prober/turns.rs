//! A probe's turn: whether it is taken, what it finds, and who is told.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kernel::Context;
use logic::pod::PodView;
use logic::probes::schedule::{self as times, Acquaintance, Timing};
use logic::probes::text;
use logic::probes::verdict::{self, Outcome, Turned};
use logic::types::{Health, Verdict};
use metrics::prober::Finding;

use super::attempt::Attempt;
use super::execs::PATIENCE;
use super::probe::{Probe, ProbeId, Work};
use super::{Attempted, Instance, Msg, Probed, Prober, Watch};
use crate::worker::{self, counted_probe, object};
use cluster::events::Type;

/// Between attempts to tell a worker whose mailbox was full.
const TELL_AGAIN: Duration = Duration::from_secs(1);

impl Prober {
    /// Takes in a new probe, and gives it its first turn.
    pub(super) fn begin(&mut self, probe: Probe, ctx: &mut Context<Msg>) -> ProbeId {
        let id = self.next_id;
        self.next_id = id.next();
        let wait = self.first_wait(&probe, ctx.now());
        self.probes.insert(id, probe);
        let at = ctx.now() + wait;
        self.turn_at(id, at, at);
        id
    }

    fn first_wait(&self, probe: &Probe, now: Instant) -> Duration {
        let Some((timing, instance)) = self.facts(probe) else {
            return Duration::ZERO;
        };
        let since = self.since.unwrap_or(now);
        let acquaintance = match instance.started < since {
            true => Acquaintance::Adopted {
                part: times::part(probe.pod.as_str(), &probe.container, probe.kind),
            },
            false => Acquaintance::New,
        };
        let age = now.saturating_duration_since(instance.started);
        times::first_wait(probe.kind, &timing, age, acquaintance)
    }

    /// A probe's numbers, and the instance that it looks at.
    fn facts(&self, probe: &Probe) -> Option<(Timing, &Instance)> {
        let watch = &self.pods.get(&probe.pod)?.watch;
        let (_, container) = watch.pod.container(&probe.container)?;
        let timing = Timing::of(probe.kind.of(&container)?);
        Some((timing, watch.instances.get(&probe.container)?))
    }

    fn turn_at(&mut self, id: ProbeId, at: Instant, beat: Instant) {
        if let Some(probe) = self.probes.get_mut(&id) {
            (probe.at, probe.beat, probe.work) = (Some(at), Some(beat), Work::Idle);
            self.schedule.add(at, id);
        }
    }

    pub(super) fn due(&mut self, ctx: &mut Context<Msg>) {
        for (_, id) in self.schedule.due(ctx.now()) {
            self.turn(id, ctx);
        }
    }

    fn turn(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some((_, instance)) = self.facts(probe) else {
            return;
        };
        match verdict::turned(probe.kind, &instance.health) {
            Turned::Probe if !self.runs_command(probe) => self.run(id, ctx),
            Turned::Probe => match self.execs.enter(id) {
                true => self.run(id, ctx),
                false => self.queue(id),
            },
            Turned::Pass => self.next_turn(id, ctx.now()),
            Turned::Hold => {}
        }
    }

    fn queue(&mut self, id: ProbeId) {
        if let Some(probe) = self.probes.get_mut(&id) {
            probe.work = Work::Queued;
        }
    }

    fn runs_command(&self, probe: &Probe) -> bool {
        let watched = self.pods.get(&probe.pod);
        let found = watched.and_then(|watched| watched.watch.pod.container(&probe.container));
        let found = found.as_ref();
        found.is_some_and(|(_, container)| {
            let probe = probe.kind.of(container);
            probe.is_some_and(|probe| probe.exec.is_some())
        })
    }

    fn next_turn(&mut self, id: ProbeId, now: Instant) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some((timing, _)) = self.facts(probe) else {
            return;
        };
        let turn = times::next_turn(probe.beat.unwrap_or(now), timing.period, now);
        self.turn_at(id, turn.at, turn.beat);
    }

    /// Begins an attempt beside this actor.
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
            true => Some(ctx.after(PATIENCE, Msg::Lingers { probe: id })),
            false => None,
        };
        // Boxed: what an attempt needs while it runs is large, and a task is as large as its future.
        let attempt = Box::pin(attempt.make());
        let task = ctx.run(async move {
            let began = kernel::now();
            let outcome = attempt.await;
            let took = kernel::now().saturating_duration_since(began);
            Msg::Attempted(Box::new(Attempted {
                probe: id,
                outcome,
                took,
            }))
        });
        if let Some(probe) = self.probes.get_mut(&id) {
            probe.work = Work::Running { task, patience };
        }
    }

    /// Ends a probe, whatever it is doing.
    pub(super) fn end(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.remove(&id) else {
            return;
        };
        if let Some(at) = probe.at {
            self.schedule.remove(at, id);
        }
        if let Work::Running { task, patience } = probe.work {
            ctx.abort(task);
            if let Some(timer) = patience {
                ctx.cancel(timer);
            }
        }
        self.untold.remove(&id);
        self.leave_place(id, ctx);
    }

    fn leave_place(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        if let Some(next) = self.execs.leave(id) {
            self.run(next, ctx);
        }
    }

    pub(super) fn lingers(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        self.leave_place(id, ctx);
    }

    pub(super) fn attempted(&mut self, attempted: Attempted, ctx: &mut Context<Msg>) {
        let id = attempted.probe;
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        if let Work::Running {
            patience: Some(timer),
            ..
        } = std::mem::replace(&mut probe.work, Work::Idle)
        {
            ctx.cancel(timer);
        }
        self.leave_place(id, ctx);
        self.measure(&attempted);
        self.judge(id, &attempted.outcome, ctx);
        self.go_on(id, ctx);
    }

    /// Upstream measures only what was found, not what kept a probe from looking.
    fn measure(&self, attempted: &Attempted) {
        let Some(probe) = self.probes.get(&attempted.probe) else {
            return;
        };
        let watched = self.pods.get(&probe.pod);
        let (Some(watched), Ok(outcome)) = (watched, &attempted.outcome) else {
            return;
        };
        let finding = match outcome {
            Outcome::Success(_) | Outcome::Warning(_) => Finding::Successful,
            Outcome::Failure(_) => Finding::Failed,
        };
        let counted = counted_probe(&watched.watch.pod, &probe.container, probe.kind);
        counted.attempted(finding, attempted.took);
    }

    /// Counts what was found, and tells what has come of it.
    fn judge(&mut self, id: ProbeId, outcome: &Result<Outcome, String>, ctx: &mut Context<Msg>) {
        *self.attempts.entry(word(outcome)).or_default() += 1;
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some((timing, instance)) = self.facts(probe) else {
            return;
        };
        let age = ctx.now().saturating_duration_since(instance.started);
        let counted = outcome
            .as_ref()
            .is_ok_and(|outcome| verdict::counts(probe.kind, &timing, age, outcome));
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

    fn record(&self, probe: &Probe, outcome: &Result<Outcome, String>, ctx: &Context<Msg>) {
        let Some(watched) = self.pods.get(&probe.pod) else {
            return;
        };
        if let Some((reason, message)) = text::event(probe.kind, outcome) {
            let now = Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH);
            let object = object(&watched.watch.pod, Some(&probe.container));
            let recorder = &self.peers.recorder;
            recorder.record(now, Type::Warning, object, reason, message);
        }
    }

    /// Takes in a verdict; only a new one is told.
    fn conclude(&mut self, id: ProbeId, verdict: Verdict, found: &Outcome, ctx: &mut Context<Msg>) {
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
        let starts = started != instance.health.startup && verdict == Verdict::Success;
        let (Outcome::Success(said) | Outcome::Warning(said) | Outcome::Failure(said)) = found;
        self.untold
            .insert(id, text::cut(said.clone(), text::MOST_TOLD));
        self.tell_again(ctx);
        if starts {
            self.hasten_readiness(id, ctx.now());
        }
    }

    /// A container that has just started is asked at once whether it is ready.
    fn hasten_readiness(&mut self, startup: ProbeId, now: Instant) {
        let Some(started) = self.probes.get(&startup) else {
            return;
        };
        let (pod, container) = (started.pod.clone(), started.container.clone());
        let siblings = self.pods.get(&pod).map(|watched| watched.probes.clone());
        let readiness = siblings.into_iter().flatten().find(|id| {
            self.probes.get(id).is_some_and(|probe| {
                probe.container == container && probe.kind == logic::probes::ProbeKind::Readiness
            })
        });
        let Some((id, at)) = readiness.and_then(|id| Some((id, self.probes.get(&id)?.at?))) else {
            return;
        };
        // An initial delay counts still.
        let probe = self.probes.get(&id).and_then(|probe| self.facts(probe));
        let delayed = probe.map(|(timing, instance)| instance.started + timing.initial_delay);
        let soon = delayed.map_or(now, |delayed| delayed.max(now));
        if soon < at {
            self.schedule.remove(at, id);
            self.turn_at(id, soon, soon);
        }
    }

    pub(super) fn tell_again(&mut self, ctx: &mut Context<Msg>) {
        let untold = std::mem::take(&mut self.untold);
        for (id, output) in untold {
            let Some((watch, probed)) = self.probed(id, output) else {
                continue;
            };
            let told = watch.worker.tell(worker::Msg::Probed(Box::new(probed)));
            if let Err(kernel::Overloaded(worker::Msg::Probed(probed))) = told {
                self.untold.insert(id, probed.output);
            }
        }
        if !self.untold.is_empty() {
            ctx.after(TELL_AGAIN, Msg::Tell);
        }
    }

    fn probed(&self, id: ProbeId, output: String) -> Option<(&Watch, Probed)> {
        let probe = self.probes.get(&id)?;
        let watch = &self.pods.get(&probe.pod)?.watch;
        let instance = watch.instances.get(&probe.container)?;
        let probed = Probed {
            container: probe.container.clone(),
            id: instance.id.clone(),
            health: instance.health,
            probe: probe.kind,
            output,
        };
        Some((watch, probed))
    }

    /// Gives the next turn to a probe that has more to say.
    fn go_on(&mut self, id: ProbeId, ctx: &mut Context<Msg>) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let health: Option<Health> = self.facts(probe).map(|(_, instance)| instance.health);
        match health.map(|health| verdict::turned(probe.kind, &health)) {
            Some(Turned::Probe | Turned::Pass) => self.next_turn(id, ctx.now()),
            Some(Turned::Hold) | None => {}
        }
    }
}

fn word(outcome: &Result<Outcome, String>) -> &'static str {
    match outcome {
        Ok(Outcome::Success(_)) => "success",
        Ok(Outcome::Warning(_)) => "warning",
        Ok(Outcome::Failure(_)) => "failure",
        Err(_) => "error",
    }
}
