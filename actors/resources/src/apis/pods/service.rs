//! The gRPC service on the socket.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{Addr, AskError, Reply};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_pods::api::protobuf;
use pods::pod_manager;
use proto::pods as wire;
use proto::pods::pods_server::{Pods, PodsServer};
use state::status::{self, StatusWatch};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::watch::PodWatch;
use crate::apis::rate::RequestRate;

/// The pod manager and the status manager answer from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Watches at one time: clients are few, and each has one.
pub(super) const MAX_WATCHES: usize = 32;

/// The gRPC service. Clones share the limits.
#[derive(Debug, Clone)]
pub(super) struct PodsService {
    sources: PodSources,
    rate: RequestRate,
    watches: Arc<Semaphore>,
}

/// The actors that pods and their statuses come from.
#[derive(Debug, Clone)]
pub(super) struct PodSources {
    pod_manager: Addr<pod_manager::Msg>,
    statuses: Addr<status::Msg>,
}

impl PodsService {
    pub(super) fn new(pod_manager: Addr<pod_manager::Msg>, statuses: Addr<status::Msg>) -> Self {
        PodsService {
            sources: PodSources {
                pod_manager,
                statuses,
            },
            rate: RequestRate::default(),
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
        }
    }

    pub(super) fn server(self) -> PodsServer<Self> {
        PodsServer::new(self)
    }

    /// The number of watches.
    pub(super) fn watches(&self) -> usize {
        MAX_WATCHES.saturating_sub(self.watches.available_permits())
    }
}

impl PodSources {
    /// Every pod, by UID.
    pub(super) async fn pods(&self) -> Result<Vec<Arc<Pod>>, Status> {
        let pods = self.pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::all);
        let mut pods = pods.await.map_err(unknown)?;
        pods.sort_by_cached_key(|pod| pod.uid());
        Ok(pods)
    }

    pub(super) async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<Pod>>, Status> {
        let question = |reply| pod_manager::Msg::pod(uid.clone(), reply);
        let pod = self.pod_manager.ask(ASK_TIMEOUT, question);
        pod.await.map_err(unknown)
    }

    async fn statuses(&self) -> Result<BTreeMap<PodUid, Arc<PodStatus>>, Status> {
        let question = |reply| status::Msg::All { reply };
        let statuses = self.statuses.ask(ASK_TIMEOUT, question);
        statuses.await.map_err(unknown)
    }

    async fn changes(&self) -> Result<StatusWatch, Status> {
        let question = |reply: Reply<StatusWatch>| status::Msg::Watch { reply };
        let watch = self.statuses.ask(ASK_TIMEOUT, question);
        watch.await.map_err(unknown)
    }
}

fn unknown(error: AskError) -> Status {
    Status::unavailable(format!("the pods are not known: {error}"))
}

/// The pod's bytes, with the status that the status manager has.
pub(super) fn encode(pod: &Pod, status: Option<&PodStatus>) -> Result<Vec<u8>, Status> {
    protobuf::pod(pod, status)
        .map_err(|error| Status::internal(format!("failed to marshal pod: {error}")))
}

#[tonic::async_trait]
impl Pods for PodsService {
    type WatchPodsStream = Pin<Box<dyn Stream<Item = Result<wire::WatchPodsEvent, Status>> + Send>>;

    /// As upstream no token of the rate limit is taken; the number of watches has a limit.
    async fn watch_pods(
        &self,
        _: Request<wire::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let place = self.watches.clone().try_acquire_owned().map_err(|_| {
            let text = format!("no more than {MAX_WATCHES} watches at one time");
            Status::resource_exhausted(text)
        })?;
        // First the changes, so that none is missed between.
        let changes = self.sources.changes().await?;
        let pods = self.sources.pods().await?;
        let watch = PodWatch::new(self.sources.clone(), pods, changes);
        Ok(Response::new(Box::pin(watch.events(place))))
    }

    async fn list_pods(
        &self,
        _: Request<wire::ListPodsRequest>,
    ) -> Result<Response<wire::ListPodsResponse>, Status> {
        self.rate.admit()?;
        let statuses = self.sources.statuses().await?;
        let mut pods = Vec::new();
        for pod in self.sources.pods().await? {
            let status = statuses.get(&pod.uid()).map(AsRef::as_ref);
            pods.push(encode(&pod, status)?);
            // The agent has other work between two of a thousand pods.
            tokio::task::yield_now().await;
        }
        Ok(Response::new(wire::ListPodsResponse { pods }))
    }

    async fn get_pod(
        &self,
        request: Request<wire::GetPodRequest>,
    ) -> Result<Response<wire::GetPodResponse>, Status> {
        self.rate.admit()?;
        let wanted = request.into_inner().pod_uid;
        let uid = PodUid::from(wanted.as_str());
        let pod = self
            .sources
            .pod(&uid)
            .await?
            .ok_or_else(|| Status::not_found(format!("pod with UID {wanted} not found")))?;
        let statuses = self.sources.statuses().await?;
        let pod = encode(&pod, statuses.get(&uid).map(AsRef::as_ref))?;
        Ok(Response::new(wire::GetPodResponse { pod }))
    }
}
