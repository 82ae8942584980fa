//! The executor of calls: one at a time for one volume, at the same time for different ones, each with its deadline.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blocking_pool::{BlockingPool, KeyedLock};
use mounts::measure::Walks;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::kind::Backing;
use crate::settings::Propagation;
use crate::volumes::block::Held;
use crate::volumes::nfs::Programs;
use crate::volumes::propagation;

/// The node's own disk does not hang, and more threads would only take more memory.
const OWN_PLACES: usize = 16;
/// Anything else may hang until its deadline: there is room for many that do, and they take none from the others.
const FOREIGN_PLACES: usize = 240;
/// How long the steps on the own disk before a mount may take.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);

/// Everything that calls share. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    pub(crate) root: Arc<Path>,
    pub(crate) pool: BlockingPool,
    pub(crate) walks: Walks,
    pub(crate) held: Arc<Held>,
    pub(crate) programs: Arc<Programs>,
    locks: KeyedLock,
    own: Arc<Semaphore>,
    foreign: Arc<Semaphore>,
}

/// One call to be executed.
#[derive(Debug)]
pub(crate) struct Task {
    /// For messages: "mounting PATH".
    pub(crate) what: String,
    /// The key of the lock: no other call about it runs meanwhile; none needs no lock.
    pub(crate) subject: Option<String>,
    pub(crate) backing: Backing,
    pub(crate) within: Duration,
}

impl Executor {
    pub(crate) fn new(health: sdk::Health, root: PathBuf, programs: Programs) -> Self {
        Self {
            root: root.into(),
            pool: BlockingPool::new(health, OWN_PLACES + FOREIGN_PLACES),
            walks: Walks::new(),
            held: Arc::default(),
            programs: Arc::new(programs),
            locks: KeyedLock::new(),
            own: Arc::new(Semaphore::new(OWN_PLACES)),
            foreign: Arc::new(Semaphore::new(FOREIGN_PLACES)),
        }
    }

    /// Makes the root ready before the first call.
    pub(crate) async fn prepare(&self, propagation: Propagation) -> Result<(), Status> {
        if propagation == Propagation::AsItIs {
            return Ok(());
        }
        let root = self.root.clone();
        let what = format!("making {} shared", root.display());
        let work = move || propagation::share(&root);
        self.pool.run(&what, PREPARE_TIMEOUT, work).await
    }

    /// Does the work; the lock is held for as long as it lasts, even beyond its deadline.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: Task,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let end = Instant::now() + task.within;
        let places = match task.backing {
            Backing::Own => &self.own,
            Backing::Foreign => &self.foreign,
        };
        let guard = match &task.subject {
            Some(subject) => Some(self.locks.lock(subject, task.within).await?),
            None => None,
        };
        let place = timeout_at(end, places.clone().acquire_owned()).await;
        let place = place.map_err(|_| {
            Status::deadline_exceeded(format!(
                "{} was not begun in time: all threads are busy",
                task.what
            ))
        })?;
        let left = end.saturating_duration_since(Instant::now());
        let executor = self.clone();
        let done = self.pool.run(&task.what, left, move || {
            let result = work(&executor);
            drop(guard);
            result
        });
        let result = done.await;
        drop(place);
        result
    }
}
