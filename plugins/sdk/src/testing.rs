//! Plugins in the test's own process, behind real gRPC on a real Unix socket.

use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use proto::plugin::plugin_client::PluginClient;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::base::{Base, ProcessIdentity};
use crate::plugin::{Info, Kind, Refusal, Setup};
use crate::{Health, serve, start};

/// A plugin that serves in this process until it is dropped.
#[derive(Debug)]
pub struct Plugin {
    /// A connection to the plugin.
    pub channel: Channel,
    /// The path of the plugin's socket.
    pub socket: PathBuf,
    serving: AbortHandle,
}

impl Plugin {
    /// A client of its base service.
    pub fn base(&self) -> PluginClient<Channel> {
        PluginClient::new(self.channel.clone())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Starts a plugin in `folder` and configures it; `null` is no configuration.
pub async fn start<F, Fut>(
    folder: &Path,
    info: Info,
    configuration: Value,
    build: F,
) -> Result<Plugin, Refusal>
where
    F: Fn(Setup) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Routes, Refusal>> + Send + 'static,
{
    let plugin = unconfigured(folder, info, build)?;
    let configuration_json = if configuration.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(&configuration)?
    };
    let request = proto::plugin::ConfigureRequest { configuration_json };
    plugin
        .base()
        .configure(request)
        .await
        .map_err(|status| Refusal::new(status.message()))?;
    Ok(plugin)
}

/// Starts a plugin in `folder` that waits for its Configure.
pub fn unconfigured<F, Fut>(folder: &Path, info: Info, build: F) -> Result<Plugin, Refusal>
where
    F: Fn(Setup) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Routes, Refusal>> + Send + 'static,
{
    let socket = folder.join("plugin.sock");
    let listener = start::bind(&socket)?;
    let identity = ProcessIdentity {
        name: info.name.to_owned(),
        generation: 1,
        dir: folder.to_owned(),
    };
    let base = Base::new(info, identity, build);
    let serving =
        tokio::spawn(serve::accept(base, listener, watch::Sender::new(0))?).abort_handle();
    Ok(Plugin {
        channel: connect(&socket),
        socket,
        serving,
    })
}

/// Returns a report of health outside of a plugin, for tests of what reports there.
///
/// # Panics
/// If no plugin can be served in `folder`.
pub async fn health(folder: &Path) -> Health {
    let info = Info {
        name: "health",
        version: "0",
        kind: Kind::Storage,
        capabilities: vec![],
    };
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let plugin = start(folder, info, Value::Null, move |setup| {
        let sent = sender.send(setup.health);
        async move {
            sent.map(|()| Routes::default())
                .map_err(|error| Refusal::new(error.to_string()))
        }
    });
    drop(plugin.await.expect("a plugin without services starts"));
    receiver
        .recv()
        .await
        .expect("a plugin that started was built")
}

/// A channel to whatever serves gRPC on a Unix socket. Connects at the first call, and again when
/// the connection is lost.
pub fn connect(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    // Servers in Go refuse the socket's path as authority: any valid name will do.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(
        move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        },
    ))
}
