//! gRPC's health check, `grpc.health.v1.Health/Check`, on a plain connection: one call, one connection.
//!
//! The two messages have one field each, so they are written and read here, without a generated client.

use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use logic_api::go_duration::go_duration;
use logic_pods::probes::result::ProbeOutcome;
use logic_pods::probes::target::{RequestPurpose, authority};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{DialError, ProbeClient};

const PATH: &str = "/grpc.health.v1.Health/Check";
/// Bytes of a response: enough for a status and an unknown field or two.
const MAX_RESPONSE: usize = 4 << 10;
/// Bytes of the response's headers.
const MAX_HEADERS: u32 = 16 << 10;
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
fn healthy(status: u64) -> ProbeOutcome {
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
        false => format!("error: health rpc probe failed: {}", said(code, message)),
    })
}

/// An error status as Go's gRPC prints it.
pub(super) fn said(code: Code, message: &str) -> String {
    let code = match code == Code::Cancelled {
        true => "Canceled".to_owned(),
        false => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {message}")
}

async fn check(stream: TcpStream, address: &str, service: &str) -> Result<u64, Status> {
    let request = request(address, service)?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_header_list_size(MAX_HEADERS);
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
        .body(Full::from(framed(service)));
    asked.map_err(|error| Status::internal(error.to_string()))
}

/// The frame of `HealthCheckRequest { string service = 1 }`: gRPC's prefix (uncompressed, length) and the message.
fn framed(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        varint(service.len() as u64, &mut message);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.append(&mut message);
    frame
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

async fn read(response: Response<Incoming>) -> Result<u64, Status> {
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

/// The `status` of a framed `HealthCheckResponse { ServingStatus status = 1 }`; none if the frame is malformed.
fn answered(frame: &[u8]) -> Option<u64> {
    let (prefix, message) = frame.split_at_checked(5)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    let mut rest = message.get(..length).filter(|_| prefix[0] == 0)?;
    let mut status = 0;
    while !rest.is_empty() {
        let (key, after) = taken(rest)?;
        rest = match key & 7 {
            0 => {
                let (value, after) = taken(after)?;
                if key >> 3 == 1 {
                    status = value;
                }
                after
            }
            1 => after.get(8..)?,
            2 => {
                let (length, after) = taken(after)?;
                after.get(usize::try_from(length).ok()?..)?
            }
            5 => after.get(4..)?,
            _ => return None,
        };
    }
    Some(status)
}

/// Takes a varint off the front; returns it and the rest.
fn taken(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(last + 1);
    let add = |sum: u64, byte: &u8| sum.checked_shl(7).unwrap_or_default() | u64::from(byte & 0x7f);
    Some((number.iter().rev().fold(0, add), rest))
}
