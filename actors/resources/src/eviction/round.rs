//! The steps of a round that take time, and what is told of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use logic_api::types::PodUid;
use logic_resources::eviction::PodRanking;
use logic_resources::thresholds::{Observations, Threshold};

use crate::stats::usage::UsageSampler;

/// How long an evicted pod is waited for: upstream's `podCleanupTimeout`.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Upstream's `podCleanupPollFreq`.
const CLEANUP_PERIOD: Duration = Duration::from_secs(1);
/// Pods named in the log.
const MAX_LOGGED: usize = 10;

/// Waits until nothing of the pods runs or is mounted; returns those of which something is after the timeout. What a
/// pod wrote is on the disk until then.
pub(super) async fn await_cleanup(
    sampler: &UsageSampler,
    mut pods: BTreeSet<PodUid>,
) -> BTreeSet<PodUid> {
    let end = kernel::now() + CLEANUP_TIMEOUT;
    while kernel::now() < end {
        tokio::time::sleep(CLEANUP_PERIOD).await;
        if let Ok(unfinished) = sampler.unfinished_pods().await {
            pods.retain(|pod| unfinished.contains(pod));
        }
        if pods.is_empty() {
            break;
        }
    }
    pods
}

/// Counts how old the figures are of each threshold that an eviction goes by.
pub(super) fn observe_ages(due: &BTreeSet<Threshold>, observations: &Observations, now: Instant) {
    for threshold in due {
        if let Some(observed) = observations.get(&threshold.signal) {
            let age = now.saturating_duration_since(observed.sampled_at);
            metrics::pods::EVICTION_STATS_AGE
                .with_label_values(&[threshold.signal.name()])
                .observe(age.as_secs_f64());
        }
    }
}

pub(super) fn log_ranking(ranking: &PodRanking) {
    for (place, pod) in ranking.victims.iter().take(MAX_LOGGED).enumerate() {
        tracing::info!(pod = %pod.uid, place, "ranked for eviction: {}", pod.why);
    }
}
