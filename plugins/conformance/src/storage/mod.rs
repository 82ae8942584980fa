//! The suite of storage plugins: what an agent relies on of whatever speaks `oxlet.storage.v1`.
//!
//! It looks at real folders and at the kernel's table of mounts: run it where mounting is possible, with a root
//! folder of its own.

mod backends;
mod case;
mod devices;
mod kinds;
mod mounts;
mod paths;
mod pods;
mod refusals;
mod stages;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod together;
mod updates;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use proto::storage::{Mode, MountRequest};
use tonic::transport::Channel;

use self::case::StorageCase;
use super::{CheckResult, Report, check};

/// The storage plugin under test, and what it can be asked for.
#[derive(Clone, Debug)]
pub struct Target {
    /// A connection to it, see [`sdk::testing::connect`].
    pub channel: Channel,
    /// The agent's root folder that it was configured with: pods lie in `pods` below it.
    pub root: PathBuf,
    /// Volumes that it can mount and map: one of each kind at least.
    pub samples: Vec<Sample>,
}

/// A volume that the plugin under test can mount or map.
#[derive(Clone)]
pub struct Sample {
    /// Its name in the report: "emptyDir in memory".
    pub words: &'static str,
    /// The volume's mode. For [`Mode::Block`] the request's target is the link.
    pub mode: Mode,
    /// Makes the request. Names that differ make different volumes of different pods; the same ones make the same
    /// volume. `within_ms` may be left 0.
    pub make: Arc<dyn Fn(&Names) -> MountRequest + Send + Sync>,
}

/// Names of one volume of one pod: unique, and valid for every kind of volume.
#[derive(Clone, Debug)]
pub struct Names {
    /// The agent's root folder.
    pub root: PathBuf,
    /// The pod's UID.
    pub pod: String,
    /// The volume's name, also good as a handle of a driver, or as a part of an id.
    pub volume: String,
}

impl Names {
    /// Returns where the pod finds a volume of a kind: `ROOT/pods/UID/volumes/kubernetes.io~KIND/NAME`, and
    /// `.../mount` below that for CSI.
    pub fn target(&self, kind: &str) -> String {
        let target = self
            .folder()
            .join("volumes")
            .join(format!("kubernetes.io~{kind}"));
        let target = target.join(&self.volume);
        text(&match kind {
            "csi" => target.join("mount"),
            _ => target,
        })
    }

    /// Returns where the pod finds the link to a raw device: `ROOT/pods/UID/volumeDevices/kubernetes.io~KIND/NAME`.
    pub fn device(&self, kind: &str) -> String {
        let target = self.folder().join("volumeDevices");
        text(
            &target
                .join(format!("kubernetes.io~{kind}"))
                .join(&self.volume),
        )
    }

    /// Returns the pod's folder, `ROOT/pods/UID`.
    pub fn folder(&self) -> PathBuf {
        self.root.join("pods").join(&self.pod)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

type StorageCheck = for<'a> fn(&'a mut StorageCase) -> BoxFuture<'a, CheckResult>;

/// Checks every law against `target`, one after the other.
pub async fn run(target: Target) -> Report {
    let groups = [
        kinds::LAWS,
        mounts::LAWS,
        refusals::LAWS,
        stages::LAWS,
        devices::LAWS,
        updates::LAWS,
        paths::LAWS,
        stats::LAWS,
        pods::LAWS,
        together::LAWS,
        backends::LAWS,
    ];
    let mut laws = Vec::new();
    for (words, body) in groups.into_iter().flatten() {
        let mut case = StorageCase::new(target.clone());
        laws.push(check(words, body(&mut case)).await);
        case.clean_up().await;
    }
    Report { laws }
}
