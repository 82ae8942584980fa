//! The grace periods that run.
//!
//! A runtime kills a container the moment its grace is over. Of fifty pods that are deleted together it kills fifty at
//! once, and each then waits for all others in every step to its end. So of a crowd the kills are the agent's, a few
//! abreast: the first pods are gone while later ones still wait for their kill, and the last no later than before.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use logic_pods::runtime::call_limit;

/// How much longer than its grace period a container of a crowd may live: then the runtime kills it, whoever's turn it is.
pub(crate) const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// How many grace periods run. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub(crate) struct GracePeriods(Rc<Cell<usize>>);

/// A grace period that runs until this is dropped.
#[derive(Debug)]
#[must_use = "the grace period is over when this is dropped"]
pub(crate) struct GracePeriod {
    all: GracePeriods,
    crowded: bool,
}

impl GracePeriods {
    pub(crate) fn begin(&self) -> GracePeriod {
        let running = self.0.get();
        self.0.set(running + 1);
        GracePeriod {
            all: self.clone(),
            crowded: call_limit::is_of_a_crowd(running),
        }
    }
}

impl GracePeriod {
    /// Whether a few others ran when it began.
    pub(crate) fn is_of_a_crowd(&self) -> bool {
        self.crowded
    }
}

impl Drop for GracePeriod {
    fn drop(&mut self) {
        self.all.0.set(self.all.0.get().saturating_sub(1));
    }
}
