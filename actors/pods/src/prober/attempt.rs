//! One attempt of a probe, repeated up to three times while it cannot be carried out.

use std::sync::Arc;
use std::time::Duration;

use clients::probe_client::exec::{self, ProbeExecError};
use clients::probe_client::grpc::HealthCheckRequest;
use clients::probe_client::http::HttpError;
use k8s_openapi::api::core::v1::{self as core, Container, Pod};
use logic_api::pod::PodView;
use logic_api::types::ContainerId;
use logic_pods::probes::ProbeKind;
use logic_pods::probes::result::{self, MAX_ATTEMPTS, ProbeError, ProbeOutcome};
use logic_pods::probes::schedule::ProbeTiming;
use logic_pods::probes::target::{self, HttpTarget, RequestPurpose};

use super::Peers;

/// What one attempt needs; it owns all of it.
pub(super) struct Attempt {
    pub(super) peers: Peers,
    pub(super) pod: Arc<Pod>,
    pub(super) container: String,
    pub(super) instance: ContainerId,
    pub(super) kind: ProbeKind,
    pub(super) address: String,
}

impl Attempt {
    /// Returns the outcome. An error means that the probe could not be carried out, which counts as no result.
    pub(super) async fn make(self) -> Result<ProbeOutcome, ProbeError> {
        let found = self.pod.container(&self.container);
        let probe = found
            .as_ref()
            .and_then(|(_, container)| Some((container, self.kind.of(container)?)));
        let Some((container, probe)) = probe else {
            return Err(self.no_handler());
        };
        let mut outcome = Err(self.no_handler());
        for _ in 0..MAX_ATTEMPTS {
            outcome = self.once(container, probe).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn once(
        &self,
        container: &Container,
        probe: &core::Probe,
    ) -> Result<ProbeOutcome, ProbeError> {
        let within = ProbeTiming::of(probe).timeout;
        if let Some(exec) = &probe.exec {
            let command = exec.command.as_deref().unwrap_or_default();
            let command = target::command(command, container).map_err(unknown)?;
            self.exec(&command, within).await
        } else if let Some(get) = &probe.http_get {
            let target = HttpTarget::of(get, container, &self.address, RequestPurpose::Probe);
            self.http(&target.map_err(unknown)?, within).await
        } else if let Some(tcp) = &probe.tcp_socket {
            let port = target::port(&tcp.port, container).map_err(unknown)?;
            let host = target::host(tcp.host.as_deref(), &self.address);
            let dialled = self.peers.probe_client.dial(host, port, within).await;
            Ok(match dialled {
                Ok(_) => ProbeOutcome::Success(String::new()),
                Err(error) => ProbeOutcome::Failure(error.to_string()),
            })
        } else if let Some(grpc) = &probe.grpc {
            let port = k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(grpc.port);
            let question = HealthCheckRequest {
                host: &self.address,
                port: target::port(&port, container).map_err(unknown)?,
                service: grpc.service.as_deref().unwrap_or_default(),
            };
            Ok(self.peers.probe_client.health(question, within).await)
        } else {
            Err(self.no_handler())
        }
    }

    async fn exec(&self, command: &[String], within: Duration) -> Result<ProbeOutcome, ProbeError> {
        match exec::run(&self.peers.runtime, &self.instance, command, within).await {
            Ok(ran) if ran.exit_code == 0 => Ok(ProbeOutcome::Success(ran.output)),
            Ok(ran) => Ok(ProbeOutcome::Failure(ran.output)),
            Err(ProbeExecError::Timeout(text)) => Ok(ProbeOutcome::Failure(text)),
            Err(ProbeExecError::Runtime(text)) => Err(ProbeError::Unknown(text)),
        }
    }

    async fn http(
        &self,
        target: &HttpTarget,
        within: Duration,
    ) -> Result<ProbeOutcome, ProbeError> {
        match self.peers.probe_client.get(target, within).await {
            Ok(answer) => Ok(result::of_status(answer.status, answer.body)),
            Err(error @ HttpError::Get { .. }) => Ok(ProbeOutcome::Failure(error.to_string())),
            Err(error @ HttpError::Body(_)) => Err(ProbeError::BrokenOff(error.to_string())),
        }
    }

    fn no_handler(&self) -> ProbeError {
        let (pod, container) = (self.pod.formatted(), &self.container);
        ProbeError::Unknown(format!("missing probe handler for {pod}:{container}"))
    }
}

fn unknown(error: impl std::error::Error) -> ProbeError {
    ProbeError::Unknown(error.to_string())
}
