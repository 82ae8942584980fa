//! One GET, as Go's client would do it: redirects followed, everything within ten seconds.
//!
//! One connection for each fetch: a period lies between two of them, so a pool would not help.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use logic_api::manifest::MAX_MANIFEST_BYTES;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::url::{UrlError, UrlTarget};

/// Upstream's timeout for the whole fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Go's limit.
const MAX_REDIRECTS: usize = 10;

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{url}: {why}")]
    Url { url: String, why: String },
    #[error("{url}: cannot connect")]
    Connect { url: String, source: io::Error },
    #[error("{url}: no certificate to trust servers by")]
    NoRoots { url: String },
    #[error("{url}: no http is spoken there")]
    Http { url: String, source: hyper::Error },
    #[error("{url}: found status {status}, expected 200")]
    Status { url: String, status: StatusCode },
    #[error("{url}: the {status} redirect leads nowhere: {why}")]
    Redirect {
        url: String,
        status: StatusCode,
        why: String,
    },
    #[error("{url}: stopped after {MAX_REDIRECTS} redirects")]
    Redirects { url: String },
    #[error("{url}: the answer is empty, expected a v1 Pod, PodList or List")]
    Empty { url: String },
    #[error("{url}: the answer is longer than {MAX_MANIFEST_BYTES} bytes")]
    TooLong { url: String },
    #[error("{url}: the answer broke off")]
    BrokeOff { url: String, why: String },
    #[error("{url}: no answer within {FETCH_TIMEOUT:?}")]
    Deadline { url: String },
}

/// The certificate authorities to trust.
#[derive(Debug)]
pub(super) enum Roots {
    /// The system's; read when the first https URL is fetched.
    OfTheSystem,
    #[cfg(test)]
    These(RootCertStore),
}

/// Fetches one URL. Clones share their certificates.
#[derive(Clone)]
pub(super) struct UrlClient {
    url: Arc<str>,
    headers: Arc<HeaderMap>,
    tls: Arc<UrlTls>,
}

struct UrlTls {
    roots: Roots,
    config: OnceLock<Arc<ClientConfig>>,
}

