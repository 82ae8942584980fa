//! The read-only port (`readOnlyPort`, 10255): what the node runs, to whoever asks.
//!
//! - **Owns** its listener.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** nobody; it asks the directory for the pods and the keeper for their statuses.
//! - **Never** changes anything, nor holds a whole list of pods as text.
//!
//! Upstream: pkg/kubelet/server/server.go (getPods), pkg/kubelet/kubelet_pods.go (GetPods), 1.36.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kernel::{Actor, Addr, AskError, Context, Exit};
use logic::pod::PodView;
use logic::types::PodUid;
use serde::Serialize;

use super::healthz::Health;
use ::serving::http::{
    Answer, Answers, Limits, Traffic, not_found, serve, streamed, text, wrong_method,
};
use super::{Deaf, Msg, Snapshot, listen};
use crate::directory;
use cluster::status;

const ASK_WITHIN: Duration = Duration::from_secs(5);
const LIMITS: Limits = Limits {
    connections: 64,
    life: Some(Duration::from_secs(300)),
};
/// A list is sent in pieces of about this size.
const PIECE: usize = 32 * 1024;

/// The read-only server.
#[derive(Debug)]
pub struct ReadOnly {
    address: SocketAddr,

    server: Rc<Server>,

    traffic: Rc<Traffic>,
}

#[derive(Debug)]
struct Server {
    directory: Addr<directory::Msg>,
    statuses: Addr<status::Msg>,
    health: Health,
}

impl Actor for ReadOnly {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::tcp(self.address).await?;
        self.address = listener.local_addr().unwrap_or(self.address);
        let (server, traffic, address) = (
            self.server.clone(),
            self.traffic.clone(),
            self.address.to_string(),
        );
        ctx.run(async move {
            let source = serve(listener, server, traffic, LIMITS).await;
            Msg::Deaf(Deaf { address, source })
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Deaf(deaf) => Err(deaf.into()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            address: self.address.to_string(),
            connections: self.traffic.connections(),
            requests: self.traffic.requests(),
        }
    }
}

impl ReadOnly {
    pub fn new(
        address: SocketAddr,
        directory: Addr<directory::Msg>,
        statuses: Addr<status::Msg>,
        health: Health,
    ) -> Self {
        let server = Rc::new(Server {
            directory,
            statuses,
            health,
        });
        ReadOnly {
            address,
            server,
            traffic: Rc::default(),
        }
    }
}

impl Answers for Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if let Some(answer) = self.health.answer(&request).await {
            return answer;
        }
        match request.uri().path() {
            "/pods" | "/pods/" if request.method() != Method::GET => wrong_method("GET"),
            "/pods" | "/pods/" => self.pods().await,
            _ => not_found(),
        }
    }
}

impl Server {
    async fn pods(&self) -> Answer {
        match known(&self.directory, &self.statuses).await {
            Ok((pods, statuses)) => streamed(pod_list(pods, statuses)),
            Err(error) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the pods are not to be had now: {error}\n"),
            ),
        }
    }
}

/// Every pod of the node, and the statuses that are kept.
pub(super) async fn known(
    directory: &Addr<directory::Msg>,
    statuses: &Addr<status::Msg>,
) -> Result<(Vec<Arc<Pod>>, Statuses), AskError> {
    let pods = directory
        .ask(ASK_WITHIN, |reply| directory::Msg::Pods { reply })
        .await?;
    let statuses = statuses
        .ask(ASK_WITHIN, |reply| status::Msg::All { reply })
        .await?;
    Ok((pods, statuses))
}

pub(super) type Statuses = BTreeMap<PodUid, Arc<PodStatus>>;

/// A `v1 PodList`, piece by piece.
fn pod_list(pods: Vec<Arc<Pod>>, statuses: Statuses) -> impl Stream<Item = Bytes> + Send + 'static {
    let mut pods = pods.into_iter();
    let mut piece = Vec::with_capacity(PIECE);
    piece.extend_from_slice(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
    let (mut first, mut ended) = (true, false);
    stream::iter(std::iter::from_fn(move || {
        while !ended && piece.len() < PIECE {
            match pods.next() {
                Some(pod) => {
                    let before = piece.len();
                    if !first {
                        piece.push(b',');
                    }
                    match serde_json::to_writer(&mut piece, &Item::new(&pod, &statuses)) {
                        Ok(()) => first = false,
                        Err(error) => {
                            tracing::error!("a pod has no JSON: {error}");
                            piece.truncate(before);
                        }
                    }
                }
                None => {
                    piece.extend_from_slice(b"]}\n");
                    ended = true;
                }
            }
        }
        let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE));
        (!full.is_empty()).then(|| Bytes::from(full))
    }))
}

/// A pod in a list has no kind and version of its own.
#[derive(Debug, Serialize)]
struct Item<'a> {
    metadata: &'a ObjectMeta,
    spec: Option<&'a PodSpec>,
    status: Option<&'a PodStatus>,
}

impl<'a> Item<'a> {
    /// The kept status is newer than what a manifest said.
    fn new(pod: &'a Pod, statuses: &'a Statuses) -> Self {
        Item {
            metadata: &pod.metadata,
            spec: pod.spec.as_ref(),
            status: statuses
                .get(&pod.uid())
                .map(Arc::as_ref)
                .or(pod.status.as_ref()),
        }
    }
}
