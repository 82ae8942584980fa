//! A registry on loopback: it serves what it was given, notes every request, and misbehaves as it is told.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::ImageBuilder;
use crate::digest::Digest;
use crate::reference::Reference;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub version: http::Version,
}

/// An answer; headers as they are written, and a body that may stop early or never.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// After the body nothing more comes, and no end either.
    pub hangs: bool,
    /// After the body the connection breaks.
    pub breaks: bool,
    /// The body comes a byte at a time, after so long each.
    pub drips: Option<std::time::Duration>,
}

impl Answer {
    pub fn ok(body: &[u8]) -> Self {
        Self {
            status: 200,
            body: Bytes::copy_from_slice(body),
            ..Self::default()
        }
    }

    pub fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

const PIECE_BYTES: usize = 16 << 10;

type Script = Box<dyn FnMut(&Request) -> Option<Answer> + Send>;

struct Shared {
    content: Mutex<HashMap<String, Bytes>>,
    requests: Mutex<Vec<Request>>,
    /// Asked first; none leaves the request to the content.
    script: Mutex<Script>,
}

pub struct Registry {
    shared: Arc<Shared>,
    pub address: String,
    _tasks: JoinSet<()>,
}

impl Registry {
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts one that speaks TLS, if it has a configuration for it.
    pub async fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            content: Mutex::default(),
            requests: Mutex::default(),
            script: Mutex::new(Box::new(|_| None)),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, tls, shared.clone()));
        Self {
            shared,
            address,
            _tasks: tasks,
        }
    }

    pub fn script(&self, script: impl FnMut(&Request) -> Option<Answer> + Send + 'static) {
        *self.shared.script.lock().unwrap() = Box::new(script);
    }

    /// Serves an image as `REPOSITORY:TAG`, and returns its reference.
    pub fn serve(&self, image: &ImageBuilder, name: &str) -> Reference {
        let (repository, tag) = name.split_once(':').unwrap();
        let mut content = self.shared.content.lock().unwrap();
        for blob in image.packed.iter().chain([&image.config]) {
            let path = format!("/v2/{repository}/blobs/{}", Digest::of(blob));
            content.insert(path, Bytes::copy_from_slice(blob));
        }
        for target in [tag.to_owned(), Digest::of(&image.manifest).to_string()] {
            content.insert(
                format!("/v2/{repository}/manifests/{target}"),
                Bytes::copy_from_slice(&image.manifest),
            );
        }
        drop(content);
        format!("{}/{name}", self.address).parse().unwrap()
    }

    pub fn put(&self, path: &str, body: &[u8]) {
        self.shared
            .content
            .lock()
            .unwrap()
            .insert(path.to_owned(), Bytes::copy_from_slice(body));
    }

    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns how many requests there were for a path with `part` in it.
    pub fn count(&self, part: &str) -> usize {
        let requests = self.requests();
        requests
            .iter()
            .filter(|request| request.path.contains(part))
            .count()
    }
}

async fn serve(listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (shared, tls) = (shared.clone(), tls.clone());
        connections.spawn(async move {
            match tls {
                None => speak(stream, &shared).await,
                Some(tls) => {
                    if let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await {
                        speak(stream, &shared).await;
                    }
                }
            }
        });
    }
}

async fn speak(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    shared: &Arc<Shared>,
) {
    let service = service_fn(|request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, request)) }
    });
    let server = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
    let served = server.serve_connection(TokioIo::new(stream), service).await;
    drop(served);
}

fn answer(
    shared: &Shared,
    request: hyper::Request<Incoming>,
) -> Response<BoxBody<Bytes, std::io::Error>> {
    let request = Request {
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        headers: request.headers().clone(),
        version: request.version(),
    };
    shared.requests.lock().unwrap().push(request.clone());
    let scripted = (shared.script.lock().unwrap())(&request);
    let answer =
        scripted.unwrap_or_else(|| match shared.content.lock().unwrap().get(&request.path) {
            Some(content) => partial(content, &request),
            None => Answer::status(404),
        });
    let mut response = Response::builder().status(StatusCode::from_u16(answer.status).unwrap());
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let content = answer.body;
    // Cut as it is sent: the tests measure memory.
    let (content_length, dripped) = (content.len(), content.clone());
    let starts = (0..content.len()).step_by(PIECE_BYTES);
    let pieces = starts.map(move |start| {
        let end = content.len().min(start + PIECE_BYTES);
        Ok(Frame::data(content.slice(start..end)))
    });
    let mut body = match answer.drips {
        None => futures_util::stream::iter(pieces).boxed(),
        Some(pause) => {
            let bytes = (0..content_length).map(move |at| dripped.slice(at..at + 1));
            let drops = futures_util::stream::iter(bytes).then(move |byte| async move {
                tokio::time::sleep(pause).await;
                Ok(Frame::data(byte))
            });
            drops.boxed()
        }
    };
    if answer.breaks {
        let broken = futures_util::stream::iter([Err(std::io::Error::other("broken"))]);
        body = body.chain(broken).boxed();
    }
    if answer.hangs {
        body = body.chain(futures_util::stream::pending()).boxed();
    }
    response
        .body(BodyExt::boxed(StreamBody::new(SyncStream(Mutex::new(
            body,
        )))))
        .unwrap()
}

fn partial(content: &Bytes, request: &Request) -> Answer {
    let range = request
        .headers
        .get("range")
        .map(|range| range.to_str().unwrap().to_owned());
    let Some(range) = range else {
        let whole = Answer {
            status: 200,
            body: content.clone(),
            ..Answer::default()
        };
        return whole.with("content-length", &content.len().to_string());
    };
    let start: usize = range
        .strip_prefix("bytes=")
        .unwrap()
        .trim_end_matches('-')
        .parse()
        .unwrap();
    let told = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
    Answer {
        status: 206,
        body: content.slice(start..),
        ..Answer::default()
    }
    .with("content-range", &told)
}

/// A body that hyper may share between threads.
struct SyncStream(
    Mutex<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>,
);

impl futures_util::Stream for SyncStream {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.lock().unwrap().as_mut().poll_next(context)
    }
}
