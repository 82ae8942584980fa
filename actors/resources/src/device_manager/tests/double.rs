//! A device plugin for tests: it serves on a real socket, does as its script says, and can die.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{Stream, StreamExt, stream};
use hyper_util::rt::TokioIo;
use kernel::watch;
use proto::device_plugin as wire;
use proto::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use proto::device_plugin::registration_client::RegistrationClient;
use tokio::net::{UnixListener, UnixStream};

use tonic::transport::{Endpoint, Server, Uri};
use tonic::{Request, Response, Status};

/// What the plugin does.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub options: wire::DevicePluginOptions,
    /// Calls that never answer.
    pub hangs: bool,
    /// Calls fail with these words.
    pub fails: Option<String>,
    /// Allocate answers for no container.
    pub forgets_containers: bool,
    pub preferred: Vec<String>,
    /// What it was asked, by the call's name and ids.
    pub calls: Vec<String>,
}

/// The plugin of one resource.
#[derive(Debug, Clone)]
pub(super) struct PluginDouble {
    pub resource: String,
    pub socket: PathBuf,
    script: Arc<Mutex<Script>>,
    devices: Arc<watch::Sender<Vec<wire::Device>>>,
    connections: Arc<Mutex<Vec<StdStream>>>,
}

pub(super) fn device(id: &str, health: &str, nodes: &[i64]) -> wire::Device {
    let nodes: Vec<_> = nodes.iter().map(|id| wire::NumaNode { id: *id }).collect();
    wire::Device {
        id: id.to_owned(),
        health: health.to_owned(),
        topology: (!nodes.is_empty()).then_some(wire::TopologyInfo { nodes }),
    }
}

pub(super) fn healthy(ids: &[&str]) -> Vec<wire::Device> {
    ids.iter().map(|id| device(id, "Healthy", &[])).collect()
}

impl PluginDouble {
    /// Serves on a socket of this name in the folder, and lists the devices.
    pub(super) fn serve(
        folder: &Path,
        name: &str,
        resource: &str,
        devices: Vec<wire::Device>,
    ) -> Self {
        let socket = folder.join(name);
        let plugin = PluginDouble {
            resource: resource.to_owned(),
            socket: socket.clone(),
            script: Arc::default(),
            devices: Arc::new(watch::Sender::new(devices)),
            connections: Arc::default(),
        };
        let listener = UnixListener::bind(socket).unwrap();
        let incoming = plugin.clone().incoming(listener);
        let server = Server::builder().add_service(DevicePluginServer::new(plugin.clone()));
        drop(tokio::spawn(server.serve_with_incoming(incoming)));
        plugin
    }

    /// A copy of each connection is kept, to be cut.
    fn incoming(
        self,
        listener: UnixListener,
    ) -> impl Stream<Item = std::io::Result<UnixStream>> + Send + 'static {
        let connections = self.connections;
        stream::unfold(listener, move |listener| {
            let connections = connections.clone();
            async move {
                let (accepted, _) = listener.accept().await.unwrap();
                let accepted = accepted.into_std().unwrap();
                connections
                    .lock()
                    .unwrap()
                    .push(accepted.try_clone().unwrap());
                Some((UnixStream::from_std(accepted), listener))
            }
        })
    }

    /// Cuts every connection, as the end of the process does.
    pub(super) fn die(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.shutdown(Shutdown::Both).unwrap();
        }
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    pub(super) fn list(&self, devices: Vec<wire::Device>) {
        self.devices.send_replace(devices);
    }

    /// What it was asked since the last time.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.script().calls)
    }

    /// Registers with the agent in the folder.
    pub(super) async fn register(&self) -> Result<(), Status> {
        let folder = self.socket.parent().unwrap();
        let endpoint = self.socket.file_name().unwrap().to_str().unwrap();
        register(folder, "v1beta1", &self.resource, endpoint).await
    }

    /// Notes a call, and does what the script says.
    async fn called(&self, call: &str, ids: &[String]) -> Result<(), Status> {
        let (hangs, fails) = {
            let mut script = self.script();
            script.calls.push(format!("{call} {}", ids.join(",")));
            (script.hangs, script.fails.clone())
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        fails.map_or(Ok(()), |why| Err(Status::unknown(why)))
    }
}

/// Registers a plugin with the agent in the folder.
pub(super) async fn register(
    folder: &Path,
    version: &str,
    resource: &str,
    endpoint: &str,
) -> Result<(), Status> {
    let request = wire::RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    let socket = folder.join("kubelet.sock");
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
    let answer = RegistrationClient::new(channel).register(request).await;
    answer.map(|_| ())
}

type DeviceLists = Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for PluginDouble {
    async fn get_device_plugin_options(
        &self,
        _: Request<wire::Empty>,
    ) -> Result<Response<wire::DevicePluginOptions>, Status> {
        self.called("options", &[]).await?;
        Ok(Response::new(self.script().options))
    }

    type ListAndWatchStream = DeviceLists;

    async fn list_and_watch(
        &self,
        _: Request<wire::Empty>,
    ) -> Result<Response<DeviceLists>, Status> {
        let mut changes = self.devices.subscribe();
        changes.mark_changed();
        let lists = stream::unfold(changes, |mut changes| async move {
            changes.changed().await.ok()?;
            let devices = changes.borrow_and_update().clone();
            Some((Ok(wire::ListAndWatchResponse { devices }), changes))
        });
        Ok(Response::new(lists.boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        let asked = request.into_inner().container_requests.remove(0);
        let call = format!("prefer {} of", asked.allocation_size);
        self.called(&call, &asked.available_device_i_ds).await?;
        let device_i_ds = self.script().preferred.clone();
        Ok(Response::new(wire::PreferredAllocationResponse {
            container_responses: vec![wire::ContainerPreferredAllocationResponse { device_i_ds }],
        }))
    }

    async fn allocate(
        &self,
        request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        let ids = request
            .into_inner()
            .container_requests
            .remove(0)
            .devices_ids;
        self.called("allocate", &ids).await?;
        let answer = wire::ContainerAllocateResponse {
            envs: BTreeMap::from([(self.resource.clone(), ids.join(","))]),
            mounts: vec![wire::Mount {
                container_path: format!("/lib/{}", ids[0]),
                host_path: "/lib/driver".to_owned(),
                read_only: true,
            }],
            devices: ids
                .iter()
                .map(|id| wire::DeviceSpec {
                    container_path: format!("/dev/{id}"),
                    host_path: format!("/dev/{id}"),
                    permissions: "mrw".to_owned(),
                })
                .collect(),
            annotations: BTreeMap::from([("note".to_owned(), ids.join(","))]),
            cdi_devices: ids
                .iter()
                .map(|id| wire::CdiDevice {
                    name: format!("{}={id}", self.resource),
                })
                .collect(),
        };
        let forgets = self.script().forgets_containers;
        Ok(Response::new(wire::AllocateResponse {
            container_responses: if forgets { vec![] } else { vec![answer] },
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<wire::PreStartContainerRequest>,
    ) -> Result<Response<wire::PreStartContainerResponse>, Status> {
        self.called("pre-start", &request.into_inner().devices_ids)
            .await?;
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}
