//! A runtime made of a script: HTTP/2 on a Unix socket, answers as raw bytes, so that no decoding of the
//! double's own can hide what the adapter did.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use proto::cri;
use runtime_adapter::Flavour;
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::Service;

/// One call as it reached the runtime.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The gRPC frames, prefixes included.
    pub(crate) body: Bytes,
}

impl RecordedCall {
    pub(crate) fn method(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn message<M: Message + Default>(&self) -> M {
        M::decode(&self.body[5..]).unwrap()
    }
}

/// How the runtime answers.
pub(crate) enum ScriptedAnswer {
    /// A message and these trailers beside the status of success.
    Message(Vec<u8>, HeaderMap),
    /// Messages as they come; success when the sender is dropped.
    Stream(mpsc::UnboundedReceiver<Vec<u8>>),
    /// A refusal, as servers in Go give it: in the head.
    Refused(Box<Status>),
    /// Nothing, for ever.
    Never,
}

pub(crate) fn message(message: &impl Message) -> ScriptedAnswer {
    ScriptedAnswer::Message(message.encode_to_vec(), HeaderMap::new())
}

pub(crate) fn refused(code: Code, words: &str) -> ScriptedAnswer {
    ScriptedAnswer::Refused(Box::new(Status::new(code, words)))
}

type CallScript = Arc<dyn Fn(&RecordedCall) -> ScriptedAnswer + Send + Sync>;

/// A runtime that serves until it is dropped; then its connections break, as when a process is killed.
#[derive(Debug)]
pub(crate) struct RuntimeDouble {
    pub(crate) calls: Arc<Mutex<Vec<RecordedCall>>>,
    server: JoinHandle<()>,
}

impl RuntimeDouble {
    /// Serves at `socket` with a name and version; the script answers everything else.
    pub(crate) fn start(
        socket: &Path,
        (name, version): (&str, &str),
        script: impl Fn(&RecordedCall) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> Self {
        let version = cri::VersionResponse {
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            ..Default::default()
        };
        Self::scripted(socket, move |call| {
            if call.method() == "Version" {
                message(&version)
            } else {
                script(call)
            }
        })
    }

    /// Serves at `socket`; the script answers everything.
    pub(crate) fn scripted(
        socket: &Path,
        script: impl Fn(&RecordedCall) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> Self {
        // Absent the first time.
        drop(std::fs::remove_file(socket));
        let listener = UnixListener::bind(socket).unwrap();
        let script: CallScript = Arc::new(script);
        let calls = Arc::default();
        let server = tokio::spawn(serve(listener, Arc::clone(&calls), script));
        Self { calls, server }
    }

    pub(crate) fn calls_of(&self, method: &str) -> Vec<RecordedCall> {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .filter(|call| call.method() == method)
            .cloned()
            .collect()
    }
}

impl Drop for RuntimeDouble {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: UnixListener, calls: Arc<Mutex<Vec<RecordedCall>>>, script: CallScript) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (calls, script) = (Arc::clone(&calls), Arc::clone(&script));
        let service = hyper::service::service_fn(move |request| {
            handle(request, Arc::clone(&calls), Arc::clone(&script))
        });
        connections.spawn(
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service),
        );
    }
}

type ResponseBody =
    StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

