//! The plugin with one driver, in a folder that is unmounted and removed at the end, and shorthands for requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mounts::table::{self, MountTable};
use proto::storage::event::Event as StorageEvent;
use proto::storage::storage_client::StorageClient;
use proto::storage::volume::Source;
use proto::storage::{
    AccessMode, Csi, Event, ListRequest, MountRequest, Pod, StageRequest, State, UnmountRequest,
    UnstageRequest, Volume, WatchRequest,
};
use rustix::mount::{UnmountFlags, unmount};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::double::{Double, Manner, Serving};

pub(crate) const DRIVER: &str = "d.example.com";
pub(crate) const ID: &str = "kubernetes.io/csi/d.example.com^vol-1";

/// A folder in which things are mounted: nothing of it outlives the test.
#[derive(Debug)]
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the mount points below the folder.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let home = fs::canonicalize(self.path()).unwrap();
        let table = MountTable::read().unwrap();
        table
            .below(&home)
            .into_iter()
            .map(|entry| entry.mount_point.clone())
            .collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for path in self.mounts().iter().rev() {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// The plugin, and its one driver.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) storage: StorageClient<Channel>,
    pub(crate) double: Double,
    pub(crate) root: PathBuf,
    pub(crate) registry: PathBuf,
    plugin: Option<sdk::testing::Plugin>,
    serving: Vec<Serving>,
    // The last to go.
    pub(crate) home: Home,
}

pub(crate) async fn rig() -> Rig {
    with(Manner::default()).await
}

/// A driver with these abilities has registered.
pub(crate) async fn with(manner: Manner) -> Rig {
    let mut rig = alone(manner).await;
    rig.serve();
    rig.registered().await;
    rig
}

/// The plugin without its driver.
pub(crate) async fn alone(manner: Manner) -> Rig {
    let home = Home::new();
    let double = Double::new(home.path(), manner);
    let root = home.path().join("root");
    let plugin = start(home.path(), &root).await;
    Rig {
        storage: StorageClient::new(plugin.channel.clone()),
        double,
        registry: root.join("plugins_registry"),
        root,
        plugin: Some(plugin),
        serving: Vec::new(),
        home,
    }
}

async fn start(folder: &Path, root: &Path) -> sdk::testing::Plugin {
    let configuration = serde_json::json!({"rootDir": root, "nodeName": "node-1"});
    let info = storage_csi::info("0");
    let started = sdk::testing::start(folder, info, configuration, storage_csi::build).await;
    started.unwrap()
}

impl Rig {
    /// Has the driver serve, and register.
    pub(crate) fn serve(&mut self) {
        let endpoint = self.home.path().join("d.sock");
        let registrar = self.registry.join("d-reg.sock");
        self.serving.push(self.double.serve(endpoint.clone()));
        self.serving
            .push(self.double.register(registrar, &endpoint));
    }

    /// Ends the driver.
    pub(crate) fn end(&mut self) {
        self.serving.clear();
    }

    pub(crate) async fn registered(&self) {
        self.double.told(1).await;
    }

    /// Another process of the plugin takes over.
    pub(crate) async fn restart(&mut self) {
        let old = self.plugin.take().unwrap();
        let socket = old.socket.clone();
        drop(old);
        drop(fs::remove_file(&socket));
        let plugin = start(self.home.path(), &self.root).await;
        self.storage = StorageClient::new(plugin.channel.clone());
        self.plugin = Some(plugin);
    }

    pub(crate) fn base(&self) -> proto::plugin::plugin_client::PluginClient<Channel> {
        self.plugin.as_ref().unwrap().base()
    }

    pub(crate) fn storage_channel(&self) -> Channel {
        self.plugin.as_ref().unwrap().channel.clone()
    }

    pub(crate) async fn watch(&mut self) -> Events {
        Events(
            self.storage
                .watch(WatchRequest {})
                .await
                .unwrap()
                .into_inner(),
        )
    }

    pub(crate) fn target(&self, pod: &str) -> PathBuf {
        self.root
            .join("pods")
            .join(pod)
            .join("volumes/kubernetes.io~csi/pv-1/mount")
    }

    pub(crate) fn mount_request(&self, pod: &str) -> MountRequest {
        MountRequest {
            volume: Some(volume()),
            pod: Some(Pod {
                uid: pod.to_owned(),
                namespace: "ns".to_owned(),
                name: "web".to_owned(),
                service_account: "sa".to_owned(),
            }),
            target: self.target(pod).display().to_string(),
            within_ms: 20_000,
            ..MountRequest::default()
        }
    }

