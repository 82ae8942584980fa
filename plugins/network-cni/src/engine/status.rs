//! STATUS: which networks there are, and whether each takes an ADD now. The words are those of containerd's CRI plugin
//! (`NetworkPluginNotReady`, "cni plugin not initialized"), which operators search for.

use std::path::Path;

use futures_util::future::join_all;
use proto::network::NetworkStatus;
use tokio::time::Instant;

use super::Engine;
use crate::conflist::{Folder, NetworkFile};

const NOT_READY: &str = "NetworkPluginNotReady";

impl Engine {
    /// Tells how a network is, or all of them, the default one first.
    pub(crate) async fn status(&self, name: &str, end: Instant) -> Vec<NetworkStatus> {
        let folder = self.networks.borrow().clone();
        let named = |file: &NetworkFile| {
            let network = file.network.as_ref();
            name.is_empty() || network.is_some_and(|network| network.name == name)
        };
        let files: Vec<_> = folder.files.iter().filter(|file| named(file)).collect();
        if files.is_empty() {
            let message = match name {
                "" => no_network(&folder, &self.conf_dir),
                name => format!("no network {name:?} in {}", self.conf_dir.display()),
            };
            return vec![not_ready(name, &message)];
        }
        let each = files
            .into_iter()
            .map(|file| self.file_status(&folder, file, end));
        join_all(each).await
    }

    async fn file_status(
        &self,
        folder: &Folder,
        file: &NetworkFile,
        end: Instant,
    ) -> NetworkStatus {
        let name = file.network.as_ref().map_or("", |network| &network.name);
        if let Some(problem) = &file.problem {
            return not_ready(name, &broken(file, problem));
        }
        if let Some(problem) = &folder.problem {
            return not_ready(name, &format!("cni config load failed: {problem}"));
        }
        let Some(network) = &file.network else {
            return not_ready(name, &no_network(folder, &self.conf_dir));
        };
        match self.chains.status(network, end).await {
            Ok(()) => NetworkStatus {
                name: network.name.clone(),
                ready: true,
                ..NetworkStatus::default()
            },
            Err(error) => not_ready(name, &error.to_string()),
        }
    }
}

/// Why there is no default network.
pub(super) fn no_network(folder: &Folder, dir: &Path) -> String {
    let first = folder.files.first();
    let first = first.and_then(|file| Some(broken(file, file.problem.as_ref()?)));
    let read = folder
        .problem
        .as_ref()
        .map(|problem| format!("cni config load failed: {problem}"));
    let why = first.or(read).unwrap_or_else(|| {
        let dir = dir.display();
        format!("cni config load failed: no network config found in {dir}")
    });
    format!("cni plugin not initialized: {why}")
}

fn broken(file: &NetworkFile, problem: &str) -> String {
    format!("cni config load failed: {}: {problem}", file.path.display())
}

fn not_ready(name: &str, message: &str) -> NetworkStatus {
    NetworkStatus {
        name: name.to_owned(),
        ready: false,
        reason: NOT_READY.to_owned(),
        message: format!("Network plugin returns error: {message}"),
    }
}
