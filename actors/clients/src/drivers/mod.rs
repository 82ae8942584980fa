//! The client of DRA drivers: prepares and unprepares claims, and follows the health of devices.
//!
//! One connection a socket, which calls and the health stream share. When it ends, [`DriverClient::closed`] says so, and
//! whoever keeps the client makes a new one. Upstream: pkg/kubelet/cm/dra/plugin/dra_plugin.go (1.36).

mod convert;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use logic_placement::claims::health::{DeviceHealth, DeviceKey};
use logic_placement::claims::{
    ClaimDevice, ClaimIdentity, DriverAnswer, DriverEndpoint, DriverName, NodeService,
};
use proto::dra::dra_plugin_client::DraPluginClient;
use proto::dra_health::NodeWatchResourcesRequest;
use proto::dra_health::NodeWatchResourcesResponse;
use proto::dra_health::dra_resource_health_client::DraResourceHealthClient;
use proto::dra_v1beta1::dra_plugin_client::DraPluginClient as OlderClient;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::service_fn;

use self::stream::MonitoredStream;
use crate::rpc_error::{code_name, rpc_error_text};

/// Bytes; a driver's error comes in one header, and may quote a log.
const MAX_HEADERS: u32 = 256 << 10;

const PREPARE: &str = "NodePrepareResources";
const UNPREPARE: &str = "NodeUnprepareResources";

/// Why a driver's call failed, as Go's gRPC prints it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", rpc_error_text(*.code, .message))]
pub struct DriverCallError {
    code: Code,
    message: String,
}

/// A connection to a driver's socket. Clones share it.
#[derive(Clone, Debug)]
pub struct DriverClient {
    driver: DriverName,
    service: NodeService,
    channel: Channel,
    closed: CancellationToken,
}

/// The reports of a driver about its devices.
#[derive(Debug)]
pub struct HealthReports(Streaming<NodeWatchResourcesResponse>);

impl DriverCallError {
    fn late() -> Self {
        Self {
            code: Code::DeadlineExceeded,
            message: "context deadline exceeded".to_owned(),
        }
    }

    /// Returns whether the driver does not know the call: it will not later, either.
    pub fn is_unimplemented(&self) -> bool {
        self.code == Code::Unimplemented
    }

    /// Returns whether the same call may succeed later.
    pub fn transient(&self) -> bool {
        !self.is_unimplemented()
    }
}

