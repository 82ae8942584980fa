//! Which eviction thresholds are met, and since when.
//!
//! [`thresholds_met`] compares the available amounts with the limits; [`ThresholdState::after`] adds time: grace
//! periods, minimum reclaims, and the pressure transition period. Mirrors upstream's eviction/helpers.go
//! (`thresholdsMet`, `thresholdsFirstObservedAt`, `nodeConditionsObservedSince`) at v1.36.

mod amount;
mod parse;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub use amount::WrittenAmount;
pub use parse::{
    AllocatableThresholds, ThresholdError, ThresholdTexts, amount, hard_limit, parse,
    with_container_fs,
};
use serde::{Deserialize, Serialize};
pub use signal::{PressureCondition, Signal, StarvedResource, binary, decimal};

/// How much: so many, or a part of what the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ThresholdLimit {
    Amount(WrittenAmount),
    PerMillion(u32),
}

impl ThresholdLimit {
    /// Bytes, or inodes or processes, printed by 1024.
    pub const fn amount(value: u64) -> Self {
        Self::Amount(WrittenAmount::binary(value))
    }

    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount.value,
            Self::PerMillion(part) => {
                let share = u128::from(capacity) * u128::from(part) / 1_000_000;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }
}

/// An eviction threshold: the signal, its limit, and for how long it may be crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Threshold {
    pub signal: Signal,
    /// Zero makes the threshold a hard one.
    pub grace: Duration,
    /// An amount, or a share of the capacity.
    pub limit: ThresholdLimit,
    /// Once met, so much more must be left before it counts as resolved.
    pub min_reclaim: ThresholdLimit,
}

/// Which shortages count, and how long the node stays under pressure after the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThresholdPolicy {
    pub thresholds: BTreeSet<Threshold>,
    /// How long a pressure is reported on after it has gone.
    pub transition: Duration,
}

/// One sample of a signal, in bytes, inodes or process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// Bytes, or inodes or processes, by the signal.
    pub capacity: u64,
    /// In the same unit.
    pub available: u64,
    /// When the sample was taken: no pod is evicted twice for one sample. By a clock that never jumps.
    #[serde(skip)]
    pub sampled_at: Instant,
}

pub type Observations = BTreeMap<Signal, Observation>;

/// The state between two decisions: upstream's `thresholdsFirstObservedAt` and `nodeConditionsLastObservedAt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThresholdState {
    /// Since when each threshold is passed without a break.
    pub first_met: BTreeMap<Threshold, Instant>,
    /// When each pressure was last seen.
    pub pressure_seen: BTreeMap<Signal, Instant>,
    /// Thresholds whose grace has passed, and that are not resolved yet.
    pub unresolved: BTreeSet<Threshold>,
    /// When each signal was last measured: the same sample counts once.
    pub sampled_at: BTreeMap<Signal, Instant>,
}

/// The thresholds with too little left; with `Reclaim::Enforced`, too little to call it resolved.
pub fn thresholds_met(
    thresholds: &BTreeSet<Threshold>,
    observations: &Observations,
    reclaim: Reclaim,
) -> BTreeSet<Threshold> {
    let is_met = |threshold: &&Threshold| {
        let Some(observed) = observations.get(&threshold.signal) else {
            return false;
        };
        let needed = threshold.limit.of(observed.capacity);
        let more = match reclaim {
            Reclaim::Enforced => threshold.min_reclaim.of(observed.capacity),
            Reclaim::Ignored => 0,
        };
        observed.available < needed.saturating_add(more)
    };
    thresholds.iter().filter(is_met).copied().collect()
}

impl Threshold {
    /// Whether it acts at once.
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// The limit as upstream prints it: an amount as it was written, a share of the capacity as one of bytes, whatever
    /// the signal counts.
    pub fn quantity(&self, capacity: u64) -> String {
        match self.limit {
            ThresholdLimit::Amount(amount) => amount.to_string(),
            ThresholdLimit::PerMillion(_) => binary(self.limit.of(capacity)),
        }
    }
}

/// Whether the minimum reclaim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    Ignored,
    Enforced,
}

impl ThresholdState {
    /// Carries the past over: since when, until when, and what is still open.
    #[must_use]
    pub fn after(
        &self,
        now: Instant,
        policy: &ThresholdPolicy,
        observations: &Observations,
    ) -> Self {
        let mut met = thresholds_met(&policy.thresholds, observations, Reclaim::Ignored);
        met.extend(thresholds_met(
            &self.unresolved,
            observations,
            Reclaim::Enforced,
        ));

        let since = |threshold: &Threshold| self.first_met.get(threshold).copied().unwrap_or(now);
        let first_met: BTreeMap<_, _> = met.iter().map(|t| (*t, since(t))).collect();
        let overdue = |(t, since): &(&Threshold, &Instant)| has_passed(t.grace, **since, now);
        let mut pressure_seen = self.pressure_seen.clone();
        pressure_seen.retain(|_, seen| !has_passed(policy.transition, *seen, now));
        pressure_seen.extend(met.iter().map(|threshold| (threshold.signal, now)));
        let samples = observations.iter();
        Self {
            unresolved: first_met.iter().filter(overdue).map(|(t, _)| *t).collect(),
            first_met,
            pressure_seen,
            sampled_at: samples.map(|(signal, o)| (*signal, o.sampled_at)).collect(),
        }
    }

    /// Whether a signal was sampled anew: no pod is evicted twice for one sample.
    pub fn is_news(&self, signal: Signal, observations: &Observations) -> bool {
        let sampled_at = observations.get(&signal).map(|o| o.sampled_at);
        sampled_at > self.sampled_at.get(&signal).copied()
    }
}

fn has_passed(period: Duration, since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= period
}