impl UrlClient {
    /// A header that HTTP cannot carry is left out and logged.
    pub(super) fn new(
        url: Arc<str>,
        headers: &BTreeMap<String, Vec<String>>,
        roots: Roots,
    ) -> Self {
        let mut all = HeaderMap::new();
        all.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("oxlet/", env!("CARGO_PKG_VERSION"))),
        );
        for (name, values) in headers {
            for (index, value) in values.iter().enumerate() {
                match (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                    // As Go: the host is always the URL's.
                    (Ok(HOST), _) => {}
                    (Ok(name), Ok(value)) if index == 0 => drop(all.insert(name, value)),
                    (Ok(name), Ok(value)) => drop(all.append(name, value)),
                    _ => tracing::error!(
                        "staticPodURLHeader[{name:?}][{index}]: expected an HTTP header"
                    ),
                }
            }
        }
        let tls = UrlTls {
            roots,
            config: OnceLock::new(),
        };
        UrlClient {
            url,
            headers: Arc::new(all),
            tls: Arc::new(tls),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Fetches the current contents.
    pub(super) async fn fetch(&self) -> Result<Bytes, FetchError> {
        let within = tokio::time::timeout(FETCH_TIMEOUT, self.follow()).await;
        within.unwrap_or_else(|_| Err(FetchError::Deadline { url: self.name() }))
    }

    async fn follow(&self) -> Result<Bytes, FetchError> {
        let first = UrlTarget::parse(&self.url).map_err(|why| self.bad_url(&why))?;
        let (mut target, mut headers) = (first.clone(), HeaderMap::clone(&self.headers));
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.get(&target, &headers).await?;
            if !leads_on(answer.status()) {
                return self.body(answer).await;
            }
            target = self.next(&target, &answer)?;
            if target.authority.host() != first.authority.host() {
                // As Go: credentials are not sent to another host.
                headers.remove(AUTHORIZATION);
                headers.remove(COOKIE);
            }
        }
        Err(FetchError::Redirects { url: self.name() })
    }

    fn next(
        &self,
        target: &UrlTarget,
        answer: &Response<Incoming>,
    ) -> Result<UrlTarget, FetchError> {
        let broken = |why: String| FetchError::Redirect {
            url: self.name(),
            status: answer.status(),
            why,
        };
        let location = answer
            .headers()
            .get(LOCATION)
            .ok_or_else(|| broken("it has no location".to_owned()))?;
        let location = location
            .to_str()
            .map_err(|error| broken(error.to_string()))?;
        target
            .redirected(location)
            .map_err(|error| broken(format!("{location:?}: {error}")))
    }

    async fn body(&self, answer: Response<Incoming>) -> Result<Bytes, FetchError> {
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(FetchError::Status {
                url: self.name(),
                status,
            });
        }
        // A length that is announced as too long need not be read.
        if answer.body().size_hint().lower() > MAX_MANIFEST_BYTES as u64 {
            return Err(FetchError::TooLong { url: self.name() });
        }
        let body = Limited::new(answer.into_body(), MAX_MANIFEST_BYTES)
            .collect()
            .await;
        match body.map(http_body_util::Collected::to_bytes) {
            Ok(data) if data.is_empty() => Err(FetchError::Empty { url: self.name() }),
            Ok(data) => Ok(data),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(FetchError::TooLong { url: self.name() })
            }
            Err(error) => {
                let why = error.to_string();
                Err(FetchError::BrokeOff {
                    url: self.name(),
                    why,
                })
            }
        }
    }

    async fn get(
        &self,
        target: &UrlTarget,
        headers: &HeaderMap,
    ) -> Result<Response<Incoming>, FetchError> {
        let connect = |source| FetchError::Connect {
            url: self.name(),
            source,
        };
        let stream = TcpStream::connect((target.host(), target.port()))
            .await
            .map_err(connect)?;
        if !target.secure {
            return self.ask(stream, target, headers).await;
        }
        let server =
            ServerName::try_from(target.host().to_owned()).map_err(|error| FetchError::Url {
                url: self.name(),
                why: error.to_string(),
            })?;
        let connector = TlsConnector::from(self.tls().await?);
        let stream = connector.connect(server, stream).await.map_err(connect)?;
        self.ask(stream, target, headers).await
    }

    async fn ask<S>(
        &self,
        stream: S,
        target: &UrlTarget,
        headers: &HeaderMap,
    ) -> Result<Response<Incoming>, FetchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |source| FetchError::Http {
            url: self.name(),
            source,
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // The task ends with the body, or when the body is dropped; its error is the request's as well.
        tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = target.path.clone().into();
        *request.headers_mut() = headers.clone();
        let host = HeaderValue::from_str(target.authority.as_str());
        request.headers_mut().insert(
            HOST,
            host.map_err(|error| FetchError::Url {
                url: self.name(),
                why: error.to_string(),
            })?,
        );
        sender.send_request(request).await.map_err(broken)
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>, FetchError> {
        if let Some(config) = self.tls.config.get() {
            return Ok(config.clone());
        }
        let roots = match &self.tls.roots {
            Roots::OfTheSystem => kernel::spawn_blocking(system_roots)
                .await
                .unwrap_or_else(|_| RootCertStore::empty()),
            #[cfg(test)]
            Roots::These(roots) => roots.clone(),
        };
        if roots.is_empty() {
            return Err(FetchError::NoRoots { url: self.name() });
        }
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("ring speaks every version that rustls does")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.tls.config.get_or_init(|| Arc::new(config)).clone())
    }

    fn bad_url(&self, why: &UrlError) -> FetchError {
        let why = kernel::error_chain(why);
        FetchError::Url {
            url: self.name(),
            why,
        }
    }

    /// The URL as everybody may read it: without its user and its query, which may have secrets.
    pub(super) fn name(&self) -> String {
        let plain = self.url.split('?').next().unwrap_or_default();
        let Some((scheme, rest)) = plain.split_once("://") else {
            return plain.to_owned();
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}{path}")
    }
}

impl fmt::Debug for UrlClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may hold secrets.
        f.debug_struct("UrlClient")
            .field("url", &self.name())
            .finish_non_exhaustive()
    }
}

fn leads_on(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The system's root certificates; those that cannot be read are not trusted.
fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("a trusted certificate cannot be read: {error}");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}
