//! The calls of `oxlet.storage.v1`: read, done on the pool, answered.

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use mounts::requests::{self, within};
use proto::storage::storage_server::Storage;
use proto::storage::volume::Source;
use proto::storage::{
    BatchStatsRequest, BatchStatsResponse, BindSubpathRequest, BindSubpathResponse,
    CapabilitiesRequest, CapabilitiesResponse, Event, ExpandRequest, ExpandResponse,
    InquireRequest, InquireResponse, ListRequest, ListResponse, MapBlockRequest, MapBlockResponse,
    MountRequest, MountResponse, ReadFileRequest, ReadFileResponse, ReleaseSubpathsRequest,
    ReleaseSubpathsResponse, RemovePodRequest, RemovePodResponse, StageRequest, StageResponse,
    StatsRequest, StatsResponse, UnmapBlockRequest, UnmapBlockResponse, UnmountRequest,
    UnmountResponse, UnstageRequest, UnstageResponse, WatchRequest,
};
use tonic::{Request, Response, Status};

use crate::executor::{Executor, Task};
use crate::kind::{self, Backing, LocalVolumeKind};
use crate::request::{Order, What};
use crate::state::list;
use crate::state::lock;
use crate::state::marker::Marker;
use crate::state::place::{DEVICES, Place, VOLUMES};
use crate::stats::{self, Figures};
use crate::volumes::block;
use crate::volumes::empty_dir;
use crate::volumes::files;
use crate::volumes::host_path;
use crate::volumes::local;
use crate::volumes::selinux;

/// The implementation of `oxlet.storage.v1`.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    executor: Executor,
}

impl Service {
    pub(crate) fn new(executor: Executor) -> Self {
        Self { executor }
    }

    async fn measure(
        &self,
        request: &StatsRequest,
        within: Duration,
    ) -> Result<StatsResponse, Status> {
        let (kind, path) = stats::target(request)?;
        let task = Task {
            what: format!("measuring {}", path.display()),
            subject: None,
            backing: kind.backing(),
            within,
        };
        let end = tokio::time::Instant::now() + within;
        let there = path.clone();
        let figures = self
            .executor
            .run(task, move |_| stats::figures(kind, &there))
            .await?;
        match figures {
            Figures::Known(response) => Ok(response),
            Figures::Walk => {
                let left = end.saturating_duration_since(tokio::time::Instant::now());
                let walks = &self.executor.walks;
                walks.folder(&self.executor.pool, &path, left).await
            }
        }
    }
}

