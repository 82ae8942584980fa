//! One HTTP GET with its redirects, as Go's client does it for upstream: one connection each, no proxy, no
//! compression, HTTP/1.1 alone.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use logic_pods::probes::redirect::{self, RedirectDecision};
use logic_pods::probes::target::HttpTarget;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::stream::ProbeStream;
use super::tls::TlsError;
use super::{DialError, MAX_BODY, ProbeClient};

/// Bytes of what is needed of a response's head; more is an error.
const MAX_HEADERS: usize = 64 << 10;

/// A server's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The first [`MAX_BODY`] bytes of the body.
    pub body: String,
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("Get {url:?}: {why}")]
    Get { url: String, why: GetError },
    /// The head was received, the body was not: there is no response to judge.
    #[error("{0}")]
    Body(String),
}

/// Why the head of the response was not received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    #[error("unsupported protocol scheme {0:?}")]
    Scheme(String),
    #[error("net/http: invalid header field {0}")]
    Header(String),
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("http: server gave HTTP response to HTTPS client")]
    SpeaksHttp,
    #[error("{0}")]
    Broken(String),
    #[error("failed to parse Location header {0:?}")]
    Location(String),
    #[error("stopped after {} redirects", redirect::MAX_REDIRECTS)]
    Redirects,
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
}

impl HttpError {
    /// Whether the head of a response was received.
    pub fn in_body(&self) -> bool {
        matches!(self, HttpError::Body(_))
    }

    /// Whether the deadline passed before the head of a response was received.
    pub fn is_deadline(&self) -> bool {
        match self {
            HttpError::Get { why, .. } => *why == GetError::Timeout,
            HttpError::Body(_) => false,
        }
    }

    /// Whether the server spoke plain HTTP where HTTPS was expected.
    pub fn speaks_http(&self) -> bool {
        match self {
            HttpError::Get { why, .. } => *why == GetError::SpeaksHttp,
            HttpError::Body(_) => false,
        }
    }
}

impl From<TlsError> for GetError {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::SpeaksHttp => GetError::SpeaksHttp,
            TlsError::Handshake(_) => GetError::Broken(error.to_string()),
        }
    }
}

impl ProbeClient {
    /// Gets the target and follows its redirects, within this time altogether.
    ///
    /// # Errors
    /// [`HttpError::Get`] where no head of a response came, [`HttpError::Body`] where it broke off; both fail a
    /// probe.
    pub async fn get(
        &self,
        target: &HttpTarget,
        within: Duration,
    ) -> Result<HttpResponse, HttpError> {
        let until = kernel::now() + within;
        let (mut current, mut followed) = (target.clone(), 0);
        loop {
            let at = |why| HttpError::Get {
                url: current.url.clone(),
                why,
            };
            let got = self.once(&current, until).await?;
            let location = got.location.as_deref();
            match redirect::next(target, &current, (got.answer.status, location), followed) {
                RedirectDecision::Answer => return Ok(got.answer),
                RedirectDecision::Follow(next) => (current, followed) = (*next, followed + 1),
                RedirectDecision::TooMany => return Err(at(GetError::Redirects)),
                RedirectDecision::Unreadable(location) => {
                    return Err(at(GetError::Location(location)));
                }
            }
        }
    }

    async fn once(
        &self,
        target: &HttpTarget,
        until: Instant,
    ) -> Result<ReceivedResponse, HttpError> {
        let failed = |why| HttpError::Get {
            url: target.url.clone(),
            why,
        };
        let request = request(target).map_err(failed)?;
        let left = until.saturating_duration_since(kernel::now());
        let stream = match self.dial(&target.host, target.port, left).await {
            Ok(stream) => stream,
            Err(DialError::Timeout { .. }) => return Err(failed(GetError::Timeout)),
            Err(error) => return Err(failed(error.into())),
        };
        // Boxed: the state of a connection is large, and most of an attempt's time passes without one.
        let got = match target.scheme.as_str() {
            "https" => {
                let left = until.saturating_duration_since(kernel::now());
                let secure = timeout(left, Box::pin(self.tls.connect(&target.host, stream)));
                let secure = secure.await.map_err(|_| failed(GetError::Timeout))?;
                let stream = secure.map_err(|error| failed(error.into()))?;
                Box::pin(exchange(stream, request, until)).await
            }
            _ => Box::pin(exchange(stream, request, until)).await,
        };
        got.map_err(|error| match error {
            ResponseError::Head(why) => failed(why),
            ResponseError::Body(why) => HttpError::Body(why),
        })
    }
}

