//! The same work is not begun twice in a row without a pause.
//!
//! A worker plans anew as soon as a plan is carried out. One that has had its effect is followed by another;
//! the same comes again where a runtime says that it has done what it has not. Neither an error nor a back-off
//! tells so, and without a pause it would be asked as fast as it answers, and leave no time for anybody else.

use std::time::{Duration, Instant};

use logic_pods::pod_actions::PodAction;
use logic_resources::gc::Garbage;

use super::RETRY_PERIOD;

/// What a worker has the runtime do.
#[derive(Debug, PartialEq)]
pub(super) enum RuntimeWork {
    Plan(Vec<PodAction>),
    Garbage(Garbage),
}

/// What was begun last, and when.
#[derive(Debug, Default)]
pub(super) struct RepeatGuard(Option<(Instant, RuntimeWork)>);

impl RepeatGuard {
    /// Notes what begins now, or answers how long it has to wait: it is what was begun a moment ago.
    pub(super) fn begin(&mut self, work: RuntimeWork, now: Instant) -> Result<(), Duration> {
        let last = self.0.as_ref().filter(|(_, last)| *last == work);
        let wait = last.map(|(since, _)| (*since + RETRY_PERIOD).saturating_duration_since(now));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        self.0 = Some((now, work));
        Ok(())
    }

    /// Whatever is begun next is new: the wish has changed, or there was nothing left to do.
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
