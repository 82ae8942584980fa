//! A storage plugin in the test's own process: it stores mounts in memory, records its calls, and fails as scripted.
//! It never touches the disk.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use kernel::watch;
use plugin_host::PluginClient;
use proto::storage as wire;
use proto::storage::storage_server::{Storage as Contract, StorageServer};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::Storage;
use super::error::ABANDONED;
use crate::in_process;

/// How a call fails.
#[derive(Clone, Debug)]
pub enum StorageFault {
    /// Answers with this status.
    Refused(Status),
    /// Answers that a thread was abandoned.
    Stuck,
    /// Answers only after [`FakeStorage::release`].
    Held,
}

/// The call of a batch in [`FakeStorage::calls`] with its number of volumes; a fault of one of its volumes refuses this one.
const BATCH: &str = "batch-stats";

#[derive(Debug, Default)]
struct FakeStorageState {
    calls: Vec<String>,
    mounted: BTreeMap<String, wire::Found>,
    staged: BTreeSet<String>,
    /// The faults of the next calls, by call and volume id.
    faults: BTreeMap<(&'static str, String), VecDeque<StorageFault>>,
    /// Files by root and path.
    files: BTreeMap<(String, String), Vec<u8>>,
    backends: Vec<wire::Event>,
    /// Running calls by volume, to detect concurrent ones.
    busy: BTreeMap<String, usize>,
    overlaps: Vec<String>,
}

/// The plugin; clones share its state. It serves both kinds of storage plugins.
#[derive(Clone, Debug)]
pub struct FakeStorage {
    state: Arc<Mutex<FakeStorageState>>,
    released: watch::Sender<u64>,
    news: watch::Sender<usize>,
}

impl FakeStorage {
    /// A plugin without volumes.
    pub fn start() -> Self {
        Self {
            state: Arc::default(),
            released: watch::Sender::new(0),
            news: watch::Sender::new(0),
        }
    }

    /// Serves in this process; the client.
    pub fn storage(&self) -> Storage {
        let service = StorageServer::new(self.clone());
        let channel = in_process::serve(Server::builder().add_service(service));
        let line = |name: &str| PluginClient::fixed(name, channel.clone());
        Storage::new(line("storage-local"), line("storage-csi"))
    }

    fn state(&self) -> MutexGuard<'_, FakeStorageState> {
        self.state.lock().unwrap()
    }

    /// The calls so far in order: `mount ID`, `unmount ID`, ...
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Volumes that had concurrent calls; empty if there was no bug.
    pub fn overlaps(&self) -> Vec<String> {
        self.state().overlaps.clone()
    }

    /// The targets that are mounted or mapped.
    pub fn mounted(&self) -> Vec<String> {
        self.state().mounted.keys().cloned().collect()
    }

    /// The ids of staged volumes.
    pub fn staged(&self) -> Vec<String> {
        self.state().staged.iter().cloned().collect()
    }

    /// The next call of this name about this volume gets the fault; several faults queue up.
    pub fn fault(&self, call: &'static str, id: &str, fault: StorageFault) {
        let mut state = self.state();
        let key = (call, id.to_owned());
        state.faults.entry(key).or_default().push_back(fault);
    }

    /// Lets every held call go on.
    pub fn release(&self) {
        self.released.send_modify(|count| *count += 1);
    }

    /// Adds a volume that List reports as mounted for a pod.
    pub fn plant(&self, (id, kind): (&str, &str), uid: &str, path: &str) {
        let volume = wire::Volume {
            id: id.to_owned(),
            kind: kind.to_owned(),
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            source: None,
        };
        let found = found(wire::State::Mounted, &volume, uid, path);
        self.state().mounted.insert(path.to_owned(), found);
    }

    pub fn file(&self, root: &str, path: &str, data: &str) {
        let key = (root.to_owned(), path.to_owned());
        self.state().files.insert(key, data.as_bytes().to_vec());
    }

    /// Registers a driver.
    pub fn backend(&self, name: &str) {
        self.backend_for(name, 0);
    }

    /// Registers a driver with a limit of volumes; 0 for no limit.
    pub fn backend_for(&self, name: &str, max_volumes: i64) {
        let backend = wire::Backend {
            name: name.to_owned(),
            node_id: format!("node-of-{name}"),
            max_volumes,
            abilities: ["STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME"]
                .map(str::to_owned)
                .into(),
            versions: vec!["1.0.0".to_owned()],
            ..wire::Backend::default()
        };
        self.event(wire::event::Event::Backend(backend));
    }

    /// Removes a driver.
    pub fn gone(&self, name: &str) {
        let name = name.to_owned();
        self.event(wire::event::Event::Gone(wire::BackendGone { name }));
    }

    fn event(&self, event: wire::event::Event) {
        let event = Some(event);
        self.state().backends.push(wire::Event { event });
        self.news.send_modify(|count| *count += 1);
    }

