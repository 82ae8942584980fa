//! The containers' writable layers, which the runtime alone can measure: its figures, kept for a short time.
//!
//! A runtime asks each container's shim for its stats, which takes hundreds of milliseconds on a full node. containerd
//! measures layers every ten seconds itself. So its answer is kept that long; after that the next summary waits for a
//! newer one for a moment, and shows the old figures, which have their own times, where it takes longer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clients::runtime::{RuntimeClient, RuntimeError};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use logic_resources::summary::pods::RuntimeContainerStats;
use tokio::time::timeout;

/// As long as containerd's `stats_collect_period`, and cAdvisor's housekeeping.
const FRESH: Duration = Duration::from_secs(10);
/// Older figures are not shown; as cAdvisor keeps them.
const MAX_AGE: Duration = Duration::from_secs(120);
/// How long a summary that has older figures waits for newer ones.
const SHORT_TIMEOUT: Duration = Duration::from_millis(60);
/// How long a summary without figures waits for some.
const LONG_TIMEOUT: Duration = Duration::from_secs(5);

type Figures = Rc<Vec<RuntimeContainerStats>>;
type Answer = Result<Vec<RuntimeContainerStats>, RuntimeError>;

/// The runtime's last answer, and the call whose answer is not there yet.
#[derive(Default)]
pub(super) struct LayerCache {
    last: RefCell<Option<(Instant, Figures)>>,
    pending: Cell<Option<LocalBoxFuture<'static, Answer>>>,
    /// Whether the next figures are to be as new as can be.
    expired: Cell<bool>,
}

impl std::fmt::Debug for LayerCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerCache")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl LayerCache {
    /// Has the next look ask the runtime again, and wait for its answer: what it decides ends a pod.
    pub(super) fn expire(&self) {
        self.expired.set(true);
        self.pending.take();
    }

    /// The figures of all containers; none at all where the runtime does not answer.
    pub(super) async fn get(&self, runtime: &RuntimeClient) -> Figures {
        let now = kernel::now();
        let age = |at: Instant| now.saturating_duration_since(at);
        let last = self.last.borrow().clone();
        let last = last.filter(|(at, _)| age(*at) < MAX_AGE);
        let expired = self.expired.take();
        let fresh = |at: Instant| !expired && age(at) < FRESH;
        if let Some((_, figures)) = last.as_ref().filter(|(at, _)| fresh(*at)) {
            return figures.clone();
        }
        let mut pending = self.pending.take().unwrap_or_else(|| {
            let runtime = runtime.clone();
            async move { runtime.measured_containers().await }.boxed_local()
        });
        let limit = match last {
            Some(_) if !expired => SHORT_TIMEOUT,
            Some(_) | None => LONG_TIMEOUT,
        };
        match timeout(limit, &mut pending).await {
            Ok(Ok(figures)) => {
                let figures = Rc::new(figures);
                *self.last.borrow_mut() = Some((kernel::now(), figures.clone()));
                return figures;
            }
            Ok(Err(error)) => {
                tracing::warn!("no figures of writable layers: {}", error.describe());
            }
            Err(_) => self.pending.set(Some(pending)),
        }
        last.map(|(_, figures)| figures).unwrap_or_default()
    }
}
