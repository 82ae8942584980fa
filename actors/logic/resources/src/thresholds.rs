//! Which eviction thresholds are met, and since when.
//!
//! [`thresholds_met`] compares the available amounts with the limits; [`ThresholdState::after`] adds time: grace
//! periods, minimum reclaims, and the pressure transition period. Mirrors upstream's eviction/helpers.go
//! (`thresholdsMet`, `thresholdsFirstObservedAt`, `nodeConditionsObservedSince`) at v1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// An eviction signal; the order is the order in which thresholds are acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Signal {
    MemoryAvailable,
    PidAvailable,
}

impl Signal {
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::PidAvailable => "pids",
        }
    }

    /// An amount as upstream prints it: memory by 1024, process ids by 1000.
    pub fn amount(self, mut value: u64) -> String {
        let (base, units) = match self {
            Self::MemoryAvailable => (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"]),
            Self::PidAvailable => (1000, ["", "k", "M", "G", "T", "P"]),
        };
        let mut unit = 0;
        while value != 0 && value.is_multiple_of(base) && unit + 1 < units.len() {
            (value, unit) = (value / base, unit + 1);
        }
        format!("{value}{}", units[unit])
    }
}

/// How much: so many, or a part of what the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ThresholdLimit {
    Amount(u64),
    PerMillion(u32),
}

impl ThresholdLimit {
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
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

/// One sample of a signal, in bytes or process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Bytes, or inodes or processes, by the signal.
    pub capacity: u64,
    /// In the same unit.
    pub available: u64,
    /// When the sample was taken: no pod is evicted twice for one sample.
    pub sampled_at: Timestamp,
}

pub type Observations = BTreeMap<Signal, Observation>;

/// The state between two decisions: upstream's `thresholdsFirstObservedAt` and `nodeConditionsLastObservedAt`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThresholdState {
    /// Since when each threshold is passed without a break.
    pub first_met: BTreeMap<Threshold, Timestamp>,
    /// When each pressure was last seen.
    pub pressure_seen: BTreeMap<Signal, Timestamp>,
    /// Thresholds whose grace has passed, and that are not resolved yet.
    pub unresolved: BTreeSet<Threshold>,
    /// When each signal was last measured: the same sample counts once.
    pub sampled_at: BTreeMap<Signal, Timestamp>,
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
        now: Timestamp,
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
        let overdue = |(t, since): &(&Threshold, &Timestamp)| has_passed(t.grace, **since, now);
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

fn has_passed(period: Duration, since: Timestamp, now: Timestamp) -> bool {
    let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
    now.duration_since(since) >= period
}

#[cfg(test)]
mod tests {
    use logic_api::testing::at;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Upstream's TestThresholdsMet.
    #[test]
    fn a_threshold_is_met_below_its_limit_and_resolved_above_its_reclaim() {
        let observed = |available: u64| {
            let (capacity, available) = (1000 * MIB, available * MIB);
            let observed = Observation {
                capacity,
                available,
                sampled_at: at(0),
            };
            Observations::from([(Signal::MemoryAvailable, observed)])
        };
        let plain = Threshold {
            signal: Signal::MemoryAvailable,
            grace: Duration::ZERO,
            limit: ThresholdLimit::Amount(100 * MIB),
            min_reclaim: ThresholdLimit::Amount(0),
        };
        let unseen = Threshold {
            signal: Signal::PidAvailable,
            ..plain
        };
        let reclaim = Threshold {
            min_reclaim: ThresholdLimit::Amount(50 * MIB),
            ..plain
        };
        let tenth = Threshold {
            limit: ThresholdLimit::PerMillion(100_000),
            ..plain
        };
        let cases = [
            (plain, 101, Reclaim::Ignored, false),
            (plain, 100, Reclaim::Ignored, false),
            (plain, 99, Reclaim::Ignored, true),
            (reclaim, 120, Reclaim::Ignored, false),
            (reclaim, 120, Reclaim::Enforced, true),
            (reclaim, 150, Reclaim::Enforced, false),
            (tenth, 100, Reclaim::Ignored, false),
            (tenth, 99, Reclaim::Ignored, true),
            (unseen, 0, Reclaim::Ignored, false),
        ];
        for (threshold, available, reclaim, met) in cases {
            let found = thresholds_met(&BTreeSet::from([threshold]), &observed(available), reclaim);
            assert_eq!(
                !found.is_empty(),
                met,
                "{threshold:?} {available} {reclaim:?}"
            );
        }
    }

    #[test]
    fn amounts_print_as_upstream() {
        assert_eq!(Signal::PidAvailable.amount(12_000), "12k");
        assert_eq!(Signal::MemoryAvailable.amount(1536), "1536");
        assert_eq!(Signal::MemoryAvailable.amount(0), "0");
        assert_eq!(Signal::MemoryAvailable.amount(3 << 30), "3Gi");
    }
}
