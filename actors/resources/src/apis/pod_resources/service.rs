//! The gRPC service on the socket: beside the plugins' clients the only place in this crate with wire types.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, Reply, watch};
use logic_api::pod::PodView;
use logic_placement::claims::health::KnownClaims;
use logic_placement::topology::HeldAssignments;
use metrics::pods::pod_resources as counted;
use pods::pod_manager;
use proto::pod_resources as wire;
use proto::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use proto::pod_resources_v1alpha1::pod_resources_lister_server::PodResourcesListerServer as OlderListerServer;
use state::assignments::Assignments;
use tonic::{Request, Response, Status};

use super::convert::{self, resources};
use crate::apis::rate::RequestRate;

/// The pod manager answers from memory.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
const VERSION: &str = "v1";

/// The gRPC service. Clones share the rate limit.
#[derive(Debug, Clone)]
pub(super) struct PodResourcesService {
    pod_manager: Addr<pod_manager::Msg>,
    assignments: Assignments,
    claims: watch::Receiver<Arc<KnownClaims>>,
    rate: RequestRate,
}

impl PodResourcesService {
    pub(super) fn new(
        pod_manager: Addr<pod_manager::Msg>,
        (assignments, claims): (Assignments, watch::Receiver<Arc<KnownClaims>>),
    ) -> Self {
        PodResourcesService {
            pod_manager,
            assignments,
            claims,
            rate: RequestRate::default(),
        }
    }

    pub(super) fn service(self) -> PodResourcesListerServer<Self> {
        PodResourcesListerServer::new(self)
    }

    /// The first version of the service, with the same rate limit.
    pub(super) fn older(self) -> OlderListerServer<Self> {
        OlderListerServer::new(self)
    }

    /// What each pod has to itself.
    pub(super) fn held(&self) -> Arc<HeldAssignments> {
        self.assignments.held()
    }

    /// Takes a token of the rate limit.
    pub(super) fn admit(&self) -> Result<(), Status> {
        self.rate.admit()
    }

