//! Which runtime the pods are on, and whether they are to leave it: written by the hand-over, read by every worker.

use kernel::watch;

use crate::runtime::call_limiter::CallLimiter;
use crate::runtime::grace_periods::GracePeriods;

/// What pods are to do in a runtime that is handed over to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverStep {
    /// Their containers end, and nothing starts.
    End,
    /// What is left of them is removed; only what they were is remembered.
    Clear,
}

/// The runtime of this node's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeInUse {
    /// Its name as declared; empty where no runtime is declared.
    pub name: String,
    /// The runtime that the pods go to, and how far they are; none while they stay.
    pub handover: Option<(HandoverStep, String)>,
}

/// The workers' view of the hand-over, and the starts that it waits for.
#[derive(Debug, Clone)]
pub struct RuntimeGate {
    state: watch::Receiver<RuntimeInUse>,
    pub(crate) starts: CallLimiter,
    pub(crate) stops: CallLimiter,
    pub(crate) graces: GracePeriods,
}

impl RuntimeGate {
    pub fn new(state: watch::Receiver<RuntimeInUse>) -> Self {
        RuntimeGate {
            state,
            starts: CallLimiter::default(),
            stops: CallLimiter::default(),
            graces: GracePeriods::default(),
        }
    }

    /// A gate that stays open: the runtime is never handed over.
    pub fn open() -> Self {
        RuntimeGate::new(watch::channel(RuntimeInUse::default()).1)
    }

    /// What pods are to do now; none while they live on.
    pub(crate) fn step(&self) -> Option<HandoverStep> {
        self.state.borrow().handover.as_ref().map(|(step, _)| *step)
    }

    /// Resolves when nothing may start in this runtime any more.
    pub(crate) async fn closed(&self) {
        let mut state = self.state.clone();
        if state
            .wait_for(|state| state.handover.is_some())
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }

    /// The runtime in words; empty where none is declared.
    pub(crate) fn describe(&self) -> String {
        let state = self.state.borrow();
        match &state.handover {
            Some((_, to)) => format!("{}, handed over to {to}", state.name),
            None => state.name.clone(),
        }
    }
}
