//! `/exec/`, `/attach/`, `/portForward/`: the runtime serves the streams, the bytes go through here.

use hyper::body::Incoming;
use hyper::header::CONNECTION;
use hyper::{HeaderMap, Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;

use super::{KubeletHandlers, RequestContext, no_stream};
use crate::authn::is_websocket;
use crate::http::{HandlerResponse, text};
use crate::https::query::QueryPairs;
use crate::https::route::ContainerTarget;
use crate::https::streams::{self, StreamForward};
use crate::https::websockets;
use crate::node::{Attach, Exec, KubeletHost, NodeError, RemoteCommandOptions};

/// The runtime's URL of a stream, and how its bytes get there.
pub(super) struct StreamCall {
    url: String,
    way: StreamTransport,
}

/// What happens to the bytes of a stream.
enum StreamTransport {
    Plain,
    /// A command's streams come in a WebSocket, and go on in SPDY.
    Translated(&'static str, RemoteCommandOptions),
    /// SPDY comes in a WebSocket; it carries one of these protocols.
    Tunnelled(Vec<String>),
}

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) async fn exec_url(
        &self,
        target: &ContainerTarget,
        request: &Request<Incoming>,
    ) -> Result<StreamCall, HandlerResponse> {
        let query = QueryPairs::of(request.uri().query());
        let streams = wanted(&query).ok_or_else(no_streams)?;
        let pod = self.pod(target).await?;
        if !is_upgrade(request.headers()) {
            return Err(no_upgrade());
        }
        let wanted = Exec {
            pod,
            container: target.container.clone(),
            command: query.all("command").map(str::to_owned).collect(),
            streams,
        };
        let url = self.node.exec(wanted).await;
        Ok(StreamCall {
            url: url.map_err(|trouble| no_stream(&trouble))?,
            way: self.transport("exec", streams, request.headers()),
        })
    }

    pub(super) async fn attach_url(
        &self,
        target: &ContainerTarget,
        request: &Request<Incoming>,
    ) -> Result<StreamCall, HandlerResponse> {
        let query = QueryPairs::of(request.uri().query());
        let streams = wanted(&query).ok_or_else(no_streams)?;
        let pod = self.pod(target).await?;
        if !is_upgrade(request.headers()) {
            return Err(no_upgrade());
        }
        if !is_meant(target, &pod) {
            let why = format!("pod {}_{} not found", target.pod, target.namespace);
            return Err(no_stream(&NodeError::Failed(why)));
        }
        let wanted = Attach {
            pod,
            container: target.container.clone(),
            streams,
        };
        let url = self.node.attach(wanted).await;
        Ok(StreamCall {
            url: url.map_err(|trouble| no_stream(&trouble))?,
            way: self.transport("attach", streams, request.headers()),
        })
    }

    fn transport(
        &self,
        name: &'static str,
        streams: RemoteCommandOptions,
        headers: &HeaderMap,
    ) -> StreamTransport {
        match self.paths.websockets && websockets::is_remote(headers) {
            true => StreamTransport::Translated(name, streams),
            false => StreamTransport::Plain,
        }
    }

    pub(super) async fn port_forward_url(
        &self,
        target: &ContainerTarget,
        request: &Request<Incoming>,
    ) -> Result<StreamCall, HandlerResponse> {
        let inner = match self.paths.websockets {
            true => websockets::tunnelled(request.headers()),
            false => Vec::new(),
        };
        let ports = match inner.is_empty() && is_websocket(request.headers()) {
            true => ports(&QueryPairs::of(request.uri().query()))
                .map_err(|why| text(StatusCode::BAD_REQUEST, why))?,
            false => Vec::new(),
        };
        let pod = self.pod(target).await?;
        if !is_meant(target, &pod) {
            return Err(text(StatusCode::NOT_FOUND, "pod not found"));
        }
        if !is_upgrade(request.headers()) {
            return Err(no_upgrade());
        }
        let url = self.node.port_forward(&pod, ports).await;
        Ok(StreamCall {
            url: url.map_err(|trouble| no_stream(&trouble))?,
            way: match inner.is_empty() {
                true => StreamTransport::Plain,
                false => StreamTransport::Tunnelled(inner),
            },
        })
    }

    pub(super) async fn carry(
        &self,
        called: StreamCall,
        request: Request<Incoming>,
        answering: RequestContext,
    ) -> HandlerResponse {
        let Ok(turn) = self.streams.clone().try_acquire_owned() else {
            let why = "maximum number of in-flight requests exceeded".to_owned();
            return answering.with(no_stream(&NodeError::Exhausted(why)));
        };
        let RequestContext {
            counted,
            from,
            span,
            ..
        } = answering;
        let StreamCall { url, way } = called;
        let carried = StreamForward {
            url,
            from,
            idle: self.idle,
            keep: Box::new((turn, counted, span)),
        };
        let done = match way {
            StreamTransport::Plain => streams::carry(carried, request).await,
            StreamTransport::Translated(name, streams) => {
                count(name);
                Ok(websockets::translate(carried, streams, request))
            }
            StreamTransport::Tunnelled(inner) => {
                count("portforward");
                websockets::tunnel(carried, inner, request).await
            }
        };
        match done {
            Ok(answer) => answer,
            Err(error) => {
                tracing::info!("a stream is not carried: {error}");
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
            }
        }
    }
}

