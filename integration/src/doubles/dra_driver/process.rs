//! The driver's own process.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use logic_placement::claims::NodeService;
use proto::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use proto::dra_health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use proto::dra_health::{DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesResponse};
use proto::dra_v1beta1::dra_plugin_server::{
    DraPlugin as OlderPlugin, DraPluginServer as OlderServer,
};
use proto::registration::registration_server::{Registration, RegistrationServer};
use proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use proto::{dra, dra_health, dra_v1beta1};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::records::Records;
use super::{DraOptions, POOL, cdi_name};
use crate::chaos::Chaos;
use crate::doubles::child_process::orphaned;

/// Between two reports of the devices' health.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// Serves until the parent is gone.
///
/// # Errors
///
/// A socket cannot be served.
pub async fn run(options: DraOptions) -> Result<()> {
    let services = Services {
        records: Records::open(&options.dir)?,
        options: Arc::new(options),
        calls: Arc::default(),
    };
    let options = services.options.clone();
    let (endpoint, registration) = (options.endpoint(), options.registration_socket());
    let health = Routes::new(DraResourceHealthServer::new(services.clone()));
    let routes = match options.version.service() {
        NodeService::V1 => health.add_service(DraPluginServer::new(services.clone())),
        NodeService::V1Beta1 => health.add_service(OlderServer::new(services.clone())),
    };
    let introduction = Routes::new(RegistrationServer::new(services));
    // It can be called from the moment on at which it can be found.
    let (own, found) = (listen(&endpoint)?, listen(&registration)?);
    tokio::select! {
        () = orphaned() => Ok(()),
        ended = serve(own, routes) => ended,
        ended = serve(found, introduction) => ended,
    }
}

/// What a driver before this one left there is replaced.
fn listen(socket: &Path) -> Result<UnixListener> {
    let folder = socket.parent().context("a socket without a folder")?;
    fs::create_dir_all(folder)?;
    if socket.exists() {
        fs::remove_file(socket)?;
    }
    UnixListener::bind(socket).with_context(|| socket.display().to_string())
}

async fn serve(listener: UnixListener, routes: Routes) -> Result<()> {
    let serving = Server::builder()
        .add_routes(routes)
        .serve_with_incoming(UnixListenerStream::new(listener));
    Ok(serving.await?)
}

/// All services of the driver.
#[derive(Clone)]
struct Services {
    options: Arc<DraOptions>,
    records: Records,
    /// Counted, so that no two calls take the same time.
    calls: Arc<AtomicU64>,
}

type GrpcResult<T> = Result<Response<T>, Status>;

impl Services {
    /// Does its work on each claim, one after the other, and returns what came of it.
    async fn each<T>(
        &self,
        claims: Vec<dra::Claim>,
        work: impl Fn(&Records, &str) -> Result<T>,
    ) -> HashMap<String, Result<T, String>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut chaos = Chaos::new((u64::from(process::id()) << 20) | (call << 1));
        let longest = Duration::from_millis(self.options.pause);
        let mut answers = HashMap::new();
        for claim in claims {
            chaos.moment(longest).await;
            let done = work(&self.records, &claim.uid);
            answers.insert(claim.uid, done.map_err(|error| format!("{error:#}")));
            chaos.moment(longest).await;
        }
        answers
    }

    async fn prepare(
        &self,
        claims: Vec<dra::Claim>,
    ) -> HashMap<String, dra::NodePrepareResourceResponse> {
        let answers = self.each(claims, Records::prepare).await.into_iter();
        let answers = answers.map(|(uid, done)| {
            let (names, error) = match done {
                Ok(names) => (names, String::new()),
                Err(error) => (Vec::new(), error),
            };
            let devices = names.into_iter().map(device).collect();
            (uid, dra::NodePrepareResourceResponse { devices, error })
        });
        answers.collect()
    }

    /// What came of it by claim: words where it failed.
    async fn unprepare(&self, claims: Vec<dra::Claim>) -> impl Iterator<Item = (String, String)> {
        let answers = self.each(claims, Records::unprepare).await.into_iter();
        answers.map(|(uid, done)| (uid, done.err().unwrap_or_default()))
    }

    fn report(&self) -> NodeWatchResourcesResponse {
        let devices = self.options.devices.iter().map(|name| DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: POOL.to_owned(),
                device_name: name.clone(),
            }),
            health: HealthStatus::Healthy.into(),
            ..Default::default()
        });
        let devices = devices.collect();
        NodeWatchResourcesResponse { devices }
    }
}

