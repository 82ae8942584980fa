//! gRPC's health check, `grpc.health.v1.Health/Check`, on a plain connection: one call, one connection.
//!
//! Not tonic's client: a probe counts the bytes and the headers of a response, and reads an HTTP status as Go's does.

use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use logic_api::text::go_duration::go_duration;
use logic_pods::probes::result::ProbeOutcome;
use logic_pods::probes::target::{RequestPurpose, authority};
use prost::Message as _;
use prost::bytes::{BufMut as _, BytesMut};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{DialError, ProbeClient};
use crate::rpc_error::rpc_error_text;

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const PATH: &str = "/grpc.health.v1.Health/Check";
/// Bytes of a response: enough for a status and an unknown field or two.
const MAX_RESPONSE: usize = 4 << 10;
/// Bytes of the response's headers, which are kept until it is read.
const MAX_HEADERS: u32 = 256 << 10;
/// Bytes that the server may send ahead, on a stream and on the connection: the protocol's own default.
const WINDOW_BYTES: u32 = (64 << 10) - 1;
/// Between attempts to connect; the first back-off of gRPC's own clients.
const DIAL_RETRY_PERIOD: Duration = Duration::from_secs(1);

/// The service to ask for, and the address of the server.
#[derive(Debug, Clone, Copy)]
pub struct HealthCheckRequest<'a> {
    pub host: &'a str,
    pub port: u16,
    /// The name of the service; empty for the server as a whole.
    pub service: &'a str,
}

impl ProbeClient {
    /// Asks for the health of a service, within this time altogether. Every error is a failed probe.
    pub async fn health(&self, question: HealthCheckRequest<'_>, within: Duration) -> ProbeOutcome {
        let until = kernel::now() + within;
        let address = authority(question.host, question.port);
        let stream = match timeout(within, self.dial_on(question, within)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return ProbeOutcome::Failure(format!(
                    "error: failed to connect service at {address:?}: {error}"
                ));
            }
            Err(_) => {
                return ProbeOutcome::Failure(format!(
                    "timeout: failed to connect service {address:?} within {}: context deadline exceeded",
                    go_duration(within)
                ));
            }
        };
        let left = until.saturating_duration_since(kernel::now());
        // Boxed: the state of an HTTP/2 connection is large.
        match timeout(left, Box::pin(check(stream, &address, question.service))).await {
            Ok(Ok(status)) => healthy(status),
            Ok(Err(status)) => failed(&status),
            Err(_) => ProbeOutcome::Failure(format!(
                "timeout: health rpc did not complete within {}",
                go_duration(within)
            )),
        }
    }

    /// Dials again until the server accepts.
    async fn dial_on(
        &self,
        question: HealthCheckRequest<'_>,
        within: Duration,
    ) -> Result<TcpStream, DialError> {
        loop {
            match self.dial(question.host, question.port, within).await {
                Err(DialError::Refused { .. } | DialError::Lookup { .. }) => {
                    tokio::time::sleep(DIAL_RETRY_PERIOD).await;
                }
                end => return end,
            }
        }
    }
}

/// The outcome for a `ServingStatus`, in upstream's text.
fn healthy(status: i32) -> ProbeOutcome {
    let name = match status {
        1 => return ProbeOutcome::Success("service healthy".to_owned()),
        0 => "UNKNOWN".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    };
    ProbeOutcome::Failure(format!("service unhealthy (responded with {name:?})"))
}

fn failed(status: &Status) -> ProbeOutcome {
    let (code, message) = (status.code(), status.message());
    ProbeOutcome::Failure(match code == Code::Unimplemented {
        true => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        ),
        false => format!(
            "error: health rpc probe failed: {}",
            rpc_error_text(code, message)
        ),
    })
}

async fn check(stream: TcpStream, address: &str, service: &str) -> Result<i32, Status> {
    let request = request(address, service)?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let shaken = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| unavailable(&error))?;
    let asked = async {
        let response = sender.send_request(request).await;
        read(response.map_err(|error| unavailable(&error))?).await
    };
    let (mut asked, connection) = (pin!(asked), pin!(connection));
    tokio::select! {
        biased;
        status = &mut asked => status,
        // The connection ended; its response is still to be read, and its error is the request's as well.
        _ = connection => asked.await,
    }
}

fn unavailable(error: &hyper::Error) -> Status {
    let cause = std::error::Error::source(error);
    let why = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    Status::unavailable(why)
}

fn request(address: &str, service: &str) -> Result<Request<Full<Bytes>>, Status> {
    let asked = Request::post(format!("http://{address}{PATH}"))
        .header(USER_AGENT, RequestPurpose::Probe.user_agent())
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(TE, HeaderValue::from_static("trailers"))
        .body(Full::new(framed(service)));
    asked.map_err(|error| Status::internal(error.to_string()))
}

/// The message behind gRPC's prefix: not compressed, and its length.
fn framed(service: &str) -> Bytes {
    let message = CheckRequest {
        service: service.to_owned(),
    };
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

async fn read(response: Response<Incoming>) -> Result<i32, Status> {
    let http = response.status();
    if let Some(status) = Status::from_header_map(response.headers())
        && status.code() != Code::Ok
    {
        return Err(status);
    }
    if http != StatusCode::OK {
        return Err(of_http(http));
    }
    let mut body = response.into_body();
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| unavailable(&error))?.into_data() {
            Ok(data) if kept.len() + data.len() > MAX_RESPONSE => {
                return Err(Status::resource_exhausted(format!(
                    "grpc: received message larger than max ({MAX_RESPONSE})"
                )));
            }
            Ok(data) => kept.extend_from_slice(&data),
            Err(frame) => {
                let trailers = frame.trailers_ref();
                let status = trailers.and_then(Status::from_header_map);
                if let Some(status) = status.filter(|status| status.code() != Code::Ok) {
                    return Err(status);
                }
            }
        }
    }
    answered(&kept).ok_or_else(|| Status::internal("grpc: the answer is no HealthCheckResponse"))
}

fn of_http(status: StatusCode) -> Status {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    let text = format!("unexpected HTTP status code received from server: {status}");
    Status::new(code, text)
}

/// Returns the `ServingStatus` of a framed response; none if the frame is malformed.
fn answered(frame: &[u8]) -> Option<i32> {
    let (prefix, message) = frame.split_at_checked(PREFIX)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    let message = message.get(..length).filter(|_| prefix[0] == 0)?;
    Some(CheckResponse::decode(message).ok()?.status)
}

/// `HealthCheckRequest` of grpc/health/v1/health.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse` of the same file; its status stays a number, for a server may know more of them.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}