    /// Records a call, and applies its fault.
    async fn meet(&self, call: &'static str, id: &str) -> Result<CallGuard, Status> {
        let fault = {
            let mut state = self.state();
            state.calls.push(format!("{call} {id}"));
            let count = state.busy.entry(id.to_owned()).or_default();
            *count += 1;
            if *count > 1 {
                state.overlaps.push(format!("{call} {id}"));
            }
            let key = (call, id.to_owned());
            state.faults.get_mut(&key).and_then(VecDeque::pop_front)
        };
        let busy = CallGuard {
            double: self.clone(),
            id: id.to_owned(),
        };
        match fault {
            None => Ok(busy),
            Some(StorageFault::Refused(status)) => Err(status),
            Some(StorageFault::Stuck) => {
                let text = format!("{call} of {id} did not end within 1s");
                let mut status = Status::deadline_exceeded(text);
                status
                    .metadata_mut()
                    .insert(ABANDONED, "1".parse().unwrap());
                Err(status)
            }
            Some(StorageFault::Held) => {
                let mut released = self.released.subscribe();
                drop(released.changed().await);
                Ok(busy)
            }
        }
    }
}

/// A running call.
struct CallGuard {
    double: FakeStorage,
    id: String,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut state = self.double.state();
        if let Some(count) = state.busy.get_mut(&self.id) {
            *count -= 1;
        }
    }
}

fn figures() -> wire::StatsResponse {
    wire::StatsResponse {
        capacity: Some(1 << 30),
        used: Some(1 << 20),
        taken_ms: 1_700_000_000_000,
        ..wire::StatsResponse::default()
    }
}

fn found(state: wire::State, volume: &wire::Volume, uid: &str, path: &str) -> wire::Found {
    wire::Found {
        state: state.into(),
        volume_id: volume.id.clone(),
        kind: volume.kind.clone(),
        name: volume.name.clone(),
        pod_uid: uid.to_owned(),
        path: path.to_owned(),
        ..wire::Found::default()
    }
}

#[tonic::async_trait]
impl Contract for FakeStorage {
    async fn capabilities(
        &self,
        _: Request<wire::CapabilitiesRequest>,
    ) -> Result<Response<wire::CapabilitiesResponse>, Status> {
        let kind = |kind: &str, staged| wire::KindCapability {
            kind: kind.to_owned(),
            staged,
            block: true,
            expand: staged,
            updates: !staged,
            expand_offline_only: false,
        };
        let local = [
            "empty-dir",
            "host-path",
            "configmap",
            "secret",
            "projected",
            "downward-api",
            "local-volume",
            "nfs",
        ];
        let mut kinds: Vec<_> = local.into_iter().map(|name| kind(name, false)).collect();
        kinds.push(kind("csi", true));
        Ok(Response::new(wire::CapabilitiesResponse { kinds }))
    }

    async fn stage(
        &self,
        request: Request<wire::StageRequest>,
    ) -> Result<Response<wire::StageResponse>, Status> {
        let volume = request.into_inner().volume.unwrap_or_default();
        let _busy = self.meet("stage", &volume.id).await?;
        self.state().staged.insert(volume.id.clone());
        let path = format!("/staged/{}", volume.name);
        Ok(Response::new(wire::StageResponse { path }))
    }

    async fn unstage(
        &self,
        request: Request<wire::UnstageRequest>,
    ) -> Result<Response<wire::UnstageResponse>, Status> {
        let id = request.into_inner().volume_id;
        let _busy = self.meet("unstage", &id).await?;
        self.state().staged.remove(&id);
        Ok(Response::new(wire::UnstageResponse {}))
    }

    async fn mount(
        &self,
        request: Request<wire::MountRequest>,
    ) -> Result<Response<wire::MountResponse>, Status> {
        let request = request.into_inner();
        let volume = request.volume.unwrap_or_default();
        let _busy = self.meet("mount", &volume.id).await?;
        let uid = request.pod.unwrap_or_default().uid;
        let found = found(wire::State::Mounted, &volume, &uid, &request.target);
        self.state().mounted.insert(request.target.clone(), found);
        let path = match volume.source {
            Some(wire::volume::Source::HostPath(host)) => host.path,
            Some(_) | None => request.target,
        };
        Ok(Response::new(wire::MountResponse {
            path,
            ..wire::MountResponse::default()
        }))
    }

    async fn unmount(
        &self,
        request: Request<wire::UnmountRequest>,
    ) -> Result<Response<wire::UnmountResponse>, Status> {
        let request = request.into_inner();
        let _busy = self.meet("unmount", &request.volume_id).await?;
        self.state().mounted.remove(&request.target);
        Ok(Response::new(wire::UnmountResponse {}))
    }

    async fn map_block(
        &self,
        request: Request<wire::MapBlockRequest>,
    ) -> Result<Response<wire::MapBlockResponse>, Status> {
        let request = request.into_inner();
        let volume = request.volume.unwrap_or_default();
        let _busy = self.meet("map", &volume.id).await?;
        let uid = request.pod.unwrap_or_default().uid;
        let found = found(wire::State::Mapped, &volume, &uid, &request.target);
        self.state().mounted.insert(request.target, found);
        let device = format!("/dev/{}", volume.name);
        Ok(Response::new(wire::MapBlockResponse { device }))
    }

