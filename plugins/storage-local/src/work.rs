//! Where the calls are worked on: in turn for one volume, at the same time for different ones, each within its time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mounts::bench::Bench;
use mounts::measure::Walks;
use mounts::turns::Turns;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::block::Held;
use crate::kind::Ground;
use crate::nfs::Programs;
use crate::propagation;
use crate::settings::Propagation;

/// The node's own disk does not hang, and more threads would only take more memory.
const OWN_PLACES: usize = 16;
/// Anything else may hang until its deadline: there is room for many that do, and they take none from the others.
const FOREIGN_PLACES: usize = 240;
const PREPARE_WITHIN: Duration = Duration::from_secs(30);

/// Everything that calls share. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) root: Arc<Path>,
    pub(crate) bench: Bench,
    pub(crate) walks: Walks,
    pub(crate) held: Arc<Held>,
    pub(crate) programs: Arc<Programs>,
    turns: Turns,
    own: Arc<Semaphore>,
    foreign: Arc<Semaphore>,
}

/// One piece of work.
#[derive(Debug)]
pub(crate) struct Task {
    /// For a person: "mounting PATH".
    pub(crate) what: String,
    /// Nothing else about this is worked on meanwhile; nothing needs no turn.
    pub(crate) subject: Option<String>,
    pub(crate) ground: Ground,
    pub(crate) within: Duration,
}

impl Shop {
    pub(crate) fn new(health: sdk::Health, root: PathBuf) -> Self {
        Self {
            root: root.into(),
            bench: Bench::new(health, OWN_PLACES + FOREIGN_PLACES),
            walks: Walks::new(),
            held: Arc::default(),
            programs: Arc::default(),
            turns: Turns::new(),
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
        self.bench.run(&what, PREPARE_WITHIN, work).await
    }

    /// Does the work; the turn is kept for as long as it lasts, even beyond its deadline.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: Task,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let end = Instant::now() + task.within;
        let places = match task.ground {
            Ground::Own => &self.own,
            Ground::Foreign => &self.foreign,
        };
        let turn = match &task.subject {
            Some(subject) => Some(self.turns.turn(subject, task.within).await?),
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
        let shop = self.clone();
        let done = self.bench.run(&task.what, left, move || {
            let result = work(&shop);
            drop(turn);
            result
        });
        let result = done.await;
        drop(place);
        result
    }
}