/// A response, and the target of its redirect.
#[derive(Debug)]
pub(super) struct ReceivedResponse {
    pub(super) answer: HttpResponse,
    location: Option<String>,
}

#[derive(Debug)]
pub(super) enum ResponseError {
    Head(GetError),
    Body(String),
}

fn request(target: &HttpTarget) -> Result<Request<Empty<Bytes>>, GetError> {
    if !matches!(target.scheme.as_str(), "http" | "https") {
        return Err(GetError::Scheme(target.scheme.clone()));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &target.headers {
        let parsed = name.parse::<HeaderName>();
        let parsed = parsed.map_err(|_| GetError::Header(format!("name {name:?}")))?;
        let value = value.trim().parse::<HeaderValue>();
        let value = value.map_err(|_| GetError::Header(format!("value for {name:?}")))?;
        headers.append(parsed, value);
    }
    let host = target.host_header.clone();
    let host = host.unwrap_or_else(|| target.authority());
    let host = HeaderValue::try_from(&host);
    headers.insert(
        HOST,
        host.map_err(|_| GetError::Header("value for \"Host\"".into()))?,
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let uri = target.path.parse();
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri.map_err(|_| GetError::Broken("invalid URI".to_owned()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sends a request on one connection and drives the connection meanwhile: dropping the future closes it.
pub(super) async fn exchange<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    until: Instant,
) -> Result<ReceivedResponse, ResponseError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    let builder = builder.title_case_headers(true).max_buf_size(MAX_HEADERS);
    let shaken = builder
        .handshake(TokioIo::new(ProbeStream::new(stream)))
        .await;
    let (mut sender, connection) = shaken.map_err(|error| ResponseError::Head(broken(&error)))?;
    let asked = async {
        let left = until.saturating_duration_since(kernel::now());
        let response = match timeout(left, sender.send_request(request)).await {
            Ok(response) => response.map_err(|error| ResponseError::Head(broken(&error)))?,
            Err(_) => return Err(ResponseError::Head(GetError::Timeout)),
        };
        let left = until.saturating_duration_since(kernel::now());
        match timeout(left, read(response)).await {
            Ok(got) => got,
            Err(_) => Err(ResponseError::Body(
                "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
                    .to_owned(),
            )),
        }
    };
    let (mut asked, connection) = (pin!(asked), pin!(connection));
    tokio::select! {
        biased;
        got = &mut asked => got,
        // The connection ended; its response is still to be read, and its error is the request's as well.
        _ = connection => asked.await,
    }
}

async fn read(response: Response<Incoming>) -> Result<ReceivedResponse, ResponseError> {
    let location = response.headers().get(LOCATION);
    let location = location.map(|location| String::from_utf8_lossy(location.as_bytes()));
    let location = location.map(std::borrow::Cow::into_owned);
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut kept = Vec::new();
    while kept.len() < MAX_BODY {
        let Some(frame) = body.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| ResponseError::Body(body_broken(&error)))?;
        if let Ok(data) = frame.into_data() {
            kept.extend_from_slice(&data[..data.len().min(MAX_BODY - kept.len())]);
        }
    }
    let body = String::from_utf8_lossy(&kept).into_owned();
    let answer = HttpResponse { status, body };
    Ok(ReceivedResponse { answer, location })
}

fn broken(error: &hyper::Error) -> GetError {
    let text = match (error.is_incomplete_message(), io_cause(error)) {
        (true, _) => "EOF".to_owned(),
        (false, Some(why)) => why,
        (false, None) if error.is_parse() => {
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned()
        }
        (false, None) => error.to_string(),
    };
    GetError::Broken(text)
}

fn body_broken(error: &hyper::Error) -> String {
    io_cause(error).unwrap_or_else(|| "unexpected EOF".to_owned())
}

fn io_cause(error: &hyper::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?;
    let cause = cause.downcast_ref::<io::Error>()?;
    Some(match cause.kind() == io::ErrorKind::UnexpectedEof {
        true => "unexpected EOF".to_owned(),
        false => format!("read: {}", super::go_error_text(cause)),
    })
}