    async fn unmap_block(
        &self,
        request: Request<wire::UnmapBlockRequest>,
    ) -> Result<Response<wire::UnmapBlockResponse>, Status> {
        let request = request.into_inner();
        let _busy = self.meet("unmap", &request.volume_id).await?;
        self.state().mounted.remove(&request.target);
        Ok(Response::new(wire::UnmapBlockResponse {}))
    }

    async fn list(
        &self,
        _: Request<wire::ListRequest>,
    ) -> Result<Response<wire::ListResponse>, Status> {
        let _busy = self.meet("list", "").await?;
        let state = self.state();
        let staged = state.staged.iter().map(|id| wire::Found {
            state: wire::State::Staged.into(),
            volume_id: id.clone(),
            kind: "csi".to_owned(),
            ..wire::Found::default()
        });
        let found = state.mounted.values().cloned().chain(staged).collect();
        Ok(Response::new(wire::ListResponse { found }))
    }

    async fn stats(
        &self,
        request: Request<wire::StatsRequest>,
    ) -> Result<Response<wire::StatsResponse>, Status> {
        let id = request.into_inner().volume_id;
        let _busy = self.meet("stats", &id).await?;
        Ok(Response::new(figures()))
    }

    async fn batch_stats(
        &self,
        request: Request<wire::BatchStatsRequest>,
    ) -> Result<Response<wire::BatchStatsResponse>, Status> {
        let volumes = request.into_inner().volumes;
        let _busy = self.meet(BATCH, &volumes.len().to_string()).await?;
        let results = volumes.into_iter().map(|volume| {
            let mut state = self.state();
            let fault = state.faults.get_mut(&(BATCH, volume.volume_id));
            let result = match fault.and_then(VecDeque::pop_front) {
                None => wire::batch_stats_result::Result::Stats(figures()),
                Some(_) => wire::batch_stats_result::Result::Refused("on a disk".to_owned()),
            };
            wire::BatchStatsResult {
                result: Some(result),
            }
        });
        let results = results.collect();
        Ok(Response::new(wire::BatchStatsResponse { results }))
    }

    async fn expand(
        &self,
        request: Request<wire::ExpandRequest>,
    ) -> Result<Response<wire::ExpandResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume.unwrap_or_default().id;
        let _busy = self.meet("expand", &id).await?;
        let size = request.size;
        Ok(Response::new(wire::ExpandResponse { size }))
    }

    async fn bind_subpath(
        &self,
        request: Request<wire::BindSubpathRequest>,
    ) -> Result<Response<wire::BindSubpathResponse>, Status> {
        let request = request.into_inner();
        let _busy = self.meet("bind", &request.volume_id).await?;
        let path = request.target;
        Ok(Response::new(wire::BindSubpathResponse { path }))
    }

    async fn release_subpaths(
        &self,
        request: Request<wire::ReleaseSubpathsRequest>,
    ) -> Result<Response<wire::ReleaseSubpathsResponse>, Status> {
        let uid = request.into_inner().pod_uid;
        let _busy = self.meet("release-subpaths", &uid).await?;
        Ok(Response::new(wire::ReleaseSubpathsResponse {}))
    }

    async fn read_file(
        &self,
        request: Request<wire::ReadFileRequest>,
    ) -> Result<Response<wire::ReadFileResponse>, Status> {
        let request = request.into_inner();
        let _busy = self.meet("read", &request.volume_id).await?;
        let key = (request.root, request.path);
        let data = self.state().files.get(&key).cloned();
        let data = data.ok_or_else(|| Status::not_found("no such file"))?;
        Ok(Response::new(wire::ReadFileResponse { data }))
    }

    async fn remove_pod(
        &self,
        request: Request<wire::RemovePodRequest>,
    ) -> Result<Response<wire::RemovePodResponse>, Status> {
        let folder = request.into_inner().folder;
        let _busy = self.meet("remove-pod", &folder).await?;
        Ok(Response::new(wire::RemovePodResponse { kept: Vec::new() }))
    }

    async fn inquire(
        &self,
        request: Request<wire::InquireRequest>,
    ) -> Result<Response<wire::InquireResponse>, Status> {
        let _busy = self.meet("inquire", &request.into_inner().name).await?;
        Ok(Response::new(wire::InquireResponse {}))
    }

    type WatchStream = ReceiverStream<Result<wire::Event, Status>>;

    async fn watch(
        &self,
        _: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, receiver) = tokio::sync::mpsc::channel(64);
        let (double, mut news) = (self.clone(), self.news.subscribe());
        tokio::task::spawn(async move {
            let mut told = 0;
            loop {
                let new: Vec<_> = double.state().backends[told..].to_vec();
                told += new.len();
                let event = Some(wire::event::Event::Synced(wire::Synced {}));
                for event in new.into_iter().chain([wire::Event { event }]) {
                    if sender.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
                if news.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
