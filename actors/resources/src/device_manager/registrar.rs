//! The service that plugins register with, on the agent's socket in their folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use accept::Acceptor;
use futures_util::stream;
use kernel::{Addr, Context, Exit};
use logic_placement::devices::Registration;
use metrics::node::device_plugins::REGISTRATIONS;
use proto::device_plugin as wire;
use proto::device_plugin::registration_server;
use serving::listen;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::{DeviceManager, Msg, folder};
use crate::authority::AnyAuthority;

/// A plugin registers by one call on a connection of its own.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Longer than a plugin is waited for that is to be connected to.
pub(super) const REGISTER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a plugin serves its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginEndpoint {
    /// At the path that it has registered with, below the folder of device plugins.
    InFolder,
    /// At this path: it was found among the node plugins.
    At(PathBuf),
}

/// A plugin that is to be registered, and who hears what comes of it.
#[derive(Debug)]
pub struct RegistrationCall {
    pub registration: Registration,
    pub endpoint: PluginEndpoint,
    /// Hears a sentence for the plugin where it is not registered.
    pub reply: oneshot::Sender<Result<(), String>>,
}

impl RegistrationCall {
    /// Returns the path of the plugin's socket.
    pub(super) fn socket(&self, folder: &Path) -> PathBuf {
        match &self.endpoint {
            PluginEndpoint::InFolder => {
                folder.join(self.registration.endpoint.trim_start_matches('/'))
            }
            PluginEndpoint::At(path) => path.clone(),
        }
    }

    /// Answers; a plugin that no longer waits is no concern.
    pub(super) fn answer(self, answer: Result<(), String>) {
        drop(self.reply.send(answer));
    }
}

/// The service; a call is a message to the device manager.
#[derive(Debug)]
struct Registrar(Addr<Msg>);

#[tonic::async_trait]
impl registration_server::Registration for Registrar {
    async fn register(
        &self,
        request: Request<wire::RegisterRequest>,
    ) -> Result<Response<wire::Empty>, Status> {
        let wire::RegisterRequest {
            version,
            endpoint,
            resource_name,
            options: _,
        } = request.into_inner();
        let registration = Registration {
            version,
            endpoint,
            resource: resource_name,
        };
        let (reply, answer) = oneshot::channel();
        let call = RegistrationCall {
            registration,
            endpoint: PluginEndpoint::InFolder,
            reply,
        };
        let sent = self.0.send(Msg::Register(call), REGISTER_TIMEOUT).await;
        sent.map_err(|_| Status::unavailable("the device manager is overloaded"))?;
        match tokio::time::timeout(REGISTER_TIMEOUT, answer).await {
            Ok(Ok(Ok(()))) => Ok(Response::new(wire::Empty {})),
            Ok(Ok(Err(refusal))) => Err(Status::unknown(refusal)),
            Ok(Err(_)) => Err(Status::unavailable("the device manager restarts")),
            Err(_) => Err(Status::deadline_exceeded(
                "the device manager does not answer",
            )),
        }
    }
}

impl DeviceManager {
    /// Makes the socket anew, which plugins wait for to register again, and serves on it.
    pub(super) async fn serve(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::unix(&folder::socket(&self.folder)).await?;
        let service = registration_server::RegistrationServer::new(Registrar(ctx.addr().clone()));
        ctx.run(async move {
            let served = Server::builder()
                .concurrency_limit_per_connection(MAX_CONCURRENT_REQUESTS)
                .add_service(service)
                .serve_with_incoming(incoming(listener))
                .await;
            match served {
                Err(error) => Msg::ListenerFailed(error),
                // The incoming connections never end.
                Ok(()) => std::future::pending().await,
            }
        });
        Ok(())
    }
}

fn incoming(
    listener: UnixListener,
) -> impl futures_util::Stream<Item = std::io::Result<AnyAuthority<UnixStream>>> {
    let acceptor = Acceptor::new("the device manager");
    stream::unfold(
        (listener, acceptor),
        |(listener, mut acceptor)| async move {
            let accepted = acceptor.accept(|| listener.accept()).await;
            let connection = accepted.map(|(stream, _)| AnyAuthority::new(stream));
            Some((connection, (listener, acceptor)))
        },
    )
}

/// Counts a registration, be it one or not, as upstream.
pub(super) fn count(registration: &Registration) {
    let labels = [registration.resource.as_str()];
    REGISTRATIONS.with_label_values(&labels).inc();
}
