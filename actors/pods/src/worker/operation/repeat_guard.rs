//! Delays an operation that equals the previous one.
//!
//! A worker plans anew as soon as a plan is carried out. If the plan had its effect, the next one differs;
//! an equal one comes where a runtime reports success without effect. Neither an error nor a back-off
//! delays that, and without a delay the runtime would be called in a busy loop.

use std::time::{Duration, Instant};

use logic_pods::pod_actions::PodAction;
use logic_resources::gc::Garbage;

use crate::worker::RETRY_PERIOD;

/// An operation on the runtime.
#[derive(Debug, PartialEq)]
pub(super) enum RuntimeWork {
    Plan(Vec<PodAction>),
    Garbage(Garbage),
}

/// The last operation, and when it began.
#[derive(Debug, Default)]
pub(in crate::worker) struct RepeatGuard(Option<(Instant, RuntimeWork)>);

impl RepeatGuard {
    /// Records that this operation begins; fails with the delay if it equals the last one, which began a moment ago.
    pub(super) fn begin(&mut self, work: RuntimeWork, now: Instant) -> Result<(), Duration> {
        let last = self.0.as_ref().filter(|(_, last)| *last == work);
        let wait = last.map(|(since, _)| (*since + RETRY_PERIOD).saturating_duration_since(now));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        self.0 = Some((now, work));
        Ok(())
    }

    /// The next operation is not delayed: the goal has changed, or nothing was left to do.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(attempt: u32) -> RuntimeWork {
        RuntimeWork::Plan(vec![PodAction::CreateSandbox { attempt }])
    }

    #[test]
    fn the_same_work_waits_and_any_other_is_begun_at_once() {
        let (mut begun, now) = (RepeatGuard::default(), kernel::now());
        assert_eq!(begun.begin(create(0), now), Ok(()));
        assert_eq!(begun.begin(create(0), now), Err(RETRY_PERIOD));
        assert_eq!(begun.begin(create(1), now), Ok(()));
        assert_eq!(
            begun.begin(RuntimeWork::Garbage(Garbage::default()), now),
            Ok(())
        );
        assert_eq!(begun.begin(create(1), now), Ok(()));
        let later = now + RETRY_PERIOD / 4;
        assert_eq!(begun.begin(create(1), later), Err(RETRY_PERIOD / 4 * 3));
        assert_eq!(begun.begin(create(1), now + RETRY_PERIOD), Ok(()));
        assert_eq!(
            begun.begin(create(1), now + RETRY_PERIOD),
            Err(RETRY_PERIOD)
        );
        begun.forget();
        assert_eq!(begun.begin(create(1), now + RETRY_PERIOD), Ok(()));
    }
}
