//! The client of the network plugin: `oxlet.network.v1` at a Unix socket.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto::cri::{PodSandboxConfig, Protocol};
use proto::network::network_client::NetworkClient;
use proto::network::{
    AddRequest, Attachment, Capabilities, DeleteRequest, Dns, Pod, PortMapping, StatusRequest,
};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// How long the plugin may take for an attachment; its own deadline for a chain of CNI plugins is below it.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the network plugin may take to say whether its networks are ready.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Beyond what the plugin was told: then it does not answer at all.
const MARGIN: Duration = Duration::from_secs(5);
const INTERFACE: &str = "eth0";
const OWNER: &str = "native";
/// The word of a condition of a node whose pods can have no network.
pub(crate) const NOT_READY: &str = "NetworkPluginNotReady";

/// The network plugin of this node.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    client: NetworkClient<Channel>,
}

/// Why pods can have no network now: a condition's reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl NotReady {
    /// There is no plugin at all; the message is known from the field's runtimes.
    pub(crate) fn absent() -> NotReady {
        NotReady {
            reason: NOT_READY.to_owned(),
            message: "Network plugin returns error: no network plugin is configured".to_owned(),
        }
    }
}

impl Network {
    /// Names the plugin at this socket; it is connected to at the first call, and again when the connection is lost.
    pub(crate) fn at(socket: PathBuf) -> Network {
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(
            service_fn(move |_: Uri| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            }),
        );
        Network {
            client: NetworkClient::new(channel).max_decoding_message_size(sdk::MESSAGE_LIMIT),
        }
    }

    /// Attaches a sandbox; returns its addresses without their prefix lengths. After an error it is to be detached.
    pub(crate) async fn attach(
        &self,
        sandbox: &str,
        config: &PodSandboxConfig,
        netns: String,
    ) -> Result<Vec<String>, Status> {
        let request = AddRequest {
            attachment: Some(attachment(sandbox)),
            pod: Some(pod(config)),
            netns,
            capabilities: Some(capabilities(config)),
            owner: OWNER.to_owned(),
            within_ms: millis(ATTACH_TIMEOUT),
            ..AddRequest::default()
        };
        let mut client = self.client.clone();
        let answer = within(ATTACH_TIMEOUT, client.add(request))
            .await?
            .into_inner();
        let addresses: Vec<_> = answer
            .result
            .unwrap_or_default()
            .ips
            .into_iter()
            .map(|ip| ip.address.split('/').next().unwrap_or_default().to_owned())
            .filter(|address| !address.is_empty())
            .collect();
        if addresses.is_empty() {
            let why = format!("the network plugin gave sandbox {sandbox} no address");
            return Err(Status::internal(why));
        }
        Ok(addresses)
    }

    /// Detaches a sandbox; its namespace may be gone, and so may the attachment.
    pub(crate) async fn detach(
        &self,
        sandbox: &str,
        config: &PodSandboxConfig,
        netns: String,
    ) -> Result<(), Status> {
        let request = DeleteRequest {
            attachment: Some(attachment(sandbox)),
            pod: Some(pod(config)),
            netns,
            capabilities: Some(capabilities(config)),
            within_ms: millis(ATTACH_TIMEOUT),
            ..DeleteRequest::default()
        };
        let mut client = self.client.clone();
        within(ATTACH_TIMEOUT, client.delete(request)).await?;
        Ok(())
    }

    /// Tells why pods can have no network; none if they can.
    pub(crate) async fn not_ready(&self) -> Option<NotReady> {
        let request = StatusRequest {
            network: String::new(),
            within_ms: millis(STATUS_TIMEOUT),
        };
        let mut client = self.client.clone();
        let answer = within(STATUS_TIMEOUT, client.status(request)).await;
        let why = match answer {
            Err(status) => NotReady {
                reason: NOT_READY.to_owned(),
                message: format!(
                    "Network plugin returns error: it does not answer: {}",
                    status.message()
                ),
            },
            Ok(answer) => match answer.into_inner().networks.into_iter().next() {
                None => NotReady::absent(),
                Some(network) if network.ready => return None,
                Some(network) => NotReady {
                    reason: network.reason,
                    message: network.message,
                },
            },
        };
        Some(why)
    }
}

async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let late = || Status::deadline_exceeded(format!("the network plugin is silent for {time:?}"));
    timeout(time + MARGIN, call).await.map_err(|_| late())?
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn attachment(sandbox: &str) -> Attachment {
    Attachment {
        sandbox_id: sandbox.to_owned(),
        network: String::new(),
        interface_name: INTERFACE.to_owned(),
    }
}

fn pod(config: &PodSandboxConfig) -> Pod {
    let meta = config.metadata.clone().unwrap_or_default();
    Pod {
        namespace: meta.namespace,
        name: meta.name,
        uid: meta.uid,
    }
}

fn capabilities(config: &PodSandboxConfig) -> Capabilities {
    let dns = config.dns_config.clone().map(|dns| Dns {
        nameservers: dns.servers,
        search: dns.searches,
        options: dns.options,
        domain: String::new(),
    });
    let cgroup_path = config
        .linux
        .as_ref()
        .map(|linux| linux.cgroup_parent.clone());
    Capabilities {
        port_mappings: port_mappings(config),
        dns,
        cgroup_path: cgroup_path.unwrap_or_default(),
        pod_annotations: config
            .annotations
            .clone()
            .into_iter()
            .collect::<HashMap<_, _>>()
            .into_iter()
            .collect(),
        ..Capabilities::default()
    }
}

/// The mappings that take a port of the node.
pub(crate) fn port_mappings(config: &PodSandboxConfig) -> Vec<PortMapping> {
    let port = |number: i32| u32::try_from(number).unwrap_or(0);
    let mapped = config
        .port_mappings
        .iter()
        .filter(|mapping| mapping.host_port > 0);
    mapped
        .map(|mapping| PortMapping {
            host_port: port(mapping.host_port),
            container_port: port(mapping.container_port),
            protocol: match mapping.protocol() {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            }
            .to_owned(),
            host_ip: mapping.host_ip.clone(),
        })
        .collect()
}