impl From<Status> for DriverCallError {
    fn from(status: Status) -> Self {
        if status.code() == Code::Cancelled && status.message() == "Timeout expired" {
            return Self::late();
        }
        // What the client found out by itself has a source, what came over the wire has none.
        match causes(&status).last() {
            Some(cause) => Self {
                code: Code::Unavailable,
                message: format!("error reading from server: {cause}"),
            },
            None => Self {
                code: status.code(),
                message: status.message().to_owned(),
            },
        }
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

impl DriverClient {
    /// Connects to a driver's socket.
    ///
    /// # Errors
    /// Unavailable: no server is there. DeadlineExceeded: it does not take the connection `within` that time.
    pub async fn connect(
        driver: &DriverName,
        endpoint: &DriverEndpoint,
        within: Duration,
    ) -> Result<Self, DriverCallError> {
        let closed = CancellationToken::new();
        let connected = timeout(within, open(&endpoint.socket, &closed)).await;
        Ok(Self {
            driver: driver.clone(),
            service: endpoint.service,
            channel: connected.map_err(|_| DriverCallError::late())??,
            closed,
        })
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Has the driver prepare claims.
    ///
    /// # Errors
    /// The driver's status about the call as a whole, or DeadlineExceeded.
    pub async fn prepare(
        &self,
        claims: &[ClaimIdentity],
        within: Duration,
    ) -> Result<DriverAnswer<Vec<ClaimDevice>>, DriverCallError> {
        match self.service {
            NodeService::V1 => {
                let request = request(convert::prepare_request(claims), within);
                let mut client = DraPluginClient::new(self.channel.clone());
                let call = client.node_prepare_resources(request);
                let answer = self.measured(PREPARE, within, call).await?;
                Ok(convert::prepare_answer(answer))
            }
            NodeService::V1Beta1 => {
                let request = request(convert::older_prepare_request(claims), within);
                let mut client = OlderClient::new(self.channel.clone());
                let call = client.node_prepare_resources(request);
                let answer = self.measured(PREPARE, within, call).await?;
                Ok(convert::older_prepare_answer(answer))
            }
        }
    }

    /// Has the driver undo what it prepared.
    ///
    /// # Errors
    /// The driver's status about the call as a whole, or DeadlineExceeded.
    pub async fn unprepare(
        &self,
        claims: &[ClaimIdentity],
        within: Duration,
    ) -> Result<DriverAnswer<()>, DriverCallError> {
        match self.service {
            NodeService::V1 => {
                let request = request(convert::unprepare_request(claims), within);
                let mut client = DraPluginClient::new(self.channel.clone());
                let call = client.node_unprepare_resources(request);
                let answer = self.measured(UNPREPARE, within, call).await?;
                Ok(convert::unprepare_answer(answer))
            }
            NodeService::V1Beta1 => {
                let request = request(convert::older_unprepare_request(claims), within);
                let mut client = OlderClient::new(self.channel.clone());
                let call = client.node_unprepare_resources(request);
                let answer = self.measured(UNPREPARE, within, call).await?;
                Ok(convert::older_unprepare_answer(answer))
            }
        }
    }

    /// Begins to follow the health of the driver's devices.
    ///
    /// # Errors
    /// Unimplemented: the driver reports none.
    pub async fn watch_health(&self) -> Result<HealthReports, DriverCallError> {
        let mut client = DraResourceHealthClient::new(self.channel.clone());
        let stream = client.node_watch_resources(NodeWatchResourcesRequest {});
        Ok(HealthReports(stream.await?.into_inner()))
    }

    /// Waits for an answer until its deadline, and counts it under the method's name.
    async fn measured<T>(
        &self,
        rpc: &'static str,
        within: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, DriverCallError> {
        let begun = kernel::now();
        let answer = match timeout(within, call).await {
            Ok(answer) => answer.map_err(DriverCallError::from),
            Err(_) => Err(DriverCallError::late()),
        };
        let code = answer
            .as_ref()
            .map_or_else(|error| error.code, |_| Code::Ok);
        let took = kernel::now().saturating_duration_since(begun);
        let method = format!(
            "/k8s.io.kubelet.pkg.apis.dra.{}/{rpc}",
            self.service.as_str()
        );
        metrics::node::dynamic_resources::called(
            self.driver.as_str(),
            &method,
            &code_name(code),
            took,
        );
        Ok(answer?.into_inner())
    }
}

impl HealthReports {
    /// Waits for the driver's next report of all its devices; none: it has no more.
    ///
    /// # Errors
    /// The stream broke off.
    pub async fn next(
        &mut self,
    ) -> Result<Option<BTreeMap<DeviceKey, DeviceHealth>>, DriverCallError> {
        let report = self.0.message().await?;
        Ok(report.map(convert::health_report))
    }
}

/// A request that tells the driver how long it is waited for.
fn request<T>(message: T, within: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(within);
    request
}

/// Connects once: a channel that lost its connection makes no other.
async fn open(socket: &Path, closed: &CancellationToken) -> Result<Channel, DriverCallError> {
    let unavailable = |message: String| DriverCallError {
        code: Code::Unavailable,
        message,
    };
    let stream = UnixStream::connect(socket).await.map_err(|error| {
        let (socket, why) = (socket.display(), error.kind());
        unavailable(format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {socket}: connect: {why}\""
        ))
    })?;
    let stream = MonitoredStream::new(stream, closed.clone().drop_guard());
    let mut stream = Some(TokioIo::new(stream));
    // Servers in Go refuse the socket's path as authority: any valid name will do.
    Endpoint::from_static("http://localhost")
        .http2_max_header_list_size(MAX_HEADERS)
        .connect_with_connector(service_fn(move |_: Uri| {
            let stream = stream.take();
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
        }))
        .await
        .map_err(|error| unavailable(error.to_string()))
}
