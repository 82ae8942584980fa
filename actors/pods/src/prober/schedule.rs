//! The schedule of all probes, with one timer.

use std::collections::BTreeSet;
use std::time::Instant;

use kernel::{Context, TimerId};

use super::Msg;
use super::probe::ProbeId;

#[derive(Debug, Default)]
pub(super) struct ProbeSchedule {
    turns: BTreeSet<(Instant, ProbeId)>,
    timer: Option<(Instant, TimerId)>,
}

impl ProbeSchedule {
    pub(super) fn add(&mut self, at: Instant, probe: ProbeId) {
        self.turns.insert((at, probe));
    }

    pub(super) fn remove(&mut self, at: Instant, probe: ProbeId) {
        self.turns.remove(&(at, probe));
    }

    /// Takes out the probes that are due, the earliest first.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(Instant, ProbeId)> {
        self.timer = None;
        let mut due = Vec::new();
        while let Some(turn) = self.turns.first().filter(|(at, _)| *at <= now) {
            due.push(*turn);
            self.turns.pop_first();
        }
        due
    }

    /// Sets the timer for the earliest probe.
    pub(super) fn arm(&mut self, ctx: &mut Context<Msg>) {
        let earliest = self.turns.first().map(|(at, _)| *at);
        if earliest == self.timer.map(|(at, _)| at) {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            ctx.cancel(timer);
        }
        self.timer = earliest.map(|at| {
            let wait = at.saturating_duration_since(ctx.now());
            (at, ctx.after(wait, Msg::Due))
        });
    }
}
