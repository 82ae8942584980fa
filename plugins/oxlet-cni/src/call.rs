//! The call of the network plugin, repeated while nobody answers: every one of them may be repeated.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto::network::network_client::NetworkClient;
use proto::network::{
    AddRequest, Attachment, CheckRequest, DeleteRequest, GcRequest, StatusRequest,
};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tower::service_fn;

use crate::answer::{self, Failure};
use crate::input::{Input, Verb};

/// Left for the plugin's answer to arrive before this program gives up.
const MARGIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
/// A pod's start is tried again by the kubelet, and STATUS by the runtime: they do not wait long for a plugin that is
/// away. DEL waits as long as it may, because what it does not do might be left.
const IMPATIENT: Duration = Duration::from_secs(10);
/// Bytes of an answer: more than the results of all attachments of a node.
const MESSAGE_LIMIT: usize = 64 << 20;

/// Carries a verb out; returns what is to be printed.
pub(crate) async fn carry_out(input: Input) -> Result<String, Failure> {
    let now = Instant::now();
    let end = now + input.timeout;
    let patience = match input.verb {
        Verb::Del | Verb::Gc => end,
        Verb::Add | Verb::Check | Verb::Status | Verb::Version => end.min(now + IMPATIENT),
    };
    loop {
        let answer = match timeout_at(end, once(&input, end)).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!(
                    "the network plugin did not answer within {:?}",
                    input.timeout
                );
                return Err(Failure::new(answer::IO, text));
            }
        };
        match answer {
            Ok(text) => return text,
            Err(status) if !is_away(&status) => return Err(Failure::refused(&status)),
            Err(status) if Instant::now() + PAUSE >= patience => return Err(away(&input, &status)),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Tells whether nobody answered: the connection failed, or the plugin is only being started.
fn is_away(status: &Status) -> bool {
    status.source().is_some()
        || (status.code() == Code::FailedPrecondition
            && status.message().ends_with("not configured yet"))
}

fn away(input: &Input, status: &Status) -> Failure {
    let mut cause = status.message().to_owned();
    let mut deeper = status.source();
    while let Some(error) = deeper {
        cause = error.to_string();
        deeper = error.source();
    }
    let text = format!("no network plugin answers at {}: {cause}", input.socket);
    Failure::new(answer::TRY_AGAIN, text)
}

fn connect(socket: &str) -> NetworkClient<Channel> {
    let socket = PathBuf::from(socket);
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    }));
    NetworkClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT)
}

async fn once(input: &Input, end: Instant) -> Result<Result<String, Failure>, Status> {
    let left = end.saturating_duration_since(Instant::now());
    let within = left.saturating_sub(MARGIN.min(left / 4));
    let within_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX).max(1);
    let mut client = connect(&input.socket);
    match input.verb {
        Verb::Add => add(&mut client, input, within_ms).await,
        Verb::Del => {
            let request = DeleteRequest {
                attachment: Some(input.attachment.clone()),
                pod: Some(input.pod.clone()),
                netns: input.netns.clone(),
                capabilities: Some(input.capabilities.clone()),
                cni_args: input.arguments.clone(),
                configuration_json: Vec::new(),
                within_ms,
            };
            client.delete(request).await.map(|_| Ok(String::new()))
        }
        Verb::Check => {
            let request = CheckRequest {
                attachment: Some(input.attachment.clone()),
                pod: Some(input.pod.clone()),
                netns: input.netns.clone(),
                capabilities: Some(input.capabilities.clone()),
                cni_args: input.arguments.clone(),
                within_ms,
            };
            client.check(request).await.map(|_| Ok(String::new()))
        }
        Verb::Status => status(&mut client, input, within_ms).await,
        Verb::Gc => gc(&mut client, input, within_ms).await,
        Verb::Version => Ok(Ok(answer::versions())),
    }
}

async fn add(
    client: &mut NetworkClient<Channel>,
    input: &Input,
    within_ms: u32,
) -> Result<Result<String, Failure>, Status> {
    let request = AddRequest {
        attachment: Some(input.attachment.clone()),
        pod: Some(input.pod.clone()),
        netns: input.netns.clone(),
        capabilities: Some(input.capabilities.clone()),
        owner: input.owner.clone(),
        cni_args: input.arguments.clone(),
        result_version: input.version.clone(),
        within_ms,
    };
    let answer = client.add(request).await?.into_inner();
    let json = answer.result.unwrap_or_default().json;
    Ok(String::from_utf8(json)
        .map_err(|_| Failure::new(answer::DECODE, "the network plugin's result is not text")))
}

async fn status(
    client: &mut NetworkClient<Channel>,
    input: &Input,
    within_ms: u32,
) -> Result<Result<String, Failure>, Status> {
    let network = input.attachment.network.clone();
    let answer = client.status(StatusRequest { network, within_ms }).await?;
    let first = answer.into_inner().networks.into_iter().next();
    Ok(match first {
        Some(first) if first.ready => Ok(String::new()),
        Some(first) => Err(Failure::new(answer::NOT_AVAILABLE, first.message)),
        None => Err(no_network()),
    })
}

fn no_network() -> Failure {
    Failure::new(answer::NOT_AVAILABLE, "the network plugin has no network")
}

async fn default_network(
    client: &mut NetworkClient<Channel>,
    within_ms: u32,
) -> Result<Option<String>, Status> {
    let request = StatusRequest {
        network: String::new(),
        within_ms,
    };
    let networks = client.status(request).await?.into_inner().networks;
    let first = networks.into_iter().next();
    Ok(first
        .map(|first| first.name)
        .filter(|name| !name.is_empty()))
}

async fn gc(
    client: &mut NetworkClient<Channel>,
    input: &Input,
    within_ms: u32,
) -> Result<Result<String, Failure>, Status> {
    let network = match input.attachment.network.as_str() {
        "" => match default_network(client, within_ms).await? {
            Some(name) => name,
            None => return Ok(Err(no_network())),
        },
        name => name.to_owned(),
    };
    let valid = input.valid.iter().map(|valid| Attachment {
        sandbox_id: valid.sandbox.clone(),
        network: network.clone(),
        interface_name: valid.interface.clone(),
    });
    let request = GcRequest {
        valid: valid.collect(),
        networks: vec![network],
        owner: input.owner.clone(),
        // The runtime's list is from before this program began: the plugin leaves alone what is young.
        mark: String::new(),
        within_ms,
    };
    let failed = client.gc(request).await?.into_inner().failed;
    let messages: Vec<_> = failed.into_iter().map(|failure| failure.message).collect();
    Ok(match messages.is_empty() {
        true => Ok(String::new()),
        false => Err(Failure::new(100, messages.join("; "))),
    })
}
