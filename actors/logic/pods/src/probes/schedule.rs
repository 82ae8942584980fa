//! When a probe is due: its periods with upstream's defaults, the first run, and the next ones.
//!
//! Upstream ticks from the moment at which it first saw the pod, so a container's first liveness probe comes at any
//! time within its first period. Here the periods are counted from the container's own start: a probe that may kill a
//! container comes as late as upstream's latest, one that can only help it comes at once.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

use super::ProbeKind;

/// A probe's delays and thresholds, with the API's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTiming {
    /// From the container's start to the first run.
    pub initial_delay: Duration,
    /// Between the begins of two runs.
    pub period: Duration,
    /// For one run.
    pub timeout: Duration,
    /// Consecutive successes after a failure until the result changes.
    pub success_threshold: u32,
    /// Consecutive failures until the result changes.
    pub failure_threshold: u32,
}

impl ProbeTiming {
    /// An absent or zero field has the API's default; an invalid one the smallest valid value.
    pub fn of(probe: &Probe) -> Self {
        let count = |value: Option<i32>, default: u32| match value {
            None | Some(0) => default,
            Some(value) => u32::try_from(value).unwrap_or(1),
        };
        let seconds = |value, default| Duration::from_secs(count(value, default).into());
        ProbeTiming {
            initial_delay: seconds(probe.initial_delay_seconds.map(|delay| delay.max(0)), 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: count(probe.success_threshold, 1),
            failure_threshold: count(probe.failure_threshold, 3),
        }
    }
}

/// Whether a container was already there when its prober began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FirstProbe {
    /// It started under our eyes.
    New,
    /// It ran before us: many come at once, so each waits for a part of its period.
    Adopted {
        /// The part of the period, from zero to one.
        part: f64,
    },
}

/// How long the first turn is away, for a container that has run for `age`.
pub fn first_delay(
    kind: ProbeKind,
    timing: &ProbeTiming,
    age: Duration,
    acquaintance: FirstProbe,
) -> Duration {
    let delayed = timing.initial_delay.saturating_sub(age);
    match (acquaintance, kind) {
        (FirstProbe::Adopted { part }, _) => {
            delayed.max(timing.period.mul_f64(part.clamp(0.0, 1.0)))
        }
        (FirstProbe::New, ProbeKind::Startup | ProbeKind::Readiness) => delayed,
        (FirstProbe::New, ProbeKind::Liveness) => {
            timing.initial_delay.max(timing.period).saturating_sub(age)
        }
    }
}

/// A turn: when it is taken, and which beat of the period it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeTick<T> {
    pub at: T,
    pub beat: T,
}

/// The turn after the one of `beat`, as a ticker gives it that keeps one missed tick and drops the rest.
pub fn next_tick<T>(beat: T, period: Duration, now: T) -> ProbeTick<T>
where
    T: Copy + Ord + std::ops::Add<Duration, Output = T> + std::ops::Sub<T, Output = Duration>,
{
    let next = beat + period;
    if next >= now {
        return ProbeTick {
            at: next,
            beat: next,
        };
    }
    let missed = (now - beat).as_nanos() / period.as_nanos().max(1);
    let missed = u32::try_from(missed).unwrap_or(u32::MAX);
    ProbeTick {
        at: now,
        beat: beat + period.saturating_mul(missed),
    }
}

