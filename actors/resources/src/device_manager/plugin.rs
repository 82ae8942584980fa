//! A connection to one plugin: beside the registrar the only place in this folder with wire types.
//!
//! Upstream: devicemanager/endpoint.go and plugin/v1beta1/client.go (1.36), where a call but PreStartContainer has no
//! deadline.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use logic_placement::devices::{
    AllocateAnswer, DeviceCallError, DeviceMount, DeviceNode, ListedDevice, PluginOptions,
    PreferenceQuestion,
};
use metrics::node::device_plugins::ALLOCATION_DURATION;
use prost::Message;
use proto::device_plugin as wire;
use proto::device_plugin::device_plugin_client::DevicePluginClient;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};
use tower::service_fn;

use super::lane::{CallOrigin, PluginCall};
use super::registrar::RegistrationCall;

/// Upstream's, for a plugin that registers before it listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_RETRY: Duration = Duration::from_millis(100);
/// How long a device plugin may take to say what it can do; it answers from memory.
const OPTIONS_TIMEOUT: Duration = Duration::from_secs(10);
/// A pod waits for it, and no other.
const PREFER_TIMEOUT: Duration = Duration::from_secs(30);
/// Some plugins make the device only then.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// Upstream's.
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);

/// What a plugin, or the way to it, has come to.
#[derive(Debug)]
pub enum PluginEvent {
    /// A plugin that is to be registered has been connected to, or can't be.
    Connected {
        call: RegistrationCall,
        result: Result<(PluginConnection, PluginOptions), String>,
    },
    /// It has listed its devices.
    Listed {
        resource: String,
        generation: u64,
        devices: Vec<ListedDevice>,
        rest: DeviceStream,
    },
    /// It lists no more.
    Gone {
        resource: String,
        generation: u64,
        why: String,
    },
    /// It has answered a call.
    Answered {
        resource: String,
        generation: u64,
        origin: CallOrigin,
        answer: Result<PluginAnswer, DeviceCallError>,
    },
}

/// A plugin's answer to a call.
#[derive(Debug, PartialEq, Eq)]
pub enum PluginAnswer {
    Preferred(BTreeSet<String>),
    Allocated(AllocateAnswer),
    PreStarted,
}

/// A connection that does not come back once it is lost: then the plugin has gone.
#[derive(Debug, Clone)]
pub struct PluginConnection(DevicePluginClient<Channel>);

/// The lists of a plugin.
#[derive(Debug)]
pub struct DeviceStream(Streaming<wire::ListAndWatchResponse>);

impl PluginConnection {
    /// Connects to a plugin's socket, and asks for its options.
    pub(super) async fn connect(socket: &Path) -> Result<(Self, PluginOptions), String> {
        let dialed = timeout(CONNECT_TIMEOUT, dial(socket)).await;
        let channel = match dialed {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(format!("failed to dial device plugin: {error}")),
            Err(_) => {
                return Err("failed to dial device plugin: context deadline exceeded".to_owned());
            }
        };
        let mut client = DevicePluginClient::new(channel);
        let options = client.get_device_plugin_options(wire::Empty {});
        let options = within(OPTIONS_TIMEOUT, options).await;
        let options =
            options.map_err(|error| format!("failed to get device plugin options: {error}"))?;
        let options = PluginOptions {
            pre_start_required: options.pre_start_required,
            preferred_allocation: options.get_preferred_allocation_available,
        };
        Ok((Self(client), options))
    }

    /// Begins the plugin's lists.
    pub(super) async fn list(mut self, resource: String, generation: u64) -> PluginEvent {
        match self.0.list_and_watch(wire::Empty {}).await {
            Ok(stream) => {
                DeviceStream(stream.into_inner())
                    .next(resource, generation)
                    .await
            }
            Err(status) => PluginEvent::Gone {
                resource,
                generation,
                why: rpc_error(&status),
            },
        }
    }

    /// Makes one call, within its deadline.
    pub(super) async fn perform(
        self,
        resource: &str,
        call: PluginCall,
    ) -> Result<PluginAnswer, DeviceCallError> {
        match call {
            PluginCall::Prefer(question) => self.prefer(question).await,
            PluginCall::Allocate(ids) => {
                let begun = kernel::now();
                let answer = self.allocate(ids).await;
                let seconds = kernel::now().duration_since(begun).as_secs_f64();
                ALLOCATION_DURATION
                    .with_label_values(&[resource])
                    .observe(seconds);
                answer
            }
            PluginCall::PreStart(ids) => self.pre_start(ids).await,
        }
    }

