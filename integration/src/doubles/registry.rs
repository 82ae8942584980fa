//! An image registry on loopback, as much of the distribution API as a pull needs.
//!
//! Runtimes speak plain HTTP to loopback addresses. Every request is counted, and a fault can be set, so that
//! pull policies, parallel limits and back-off can be seen from the other side. It can ask for a name and a
//! password.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::images::{BuiltImage, Image, MANIFEST};

const LAYER: &str = "application/octet-stream";

/// How the registry treats the requests that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistryFault {
    /// Serves all requests.
    #[default]
    None,
    /// Answers with this status and no body.
    Status(u16),
    /// Waits so long before every answer.
    Delay(Duration),
}

/// A registry in this process; it ends when it is dropped.
#[derive(Debug)]
pub struct ImageRegistry {
    address: SocketAddr,
    content_store: Arc<Mutex<RegistryContent>>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct RegistryContent {
    /// By `repository:tag` and `repository@digest`.
    manifests: BTreeMap<String, (String, Bytes)>,
    blobs: BTreeMap<String, Bytes>,
    requests: Vec<String>,
    in_flight: usize,
    most_in_flight: usize,
    fault: RegistryFault,
    /// The value of the header `Authorization` that a request must have; none serves all.
    authorization: Option<String>,
}

impl ImageRegistry {
    /// Starts a registry without images on a free port of 127.0.0.1.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("no port for the registry")?;
        let address = listener.local_addr()?;
        let content_store = Arc::new(Mutex::new(RegistryContent::default()));
        let server = tokio::spawn(serve(listener, Arc::clone(&content_store)));
        Ok(Self {
            address,
            content_store,
            server,
        })
    }

    /// Puts `image` on the content_store as `repository:tag` and returns the name to pull it by.
    pub fn push(&self, repository: &str, tag: &str, image: &Image) -> Result<String> {
        Ok(self.push_built(repository, tag, image.build()?))
    }

    /// Puts an image that is built as `repository:tag` and returns the name to pull it by.
    pub fn push_built(&self, repository: &str, tag: &str, built: BuiltImage) -> String {
        let mut content_store = locked(&self.content_store);
        let manifest = (
            built.manifest.digest.clone(),
            Bytes::from(built.manifest.content),
        );
        content_store
            .manifests
            .insert(format!("{repository}@{}", manifest.0), manifest.clone());
        content_store
            .manifests
            .insert(format!("{repository}:{tag}"), manifest);
        for blob in [built.config, built.layer] {
            content_store
                .blobs
                .insert(blob.digest, Bytes::from(blob.content));
        }
        drop(content_store);
        self.name(repository, tag)
    }

    /// Returns the name to pull `repository:tag` by, whether or not it is there.
    pub fn name(&self, repository: &str, tag: &str) -> String {
        format!("{}/{repository}:{tag}", self.address)
    }

    /// Sets how the following requests are treated.
    pub fn set_fault(&self, fault: RegistryFault) {
        locked(&self.content_store).fault = fault;
    }

    /// From now on serves only requests with this name and password.
    pub fn require(&self, user: &str, password: &str) -> Result<()> {
        let words = ByteString(format!("{user}:{password}").into_bytes());
        let words = serde_json::to_value(words)?;
        let words = words.as_str().context("base64 is text")?;
        locked(&self.content_store).authorization = Some(format!("Basic {words}"));
        Ok(())
    }

    /// Returns the host and port, as credentials name it.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the requests so far as `METHOD path`, oldest first.
    pub fn requests(&self) -> Vec<String> {
        locked(&self.content_store).requests.clone()
    }

    /// Returns how many requests were in progress at once at most.
    pub fn most_in_flight(&self) -> usize {
        locked(&self.content_store).most_in_flight
    }
}

impl Drop for ImageRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, content_store: Arc<Mutex<RegistryContent>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let content_store = Arc::clone(&content_store);
                let service = service_fn(move |request| answer(Arc::clone(&content_store), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            // A client that goes away mid-answer is its own business.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    content_store: Arc<Mutex<RegistryContent>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let shown = request.headers().get(AUTHORIZATION).cloned();
    let (fault, open) = {
        let mut content_store = locked(&content_store);
        content_store.requests.push(format!("{method} {path}"));
        content_store.in_flight += 1;
        content_store.most_in_flight = content_store.most_in_flight.max(content_store.in_flight);
        (
            content_store.fault,
            content_store.is_open_to(shown.as_ref()),
        )
    };
    let response = match fault {
        RegistryFault::None | RegistryFault::Delay(_) if !open => challenge(),
        RegistryFault::Status(code) => {
            plain(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        RegistryFault::Delay(delay) => {
            tokio::time::sleep(delay).await;
            locked(&content_store).find(&method, &path)
        }
        RegistryFault::None => locked(&content_store).find(&method, &path),
    };
    locked(&content_store).in_flight -= 1;
    Ok(response)
}

impl RegistryContent {
    fn is_open_to(&self, shown: Option<&HeaderValue>) -> bool {
        let shown = shown.and_then(|shown| shown.to_str().ok());
        self.authorization
            .as_deref()
            .is_none_or(|needed| shown == Some(needed))
    }

    fn find(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Some(rest) = path.strip_prefix("/v2/") else {
            return plain(StatusCode::NOT_FOUND);
        };
        if rest.is_empty() {
            return plain(StatusCode::OK);
        }
        let with_body = method == Method::GET;
        if let Some((repository, reference)) = rest.split_once("/manifests/") {
            let separator = if reference.starts_with("sha256:") {
                '@'
            } else {
                ':'
            };
            return match self
                .manifests
                .get(&format!("{repository}{separator}{reference}"))
            {
                Some((digest, content)) => found(MANIFEST, digest, content, with_body),
                None => plain(StatusCode::NOT_FOUND),
            };
        }
        let blob = rest
            .split_once("/blobs/")
            .and_then(|(_, digest)| self.blobs.get_key_value(digest));
        blob.map_or_else(
            || plain(StatusCode::NOT_FOUND),
            |(digest, content)| found(LAYER, digest, content, with_body),
        )
    }
}

fn found(kind: &str, digest: &str, content: &Bytes, with_body: bool) -> Response<Full<Bytes>> {
    let body = if with_body {
        content.clone()
    } else {
        Bytes::new()
    };
    Response::builder()
        .header(CONTENT_TYPE, kind)
        .header(CONTENT_LENGTH, content.len())
        .header("docker-content-digest", digest)
        .body(Full::new(body))
        .unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR))
}

fn challenge() -> Response<Full<Bytes>> {
    let mut response = plain(StatusCode::UNAUTHORIZED);
    let realm = HeaderValue::from_static("Basic realm=\"registry\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, realm);
    response
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn locked(content_store: &Mutex<RegistryContent>) -> std::sync::MutexGuard<'_, RegistryContent> {
    content_store.lock().unwrap_or_else(PoisonError::into_inner)
}