    pub(crate) async fn stage(&mut self) -> Result<PathBuf, Status> {
        let staged = self.storage.stage(stage_request()).await?;
        Ok(PathBuf::from(staged.into_inner().path))
    }

    pub(crate) async fn mount(&mut self, pod: &str) -> Result<PathBuf, Status> {
        let mounted = self.storage.mount(self.mount_request(pod)).await?;
        Ok(PathBuf::from(mounted.into_inner().path))
    }

    pub(crate) async fn unmount(&mut self, pod: &str) -> Result<(), Status> {
        let request = UnmountRequest {
            volume_id: ID.to_owned(),
            kind: "csi".to_owned(),
            name: "pv-1".to_owned(),
            pod_uid: pod.to_owned(),
            target: self.target(pod).display().to_string(),
            within_ms: 20_000,
        };
        self.storage.unmount(request).await.map(drop)
    }

    pub(crate) async fn unstage(&mut self) -> Result<(), Status> {
        let request = UnstageRequest {
            volume_id: ID.to_owned(),
            kind: "csi".to_owned(),
            volume: Some(volume()),
            within_ms: 20_000,
            ..UnstageRequest::default()
        };
        self.storage.unstage(request).await.map(drop)
    }

    /// Returns the volumes that List answers: state, id, and pod.
    pub(crate) async fn list(&mut self) -> Vec<(State, String, String)> {
        let found = self
            .storage
            .list(ListRequest { within_ms: 20_000 })
            .await
            .unwrap();
        let found = found.into_inner().found.into_iter();
        found
            .map(|found| (found.state(), found.volume_id, found.pod_uid))
            .collect()
    }

    /// The folder of the one volume.
    pub(crate) fn staging(&self) -> PathBuf {
        let drivers = self.root.join("plugins/kubernetes.io/csi").join(DRIVER);
        let mut volumes = fs::read_dir(&drivers).unwrap();
        volumes.next().unwrap().unwrap().path().join("globalmount")
    }

    /// Nothing is left of any volume: no folder but the empty ones above, and no mount.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.home.mounts(), Vec::<PathBuf>::new());
        for folder in ["plugins", "pods"] {
            let left = files(&self.root.join(folder));
            assert_eq!(left, Vec::<PathBuf>::new());
        }
    }
}

/// Everything below a folder that is no folder, and every folder named as a driver's.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = paths.flat_map(|path| {
        let own = path.ends_with("mount") || path.ends_with("globalmount");
        match path.is_dir() && !path.is_symlink() && !own {
            true => files(&path),
            false => vec![path],
        }
    });
    below.collect()
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    path.parent().is_some_and(Path::exists) && table::is_mount_point(path).unwrap()
}

pub(crate) fn volume() -> Volume {
    Volume {
        id: ID.to_owned(),
        kind: "csi".to_owned(),
        name: "pv-1".to_owned(),
        source: Some(Source::Csi(csi())),
    }
}

pub(crate) fn csi() -> Csi {
    Csi {
        driver: DRIVER.to_owned(),
        volume_handle: "vol-1".to_owned(),
        fs_type: "ext4".to_owned(),
        access_mode: AccessMode::ReadWriteOnce.into(),
        volume_context: [("context".to_owned(), "c".to_owned())].into(),
        publish_context: [("device".to_owned(), "sdx".to_owned())].into(),
        ..Csi::default()
    }
}

pub(crate) fn stage_request() -> StageRequest {
    StageRequest {
        volume: Some(volume()),
        within_ms: 20_000,
        ..StageRequest::default()
    }
}

/// `CODE: MESSAGE`
pub(crate) fn said<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

/// The stream of the plugin's events about its drivers.
#[derive(Debug)]
pub(crate) struct Events(Streaming<Event>);

impl Events {
    pub(crate) async fn next(&mut self) -> StorageEvent {
        let next = tokio::time::timeout(Duration::from_secs(20), self.0.message()).await;
        next.expect("an event in time")
            .unwrap()
            .unwrap()
            .event
            .unwrap()
    }

    /// As words: `backend NAME`, `gone NAME`, `refused FILE NAME: WHY`, `synced`.
    pub(crate) async fn word(&mut self) -> String {
        match self.next().await {
            StorageEvent::Backend(backend) => format!("backend {}", backend.name),
            StorageEvent::Gone(gone) => format!("gone {}", gone.name),
            StorageEvent::Refused(refused) => {
                let file = Path::new(&refused.endpoint)
                    .file_name()
                    .unwrap()
                    .display()
                    .to_string();
                format!("refused {file} {}: {}", refused.name, refused.why)
            }
            StorageEvent::Synced(_) => "synced".to_owned(),
        }
    }
}
