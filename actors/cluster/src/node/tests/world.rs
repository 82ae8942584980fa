//! A server in the test's own process: objects by path, watches that end with the server, faults by order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kernel::testing::pass;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tower::service_fn;

type FakeNodeApiBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// Every request takes so long.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(5);

#[derive(Clone, Default)]
pub(super) struct FakeNodeApi(Arc<Mutex<FakeNodeApiState>>);

#[derive(Default)]
struct FakeNodeApiState {
    objects: BTreeMap<String, Value>,
    version: u64,
    heard: Vec<String>,
    bodies: Vec<Value>,
    /// The next requests that begin so are answered so; 0 is no answer at all.
    faults: VecDeque<(String, u16)>,
    away: bool,
    /// How long the answers to patches, which are carried out at once, are under way.
    patch_delay: Duration,
    watches: Vec<(String, mpsc::UnboundedSender<Value>)>,
}

impl FakeNodeApi {
    fn with<T>(&self, act: impl FnOnce(&mut FakeNodeApiState) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Puts an object there as another client would.
    pub(super) fn put(&self, path: &str, object: Value) {
        self.with(|world| world.store(path, object));
    }

    pub(super) fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        self.with(|world| {
            let mut object = world.objects[path].clone();
            change(&mut object);
            world.store(path, object);
        });
    }

    pub(super) fn delete(&self, path: &str) {
        self.with(|world| {
            let object = world.objects.remove(path).unwrap();
            world.tell(path, "DELETED", &object);
        });
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.with(|world| world.objects.get(path).cloned())
    }

    /// The requests since the last call, without lists and watches.
    pub(super) fn heard(&self) -> Vec<String> {
        self.with(|world| std::mem::take(&mut world.heard))
    }

    pub(super) fn last_body(&self) -> Value {
        self.with(|world| world.bodies.last().cloned().unwrap())
    }

    pub(super) fn fail(&self, start: &str, code: u16) {
        self.with(|world| world.faults.push_back((start.to_owned(), code)));
    }

    pub(super) fn go_away(&self, away: bool) {
        self.with(|world| {
            world.away = away;
            if away {
                world.watches.clear();
            }
        });
    }

    pub(super) fn delay_patches(&self, delay: Duration) {
        self.with(|world| world.patch_delay = delay);
    }

    pub(super) fn client(&self) -> api_client::ApiClient {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                pass(ROUND_TRIP).await;
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let query = parts.uri.query().unwrap_or_default().to_owned();
                let answer = server
                    .with(|world| world.answer(&parts.method, parts.uri.path(), &query, body));
                if parts.method == Method::PATCH {
                    pass(server.with(|world| world.patch_delay)).await;
                }
                answer
            }
        });
        kube::Client::new(service, "default").into()
    }
}

impl FakeNodeApiState {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let verb = match self.objects.contains_key(path) {
            true => "MODIFIED",
            false => {
                object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                "ADDED"
            }
        };
        self.objects.insert(path.to_owned(), object.clone());
        self.tell(path, verb, &object);
        object
    }

    fn tell(&mut self, path: &str, verb: &str, object: &Value) {
        let event = json!({"type": verb, "object": object});
        self.watches.retain(|(folder, sender)| {
            let own = path
                .rsplit_once('/')
                .is_some_and(|(parent, _)| parent == folder);
            !own || sender.send(event.clone()).is_ok()
        });
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        body: Value,
    ) -> Result<Response<FakeNodeApiBody>, std::io::Error> {
        let gone = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let what = format!("{method} {path}");
        if self.away {
            return Err(gone());
        }
        let collection = *method == Method::GET && path.ends_with("/nodes");
        if !collection {
            self.heard.push(what.clone());
        }
        if let Some((_, code)) = self
            .faults
            .pop_front_if(|(start, _)| what.starts_with(start.as_str()))
        {
            return match code {
                0 => Err(gone()),
                code => Ok(refused(code, "told to")),
            };
        }
        if collection {
            return Ok(self.collection(path, query));
        }
        Ok(self.object(method, path, body))
    }

    fn collection(&mut self, path: &str, query: &str) -> Response<FakeNodeApiBody> {
        if query.contains("watch=true") || query.contains("watch=1") {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.watches.push((path.to_owned(), sender));
            let lines = stream::unfold(receiver, |mut receiver| async move {
                let line = format!("{}\n", receiver.recv().await?);
                let frame = Frame::data(Bytes::from(line));
                Some((Ok::<_, std::io::Error>(frame), receiver))
            });
            return Response::new(StreamBody::new(lines).boxed_unsync());
        }
        let folder = format!("{path}/");
        let items = self
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(&folder));
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        answered(
            200,
            &json!({
                "kind": "NodeList", "apiVersion": "v1",
                "metadata": {"resourceVersion": self.version.max(1).to_string()}, "items": items,
            }),
        )
    }

    fn object(&mut self, method: &Method, path: &str, body: Value) -> Response<FakeNodeApiBody> {
        if *method == Method::POST {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            self.bodies.push(body.clone());
            return match self.objects.contains_key(&path) {
                true => refused(409, "AlreadyExists"),
                false => answered(201, &self.store(&path, body)),
            };
        }
        let path = path.trim_end_matches("/status");
        let Some(mut held) = self.objects.get(path).cloned() else {
            return refused(404, "NotFound");
        };
        if *method == Method::GET {
            return answered(200, &held);
        }
        self.bodies.push(body.clone());
        let version = &body["metadata"]["resourceVersion"];
        if !version.is_null() && *version != held["metadata"]["resourceVersion"] {
            return refused(409, "Conflict");
        }
        if *method == Method::PUT {
            return answered(200, &self.store(path, body));
        }
        merge(&mut held, &body);
        answered(200, &self.store(path, held))
    }
}

/// As much of a strategic merge as these objects need.
fn merge(held: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *held = patch.clone();
        return;
    };
    if !held.is_object() {
        *held = Value::Object(Map::new());
    }
    for (key, new) in patch {
        if key.starts_with('$') {
            continue;
        }
        match (key.as_str(), new) {
            (_, Value::Null) => drop(held.as_object_mut().unwrap().remove(key)),
            ("conditions", Value::Array(list)) => {
                list.iter().for_each(|new| merge_entry(held, new))
            }
            (_, Value::Array(list)) => {
                let list: Vec<_> = list
                    .iter()
                    .filter(|entry| entry.get("$patch").is_none())
                    .collect();
                held[key] = json!(list);
            }
            (_, new) => merge(&mut held[key], new),
        }
    }
}

fn merge_entry(held: &mut Value, new: &Value) {
    if !held["conditions"].is_array() {
        held["conditions"] = json!([]);
    }
    let list = held["conditions"].as_array_mut().unwrap();
    let at = list.iter().position(|entry| entry["type"] == new["type"]);
    match (at, new.get("$patch")) {
        (Some(at), Some(_)) => drop(list.remove(at)),
        (Some(at), None) => merge(&mut list[at], new),
        (None, _) => list.push(new.clone()),
    }
}

fn answered(code: u16, value: &Value) -> Response<FakeNodeApiBody> {
    let body = Full::new(Bytes::from(value.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

fn refused(code: u16, reason: &str) -> Response<FakeNodeApiBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{reason} ({code})"), "reason": reason, "code": code,
    });
    answered(code, &status)
}
