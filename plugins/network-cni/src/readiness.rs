//! Readiness: shown as the plugin's health, looked at again at every change of the folder and every few seconds, so
//! that a network that stops being ready is seen although it was ready before.

use std::sync::Arc;
use std::time::Duration;

use sdk::Health;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::engine::Engine;

/// Plugins of 1.1.0 are asked by a process each: not too often.
const INTERVAL: Duration = Duration::from_secs(15);
/// A STATUS that takes longer is a network that is not ready.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps the health as the default network is, and takes away what was never finished. Ends with the folder's task.
pub(crate) async fn follow(engine: Arc<Engine>, health: Health) {
    let mut networks = engine.networks.clone();
    let mut recovery: Option<JoinHandle<()>> = None;
    loop {
        if recovery.as_ref().is_none_or(JoinHandle::is_finished) {
            let engine = engine.clone();
            recovery = Some(tokio::spawn(async move { engine.recover().await }));
        }
        engine.show_readiness(&health).await;
        if let Ok(Err(_)) = timeout(INTERVAL, networks.changed()).await {
            return;
        }
    }
}

impl Engine {
    /// Shows whether pods get a network now.
    pub(crate) async fn show_readiness(&self, health: &Health) {
        let (default, broken) = {
            let folder = self.networks.borrow();
            let default = folder.default_network().map(|network| network.name.clone());
            let broken = folder.files.iter().filter(|file| file.problem.is_some());
            let broken: Vec<_> = broken.map(|file| file.path.display().to_string()).collect();
            (default.unwrap_or_default(), broken.join(", "))
        };
        health.attribute("network", default.clone());
        health.attribute("brokenFiles", broken);
        let end = Instant::now() + STATUS_TIMEOUT;
        let status = self.status(&default, end).await.into_iter().next();
        match status {
            Some(status) if status.ready => health.healthy(),
            Some(status) => health.degraded(format!("{}: {}", status.reason, status.message)),
            None => {}
        }
    }
}