/// Counts a stream that comes in a WebSocket and is served here.
fn count(name: &str) {
    ::metrics::api::http::WEBSOCKETS
        .with_label_values(&[name])
        .inc();
}

/// Whether the pod is the one that a request names by its UID, if it does.
fn is_meant(target: &ContainerTarget, pod: &Pod) -> bool {
    let uid = target.uid.as_deref();
    uid.is_none_or(|uid| uid == pod.uid().as_str())
}

/// The streams that a query requests; none if it requests none. A terminal has no stream of errors.
fn wanted(query: &QueryPairs) -> Option<RemoteCommandOptions> {
    let tty = query.is_one("tty");
    let streams = RemoteCommandOptions {
        stdin: query.is_one("input"),
        stdout: query.is_one("output"),
        stderr: query.is_one("error") && !tty,
        tty,
    };
    (streams.stdin || streams.stdout || streams.stderr).then_some(streams)
}

fn no_streams() -> HandlerResponse {
    text(
        StatusCode::BAD_REQUEST,
        "you must specify at least 1 of stdin, stdout, stderr",
    )
}

/// Only a request to switch protocols can be carried.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).into_iter();
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.to_ascii_lowercase().contains("upgrade"))
}

fn no_upgrade() -> HandlerResponse {
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Upgrade request required\n",
    )
}

/// The ports of a WebSocket are in its query; SPDY names them later.
fn ports(query: &QueryPairs) -> Result<Vec<i32>, String> {
    let mut ports = Vec::new();
    for text in query.all("port") {
        if text.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for one in text.split(',') {
            match one.parse::<u16>() {
                Ok(0) => return Err(format!("port {text:?} must be > 0")),
                Ok(port) => ports.push(i32::from(port)),
                Err(error) => return Err(format!("unable to parse {text:?} as a port: {error}")),
            }
        }
    }
    match ports.is_empty() {
        true => Err("query parameter \"port\" is required".to_owned()),
        false => Ok(ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestServePortForward (the cases of ports, server_websocket_test.go).
    #[test]
    fn ports_are_numbers_from_one_to_65535() {
        let cases: [(&str, Option<&[i32]>); 9] = [
            ("", None),
            ("port=", None),
            ("port=abc", None),
            ("port=-1", None),
            ("port=65536", None),
            ("port=0", None),
            ("port=1", Some(&[1])),
            ("port=8000", Some(&[8000])),
            ("port=8000,1&port=65535", Some(&[8000, 1, 65535])),
        ];
        for (query, expected) in cases {
            let found = ports(&QueryPairs::of(Some(query)));
            assert_eq!(found.ok().as_deref(), expected, "{query}");
        }
    }
}
