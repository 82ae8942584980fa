//! One request, from the wait for its rate limit to the head of its answer.
//!
//! Every request ends by its deadline. An answer with Retry-After (429 and 5xx) is retried, while
//! the deadline allows; a read whose connection broke is, too; nothing else is sent twice.
//!
//! Upstream: client-go rest/request.go and rest/with_retry.go (1.36).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Bytes;
use kernel::error_chain;
use kube::client::Body;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower::Service;

use super::body::{BoundedBody, Bounds};
use super::limiter::RequestRateLimiter;
use super::measured;
use crate::RequestLane;
use crate::error::{ApiError, WAIT_AT_MOST};
use crate::transport::connections::RequestSendError;
use crate::transport::server::ServerEndpoint;

/// Upstream's `defaultMaxRetries`, or as many as fit before the deadline.
const RETRIES: usize = 10;
/// Upstream waits so long before it reads again over a new connection.
const AFTER_BREAK: Duration = Duration::from_secs(1);
/// The largest request that is answered in the API server's own --request-timeout.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The deadline for the beginning of a watch.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A service for `kube::Client` that sends requests with one rate limit.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) server: Arc<ServerEndpoint>,
    pub(crate) lane: RequestLane,
    pub(crate) bucket: Option<Arc<RequestRateLimiter>>,
}

impl Service<Request<Body>> for Caller {
    type Response = Response<BoundedBody>;
    type Error = ApiError;
    type Future = BoxFuture<'static, Result<Response<BoundedBody>, ApiError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let caller = self.clone();
        Box::pin(async move { caller.ask(request).await })
    }
}

/// Why an attempt has no answer.
enum AttemptError {
    /// It went out, and its connection broke: to read again does no harm.
    Broken(ApiError),
    /// It was not sent, or the server did not answer in time.
    Other(ApiError),
}

impl From<ApiError> for AttemptError {
    fn from(trouble: ApiError) -> AttemptError {
        AttemptError::Other(trouble)
    }
}

impl From<AttemptError> for ApiError {
    fn from(miss: AttemptError) -> ApiError {
        match miss {
            AttemptError::Broken(trouble) | AttemptError::Other(trouble) => trouble,
        }
    }
}

/// A request under way.
struct OutgoingRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    watch: bool,
    deadline: Instant,
}

impl Caller {
    async fn ask(&self, request: Request<Body>) -> Result<Response<BoundedBody>, ApiError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await;
        let body = body.map_err(|error| ApiError::unreachable(error_chain(&error)))?;
        let mut headers = parts.headers;
        headers.extend(self.server.headers.clone());
        let watch = is_watch(&parts.uri);
        self.turn(&parts.method).await;
        let asking = OutgoingRequest {
            uri: under(&self.server.base, &parts.uri)?,
            method: parts.method,
            headers,
            body,
            watch,
            deadline: Instant::now() + self.within(watch),
        };
        if !watch {
            measured::sent(&self.server.host, &asking.method, asking.body.len());
        }
        let began = Instant::now();
        let answer = self.insist(&asking).await;
        if !watch {
            measured::latency(&self.server.host, &asking.method, began.elapsed());
        }
        answer
    }

    fn within(&self, watch: bool) -> Duration {
        match self.lane {
            RequestLane::Heartbeat => self.server.heartbeat_within,
            RequestLane::Work | RequestLane::Events | RequestLane::UnknownTokens if watch => {
                WATCH_TIMEOUT
            }
            RequestLane::Work | RequestLane::Events | RequestLane::UnknownTokens => TIMEOUT,
        }
    }

    async fn turn(&self, method: &Method) {
        if let Some(bucket) = &self.bucket {
            let waited = bucket.take().await;
            measured::throttled(&self.server.host, method, waited);
        }
    }

    /// Retries until there is an answer that no further retry would better.
    async fn insist(&self, asking: &OutgoingRequest) -> Result<Response<BoundedBody>, ApiError> {
        let mut renewed = false;
        for attempt in 0.. {
            let answer = timeout_at(asking.deadline, self.once(asking))
                .await
                .unwrap_or_else(|_| Err(ApiError::unreachable("no answer in time").into()));
            let code = answer.as_ref().ok().map(Response::status);
            measured::answered(&self.server.host, &asking.method, attempt, code);
            let stale = answer
                .as_ref()
                .is_ok_and(|answer| answer.status() == StatusCode::UNAUTHORIZED);
            if stale && !renewed && self.server.credentials.refused().await {
                renewed = true;
                continue;
            }
            let Some(wait) = wait(asking, &answer) else {
                return answer.map_err(ApiError::from);
            };
            let again = Instant::now() + wait;
            if attempt >= RETRIES || again >= asking.deadline {
                return busy(answer, wait);
            }
            drop(answer);
            sleep_until(again).await;
            self.turn(&asking.method).await;
        }
        Err(ApiError::unreachable("no answer"))
    }

    /// One attempt, on a connection that takes it.
    async fn once(&self, asking: &OutgoingRequest) -> Result<Response<BoundedBody>, AttemptError> {
        let connections = self.server.connections().await?;
        let mut request = asking.request();
        self.server
            .credentials
            .put_into(request.headers_mut())
            .await?;
        for _ in 0..=RETRIES {
            match connections.send(self.lane, request).await {
                Ok((response, place)) => {
                    let bounds = match asking.watch {
                        true => Bounds::Watch(connections.retired()),
                        false => {
                            let size = measured::size(&self.server.host, &asking.method);
                            Bounds::Answer(Box::pin(sleep_until(asking.deadline)), size)
                        }
                    };
                    return Ok(response.map(|body| BoundedBody::new(body, bounds, place)));
                }
                Err(RequestSendError::Unsent(unsent)) => request = unsent,
                Err(RequestSendError::Unconnected(trouble)) => return Err(trouble.into()),
                Err(RequestSendError::Broken(trouble)) => {
                    return Err(AttemptError::Broken(trouble));
                }
            }
        }
        Err(ApiError::unreachable("every connection ends before it is used").into())
    }
}

impl OutgoingRequest {
    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// How long to wait before the request is repeated; none if repeating it is no use.
fn wait(
    asking: &OutgoingRequest,
    answer: &Result<Response<BoundedBody>, AttemptError>,
) -> Option<Duration> {
    match answer {
        Ok(answer) => {
            let status = answer.status();
            let asks = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
            let seconds = seconds.parse().ok().filter(|_| asks)?;
            Some(Duration::from_secs(seconds).min(WAIT_AT_MOST))
        }
        Err(AttemptError::Broken(_)) => {
            (asking.method == Method::GET && !asking.watch).then_some(AFTER_BREAK)
        }
        Err(AttemptError::Other(_)) => None,
    }
}

/// The last answer to a request that was told to retry: how long to wait, rather than the server's words.
fn busy(
    answer: Result<Response<BoundedBody>, AttemptError>,
    after: Duration,
) -> Result<Response<BoundedBody>, ApiError> {
    let answer = answer?;
    Err(ApiError::Busy {
        after: Some(after),
        message: format!("the server is busy ({})", answer.status()),
    })
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "watch=true" | "watch=1"))
    })
}

/// The address of a request, under the path where the server is, if it has one.
fn under(base: &Uri, asked: &Uri) -> Result<Uri, ApiError> {
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut parts = base.clone().into_parts();
    parts.path_and_query = path.parse().ok();
    Uri::from_parts(parts).map_err(|error| ApiError::unreachable(error.to_string()))
}
