//! How long a container that crashes waits.
//!
//! Upstream: newCrashLoopBackOff of kubelet.go (1.36); KEP-4603.

use std::time::Duration;

use config::NodeConfig;
use logic_api::backoff::BackoffPolicy;

/// The first wait and the longest one without the configuration's, where `ReduceDefaultCrashLoopBackOffDecay` is on.
const REDUCED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

pub(super) fn policy(config: &NodeConfig) -> BackoffPolicy {
    let back_off = &config.kubelet.crash_loop_back_off;
    let max = back_off.max_container_restart_period.map(Duration::from);
    let reduced = config.gates.enabled("ReduceDefaultCrashLoopBackOffDecay");
    waits(max, reduced)
}

/// A maximum shorter than the first wait shortens that one too.
fn waits(max: Option<Duration>, reduced: bool) -> BackoffPolicy {
    let default = BackoffPolicy::default();
    let (initial, longest) = match reduced {
        true => REDUCED,
        false => (default.initial, default.max),
    };
    let max = max.unwrap_or(longest);
    BackoffPolicy {
        initial: initial.min(max),
        max,
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestCrashLoopBackOffConfiguration, and its defaults.
    #[test]
    fn a_shorter_maximum_shortens_the_first_back_off_too() {
        let seconds = Duration::from_secs;
        let cases = [
            (Some(2), false, 2, 2),
            (Some(2), true, 1, 2),
            (Some(10), true, 1, 10),
            (Some(300), true, 1, 300),
            (Some(11), false, 10, 11),
            (Some(300), false, 10, 300),
            (None, false, 10, 300),
            (None, true, 1, 60),
        ];
        for (configured, reduced, initial, max) in cases {
            let policy = waits(configured.map(seconds), reduced);
            assert_eq!(
                (policy.initial, policy.max),
                (seconds(initial), seconds(max))
            );
        }
    }
}
