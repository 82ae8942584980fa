//! How many starts, or kills and stops of sandboxes, the runtime is given abreast.
//!
//! A runtime that is the bottleneck finishes fifty of them no sooner for having all of them at once, only the median pod
//! later. The limit follows the times that calls take: while they take about as long as alone, more are let in; once
//! they wait for each other inside the runtime, fewer (a gradient limit, as of Netflix' concurrency-limits).

use std::time::Duration;

/// Enough for a runtime that does little at a time, and to see whether it does more.
const INITIAL_LIMIT: f64 = 8.0;
const MIN_LIMIT: f64 = 4.0;
const MAX_LIMIT: f64 = 256.0;
/// Calls abreast may take so many times as long as one alone: two cores finish two at once.
const TOLERANCE: f64 = 1.5;
/// So many calls may wait inside the runtime, or it would be idle between two.
const QUEUE: f64 = 2.0;
/// The share of one call in the limit.
const SMOOTHING: f64 = 0.2;
/// With every call the fastest known time is taken for a little longer: machines get slower, too. So little that hundreds of
/// calls that wait for each other do not pass for a slow machine.
const AGEING: f64 = 1.001;
/// A call that takes longer, or so many times as long as the fastest, does not count any more.
const LEAST_STUCK_TIME: Duration = Duration::from_secs(2);
const STUCK_FACTOR: f64 = 8.0;

/// So many grace periods end as the runtime ends them, all at once.
const FEW_GRACE_PERIODS: usize = 4;

/// Whether a container whose grace period begins while so many others run is one of a crowd: such containers are killed a
/// few abreast, behind the limit.
pub fn is_of_a_crowd(others: usize) -> bool {
    others >= FEW_GRACE_PERIODS
}

/// The calls that take times of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeCall {
    /// `RunPodSandbox`.
    Sandbox,
    /// `CreateContainer` and `StartContainer`.
    Container,
    /// `StopContainer` without a grace period.
    Kill,
    /// `StopPodSandbox`, which takes the pod's network down.
    SandboxStop,
}

const KINDS: usize = 4;

/// An adaptive limit of calls abreast.
#[derive(Clone, Debug)]
pub struct CallLimit {
    limit: f64,
    /// Of each kind of call, in seconds, ageing; none before the first call.
    fastest: [Option<f64>; KINDS],
}

impl Default for CallLimit {
    fn default() -> Self {
        CallLimit {
            limit: INITIAL_LIMIT,
            fastest: [None; KINDS],
        }
    }
}

impl CallLimit {
    /// How many calls may be under way.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it lies between MIN_LIMIT and MAX_LIMIT"
    )]
    pub fn allowed(&self) -> usize {
        self.limit as usize
    }

    /// Takes in how long a call took that ended well, with so many under way at its end, itself included.
    pub fn ended(&mut self, call: RuntimeCall, took: Duration, abreast: usize) {
        let took = took.as_secs_f64().max(1e-6);
        let fastest = &mut self.fastest[call as usize];
        let alone = fastest.map_or(took, |known| took.min(known * AGEING));
        *fastest = Some(alone);
        // A limit that is not reached says nothing about a larger one.
        if abreast * 2 < self.allowed() {
            return;
        }
        let gradient = (TOLERANCE * alone / took).clamp(0.5, 1.0);
        let change = match gradient < 1.0 {
            true => SMOOTHING * (self.limit * (gradient - 1.0) + QUEUE),
            // None waits for another: the limit doubles with each round.
            false => 1.0,
        };
        self.limit = (self.limit + change).clamp(MIN_LIMIT, MAX_LIMIT);
    }

    /// After this time a call counts as stuck, and holds up nobody.
    pub fn stuck_after(&self, call: RuntimeCall) -> Duration {
        let fastest = self.fastest[call as usize].unwrap_or_default();
        let long = Duration::from_secs_f64(fastest * STUCK_FACTOR);
        long.max(LEAST_STUCK_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Plays calls through a runtime that works on `cores` of them at a time; returns the limit at the end.
    fn after(calls: usize, alone: Duration, cores: usize) -> usize {
        let mut limit = CallLimit::default();
        limit.ended(RuntimeCall::Sandbox, alone, 1);
        for _ in 0..calls {
            let abreast = limit.allowed();
            let share = u32::try_from(abreast.div_ceil(cores)).unwrap();
            limit.ended(RuntimeCall::Sandbox, alone * share, abreast);
        }
        limit.allowed()
    }

    #[test]
    fn few_are_let_in_where_the_runtime_is_the_bottleneck_and_many_where_it_is_not() {
        for (cores, least, most) in [(1, 4, 5), (2, 4, 7), (8, 8, 24), (1000, 60, 256)] {
            let limit = after(60, MS * 150, cores);
            assert!((least..=most).contains(&limit), "{cores} cores: {limit}");
        }
    }

    #[test]
    fn four_grace_periods_are_no_crowd_and_the_fifth_makes_one() {
        assert!(!is_of_a_crowd(0) && !is_of_a_crowd(3));
        assert!(is_of_a_crowd(4) && is_of_a_crowd(49));
    }

    #[test]
    fn a_limit_that_is_not_reached_stays() {
        let mut limit = CallLimit::default();
        for _ in 0..100 {
            limit.ended(RuntimeCall::Container, MS, 1);
        }
        assert_eq!(limit.allowed(), 8);
    }

    #[test]
    fn a_machine_that_became_slow_for_good_gets_its_share_again() {
        let mut limit = CallLimit::default();
        limit.ended(RuntimeCall::Sandbox, MS, 1);
        let mut play = |calls| {
            for _ in 0..calls {
                limit.ended(RuntimeCall::Sandbox, MS * 100, limit.allowed());
            }
            limit.allowed()
        };
        assert_eq!(play(20), 4);
        assert!(play(5000) > 100);
    }

    #[test]
    fn a_call_is_stuck_after_two_seconds_or_eight_times_the_fastest() {
        let mut limit = CallLimit::default();
        assert_eq!(
            limit.stuck_after(RuntimeCall::Sandbox),
            Duration::from_secs(2)
        );
        limit.ended(RuntimeCall::Sandbox, Duration::from_secs(1), 1);
        assert_eq!(
            limit.stuck_after(RuntimeCall::Sandbox),
            Duration::from_secs(8)
        );
        assert_eq!(
            limit.stuck_after(RuntimeCall::Container),
            Duration::from_secs(2)
        );
    }
}