/// Which part of its period an adopted probe waits: even over many probes, and always the same for one.
pub fn part(uid: &str, container: &str, kind: ProbeKind) -> f64 {
    // FNV-1a, then mixed as splitmix64 does, so that names which differ by one letter lie apart.
    let bytes = uid.bytes().chain([0]).chain(container.bytes());
    let hash = bytes
        .chain([kind as u8])
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let high = u32::try_from(mixed >> 32).unwrap_or(u32::MAX);
    f64::from(high) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn timing(delay: i32, period: i32) -> ProbeTiming {
        ProbeTiming::of(&Probe {
            initial_delay_seconds: Some(delay),
            period_seconds: Some(period),
            ..Probe::default()
        })
    }

    #[test]
    fn what_a_probe_leaves_out_has_the_default_of_the_api() {
        let timing = ProbeTiming::of(&Probe::default());
        let expected = ProbeTiming {
            initial_delay: Duration::ZERO,
            period: 10 * SECOND,
            timeout: SECOND,
            success_threshold: 1,
            failure_threshold: 3,
        };
        assert_eq!(timing, expected);
    }

    /// Upstream's TestDoProbe has an initial delay of -100.
    #[test]
    fn negative_numbers_do_no_harm() {
        let timing = ProbeTiming::of(&Probe {
            initial_delay_seconds: Some(-100),
            period_seconds: Some(-1),
            timeout_seconds: Some(-1),
            failure_threshold: Some(-1),
            success_threshold: Some(-1),
            ..Probe::default()
        });
        assert_eq!(
            (timing.initial_delay, timing.period),
            (Duration::ZERO, SECOND)
        );
        let thresholds = (timing.success_threshold, timing.failure_threshold);
        assert_eq!((timing.timeout, thresholds), (SECOND, (1, 1)));
    }

    #[test]
    fn a_new_container_is_asked_at_once_whether_it_is_up_and_after_a_period_whether_it_lives() {
        use ProbeKind::{Liveness, Readiness, Startup};
        // kind, initial delay, period, age, wait
        let cases = [
            (Startup, 0, 10, 0, 0),
            (Readiness, 0, 10, 0, 0),
            (Liveness, 0, 10, 0, 10),
            (Liveness, 0, 10, 4, 6),
            (Liveness, 15, 10, 0, 15),
            (Liveness, 5, 10, 12, 0),
            (Startup, 15, 10, 4, 11),
            (Readiness, 3, 10, 5, 0),
        ];
        for (kind, delay, period, age, wait) in cases {
            let timing = timing(delay, period);
            let waits = first_delay(kind, &timing, age * SECOND, FirstProbe::New);
            assert_eq!(waits, wait * SECOND, "{kind:?} {delay} {period} {age}");
        }
    }

    /// Upstream's worker.run sleeps a random part of the period after its own start.
    #[test]
    fn an_adopted_container_waits_for_its_part_of_the_period_and_for_its_delay() {
        let half = FirstProbe::Adopted { part: 0.5 };
        let wait =
            |delay, age| first_delay(ProbeKind::Readiness, &timing(delay, 10), age * SECOND, half);
        assert_eq!(wait(0, 100), 5 * SECOND);
        assert_eq!(wait(60, 10), 50 * SECOND);
    }

    #[test]
    fn turns_keep_their_beat_and_at_most_one_missed_beat_is_made_up_for() {
        // now, at, beat; the last beat was at 100, the period is 10
        let cases = [
            (100, 110, 110),
            (109, 110, 110),
            (110, 110, 110),
            (113, 113, 110),
            (135, 135, 130),
        ];
        for (now, at, beat) in cases {
            let turn = next_tick(100 * SECOND, 10 * SECOND, now * SECOND);
            let expected = ProbeTick {
                at: at * SECOND,
                beat: beat * SECOND,
            };
            assert_eq!(turn, expected, "{now}");
        }
    }

    proptest! {
        #[test]
        fn a_turn_is_never_in_the_past_and_its_beat_at_most_a_period_before_it(
            beat in 0u64..1_000_000, late in 0u64..1_000_000, period in 1u64..100_000,
        ) {
            let [beat, period] = [beat, period].map(Duration::from_millis);
            let now = beat + Duration::from_millis(late);
            let turn = next_tick(beat, period, now);
            prop_assert!(turn.at >= now && turn.beat > beat && turn.beat <= turn.at);
            prop_assert!(turn.at - turn.beat < period);
        }
    }

    #[test]
    fn the_parts_of_many_probes_are_spread_over_the_period() {
        let mut tenths = [0; 10];
        for pod in 0..1000 {
            let part = part(&format!("pod-{pod}"), "app", ProbeKind::Liveness);
            assert!((0.0..=1.0).contains(&part));
            let tenth = (0..10).rfind(|tenth| part >= f64::from(*tenth) / 10.0);
            tenths[usize::try_from(tenth.unwrap()).unwrap()] += 1;
        }
        assert!(
            tenths.iter().all(|count| (60..=140).contains(count)),
            "{tenths:?}"
        );
    }
}
