//! What registering means for a CSI driver (upstream's csi_plugin.go, 1.36): [`registration`] watches the sockets, here
//! a driver is validated, asked about this node, and reported to the agent.

mod handler;
mod version;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blocking_pool::BlockingPool;
use futures_util::{Stream, StreamExt};
use handler::{CsiHandler, CsiPlugin};
use proto::storage::event::Event as EventKind;
use proto::storage::{BackendGone, Event, Refused, Synced};
use registration::{BlockingCalls, RegistrationEvent as PluginEvent};
use tonic::Status;

use crate::driver::Driver;

/// The drivers of this node. Clones share it; the work ends when all are gone.
#[derive(Clone, Debug)]
pub(crate) struct Registry(registration::PluginRegistry<CsiHandler>);

impl Registry {
    /// Begins to look below `folder`; the drivers' names show in the health attribute "drivers".
    pub(crate) fn start(folder: PathBuf, pool: BlockingPool, health: sdk::Health) -> Self {
        health.attribute("drivers", "");
        let handler = CsiHandler { health };
        let threads = ScanThreads(pool);
        Self(registration::PluginRegistry::start(
            folder, threads, handler,
        ))
    }

    /// Returns the driver of that name. Just after the start it is waited for, as long as those found first are
    /// still being asked.
    pub(crate) async fn driver(&self, name: &str, within: Duration) -> Option<Arc<Driver>> {
        let plugin = self.0.plugin(name, within).await;
        plugin.map(|plugin| plugin.driver)
    }

    /// Takes it that a driver takes so many volumes on this node now, if it is still the one that was asked.
    pub(crate) fn set_max_volumes(&self, driver: &Arc<Driver>, max: i64) {
        let change = |plugin: &mut CsiPlugin| plugin.set_max_volumes(driver, max);
        self.0.update(&driver.name, change);
    }

    /// Returns the whole state as events, then every change.
    pub(crate) fn watch(&self) -> impl Stream<Item = Result<Event, Status>> + Send + use<> {
        self.0.watch().map(|event| Ok(to_wire(event)))
    }
}

/// The pool's threads, for scans.
struct ScanThreads(BlockingPool);

impl BlockingCalls for ScanThreads {
    async fn run<T: Send + 'static>(
        &self,
        what: &str,
        within: Duration,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let work = || work().map_err(Status::internal);
        let done = self.0.run(what, within, work).await;
        done.map_err(|status| status.message().to_owned())
    }
}

fn to_wire(event: PluginEvent<CsiPlugin>) -> Event {
    let event = match event {
        PluginEvent::Registered(plugin) => EventKind::Backend(plugin.backend),
        PluginEvent::Gone(name) => EventKind::Gone(BackendGone { name }),
        PluginEvent::Refused { socket, name, why } => EventKind::Refused(Refused {
            endpoint: socket,
            name,
            why,
        }),
        PluginEvent::Synced => EventKind::Synced(Synced {}),
    };
    Event { event: Some(event) }
}