    /// The pods that this question is about, by name.
    pub(super) async fn pods(
        &self,
        question: fn(Reply<Vec<Arc<Pod>>>) -> pod_manager::Msg,
    ) -> Result<Vec<Arc<Pod>>, Status> {
        let pods = self.pod_manager.ask(POD_MANAGER_TIMEOUT, question).await;
        let mut pods =
            pods.map_err(|error| Status::unavailable(format!("the pods are not known: {error}")))?;
        pods.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        Ok(pods)
    }
}

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesService {
    async fn list(
        &self,
        _: Request<wire::ListPodResourcesRequest>,
    ) -> Result<Response<wire::ListPodResourcesResponse>, Status> {
        self.admit()?;
        counted::REQUESTS.with_label_values(&[VERSION]).inc();
        counted::LISTS.with_label_values(&[VERSION]).inc();
        let active = self.pods(pod_manager::Msg::active).await;
        let active = active.inspect_err(|_| {
            counted::LIST_ERRORS.with_label_values(&[VERSION]).inc();
        })?;
        let held = self.assignments.held();
        let (inventory, claims) = (self.assignments.devices(), self.claims.borrow().clone());
        let placement = &self.assignments.placement;
        let of_pod = |pod: &Arc<Pod>| resources(pod, (placement, &held), (&inventory, &claims));
        Ok(Response::new(wire::ListPodResourcesResponse {
            pod_resources: active.iter().map(of_pod).collect(),
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<wire::AllocatableResourcesRequest>,
    ) -> Result<Response<wire::AllocatableResourcesResponse>, Status> {
        self.admit()?;
        counted::REQUESTS.with_label_values(&[VERSION]).inc();
        counted::ALLOCATABLES.with_label_values(&[VERSION]).inc();
        let placement = &self.assignments.placement;
        Ok(Response::new(wire::AllocatableResourcesResponse {
            cpu_ids: convert::cpus(placement.allocatable_cpus().iter()),
            memory: convert::memory(&placement.allocatable_memory()),
            devices: convert::allocatable_devices(&self.assignments.devices()),
        }))
    }

    async fn get(
        &self,
        request: Request<wire::GetPodResourcesRequest>,
    ) -> Result<Response<wire::GetPodResourcesResponse>, Status> {
        self.admit()?;
        counted::REQUESTS.with_label_values(&[VERSION]).inc();
        counted::GETS.with_label_values(&[VERSION]).inc();
        let fail = |_: &Status| counted::GET_ERRORS.with_label_values(&[VERSION]).inc();
        let wire::GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        let pods = self.pods(pod_manager::Msg::all).await.inspect_err(fail)?;
        let named = |pod: &&Arc<Pod>| pod.name() == pod_name && pod.namespace() == pod_namespace;
        let found = pods.iter().find(named).ok_or_else(|| {
            Status::unknown(format!(
                "pod {pod_name} in namespace {pod_namespace} not found"
            ))
        });
        let pod = found.inspect_err(fail)?;
        let held = self.assignments.held();
        let placement = &self.assignments.placement;
        let (inventory, claims) = (self.assignments.devices(), self.claims.borrow().clone());
        Ok(Response::new(wire::GetPodResourcesResponse {
            pod_resources: Some(resources(pod, (placement, &held), (&inventory, &claims))),
        }))
    }
}

/// For tests: a client of the socket.
#[cfg(test)]
pub(super) mod client {
    use std::path::PathBuf;

    use hyper_util::rt::TokioIo;
    use proto::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
    use proto::pod_resources_v1alpha1 as older;
    use proto::pod_resources_v1alpha1::pod_resources_lister_client::PodResourcesListerClient as OlderClient;
    use tokio::net::UnixStream;
    use tonic::Status;
    use tonic::transport::{Channel, Endpoint, Uri};

    use super::wire;

    pub(in crate::apis::pod_resources) struct ListerClient(
        PodResourcesListerClient<Channel>,
        OlderClient<Channel>,
    );

    impl ListerClient {
        pub(in crate::apis::pod_resources) fn new(socket: PathBuf) -> ListerClient {
            let connector = tower::service_fn(move |_: Uri| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            });
            let channel =
                Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
            ListerClient(
                PodResourcesListerClient::new(channel.clone()),
                OlderClient::new(channel),
            )
        }

        /// Each pod's name, with its containers'.
        pub(in crate::apis::pod_resources) async fn list(
            &mut self,
        ) -> Result<Vec<(String, Vec<String>)>, Status> {
            let answer = self.0.list(wire::ListPodResourcesRequest {}).await?;
            let pods = answer.into_inner().pod_resources.into_iter();
            Ok(pods.map(names).collect())
        }

        /// The same of the first version.
        pub(in crate::apis::pod_resources) async fn list_v1alpha1(
            &mut self,
        ) -> Result<Vec<(String, Vec<String>)>, Status> {
            let answer = self.1.list(older::ListPodResourcesRequest {}).await?;
            let pods = answer.into_inner().pod_resources.into_iter();
            let names = |pod: older::PodResources| {
                assert!(pod.containers.iter().all(|c| c.devices.is_empty()));
                let containers = pod.containers.into_iter().map(|container| container.name);
                (pod.name, containers.collect())
            };
            Ok(pods.map(names).collect())
        }

        pub(in crate::apis::pod_resources) async fn get(
            &mut self,
            namespace: &str,
            name: &str,
        ) -> Result<(String, Vec<String>), Status> {
            let request = wire::GetPodResourcesRequest {
                pod_name: name.to_owned(),
                pod_namespace: namespace.to_owned(),
            };
            let answer = self.0.get(request).await?;
            Ok(names(answer.into_inner().pod_resources.unwrap()))
        }

        /// Each container's name, and its claims' devices in words.
        pub(in crate::apis::pod_resources) async fn claims(
            &mut self,
            namespace: &str,
            name: &str,
        ) -> Result<Vec<(String, Vec<String>)>, Status> {
            let request = wire::GetPodResourcesRequest {
                pod_name: name.to_owned(),
                pod_namespace: namespace.to_owned(),
            };
            let answer = self.0.get(request).await?.into_inner();
            let containers = answer.pod_resources.unwrap().containers.into_iter();
            Ok(containers
                .map(|container| (container.name, devices(container.dynamic_resources)))
                .collect())
        }

        /// The number of allocatable devices, CPUs and memory blocks, in this order.
        pub(in crate::apis::pod_resources) async fn allocatable(
            &mut self,
        ) -> Result<[usize; 3], Status> {
            let request = wire::AllocatableResourcesRequest {};
            let answer = self
                .0
                .get_allocatable_resources(request)
                .await?
                .into_inner();
            Ok([
                answer.devices.len(),
                answer.cpu_ids.len(),
                answer.memory.len(),
            ])
        }
    }

    fn devices(claims: Vec<wire::DynamicResource>) -> Vec<String> {
        let mut devices = Vec::new();
        for claim in claims {
            for device in claim.claim_resources {
                let names = device.cdi_devices.into_iter().map(|device| device.name);
                let names: Vec<String> = names.collect();
                devices.push(format!(
                    "{}/{}/{} {} {}/{}: {}",
                    device.driver_name,
                    device.pool_name,
                    device.device_name,
                    device.share_id.unwrap_or_default(),
                    claim.claim_namespace,
                    claim.claim_name,
                    names.join(",")
                ));
            }
        }
        devices
    }

    fn names(pod: wire::PodResources) -> (String, Vec<String>) {
        let containers = pod.containers.into_iter().map(|container| container.name);
        (pod.name, containers.collect())
    }
}
