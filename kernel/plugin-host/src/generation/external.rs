//! An external plugin's endpoint: it may be down for long, and may be no plugin of ours at all.

use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::transport::Channel;

use super::GenerationTask;
use super::handshake::{HandshakeError, info};
use super::update::{GenerationEvent, GenerationExit};
use crate::connection::direct;
use crate::error::chain;
use crate::health::PluginHealth;

/// Between attempts to reach it.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl GenerationTask {
    /// Lives with an endpoint until ordered to let go of it.
    pub(super) async fn external(&self, endpoint: &Path) -> GenerationExit {
        let name = &self.declaration.name;
        let control = direct(endpoint);
        tokio::select! {
            biased;
            () = self.ordered() => GenerationExit::Finished { exit: None },
            error = self.attend_external(endpoint, &control) => {
                tracing::warn!(plugin = name, endpoint = %endpoint.display(), "{error}; connecting again");
                GenerationExit::Failed { why: error.to_string(), exit: None }
            }
        }
    }

    /// As `attend`, for an endpoint that may be down for long, and may be no plugin of ours at all.
    async fn attend_external(&self, endpoint: &Path, control: &Channel) -> HandshakeError {
        let pause = self.declaration.health_interval.min(MAX_RETRY_INTERVAL);
        loop {
            let response = timeout(self.declaration.start_within, info(control)).await;
            match response {
                Ok(Ok(_)) => return self.attend(control).await,
                Ok(Err(status)) if status.code() == Code::Unimplemented => break,
                Ok(Err(status)) => self.unreachable(endpoint, chain(&status)).await,
                Err(_) => self.unreachable(endpoint, "no answer".to_owned()).await,
            }
            sleep(pause).await;
        }
        self.probe(endpoint).await
    }

    async fn unreachable(&self, endpoint: &Path, why: String) {
        let why = format!("cannot talk to {}: {why}", endpoint.display());
        self.tell(GenerationEvent::Unreachable { why }).await;
    }

    /// Watches an endpoint that is no plugin of ours: it is well as long as it accepts connections.
    async fn probe(&self, endpoint: &Path) -> ! {
        let mut last = None;
        loop {
            let report = match UnixStream::connect(endpoint).await {
                Ok(stream) => reachable(&stream),
                Err(error) => PluginHealth {
                    healthy: false,
                    reason: format!("cannot connect to {}: {error}", endpoint.display()),
                    attributes: [].into(),
                },
            };
            if last.as_ref() != Some(&report) {
                last = Some(report.clone());
                self.tell(GenerationEvent::Reported(report)).await;
            }
            sleep(self.declaration.health_interval).await;
        }
    }
}

fn reachable(stream: &UnixStream) -> PluginHealth {
    // Here the credentials are worth something: the listener is the endpoint's own.
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let attributes = pid
        .map(|pid| ("pid".to_owned(), pid.to_string()))
        .into_iter()
        .collect();
    PluginHealth {
        healthy: true,
        reason: String::new(),
        attributes,
    }
}
