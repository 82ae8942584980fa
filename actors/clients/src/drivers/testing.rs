//! A DRA driver in the test's own process, at a real socket: it records its calls, and answers as it is told.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{HashMap, VecDeque};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use proto::dra_health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use proto::dra_v1beta1::dra_plugin_server::{
    DraPlugin as OlderPlugin, DraPluginServer as OlderServer,
};
use proto::{dra, dra_health, dra_v1beta1};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use logic_placement::claims::NodeService;

/// How the driver answers its next call.
#[derive(Clone, Debug)]
pub enum DriverFault {
    /// With this status for the call as a whole.
    Status(Status),
    /// With these words about every claim.
    Claims(&'static str),
    /// About this claim as well, which it was not asked about.
    AlsoAbout(&'static str),
    /// About no claim.
    Silent,
    /// Never.
    Hang,
}

#[derive(Debug, Default)]
struct DriverState {
    calls: Vec<String>,
    faults: VecDeque<DriverFault>,
    /// Those of the server that runs now.
    connections: Vec<std::os::unix::net::UnixStream>,
}

/// The driver; clones share its state. Its devices are `vendor.com/CLAIM=N`, one for each claim.
#[derive(Clone, Debug)]
pub struct FakeDriver {
    socket: PathBuf,
    state: Arc<Mutex<DriverState>>,
    health: broadcast::Sender<dra_health::NodeWatchResourcesResponse>,
    /// The server that runs now.
    server: Arc<Mutex<CancellationToken>>,
}

impl FakeDriver {
    /// A driver that serves one version at `socket`, and reports health.
    pub fn start(socket: &Path, service: NodeService) -> Self {
        let driver = Self {
            socket: socket.to_owned(),
            state: Arc::default(),
            health: broadcast::Sender::new(16),
            server: Arc::default(),
        };
        driver.serve(service);
        driver
    }

    /// Serves again after [`FakeDriver::die`].
    pub fn serve(&self, service: NodeService) {
        // The one of the life before, if there was one.
        drop(std::fs::remove_file(&self.socket));
        let listener = UnixListenerStream::new(UnixListener::bind(&self.socket).unwrap());
        let state = self.state.clone();
        let listener = listener.map(move |stream| {
            let stream = stream?.into_std()?;
            let held = stream.try_clone()?;
            state.lock().unwrap().connections.push(held);
            UnixStream::from_std(stream)
        });
        let health = DraResourceHealthServer::new(self.clone());
        let router = Server::builder().add_service(health);
        let router = match service {
            NodeService::V1 => router.add_service(DraPluginServer::new(self.clone())),
            NodeService::V1Beta1 => router.add_service(OlderServer::new(self.clone())),
        };
        let end = CancellationToken::new();
        *self.server.lock().unwrap() = end.clone();
        tokio::spawn(async move {
            let serving = tokio::spawn(router.serve_with_incoming(listener));
            end.cancelled().await;
            serving.abort();
        });
    }

    /// Ends the server with its connections, as a process that dies.
    pub fn die(&self) {
        self.server.lock().unwrap().cancel();
        for connection in self.state().connections.drain(..) {
            // One that its client has closed is at its end already.
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    /// Has the next call answered that way; several are for one call after the other.
    pub fn fault(&self, fault: DriverFault) {
        self.state().faults.push_back(fault);
    }

    /// Takes the calls so far, in words: `prepare a b`.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// Reports devices of the pool `pool`: name, health by its number, and words.
    pub fn report(&self, devices: &[(&str, i32, &str)]) {
        let devices = devices.iter().map(|(name, health, message)| {
            let device = Some(dra_health::DeviceIdentifier {
                pool_name: "pool".to_owned(),
                device_name: (*name).to_owned(),
            });
            dra_health::DeviceHealth {
                device,
                health: *health,
                message: (*message).to_owned(),
                ..Default::default()
            }
        });
        let devices = devices.collect();
        let report = dra_health::NodeWatchResourcesResponse { devices };
        self.health.send(report).unwrap();
    }

    /// The number of agents that follow its reports.
    pub fn watchers(&self) -> usize {
        self.health.receiver_count()
    }

    fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap()
    }

    /// The answer to a call, by claim: words where it has an error. The call is recorded.
    async fn answer(
        &self,
        call: &str,
        claims: &[dra::Claim],
    ) -> Result<Vec<(String, &'static str)>, Status> {
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        let fault = {
            let mut state = self.state();
            state.calls.push(format!("{call} {}", names.join(" ")));
            state.faults.pop_front()
        };
        let about =
            |words: &'static str| claims.iter().map(move |claim| (claim.uid.clone(), words));
        match fault {
            None => Ok(about("").collect()),
            Some(DriverFault::Status(status)) => Err(status),
            Some(DriverFault::Claims(words)) => Ok(about(words).collect()),
            Some(DriverFault::AlsoAbout(uid)) => {
                Ok(about("").chain([(uid.to_owned(), "")]).collect())
            }
            Some(DriverFault::Silent) => Ok(Vec::new()),
            Some(DriverFault::Hang) => std::future::pending().await,
        }
    }

    async fn prepare(
        &self,
        claims: Vec<dra::Claim>,
    ) -> Result<HashMap<String, dra::NodePrepareResourceResponse>, Status> {
        let answers = self.answer("prepare", &claims).await?.into_iter();
        let answers = answers.map(|(uid, error)| {
            let claim = claims.iter().find(|claim| claim.uid == uid);
            let devices = claim.map(|claim| dra::Device {
                pool_name: "pool".to_owned(),
                device_name: claim.name.clone(),
                cdi_device_ids: vec![format!("vendor.com/{}=0", claim.name)],
                share_id: Some("share".to_owned()),
                ..Default::default()
            });
            let answer = dra::NodePrepareResourceResponse {
                devices: devices.into_iter().collect(),
                error: error.to_owned(),
            };
            (uid, answer)
        });
        Ok(answers.collect())
    }
}

#[tonic::async_trait]
impl DraPlugin for FakeDriver {
    async fn node_prepare_resources(
        &self,
        request: Request<dra::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra::NodePrepareResourcesResponse>, Status> {
        let claims = self.prepare(request.into_inner().claims).await?;
        Ok(Response::new(dra::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra::NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let answers = self.answer("unprepare", &claims).await?.into_iter();
        let answers = answers.map(|(uid, error)| {
            let error = error.to_owned();
            (uid, dra::NodeUnprepareResourceResponse { error })
        });
        let claims = answers.collect();
        Ok(Response::new(dra::NodeUnprepareResourcesResponse {
            claims,
        }))
    }
}

#[tonic::async_trait]
impl OlderPlugin for FakeDriver {
    async fn node_prepare_resources(
        &self,
        request: Request<dra_v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra_v1beta1::NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(newer);
        let prepared = self.prepare(claims.collect()).await?.into_iter();
        let prepared = prepared.map(|(uid, answer)| {
            let devices = answer.devices.into_iter().map(older_device);
            let answer = dra_v1beta1::NodePrepareResourceResponse {
                devices: devices.collect(),
                error: answer.error,
            };
            (uid, answer)
        });
        let claims = prepared.collect();
        Ok(Response::new(dra_v1beta1::NodePrepareResourcesResponse {
            claims,
        }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra_v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra_v1beta1::NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter().map(newer);
        let claims: Vec<dra::Claim> = claims.collect();
        let answers = self.answer("unprepare", &claims).await?.into_iter();
        let answers = answers.map(|(uid, error)| {
            let error = error.to_owned();
            (uid, dra_v1beta1::NodeUnprepareResourceResponse { error })
        });
        let claims = answers.collect();
        Ok(Response::new(dra_v1beta1::NodeUnprepareResourcesResponse {
            claims,
        }))
    }
}

#[tonic::async_trait]
impl DraResourceHealth for FakeDriver {
    type NodeWatchResourcesStream =
        ReceiverStream<Result<dra_health::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _request: Request<dra_health::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let mut reports = self.health.subscribe();
        let (sender, receiver) = mpsc::channel(1);
        let end = self.server.lock().unwrap().clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = end.cancelled() => return,
                    () = sender.closed() => return,
                    report = reports.recv() => {
                        let Ok(report) = report else { return };
                        if sender.send(Ok(report)).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

fn newer(claim: dra_v1beta1::Claim) -> dra::Claim {
    dra::Claim {
        namespace: claim.namespace,
        uid: claim.uid,
        name: claim.name,
    }
}

fn older_device(device: dra::Device) -> dra_v1beta1::Device {
    dra_v1beta1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
    }
}
