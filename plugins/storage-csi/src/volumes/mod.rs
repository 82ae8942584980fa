//! What is done with volumes: the agent's calls as calls of drivers, and upstream's folders around them
//! (pkg/volume/csi, 1.36).
//!
//! The order is always the same, so that a crash between any two steps leaves something that the same call, made
//! again, brings to the same end: folders, then `vol_data.json`, then the driver; and backwards, the driver first,
//! then the folders, `vol_data.json` last. A driver is called again whatever is there already: its calls are
//! idempotent, and only it knows whether the last one was carried out to its end.

mod block;
mod expand;
mod folder;
mod inquire;
mod list;
mod loops;
mod publish;
mod request;
mod stage;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use blocking_pool::{BlockingPool, KeyedGuard, KeyedLock};
use mounts::requests;
use proto::storage::volume::Source;
use proto::storage::{Csi, Volume};
use tokio::time::Instant;
use tonic::Status;

use crate::configuration::Configuration;
use crate::driver::{Driver, name};
use crate::drivers::Registry;
use crate::layout::Layout;

/// How long a driver that is not known is waited for, at most: just after the start they are being found.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The volumes of this node. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pub(crate) layout: Layout,
    pub(crate) pool: BlockingPool,
    pub(crate) registry: Registry,
    node: Arc<str>,
    locks: KeyedLock,
}

/// One call about one volume: its lock, its deadline, and the pool on which it may block.
///
/// Work that is stuck on the pool keeps the lock: no other call works on that volume beside it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    guard: Arc<KeyedGuard>,
    pool: BlockingPool,
    end: Instant,
}

impl Volumes {
    pub(crate) fn new(
        configuration: &Configuration,
        pool: BlockingPool,
        registry: Registry,
    ) -> Self {
        Self {
            layout: Layout::new(&configuration.root),
            pool,
            registry,
            node: configuration.node.as_str().into(),
            locks: KeyedLock::new(),
        }
    }

    pub(crate) async fn job(&self, id: &str, within_ms: u32) -> Result<Job, Status> {
        let within = requests::within(within_ms);
        let end = Instant::now() + within;
        Ok(Job {
            guard: Arc::new(self.locks.lock(id, within).await?),
            pool: self.pool.clone(),
            end,
        })
    }

    /// Returns the driver of that name; its absence will pass, says upstream. `before` is what upstream's message
    /// begins with.
    async fn driver(&self, name: &str, job: &Job, before: &str) -> Result<Arc<Driver>, Status> {
        let within = job.left().min(DRIVER_TIMEOUT);
        self.registry.driver(name, within).await.ok_or_else(|| {
            Status::not_found(format!(
                "{before}driver name {name} not found in the list of registered CSI drivers"
            ))
        })
    }
}

impl Job {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Does what may block; `what` begins the sentence that is answered when it is not done in time.
    pub(crate) async fn on_disk<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let guard = self.guard.clone();
        let work = move || {
            let result = work();
            drop(guard);
            result
        };
        self.pool.run(what, self.left(), work).await
    }
}

/// Checks that a request names a volume of a CSI driver.
fn source(volume: &Volume) -> Result<&Csi, Status> {
    check_kind(&volume.kind)?;
    let Some(Source::Csi(csi)) = &volume.source else {
        return Err(requests::missing("volume.csi"));
    };
    check_driver(&csi.driver)?;
    requests::present("volume.csi.volume_handle", &csi.volume_handle)?;
    Ok(csi)
}

pub(crate) fn check_kind(kind: &str) -> Result<(), Status> {
    match kind {
        crate::KIND => Ok(()),
        other => Err(requests::unknown_kind("storage-csi", other)),
    }
}

fn check_driver(name: &str) -> Result<(), Status> {
    match name::wrong(name) {
        None => Ok(()),
        Some(why) => Err(requests::invalid(why)),
    }
}
