//! The rate of a counter of CPU time, from two samples.
//!
//! Mirrors `getAndUpdateContainerUsageNanoCores` of pkg/kubelet/stats/cri_stats_provider.go (1.36).

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::CpuStats;

/// The last samples by owner. Owners that are gone are dropped by [`CpuRates::keep`].
#[derive(Debug, Default)]
pub struct CpuRates {
    looks: BTreeMap<String, CpuSample>,
}

#[derive(Clone, Copy, Debug)]
struct CpuSample {
    at: Timestamp,
    nanoseconds: u64,
    rate: Option<u64>,
}

impl CpuRates {
    /// Sets the CPU usage in nanocores where the provider does not report it: none at the first sample, nor after the
    /// counter was reset. A sample that is not newer than the last one repeats its rate; the next one is compared with it
    /// where it is older: the clock was set back.
    pub fn rate(&mut self, whose: &str, cpu: &mut CpuStats) {
        let (Some(at), Some(nanoseconds)) = (cpu.time, cpu.usage_core_nano_seconds) else {
            return;
        };
        if cpu.usage_nano_cores.is_some() {
            return;
        }
        let before = self.looks.get(whose).copied();
        let rate = match before {
            Some(before) if at <= before.at => before.rate,
            Some(before) => nanoseconds
                .checked_sub(before.nanoseconds)
                .and_then(|grown| per_second(grown, at, before.at)),
            None => None,
        };
        let look = CpuSample {
            at,
            nanoseconds,
            rate,
        };
        match self.looks.get_mut(whose) {
            Some(known) => *known = look,
            None => drop(self.looks.insert(whose.to_owned(), look)),
        }
        cpu.usage_nano_cores = rate;
    }

    /// Drops the samples of owners for which `exists` is false.
    pub fn keep(&mut self, exists: impl Fn(&str) -> bool) {
        self.looks.retain(|whose, _| exists(whose));
    }
}

fn per_second(grown: u64, now: Timestamp, before: Timestamp) -> Option<u64> {
    let passed = u128::try_from(now.as_nanosecond() - before.as_nanosecond()).ok()?;
    let rate = (u128::from(grown) * 1_000_000_000).checked_div(passed)?;
    u64::try_from(rate).ok()
}
