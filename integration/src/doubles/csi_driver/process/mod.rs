//! The driver's own process.

mod broken;
mod controller;
mod dispatcher;
mod group;
pub(super) mod record;
mod request_json;
mod rules;
mod services;
pub(super) mod usage;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use proto::csi::controller_server::ControllerServer;
use proto::csi::identity_server::IdentityServer;
use proto::csi::node_server::NodeServer;
use proto::registration::registration_server::RegistrationServer;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::util::MapResponseLayer;

use self::dispatcher::Dispatcher;
use self::services::Services;
use super::{DriverOptions, RegistrationMode};
use crate::doubles::child_process::orphaned;

/// Serves until SIGTERM; then the driver removes its registration socket.
pub async fn run(options: DriverOptions) -> Result<()> {
    for folder in ["backing", "blocks", "volumes"] {
        fs::create_dir_all(options.dir.join(folder))?;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let services = Services {
        dispatcher: Arc::new(Dispatcher::new(options.clone())),
    };
    let routes = Routes::new(NodeServer::new(services.clone()))
        .add_service(IdentityServer::new(services.clone()))
        .add_service(ControllerServer::new(services.clone()))
        .add_service(RegistrationServer::new(services));
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(serve(listen(&options.endpoint())?, routes.clone()));
    let introduced = introductions(&options);
    for socket in &introduced {
        match options.registration == RegistrationMode::PlainFile {
            true => fs::write(socket, "this is no socket\n")?,
            false => drop(serving.spawn(serve(listen(socket)?, routes.clone()))),
        }
    }
    tokio::select! {
        _ = terminate.recv() => {}
        () = orphaned() => {}
        ended = serving.join_next() => ended.context("nothing is served")???,
    }
    for socket in introduced {
        fs::remove_file(&socket).ok();
    }
    Ok(())
}

/// The sockets by which it registers.
fn introductions(options: &DriverOptions) -> Vec<PathBuf> {
    let socket = options.registration_socket();
    match options.registration {
        RegistrationMode::Nothing => Vec::new(),
        RegistrationMode::Twice => {
            let second = socket.with_file_name(format!("{}-second-reg.sock", options.name));
            vec![socket, second]
        }
        RegistrationMode::Normal
        | RegistrationMode::OtherName
        | RegistrationMode::OtherType
        | RegistrationMode::WrongVersion
        | RegistrationMode::Silent
        | RegistrationMode::PlainFile => vec![socket],
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
    Server::builder()
        .layer(MapResponseLayer::new(broken::break_marked))
        .add_routes(routes)
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}
