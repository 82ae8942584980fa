//! An API server in the test's own thread, for all of the node's actors at once: objects by path, watches, patches of
//! a status, and times without an answer.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use api_client::ApiClient;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tower::service_fn;

type OutageClusterBody = UnsyncBoxBody<Bytes, io::Error>;

const COLLECTIONS: [&str; 7] = [
    "pods",
    "nodes",
    "configmaps",
    "services",
    "csidrivers",
    "runtimeclasses",
    "clustertrustbundles",
];

#[derive(Clone, Default)]
pub(super) struct OutageCluster(Arc<Mutex<OutageClusterState>>);

#[derive(Default)]
struct OutageClusterState {
    objects: BTreeMap<String, Value>,
    version: u64,
    watches: Vec<OutageClusterWatch>,
    heard: Vec<String>,
    under_way: usize,
    most: usize,
    away: bool,
    /// Watches from before this version must list anew.
    forgotten: u64,
}

struct OutageClusterWatch {
    collection: String,
    query: String,
    events: UnboundedSender<Value>,
}

impl OutageClusterWatch {
    fn sees(&self, path: &str) -> bool {
        is_in(path, &self.collection) && is_selected(path, &self.query)
    }
}

/// Pods are listed over all namespaces.
fn is_in(path: &str, collection: &str) -> bool {
    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
    parent == collection || (collection == "/api/v1/pods" && parent.ends_with("/pods"))
}

fn is_selected(path: &str, query: &str) -> bool {
    let named = query.split_once("metadata.name%3D");
    named.is_none_or(|(_, rest)| {
        path.ends_with(&format!("/{}", rest.split('&').next().unwrap_or(rest)))
    })
}

impl OutageCluster {
    fn with<T>(&self, act: impl FnOnce(&mut OutageClusterState) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(super) fn put(&self, path: &str, object: Value) {
        self.with(|state| drop(state.store(path, object)));
    }

    pub(super) fn get(&self, path: &str) -> Value {
        self.with(|state| state.objects.get(path).cloned().unwrap_or_default())
    }

    pub(super) fn remove(&self, path: &str) {
        self.with(|state| {
            let mut object = state.objects.remove(path).unwrap();
            state.version += 1;
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            state.tell(path, "DELETED", &object);
        });
    }

    pub(super) fn go_away(&self) {
        self.with(|state| {
            state.away = true;
            state.watches.clear();
        });
    }

    pub(super) fn come_back(&self) {
        self.with(|state| {
            state.away = false;
            state.forgotten = state.version;
        });
    }

    /// The requests since the last call.
    pub(super) fn requests(&self) -> Vec<String> {
        self.with(|state| std::mem::take(&mut state.heard))
    }

    /// The most requests that were ever under way at once.
    pub(super) fn most_at_once(&self) -> usize {
        self.with(|state| state.most)
    }

    pub(super) fn client(&self) -> ApiClient {
        let world = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let world = world.clone();
            async move {
                world.with(|state| {
                    state.under_way += 1;
                    state.most = state.most.max(state.under_way);
                });
                kernel::testing::pass(std::time::Duration::from_millis(5)).await;
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                world.with(|state| {
                    state.under_way -= 1;
                    let query = parts.uri.query().unwrap_or_default();
                    state.answer(&parts.method, (parts.uri.path(), query), body)
                })
            }
        });
        kube::Client::new(service, "default").into()
    }
}

impl OutageClusterState {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let before = self.objects.insert(path.to_owned(), object.clone());
        let kind = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.tell(path, kind, &object);
        object
    }

    fn tell(&mut self, path: &str, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        self.watches
            .retain(|watch| !watch.sees(path) || watch.events.send(event.clone()).is_ok());
    }

    fn answer(
        &mut self,
        method: &Method,
        (path, query): (&str, &str),
        body: Value,
    ) -> Result<Response<OutageClusterBody>, io::Error> {
        self.heard.push(format!("{method} {path}"));
        if self.away {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        let collection = *method == Method::GET && COLLECTIONS.contains(&last);
        Ok(match () {
            () if collection && query.contains("watch=true") => self.watch(path, query),
            () if collection => self.list(path, query),
            () => self.object(method, path, body),
        })
    }

    fn watch(&mut self, path: &str, query: &str) -> Response<OutageClusterBody> {
        let since = query
            .split('&')
            .find_map(|part| part.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|text| text.parse().ok()).unwrap_or_default();
        if since < self.forgotten {
            let gone =
                json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
            return answered(410, &gone);
        }
        let (events, heard) = unbounded_channel();
        self.watches.push(OutageClusterWatch {
            collection: path.to_owned(),
            query: query.to_owned(),
            events,
        });
        let lines = stream::unfold(heard, |mut heard| async move {
            let line = format!("{}\n", heard.recv().await?);
            Some((Ok(Frame::data(Bytes::from(line))), heard))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }

    fn list(&self, path: &str, query: &str) -> Response<OutageClusterBody> {
        let items = self.objects.iter();
        let items = items.filter(|(own, _)| is_in(own, path) && is_selected(own, query));
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        let metadata = json!({"resourceVersion": self.version.max(1).to_string()});
        answered(200, &json!({"metadata": metadata, "items": items}))
    }

    fn object(&mut self, method: &Method, path: &str, body: Value) -> Response<OutageClusterBody> {
        if *method == Method::POST {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            let mut made = body;
            made["metadata"]["uid"] = json!(format!("uid-{}", self.version));
            return answered(201, &self.store(&path, made));
        }
        let path = path.trim_end_matches("/status");
        let Some(mut held) = self.objects.get(path).cloned() else {
            return answered(
                404,
                &json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"}),
            );
        };
        match *method {
            Method::GET => answered(200, &held),
            Method::PUT => answered(200, &self.store(path, body)),
            _ => {
                // As much of a patch as a status needs that only the node writes.
                for (key, value) in body["status"].as_object().into_iter().flatten() {
                    held["status"][key] = value.clone();
                }
                answered(200, &self.store(path, held))
            }
        }
    }
}

fn answered(code: u16, value: &Value) -> Response<OutageClusterBody> {
    let body = Full::new(Bytes::from(value.to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}
