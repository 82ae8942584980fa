//! Waits until the kernel reports that memory runs short.
//!
//! The limit of usage follows from the last sample, because what can be reclaimed counts in the kernel's figure: after
//! each sample it is asked for anew. Upstream: eviction/memory_threshold_notifier_others.go (1.36).

use host::cgroups::memory_events::{self, MemoryEventError, MemoryWatch, Wakes};
use kernel::{Context, TaskId};
use logic_resources::cgroups::Hierarchy;
use logic_resources::eviction::{EvictionPolicy, MemoryNotification, notify_at};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Msg;
use crate::stats::usage::{MemoryFigures, UsageSampler};

/// The reports that are waited for.
#[derive(Debug, Default)]
pub(super) struct MemoryNotifier {
    waiting: Vec<TaskId>,
    /// Told once: samples go on as if nothing had been asked for.
    pub(super) refusal: Option<String>,
}

impl MemoryNotifier {
    /// Asks for a report at each threshold of memory; the reports asked for before are given up.
    pub(super) fn update(
        &mut self,
        policy: &EvictionPolicy,
        sampler: &UsageSampler,
        figures: &MemoryFigures,
        ctx: &mut Context<Msg>,
    ) {
        for task in self.waiting.drain(..) {
            ctx.abort(task);
        }
        if policy.notification == MemoryNotification::Off || self.refusal.is_some() {
            return;
        }
        for threshold in &policy.pressure.thresholds {
            let Some(figure) = figures.get(&threshold.signal) else {
                continue;
            };
            let (Some(usage), Some((hierarchy, group))) = (
                notify_at(threshold, figure),
                sampler.memory_group(threshold.signal),
            ) else {
                continue;
            };
            self.waiting.push(ctx.run(async move {
                match wait(hierarchy, group, usage).await {
                    Ok(()) => Msg::MemoryThresholdCrossed,
                    Err(error) => Msg::NotificationRefused(kernel::error_chain(&error)),
                }
            }));
        }
    }

    /// The kernel does not tell: the log says so once.
    pub(super) fn refused(&mut self, why: String) {
        if self.refusal.is_none() {
            tracing::warn!("the kernel does not report memory thresholds, they are polled: {why}");
        }
        self.refusal = Some(why);
    }
}

async fn wait(hierarchy: Hierarchy, group: String, usage: u64) -> Result<(), MemoryEventError> {
    let ask = move || memory_events::watch(&hierarchy, &group, usage);
    let failed = |error: std::io::Error| MemoryEventError::EventFd(error);
    let asked = kernel::spawn_blocking(ask).await;
    let watch = asked.map_err(|error| failed(error.into()))??;
    let MemoryWatch { descriptor, wakes } = watch;
    let interest = match wakes {
        Wakes::Readable => Interest::READABLE,
        Wakes::Priority => Interest::PRIORITY,
    };
    #[expect(
        deprecated,
        reason = "an OwnedFd keeps what the successor asks for, which is unsafe and so forbidden here"
    )]
    let watched = AsyncFd::with_interest(descriptor, interest).map_err(failed)?;
    let ready = watched.ready(interest).await.map_err(failed)?;
    drop(ready);
    Ok(())
}