fn device(name: String) -> dra::Device {
    dra::Device {
        pool_name: POOL.to_owned(),
        cdi_device_ids: vec![cdi_name(&name)],
        device_name: name,
        ..Default::default()
    }
}

#[tonic::async_trait]
impl Registration for Services {
    async fn get_info(&self, _: Request<InfoRequest>) -> GrpcResult<PluginInfo> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.options.name.clone(),
            endpoint: self.options.endpoint().display().to_string(),
            supported_versions: vec![self.options.version.service().as_str().to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> GrpcResult<RegistrationStatusResponse> {
        let told = request.into_inner();
        if told.plugin_registered {
            let noted = self.records.registered(process::id());
            noted.map_err(|error| Status::internal(format!("{error:#}")))?;
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl DraPlugin for Services {
    async fn node_prepare_resources(
        &self,
        request: Request<dra::NodePrepareResourcesRequest>,
    ) -> GrpcResult<dra::NodePrepareResourcesResponse> {
        let claims = self.prepare(request.into_inner().claims).await;
        Ok(Response::new(dra::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra::NodeUnprepareResourcesRequest>,
    ) -> GrpcResult<dra::NodeUnprepareResourcesResponse> {
        let answers = self.unprepare(request.into_inner().claims).await;
        let answers =
            answers.map(|(uid, error)| (uid, dra::NodeUnprepareResourceResponse { error }));
        let claims = answers.collect();
        Ok(Response::new(dra::NodeUnprepareResourcesResponse {
            claims,
        }))
    }
}

#[tonic::async_trait]
impl OlderPlugin for Services {
    async fn node_prepare_resources(
        &self,
        request: Request<dra_v1beta1::NodePrepareResourcesRequest>,
    ) -> GrpcResult<dra_v1beta1::NodePrepareResourcesResponse> {
        let claims = request.into_inner().claims.into_iter().map(newer);
        let answers = self.prepare(claims.collect()).await.into_iter();
        let answers = answers.map(|(uid, answer)| {
            let devices = answer.devices.into_iter().map(older).collect();
            let error = answer.error;
            let answer = dra_v1beta1::NodePrepareResourceResponse { devices, error };
            (uid, answer)
        });
        let claims = answers.collect();
        Ok(Response::new(dra_v1beta1::NodePrepareResourcesResponse {
            claims,
        }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra_v1beta1::NodeUnprepareResourcesRequest>,
    ) -> GrpcResult<dra_v1beta1::NodeUnprepareResourcesResponse> {
        let claims = request.into_inner().claims.into_iter().map(newer);
        let answers = self.unprepare(claims.collect()).await;
        let answers =
            answers.map(|(uid, error)| (uid, dra_v1beta1::NodeUnprepareResourceResponse { error }));
        let claims = answers.collect();
        Ok(Response::new(dra_v1beta1::NodeUnprepareResourcesResponse {
            claims,
        }))
    }
}

fn newer(claim: dra_v1beta1::Claim) -> dra::Claim {
    dra::Claim {
        namespace: claim.namespace,
        uid: claim.uid,
        name: claim.name,
    }
}

fn older(device: dra::Device) -> dra_v1beta1::Device {
    dra_v1beta1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Services {
    type NodeWatchResourcesStream = ReceiverStream<Result<NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<dra_health::NodeWatchResourcesRequest>,
    ) -> GrpcResult<Self::NodeWatchResourcesStream> {
        let (sender, receiver) = mpsc::channel(1);
        let services = self.clone();
        tokio::spawn(async move {
            while sender.send(Ok(services.report())).await.is_ok() {
                tokio::time::sleep(REPORT_PERIOD).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
