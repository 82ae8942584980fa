//! What the node itself gives back before a pod goes: dead containers, unused images.

use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use kernel::{Addr, AskError, Message, Reply};
use logic_resources::eviction::NodeReclaim;
use thiserror::Error;

/// Images are removed one after the other; a runtime that hangs does not keep pods from being evicted.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(60);

/// Why nothing was given back.
#[derive(Debug, Error)]
pub enum ReclaimError {
    #[error("the collector does not answer")]
    Silent(#[source] AskError),
    #[error("the collector failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// Asks one collector to remove everything that nobody uses. The collector is started before the eviction manager.
#[derive(Clone)]
pub struct Reclaimer(Rc<dyn Fn() -> LocalBoxFuture<'static, Result<(), ReclaimError>>>);

impl Reclaimer {
    /// Asks the actor at `addr` with the message that `question` makes.
    pub fn new<M, T, E>(
        addr: Addr<M>,
        question: impl Fn(Reply<Result<T, E>>) -> M + Clone + 'static,
    ) -> Reclaimer
    where
        M: Message,
        T: Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        Reclaimer(Rc::new(move || {
            let (addr, question) = (addr.clone(), question.clone());
            Box::pin(async move {
                let answer = addr.ask(RECLAIM_TIMEOUT, question).await;
                let answer = answer.map_err(ReclaimError::Silent)?;
                answer.map_err(|error| ReclaimError::Failed(Box::new(error)))?;
                Ok(())
            })
        }))
    }

    async fn reclaim(&self) -> Result<(), ReclaimError> {
        (self.0)().await
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reclaimer")
    }
}

/// The collectors; a node without one gives nothing of its kind back.
#[derive(Debug, Clone, Default)]
pub struct Collectors {
    pub images: Option<Reclaimer>,
    pub containers: Option<Reclaimer>,
}

impl Collectors {
    /// Whether one of these can be reclaimed.
    pub(super) fn have(&self, what: &[NodeReclaim]) -> bool {
        what.iter().any(|what| self.of(*what).is_some())
    }

    /// Reclaims in the given order; what fails is told in the log, and the next one is asked.
    pub(super) async fn reclaim(&self, what: &[NodeReclaim]) {
        for what in what {
            let Some(reclaimer) = self.of(*what) else {
                continue;
            };
            if let Err(error) = reclaimer.reclaim().await {
                let told = kernel::error_chain(&error);
                tracing::warn!("unexpected error when attempting to reduce pressure: {told}");
            }
        }
    }

    fn of(&self, what: NodeReclaim) -> Option<&Reclaimer> {
        match what {
            NodeReclaim::DeadContainers => self.containers.as_ref(),
            NodeReclaim::UnusedImages => self.images.as_ref(),
        }
    }
}
