//! The same work is not begun twice in a row without a pause.
//!
//! A worker plans anew as soon as a plan is carried out. One that has had its effect is followed by another;
//! the same comes again where a runtime says that it has done what it has not. Neither an error nor a back-off
//! tells so, and without a pause it would be asked as fast as it answers, and leave no time for anybody else.

use std::time::{Duration, Instant};

use logic::gc::Garbage;
use logic::worker::Action;

use super::SOON;

/// What a worker has the runtime do.
#[derive(Debug, PartialEq)]
pub(super) enum Work {
    Plan(Vec<Action>),
    Garbage(Garbage),
}

/// What was begun last, and when.
#[derive(Debug, Default)]
pub(super) struct Begun(Option<(Instant, Work)>);

impl Begun {
    /// Notes what begins now, or answers how long it has to wait: it is what was begun a moment ago.
    pub(super) fn begin(&mut self, work: Work, now: Instant) -> Result<(), Duration> {
        let last = self.0.as_ref().filter(|(_, last)| *last == work);
        let wait = last.map(|(since, _)| (*since + SOON).saturating_duration_since(now));
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

    fn create(attempt: u32) -> Work {
        Work::Plan(vec![Action::CreateSandbox { attempt }])
    }

    #[test]
    fn the_same_work_waits_and_any_other_is_begun_at_once() {
        let (mut begun, now) = (Begun::default(), kernel::now());
        assert_eq!(begun.begin(create(0), now), Ok(()));
        assert_eq!(begun.begin(create(0), now), Err(SOON));
        assert_eq!(begun.begin(create(1), now), Ok(()));
        assert_eq!(begun.begin(Work::Garbage(Garbage::default()), now), Ok(()));
        assert_eq!(begun.begin(create(1), now), Ok(()));
        let later = now + SOON / 4;
        assert_eq!(begun.begin(create(1), later), Err(SOON / 4 * 3));
        assert_eq!(begun.begin(create(1), now + SOON), Ok(()));
        assert_eq!(begun.begin(create(1), now + SOON), Err(SOON));
        begun.forget();
        assert_eq!(begun.begin(create(1), now + SOON), Ok(()));
    }
}