type LocalAnswer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Storage for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Event, Status>> + Send>>;

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> LocalAnswer<CapabilitiesResponse> {
        let kinds = kind::capabilities();
        Ok(Response::new(CapabilitiesResponse { kinds }))
    }

    async fn stage(&self, request: Request<StageRequest>) -> LocalAnswer<StageResponse> {
        let volume = request.into_inner().volume.unwrap_or_default();
        Err(never_staged(&volume.kind))
    }

    async fn unstage(&self, request: Request<UnstageRequest>) -> LocalAnswer<UnstageResponse> {
        Err(never_staged(&request.into_inner().kind))
    }

    async fn mount(&self, request: Request<MountRequest>) -> LocalAnswer<MountResponse> {
        let request = request.into_inner();
        let within = within(request.within_ms);
        let order = Order::read(&self.executor.root, request)?;
        let task = Task {
            what: order.description(),
            subject: Some(order.subject()),
            backing: order.backing(),
            within,
        };
        let response = self
            .executor
            .run(task, move |executor| mount(executor, order))
            .await?;
        Ok(Response::new(response))
    }

    async fn unmount(&self, request: Request<UnmountRequest>) -> LocalAnswer<UnmountResponse> {
        let request = request.into_inner();
        let kind = LocalVolumeKind::read(&request.kind)?;
        if kind == LocalVolumeKind::HostPath {
            return Ok(Response::new(UnmountResponse {}));
        }
        let place = Place::new(&self.executor.root, VOLUMES, kind.name(), &request.target)?;
        let within = within(request.within_ms);
        let task = Task {
            what: format!("unmounting {}", request.target),
            subject: Some(place.subject(kind)),
            backing: kind.backing(),
            within,
        };
        let work = move |executor: &Executor| match kind {
            LocalVolumeKind::EmptyDir => {
                let _lock = lock::take(&place)?;
                empty_dir::tear_down(&place, &Marker::own(&place))
            }
            LocalVolumeKind::ConfigMap
            | LocalVolumeKind::Secret
            | LocalVolumeKind::Projected
            | LocalVolumeKind::DownwardApi => {
                let _lock = lock::take(&place)?;
                files::tear_down(&place)
            }
            LocalVolumeKind::Local => local::tear_down(&executor.root, &place),
            LocalVolumeKind::Nfs => executor.programs.tear_down(&place, within),
            LocalVolumeKind::HostPath => Ok(()),
        };
        self.executor.run(task, work).await?;
        Ok(Response::new(UnmountResponse {}))
    }

    async fn map_block(&self, request: Request<MapBlockRequest>) -> LocalAnswer<MapBlockResponse> {
        let request = request.into_inner();
        let volume = requests::volume(request.volume.as_ref())?;
        let kind = block_kind(&volume.kind)?;
        let place = Place::new(&self.executor.root, DEVICES, kind.name(), &request.target)?;
        let Some(Source::Local(source)) = volume.source.clone() else {
            return Err(requests::missing("volume.local"));
        };
        let task = Task {
            what: format!("mapping volume {} to {}", volume.id, request.target),
            subject: Some(place.subject(kind)),
            backing: Backing::Foreign,
            within: within(request.within_ms),
        };
        let work =
            move |executor: &Executor| block::map(&executor.root, &place, &source, &executor.held);
        let device = self.executor.run(task, work).await?;
        Ok(Response::new(MapBlockResponse {
            device: device.to_string_lossy().into_owned(),
        }))
    }

    async fn unmap_block(
        &self,
        request: Request<UnmapBlockRequest>,
    ) -> LocalAnswer<UnmapBlockResponse> {
        let request = request.into_inner();
        let kind = block_kind(&request.kind)?;
        let place = Place::new(&self.executor.root, DEVICES, kind.name(), &request.target)?;
        let task = Task {
            what: format!("unmapping {}", request.target),
            subject: Some(place.subject(kind)),
            backing: Backing::Foreign,
            within: within(request.within_ms),
        };
        let work = move |executor: &Executor| block::unmap(&executor.root, &place, &executor.held);
        self.executor.run(task, work).await?;
        Ok(Response::new(UnmapBlockResponse {}))
    }

    async fn list(&self, request: Request<ListRequest>) -> LocalAnswer<ListResponse> {
        let task = Task {
            what: "listing the volumes".to_owned(),
            subject: None,
            backing: Backing::Own,
            within: within(request.into_inner().within_ms),
        };
        let found = self
            .executor
            .run(task, |executor| list::list(&executor.root))
            .await?;
        Ok(Response::new(ListResponse { found }))
    }

    async fn stats(&self, request: Request<StatsRequest>) -> LocalAnswer<StatsResponse> {
        let request = request.into_inner();
        let within = within(request.within_ms);
        Ok(Response::new(self.measure(&request, within).await?))
    }

    async fn batch_stats(
        &self,
        request: Request<BatchStatsRequest>,
    ) -> LocalAnswer<BatchStatsResponse> {
        let BatchStatsRequest { volumes, within_ms } = request.into_inner();
        stats::check_batch(&volumes)?;
        let task = Task {
            what: format!("measuring {} volumes in memory", volumes.len()),
            subject: None,
            backing: Backing::Own,
            within: within(within_ms),
        };
        let results = self
            .executor
            .run(task, move |_| {
                Ok(volumes.iter().map(stats::in_memory).collect())
            })
            .await?;
        Ok(Response::new(BatchStatsResponse { results }))
    }

    async fn expand(&self, request: Request<ExpandRequest>) -> LocalAnswer<ExpandResponse> {
        let volume = request.into_inner().volume.unwrap_or_default();
        Err(Status::unimplemented(format!(
            "{} does not expand volumes of kind {:?}",
            crate::NAME,
            volume.kind
        )))
    }

    async fn bind_subpath(
        &self,
        request: Request<BindSubpathRequest>,
    ) -> LocalAnswer<BindSubpathResponse> {
        let request = request.into_inner();
        requests::target("target", &self.executor.root, &request.target)?;
        let task = Task {
            what: format!("binding {} of {}", request.subpath, request.root),
            subject: Some(request.target.clone()),
            backing: Backing::Foreign,
            within: within(request.within_ms),
        };
        let work = move |_: &Executor| mounts::subpath::bind(&request);
        let path = self.executor.run(task, work).await?;
        Ok(Response::new(BindSubpathResponse {
            path: path.to_string_lossy().into_owned(),
        }))
    }

    async fn release_subpaths(
        &self,
        request: Request<ReleaseSubpathsRequest>,
    ) -> LocalAnswer<ReleaseSubpathsResponse> {
        let request = request.into_inner();
        requests::target("folder", &self.executor.root, &request.folder)?;
        let task = Task {
            what: format!("releasing {}", request.folder),
            subject: Some(request.folder.clone()),
            backing: Backing::Foreign,
            within: within(request.within_ms),
        };
        let work = move |_: &Executor| mounts::subpath::release(&request);
        self.executor.run(task, work).await?;
        Ok(Response::new(ReleaseSubpathsResponse {}))
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> LocalAnswer<ReadFileResponse> {
        let request = request.into_inner();
        let kind = LocalVolumeKind::read(&request.kind)?;
        let task = Task {
            what: format!("reading {} of {}", request.path, request.root),
            subject: None,
            backing: kind.backing(),
            within: within(request.within_ms),
        };
        let work = move |_: &Executor| mounts::read_file(&request);
        let data = self.executor.run(task, work).await?;
        Ok(Response::new(ReadFileResponse { data }))
    }

    async fn remove_pod(
        &self,
        request: Request<RemovePodRequest>,
    ) -> LocalAnswer<RemovePodResponse> {
        let request = request.into_inner();
        let folder = pod_folder(&self.executor.root, &request.folder)?;
        let task = Task {
            what: format!("removing {}", request.folder),
            subject: Some(request.folder),
            backing: Backing::Foreign,
            within: within(request.within_ms),
        };
        let work = move |_: &Executor| mounts::remove::pod(&folder);
        let kept = self.executor.run(task, work).await?;
        Ok(Response::new(RemovePodResponse { kept }))
    }

    async fn watch(&self, _: Request<WatchRequest>) -> LocalAnswer<Self::WatchStream> {
        // There are no backends to tell of.
        Ok(Response::new(Box::pin(futures_util::stream::pending())))
    }

    async fn inquire(&self, _: Request<InquireRequest>) -> LocalAnswer<InquireResponse> {
        Err(Status::unimplemented(format!(
            "{} has no backends",
            crate::NAME
        )))
    }
}

