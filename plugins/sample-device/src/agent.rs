//! The agent's side: a plugin registers once, and again whenever the agent makes its socket anew; its own socket is gone then.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use inotify::{Inotify, WatchMask};
use proto::device_plugin as wire;
use proto::device_plugin::registration_client::RegistrationClient;
use tokio::net::UnixStream;
use tonic::transport::{Endpoint, Uri};

use crate::service::{SamplePlugin, serve};

/// The socket of the agent below the folder.
const AGENT_SOCKET: &str = "kubelet.sock";
/// The version of the protocol.
const VERSION: &str = "v1beta1";
/// Before an agent that did not answer is asked again.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Serves and registers with the agent, now and with each socket that it makes; only ends when the folder cannot be watched,
/// or has no room for a socket.
pub(crate) async fn stay_registered(
    folder: &Path,
    resource: &str,
    plugin: &SamplePlugin,
) -> anyhow::Result<()> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE | WatchMask::MOVED_TO;
    let watched = inotify.watches().add(folder, mask);
    watched.with_context(|| folder.display().to_string())?;
    let mut changes = inotify.into_event_stream([0; 4096])?;
    let agent = folder.join(AGENT_SOCKET);
    loop {
        let serving = serve(folder, plugin.clone())?;
        while register(&agent, resource, serving.socket).await.is_err() {
            tokio::time::sleep(RETRY_PERIOD).await;
        }
        loop {
            let change = changes.next().await.context("the watch has ended")??;
            if change.name.is_some_and(|name| name == AGENT_SOCKET) {
                break;
            }
        }
    }
}

async fn register(agent: &Path, resource: &str, own: &str) -> anyhow::Result<()> {
    let path: PathBuf = agent.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await?;
    let request = wire::RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: own.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    RegistrationClient::new(channel).register(request).await?;
    Ok(())
}
