//! `oxlet.storage.v1` for volumes of CSI drivers: each call is one of [`Volumes`], or of the crate `mounts`, which
//! storage plugins share.
//!
//! A call is carried out to its end though its caller goes away: it is not left between a driver and its folders.

use std::pin::Pin;

use futures_util::Stream;
use mounts::{remove, requests, subpath};
use proto::storage::storage_server::Storage;
use proto::storage::{
    BatchStatsRequest, BatchStatsResponse, BindSubpathRequest, BindSubpathResponse,
    CapabilitiesRequest, CapabilitiesResponse, Event, ExpandRequest, ExpandResponse,
    InquireRequest, InquireResponse, KindCapability, ListRequest, ListResponse, MapBlockRequest,
    MapBlockResponse, MountRequest, MountResponse, ReadFileRequest, ReadFileResponse,
    ReleaseSubpathsRequest, ReleaseSubpathsResponse, RemovePodRequest, RemovePodResponse,
    StageRequest, StageResponse, StatsRequest, StatsResponse, UnmapBlockRequest,
    UnmapBlockResponse, UnmountRequest, UnmountResponse, UnstageRequest, UnstageResponse,
    WatchRequest,
};
use tonic::{Request, Response, Status};

use crate::KIND;
use crate::volumes::{Volumes, check_kind};

type CsiAnswer<T> = Result<Response<T>, Status>;

/// The implementation of `oxlet.storage.v1`.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    volumes: Volumes,
}

impl Service {
    pub(crate) fn new(volumes: Volumes) -> Self {
        Self { volumes }
    }

    /// Carries a call out in a task of its own.
    async fn finish<T, F>(&self, call: impl FnOnce(Volumes) -> F) -> CsiAnswer<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        match tokio::spawn(call(self.volumes.clone())).await {
            Ok(answer) => answer.map(Response::new),
            Err(error) => Err(Status::internal(format!(
                "the call was not finished: {error}"
            ))),
        }
    }

    /// Runs blocking work of the calls that need no driver, with the subject's lock held.
    async fn on_disk<T: Send + 'static>(
        &self,
        what: String,
        (subject, within_ms): (&str, u32),
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let job = self.volumes.job(subject, within_ms).await?;
        job.on_disk(&what, work).await
    }

    /// Refuses a path that is not below the agent's root.
    fn below_root(&self, field: &str, path: &str) -> Result<(), Status> {
        requests::target(field, self.volumes.layout.root(), path).map(drop)
    }
}

#[tonic::async_trait]
impl Storage for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Event, Status>> + Send>>;

    async fn capabilities(
        &self,
        _: Request<CapabilitiesRequest>,
    ) -> CsiAnswer<CapabilitiesResponse> {
        let kind = KindCapability {
            kind: KIND.to_owned(),
            staged: true,
            block: true,
            expand: true,
            updates: true,
            expand_offline_only: false,
        };
        Ok(Response::new(CapabilitiesResponse { kinds: vec![kind] }))
    }

    async fn stage(&self, request: Request<StageRequest>) -> CsiAnswer<StageResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move { volumes.stage(request).await })
            .await
    }

    async fn unstage(&self, request: Request<UnstageRequest>) -> CsiAnswer<UnstageResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move {
            volumes.unstage(request).await?;
            Ok(UnstageResponse {})
        })
        .await
    }

    async fn mount(&self, request: Request<MountRequest>) -> CsiAnswer<MountResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move { volumes.mount(request).await })
            .await
    }

    async fn unmount(&self, request: Request<UnmountRequest>) -> CsiAnswer<UnmountResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move {
            volumes.unmount(request).await?;
            Ok(UnmountResponse {})
        })
        .await
    }

    async fn map_block(&self, request: Request<MapBlockRequest>) -> CsiAnswer<MapBlockResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move { volumes.map_block(request).await })
            .await
    }

    async fn unmap_block(
        &self,
        request: Request<UnmapBlockRequest>,
    ) -> CsiAnswer<UnmapBlockResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move {
            volumes.unmap_block(request).await?;
            Ok(UnmapBlockResponse {})
        })
        .await
    }

    async fn list(&self, request: Request<ListRequest>) -> CsiAnswer<ListResponse> {
        self.volumes
            .list(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn stats(&self, request: Request<StatsRequest>) -> CsiAnswer<StatsResponse> {
        self.volumes
            .stats(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn batch_stats(
        &self,
        _: Request<BatchStatsRequest>,
    ) -> Result<Response<BatchStatsResponse>, Status> {
        Err(Status::unimplemented(
            "drivers are asked about one volume at a time",
        ))
    }

    async fn expand(&self, request: Request<ExpandRequest>) -> CsiAnswer<ExpandResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move { volumes.expand(request).await })
            .await
    }

    async fn bind_subpath(
        &self,
        request: Request<BindSubpathRequest>,
    ) -> CsiAnswer<BindSubpathResponse> {
        let request = request.into_inner();
        check_kind(&request.kind)?;
        self.below_root("root", &request.root)?;
        self.below_root("target", &request.target)?;
        let what = format!("binding {:?} of {}", request.subpath, request.root);
        let subject = (request.target.clone(), request.within_ms);
        let work = move || subpath::bind(&request);
        let path = self.on_disk(what, (&subject.0, subject.1), work).await?;
        Ok(Response::new(BindSubpathResponse {
            path: path.display().to_string(),
        }))
    }

    async fn release_subpaths(
        &self,
        request: Request<ReleaseSubpathsRequest>,
    ) -> CsiAnswer<ReleaseSubpathsResponse> {
        let request = request.into_inner();
        self.below_root("folder", &request.folder)?;
        let what = format!("releasing {}", request.folder);
        let subject = (request.folder.clone(), request.within_ms);
        let work = move || subpath::release(&request);
        self.on_disk(what, (&subject.0, subject.1), work).await?;
        Ok(Response::new(ReleaseSubpathsResponse {}))
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> CsiAnswer<ReadFileResponse> {
        let request = request.into_inner();
        check_kind(&request.kind)?;
        self.below_root("root", &request.root)?;
        let what = format!("reading {:?} of {}", request.path, request.root);
        // Reads need no lock.
        let within = requests::within(request.within_ms);
        let work = move || mounts::read_file(&request);
        let data = self.volumes.pool.run(&what, within, work).await?;
        Ok(Response::new(ReadFileResponse { data }))
    }

    async fn remove_pod(&self, request: Request<RemovePodRequest>) -> CsiAnswer<RemovePodResponse> {
        let request = request.into_inner();
        let pods = self.volumes.layout.pods();
        let folder = requests::target("folder", &pods, &request.folder)?;
        if folder.parent() != Some(&pods) {
            let (folder, pods) = (folder.display(), pods.display());
            return Err(requests::invalid(format!(
                "folder {folder} is not a pod's in {pods}"
            )));
        }
        let what = format!("removing {}", request.folder);
        let subject = (request.folder.as_str(), request.within_ms);
        let kept = self
            .on_disk(what, subject, move || remove::pod(&folder))
            .await?;
        Ok(Response::new(RemovePodResponse { kept }))
    }

    async fn watch(&self, _: Request<WatchRequest>) -> CsiAnswer<Self::WatchStream> {
        Ok(Response::new(Box::pin(self.volumes.registry.watch())))
    }

    async fn inquire(&self, request: Request<InquireRequest>) -> CsiAnswer<InquireResponse> {
        let request = request.into_inner();
        self.finish(|volumes| async move {
            volumes.inquire(request).await?;
            Ok(InquireResponse {})
        })
        .await
    }
}
