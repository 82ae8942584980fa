//! The client of the API server: one shared connection, with a rate limit for each kind of request.
//!
//! [`ApiClient::kube`] makes a `kube::Client`, [`watch`] follows lists, [`ApiError`] says what went wrong.
//! Bodies are JSON, whatever contentType says.

mod auth;
mod by_value;
mod client_config;
mod error;
mod kubeconfig;
mod reflector;
mod request;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transport;

use std::sync::Arc;

pub use by_value::ByValue;
pub use client_config::{Identity, RestConfig, RestConfigError};
pub use error::ApiError;
use http::Uri;
pub use http_proxy::ProxyEnvironment;
use kernel::watch as channel;
pub use reflector::{ObjectEvent, ObjectSelector, watch};
use request::call::Caller;
use request::limiter::RequestRateLimiter;
use rustls::sign::CertifiedKey;
pub use transport::dial::Dial;
use transport::server::ServerEndpoint;

/// The kind of a request: each has its own rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestLane {
    /// Everything else: kubeAPIQPS and kubeAPIBurst.
    Work,
    /// The node's status and lease: never waits for other requests.
    Heartbeat,
    /// Events, by eventRecordQPS and eventBurst.
    Events,
    /// Reviews of tokens that whoever reaches the node may send: as much as work, and none of its tokens.
    UnknownTokens,
}

/// The client of the API server; every clone shares its connection.
#[derive(Clone)]
pub struct ApiClient {
    base: Uri,
    work: kube::Client,
    heartbeat: kube::Client,
    events: kube::Client,
    unknown_tokens: kube::Client,
    /// None without a limit.
    work_limiter: Option<Arc<RequestRateLimiter>>,
}

impl ApiClient {
    /// Reads the kubeconfig, without a request to the server. `identity` goes before the kubeconfig's own certificate.
    ///
    /// # Errors
    /// [`RestConfigError`] names the file and the field; [`RestConfigError::transient`] says whether the same file
    /// may do later.
    pub fn new(
        access: RestConfig,
        identity: channel::Receiver<Option<Arc<CertifiedKey>>>,
    ) -> Result<ApiClient, RestConfigError> {
        let server = client_config::server(&access, identity)?;
        Ok(ApiClient::of(server, &access))
    }

    /// Returns a client whose requests go by this rate limit.
    pub fn kube(&self, lane: RequestLane) -> kube::Client {
        match lane {
            RequestLane::Work => self.work.clone(),
            RequestLane::Heartbeat => self.heartbeat.clone(),
            RequestLane::Events => self.events.clone(),
            RequestLane::UnknownTokens => self.unknown_tokens.clone(),
        }
    }

    /// Whether requests of [`RequestLane::Work`] are far from their rate limit: three quarters of the burst are left.
    /// What need not be sent now is better put off where they are not.
    pub fn has_spare_rate(&self) -> bool {
        let limiter = self.work_limiter.as_ref();
        limiter.is_none_or(|limiter| limiter.has_spare())
    }

    /// Returns the server's address.
    pub fn uri(&self) -> &Uri {
        &self.base
    }

    fn of(server: ServerEndpoint, access: &RestConfig) -> ApiClient {
        let base = server.base.clone();
        let server = Arc::new(server);
        let lane = |lane, bucket: Option<Arc<RequestRateLimiter>>| {
            let caller = Caller {
                server: Arc::clone(&server),
                lane,
                bucket,
            };
            kube::Client::new(caller, "default")
        };
        let limiter = |qps, burst| RequestRateLimiter::new(qps, burst).map(Arc::new);
        let work_limiter = limiter(access.qps, access.burst);
        ApiClient {
            work: lane(RequestLane::Work, work_limiter.clone()),
            heartbeat: lane(RequestLane::Heartbeat, None),
            events: lane(
                RequestLane::Events,
                limiter(access.event_qps, access.event_burst),
            ),
            unknown_tokens: lane(
                RequestLane::UnknownTokens,
                limiter(access.qps, access.burst),
            ),
            work_limiter,
            base,
        }
    }
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.base)
    }
}

/// A client of a server that needs neither TLS nor credentials, without limits: for tests.
pub fn plain(uri: Uri) -> ApiClient {
    let access = RestConfig::unlimited();
    ApiClient::of(client_config::open(uri), &access)
}

/// A client with the answers of a test.
#[cfg(any(test, feature = "testing"))]
impl From<kube::Client> for ApiClient {
    fn from(kube: kube::Client) -> ApiClient {
        ApiClient {
            base: Uri::from_static("http://localhost"),
            work: kube.clone(),
            heartbeat: kube.clone(),
            unknown_tokens: kube.clone(),
            events: kube,
            work_limiter: None,
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl ApiClient {
    /// Returns this client as one whose work has next to nothing left of its rate.
    #[must_use]
    pub fn without_spare_rate(mut self) -> ApiClient {
        let limiter = RequestRateLimiter::new(1, 1).map(Arc::new);
        if let Some(limiter) = &limiter {
            limiter.promise();
        }
        self.work_limiter = limiter;
        self
    }
}
