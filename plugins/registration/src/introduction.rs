//! The registration of one socket (upstream's pluginmanager/operationexecutor, 1.36): it is asked for its name and
//! type, and notified of the result of its registration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::registration::registration_client::RegistrationClient;
use proto::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use tokio::time::timeout;
use tonic::transport::Channel;

use crate::rpc::{self, ConnectRetry};

/// How long a connection with a plugin's socket may take: upstream's.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a plugin may take to say what it is: upstream's.
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a plugin may take to hear whether it is registered: upstream's.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// A name, an endpoint and a few versions.
const INFO_LIMIT: usize = 64 << 10;

/// The registration calls to one socket.
#[derive(Debug)]
pub(crate) struct Introduction {
    socket: PathBuf,
    client: RegistrationClient<Channel>,
    info: PluginInfo,
}

/// The result of GetInfo.
#[derive(Debug)]
pub(crate) enum Inquiry {
    /// It is a plugin of the handler's type.
    Handled(Box<Introduction>),
    /// It is a plugin of another type, this one.
    Foreign(String),
}

impl Introduction {
    /// Calls GetInfo on a socket.
    pub(crate) async fn begin(socket: &Path, handled: &str) -> Result<Inquiry, String> {
        let mut client = dial(socket).await?;
        let request = rpc::request(InfoRequest {}, INFO_TIMEOUT);
        let info = rpc::finish(INFO_TIMEOUT, client.get_info(request)).await;
        let mut info = info.map_err(|failure| {
            format!(
                "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {}, err: {failure}",
                socket.display()
            )
        })?;
        if info.r#type != handled {
            return Ok(Inquiry::Foreign(info.r#type));
        }
        if info.endpoint.is_empty() {
            info.endpoint = socket.display().to_string();
        }
        Ok(Inquiry::Handled(Box::new(Self {
            socket: socket.to_owned(),
            client,
            info,
        })))
    }

    /// The name that it gives.
    pub(crate) fn name(&self) -> &str {
        &self.info.name
    }

    /// Returns the plugin's answer to GetInfo.
    pub(crate) fn info(&self) -> &PluginInfo {
        &self.info
    }

    /// Tells it how it went: with a reason, that it was refused.
    pub(crate) async fn notify(mut self, refusal: Option<&str>) {
        let status = RegistrationStatus {
            plugin_registered: refusal.is_none(),
            error: refusal.unwrap_or_default().to_owned(),
        };
        let request = rpc::request(status, NOTIFY_TIMEOUT);
        let answer = rpc::finish(
            NOTIFY_TIMEOUT,
            self.client.notify_registration_status(request),
        )
        .await;
        if let Err(failure) = answer {
            tracing::warn!(
                "RegisterPlugin error -- failed to send registration status at socket {}, err: {failure}",
                self.socket.display()
            );
        }
    }
}

/// The error that a plugin is notified of when its GetInfo was wrong.
pub(crate) fn invalid(why: &str) -> String {
    format!("RegisterPlugin error -- plugin validation failed with err: {why}")
}

/// The error that a plugin is notified of when its handler could not register it.
pub(crate) fn failed(why: &str) -> String {
    format!("RegisterPlugin error -- plugin registration failed with err: {why}")
}

async fn dial(socket: &Path) -> Result<RegistrationClient<Channel>, String> {
    let why = match timeout(DIAL_TIMEOUT, rpc::connect(socket, ConnectRetry::Starting)).await {
        Ok(Ok(channel)) => {
            return Ok(RegistrationClient::new(channel).max_decoding_message_size(INFO_LIMIT));
        }
        Ok(Err(failure)) => failure.to_string(),
        Err(_) => "context deadline exceeded".to_owned(),
    };
    let socket = socket.display();
    Err(format!(
        "RegisterPlugin error -- dial failed at socket {socket}, err: failed to dial socket {socket}, err: {why}"
    ))
}