fn mount(executor: &Executor, order: Order) -> Result<MountResponse, Status> {
    let Order {
        what,
        mut parameters,
        ..
    } = order;
    parameters.label = selinux::label(&parameters.label);
    let mut response = MountResponse::default();
    let path = match what {
        What::EmptyDir(place, volume) => {
            place.make_parents()?;
            let _lock = lock::take(&place)?;
            let marker = Marker::own(&place);
            let group = parameters.group_always();
            empty_dir::set_up(&place, &marker, &volume, group.as_ref(), &parameters.label)?;
            response.selinux_mounted = empty_dir::labelled(volume.medium(), &parameters.label);
            place.target
        }
        What::Files(place, files) => {
            place.make_parents()?;
            let _lock = lock::take(&place)?;
            files::set_up(&place, &files, &parameters)?;
            response.selinux_mounted = empty_dir::labelled(files.medium, &parameters.label);
            place.target
        }
        What::Local(place, source) => {
            response.warnings = local::set_up(&executor.root, &place, &source, &parameters)?;
            place.target
        }
        What::Nfs(place, source) => {
            executor.programs.set_up(&place, &source, &parameters)?;
            place.target
        }
        What::HostPath(source) => {
            host_path::check(&source)?;
            source.path.into()
        }
    };
    response.path = path.to_string_lossy().into_owned();
    Ok(response)
}

/// `ROOT/pods/UID` and nothing else.
fn pod_folder(root: &std::path::Path, folder: &str) -> Result<std::path::PathBuf, Status> {
    let path = requests::absolute("folder", folder)?;
    match path.parent() == Some(&root.join("pods")) {
        true => Ok(path),
        false => Err(requests::invalid(format!(
            "folder {folder:?} is not {}/pods/UID",
            root.display()
        ))),
    }
}

fn block_kind(word: &str) -> Result<LocalVolumeKind, Status> {
    let kind = LocalVolumeKind::read(word)?;
    if kind == LocalVolumeKind::Local {
        return Ok(kind);
    }
    Err(Status::unimplemented(format!(
        "{} has no raw block volumes of kind {word:?}",
        crate::NAME
    )))
}

fn never_staged(kind: &str) -> Status {
    Status::unimplemented(format!(
        "{} does not stage volumes of kind {kind:?}",
        crate::NAME
    ))
}