async fn handle(
    request: Request<Incoming>,
    calls: Arc<Mutex<Vec<RecordedCall>>>,
    script: CallScript,
) -> Result<Response<ResponseBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let call = RecordedCall {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body,
    };
    let answer = script(&call);
    calls.lock().unwrap().push(call);
    let mut success = HeaderMap::new();
    success.insert("grpc-status", HeaderValue::from_static("0"));
    let mut frames: VecDeque<Frame<Bytes>> = VecDeque::new();
    let mut head = HeaderMap::new();
    let mut messages = None;
    match answer {
        ScriptedAnswer::Message(message, trailers) => {
            success.extend(trailers);
            frames.extend([framed(&message), Frame::trailers(success)]);
        }
        ScriptedAnswer::Refused(status) => status.add_header(&mut head).unwrap(),
        ScriptedAnswer::Stream(receiver) => messages = Some(receiver),
        ScriptedAnswer::Never => std::future::pending().await,
    }
    let body: ResponseBody = match messages {
        None => StreamBody::new(Box::pin(futures_util::stream::iter(
            frames.into_iter().map(Ok),
        ))),
        Some(receiver) => StreamBody::new(Box::pin(futures_util::stream::unfold(
            Some(receiver),
            |open| async move {
                let mut receiver = open?;
                Some(match receiver.recv().await {
                    Some(message) => (Ok(framed(&message)), Some(receiver)),
                    None => (
                        Ok(Frame::trailers(HeaderMap::from_iter([(
                            http::HeaderName::from_static("grpc-status"),
                            HeaderValue::from_static("0"),
                        )]))),
                        None,
                    ),
                })
            },
        ))),
    };
    let mut response = Response::new(body);
    response.headers_mut().extend(head);
    response
        .headers_mut()
        .insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn framed(message: &[u8]) -> Frame<Bytes> {
    Frame::data(frame(message))
}

/// A message behind its gRPC prefix.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

/// An adapter in a folder of its own, configured for the socket beside it.
pub(crate) struct AdapterRig {
    pub(crate) plugin: sdk::testing::Plugin,
    pub(crate) socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl AdapterRig {
    /// Starts the runtime first and then the adapter.
    pub(crate) async fn start(
        flavour: Flavour,
        runtime: (&str, &str),
        script: impl Fn(&RecordedCall) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> (Self, RuntimeDouble) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = RuntimeDouble::start(&dir.path().join("runtime.sock"), runtime, script);
        (Self::around(flavour, dir).await, runtime)
    }

    /// Starts an adapter whose runtime is not there.
    pub(crate) async fn alone(flavour: Flavour) -> Self {
        Self::around(flavour, tempfile::tempdir().unwrap()).await
    }

    /// Starts an adapter around `runtime.sock` in a folder.
    pub(crate) async fn around(flavour: Flavour, dir: tempfile::TempDir) -> Self {
        let socket = dir.path().join("runtime.sock");
        let configuration = json!({ "endpoint": format!("unix://{}", socket.display()) });
        let info = runtime_adapter::info(flavour, "0");
        let build = move |setup| runtime_adapter::build(flavour, None, setup);
        let plugin = sdk::testing::start(dir.path(), info, configuration, build)
            .await
            .unwrap();
        Self {
            plugin,
            socket,
            _dir: dir,
        }
    }

    pub(crate) fn client(&self) -> cri::runtime_service_client::RuntimeServiceClient<Channel> {
        cri::runtime_service_client::RuntimeServiceClient::new(self.plugin.channel.clone())
    }

    /// Sends raw bytes to a method and returns the whole raw answer.
    pub(crate) async fn raw(
        &self,
        path: &str,
        headers: &[(&'static str, &'static str)],
        message: &[u8],
    ) -> RawClient {
        let body = tonic::body::Body::new(http_body_util::Full::new(frame(message)));
        let mut request = Request::post(format!("http://localhost{path}"))
            .body(body)
            .unwrap();
        request
            .headers_mut()
            .insert("content-type", HeaderValue::from_static("application/grpc"));
        request
            .headers_mut()
            .insert("te", HeaderValue::from_static("trailers"));
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(*name, HeaderValue::from_static(value));
        }
        let mut channel = self.plugin.channel.clone();
        std::future::poll_fn(|cx| channel.poll_ready(cx))
            .await
            .unwrap();
        let (head, body) = channel.call(request).await.unwrap().into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        RawClient {
            head: head.headers,
            body: collected.to_bytes(),
            trailers,
        }
    }
}

/// An answer as it came off the wire.
#[derive(Debug)]
pub(crate) struct RawClient {
    pub(crate) head: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}
