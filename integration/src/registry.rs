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

use crate::images::{Image, MANIFEST};

const LAYER: &str = "application/octet-stream";

/// How the registry treats the requests that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Serves them.
    #[default]
    None,
    /// Answers with this status and no body.
    Status(u16),
    /// Waits so long before every answer.
    Delay(Duration),
}

/// A registry in this process; it ends when it is dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// By `repository:tag` and `repository@digest`.
    manifests: BTreeMap<String, (String, Bytes)>,
    blobs: BTreeMap<String, Bytes>,
    requests: Vec<String>,
    in_flight: usize,
    most_in_flight: usize,
    fault: Fault,
    /// What a request must bear in its header `Authorization`.
    authorization: Option<String>,
}

impl Registry {
    /// Starts a registry without images on a free port of 127.0.0.1.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("no port for the registry")?;
        let address = listener.local_addr()?;
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let server = tokio::spawn(serve(listener, Arc::clone(&shelf)));
        Ok(Self {
            address,
            shelf,
            server,
        })
    }

    /// Puts `image` on the shelf as `repository:tag` and returns the name to pull it by.
    pub fn push(&self, repository: &str, tag: &str, image: &Image) -> Result<String> {
        let built = image.build()?;
        let mut shelf = locked(&self.shelf);
        let manifest = (
            built.manifest.digest.clone(),
            Bytes::from(built.manifest.content),
        );
        shelf
            .manifests
            .insert(format!("{repository}@{}", manifest.0), manifest.clone());
        shelf
            .manifests
            .insert(format!("{repository}:{tag}"), manifest);
        for blob in [built.config, built.layer] {
            shelf.blobs.insert(blob.digest, Bytes::from(blob.content));
        }
        Ok(format!("{}/{repository}:{tag}", self.address))
    }

    /// Returns the name to pull `repository:tag` by, whether or not it is there.
    pub fn name(&self, repository: &str, tag: &str) -> String {
        format!("{}/{repository}:{tag}", self.address)
    }

    /// Sets how the following requests are treated.
    pub fn set_fault(&self, fault: Fault) {
        locked(&self.shelf).fault = fault;
    }

    /// From now on serves only those who show this name and password.
    pub fn require(&self, user: &str, password: &str) -> Result<()> {
        let words = ByteString(format!("{user}:{password}").into_bytes());
        let words = serde_json::to_value(words)?;
        let words = words.as_str().context("base64 is text")?;
        locked(&self.shelf).authorization = Some(format!("Basic {words}"));
        Ok(())
    }

    /// Returns the host and port, as credentials name it.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the requests so far as `METHOD path`, oldest first.
    pub fn requests(&self) -> Vec<String> {
        locked(&self.shelf).requests.clone()
    }

    /// Returns how many requests were in progress at once at most.
    pub fn most_in_flight(&self) -> usize {
        locked(&self.shelf).most_in_flight
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shelf: Arc<Mutex<Shelf>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let shelf = Arc::clone(&shelf);
                let service = service_fn(move |request| answer(Arc::clone(&shelf), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            // A client that goes away mid-answer is its own business.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    shelf: Arc<Mutex<Shelf>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let shown = request.headers().get(AUTHORIZATION).cloned();
    let (fault, open) = {
        let mut shelf = locked(&shelf);
        shelf.requests.push(format!("{method} {path}"));
        shelf.in_flight += 1;
        shelf.most_in_flight = shelf.most_in_flight.max(shelf.in_flight);
        (shelf.fault, shelf.is_open_to(shown.as_ref()))
    };
    let response = match fault {
        Fault::None | Fault::Delay(_) if !open => challenge(),
        Fault::Status(code) => {
            plain(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        Fault::Delay(delay) => {
            tokio::time::sleep(delay).await;
            locked(&shelf).find(&method, &path)
        }
        Fault::None => locked(&shelf).find(&method, &path),
    };
    locked(&shelf).in_flight -= 1;
    Ok(response)
}

impl Shelf {
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

fn locked(shelf: &Mutex<Shelf>) -> std::sync::MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}