    async fn prefer(
        mut self,
        question: PreferenceQuestion,
    ) -> Result<PluginAnswer, DeviceCallError> {
        let request = wire::PreferredAllocationRequest {
            container_requests: vec![wire::ContainerPreferredAllocationRequest {
                available_device_i_ds: question.available.into_iter().collect(),
                must_include_device_i_ds: question.must_include.into_iter().collect(),
                allocation_size: i32::try_from(question.size).unwrap_or(i32::MAX),
            }],
        };
        let answer = within(PREFER_TIMEOUT, self.0.get_preferred_allocation(request)).await;
        let answer = answer.map_err(DeviceCallError::Failed)?;
        let first = answer.container_responses.into_iter().next();
        let ids = first.map(|first| first.device_i_ds).unwrap_or_default();
        Ok(PluginAnswer::Preferred(ids.into_iter().collect()))
    }

    async fn allocate(mut self, ids: BTreeSet<String>) -> Result<PluginAnswer, DeviceCallError> {
        let request = wire::AllocateRequest {
            container_requests: vec![wire::ContainerAllocateRequest {
                devices_ids: ids.into_iter().collect(),
            }],
        };
        let answer = within(ALLOCATE_TIMEOUT, self.0.allocate(request)).await;
        let answer = answer.map_err(DeviceCallError::Failed)?;
        let first = answer.container_responses.into_iter().next();
        let first = first.ok_or(DeviceCallError::NoContainers)?;
        Ok(PluginAnswer::Allocated(to_answer(first)))
    }

    async fn pre_start(mut self, ids: BTreeSet<String>) -> Result<PluginAnswer, DeviceCallError> {
        let request = wire::PreStartContainerRequest {
            devices_ids: ids.into_iter().collect(),
        };
        let answer = within(PRE_START_TIMEOUT, self.0.pre_start_container(request)).await;
        answer.map_err(DeviceCallError::Failed)?;
        Ok(PluginAnswer::PreStarted)
    }
}

impl DeviceStream {
    /// Waits for the plugin's next list, for as long as the plugin is there.
    pub(super) async fn next(mut self, resource: String, generation: u64) -> PluginEvent {
        let why = match self.0.message().await {
            Ok(Some(list)) => {
                return PluginEvent::Listed {
                    resource,
                    generation,
                    devices: list.devices.into_iter().map(listed).collect(),
                    rest: self,
                };
            }
            Ok(None) => "it has ended its list".to_owned(),
            Err(status) => rpc_error(&status),
        };
        PluginEvent::Gone {
            resource,
            generation,
            why,
        }
    }
}

/// Connects as soon as the plugin listens; the caller has the deadline.
async fn dial(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let stream = loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(CONNECT_RETRY).await,
        }
    };
    let mut stream = Some(TokioIo::new(stream));
    // Servers in Go refuse the socket's path as authority: any valid name will do.
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
}

/// The answer, or the error in the words of Go's gRPC.
async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, String> {
    match timeout(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(rpc_error(&status)),
        Err(_) => {
            let status = Status::deadline_exceeded("context deadline exceeded");
            Err(rpc_error(&status))
        }
    }
}

fn rpc_error(status: &Status) -> String {
    // Go spells it with one l.
    let code = match status.code() == Code::Cancelled {
        true => "Canceled".to_owned(),
        false => format!("{:?}", status.code()),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

fn listed(device: wire::Device) -> ListedDevice {
    let nodes = device.topology.unwrap_or_default().nodes.into_iter();
    ListedDevice {
        id: device.id,
        health: device.health,
        nodes: nodes.map(|node| node.id).collect(),
    }
}

fn to_answer(answer: wire::ContainerAllocateResponse) -> AllocateAnswer {
    let mount = |mount: wire::Mount| DeviceMount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
    };
    let node = |device: wire::DeviceSpec| DeviceNode {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    };
    AllocateAnswer {
        envs: answer.envs,
        mounts: answer.mounts.into_iter().map(mount).collect(),
        nodes: answer.devices.into_iter().map(node).collect(),
        annotations: answer.annotations,
        cdi_devices: answer.cdi_devices.into_iter().map(|it| it.name).collect(),
    }
}

fn to_wire(answer: &AllocateAnswer) -> wire::ContainerAllocateResponse {
    let mount = |mount: &DeviceMount| wire::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        read_only: mount.read_only,
    };
    let node = |node: &DeviceNode| wire::DeviceSpec {
        container_path: node.container_path.clone(),
        host_path: node.host_path.clone(),
        permissions: node.permissions.clone(),
    };
    let names = answer.cdi_devices.iter().cloned();
    wire::ContainerAllocateResponse {
        envs: answer.envs.clone(),
        mounts: answer.mounts.iter().map(mount).collect(),
        devices: answer.nodes.iter().map(node).collect(),
        annotations: answer.annotations.clone(),
        cdi_devices: names.map(|name| wire::CdiDevice { name }).collect(),
    }
}

/// A plugin's answer in protobuf's bytes, as the checkpoint has it.
pub(super) fn encode_answer(answer: &AllocateAnswer) -> Vec<u8> {
    to_wire(answer).encode_to_vec()
}

pub(super) fn decode_answer(bytes: &[u8]) -> Result<AllocateAnswer, prost::DecodeError> {
    wire::ContainerAllocateResponse::decode(bytes).map(to_answer)
}
