//! What the agent calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use anyhow::Context;
use futures_util::{Stream, StreamExt, stream};
use proto::device_plugin as wire;
use proto::device_plugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The plugin's own socket. An agent that starts empties the folder, as the kubelet does.
const SOCKET: &str = "sample-device.sock";

/// What the plugin has to give.
#[derive(Clone)]
pub(crate) struct SamplePlugin {
    /// Ids.
    pub(crate) devices: Vec<String>,
    pub(crate) node: PathBuf,
    /// The ids of those that are out of order.
    pub(crate) unhealthy: watch::Receiver<BTreeSet<String>>,
}

/// A plugin that serves until this is dropped.
pub(crate) struct Serving {
    pub(crate) socket: &'static str,
    task: AbortHandle,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Begins to serve on a socket in the folder.
pub(crate) fn serve(folder: &Path, plugin: SamplePlugin) -> anyhow::Result<Serving> {
    let path = folder.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
    let server = Server::builder().add_service(DevicePluginServer::new(plugin));
    let task = tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    Ok(Serving {
        socket: SOCKET,
        task: task.abort_handle(),
    })
}

type Devices = Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for SamplePlugin {
    type ListAndWatchStream = Devices;

    async fn get_device_plugin_options(
        &self,
        _: Request<wire::Empty>,
    ) -> Result<Response<wire::DevicePluginOptions>, Status> {
        Ok(Response::new(wire::DevicePluginOptions::default()))
    }

    /// A stream that ends says that the plugin is gone, so this one waits where no list follows any more.
    async fn list_and_watch(&self, _: Request<wire::Empty>) -> Result<Response<Devices>, Status> {
        let (devices, mut unhealthy) = (self.devices.clone(), self.unhealthy.clone());
        unhealthy.mark_changed();
        let lists = stream::unfold((devices, unhealthy), async |(devices, mut unhealthy)| {
            unhealthy.changed().await.ok()?;
            let list = list(&devices, &unhealthy.borrow_and_update());
            Some((Ok(list), (devices, unhealthy)))
        });
        Ok(Response::new(Box::pin(lists.chain(stream::pending()))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("any device is as good as another"))
    }

    async fn allocate(
        &self,
        request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        let containers = request.into_inner().container_requests.into_iter();
        let answers = containers.map(|container| self.answer(&container.devices_ids));
        Ok(Response::new(wire::AllocateResponse {
            container_responses: answers.collect::<Result<_, _>>()?,
        }))
    }

    async fn pre_start_container(
        &self,
        _: Request<wire::PreStartContainerRequest>,
    ) -> Result<Response<wire::PreStartContainerResponse>, Status> {
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}

fn list(devices: &[String], unhealthy: &BTreeSet<String>) -> wire::ListAndWatchResponse {
    let device = |id: &String| wire::Device {
        id: id.clone(),
        health: match unhealthy.contains(id) {
            true => "Unhealthy".to_owned(),
            false => "Healthy".to_owned(),
        },
        topology: None,
    };
    wire::ListAndWatchResponse {
        devices: devices.iter().map(device).collect(),
    }
}

impl SamplePlugin {
    fn answer(&self, ids: &[String]) -> Result<wire::ContainerAllocateResponse, Status> {
        if let Some(unknown) = ids.iter().find(|id| !self.devices.contains(id)) {
            return Err(Status::not_found(format!("there is no device {unknown}")));
        }
        let device = |id: &String| wire::DeviceSpec {
            container_path: format!("/dev/sample-{id}"),
            host_path: self.node.display().to_string(),
            permissions: "rw".to_owned(),
        };
        Ok(wire::ContainerAllocateResponse {
            envs: BTreeMap::from([("SAMPLE_DEVICES".to_owned(), ids.join(","))]),
            devices: ids.iter().map(device).collect(),
            ..Default::default()
        })
    }
}
