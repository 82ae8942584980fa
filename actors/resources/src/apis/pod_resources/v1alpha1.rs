//! The first version of the service, which older monitoring agents of devices still ask.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_placement::topology::Assignment;
use metrics::pods::pod_resources as counted;
use pods::pod_manager;
use proto::pod_resources_v1alpha1 as wire;
use proto::pod_resources_v1alpha1::pod_resources_lister_server::PodResourcesLister;
use tonic::{Request, Response, Status};

use super::service::PodResourcesService;

const VERSION: &str = "v1alpha1";

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesService {
    /// As upstream: every pod, those that have ended too, each with its app containers alone.
    async fn list(
        &self,
        _: Request<wire::ListPodResourcesRequest>,
    ) -> Result<Response<wire::ListPodResourcesResponse>, Status> {
        self.admit()?;
        counted::REQUESTS.with_label_values(&[VERSION]).inc();
        let pods = self.pods(pod_manager::Msg::all).await?;
        let held = self.held();
        Ok(Response::new(wire::ListPodResourcesResponse {
            pod_resources: pods
                .iter()
                .map(|pod| resources(pod, held.get(&pod.uid()).map(AsRef::as_ref)))
                .collect(),
        }))
    }
}

fn resources(pod: &Arc<Pod>, assigned: Option<&Assignment>) -> wire::PodResources {
    let devices = |name: &str| {
        let own = assigned.and_then(|assigned| assigned.containers.get(name));
        let devices = own.into_iter().flat_map(|own| &own.devices);
        devices
            .map(|(resource, ids)| wire::ContainerDevices {
                resource_name: resource.clone(),
                device_ids: ids.iter().cloned().collect(),
            })
            .collect()
    };
    let containers = pod.app_containers().iter();
    wire::PodResources {
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        containers: containers
            .map(|container| wire::ContainerResources {
                name: container.name.clone(),
                devices: devices(&container.name),
            })
            .collect(),
    }
}
