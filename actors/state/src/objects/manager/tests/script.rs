//! An API server in the test's own thread, so that its clock may be paused: lists, gets, watches, tokens, and refusals
//! on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use jiff::SignedDuration;
use kernel::watch;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};

type ScriptedResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The requests to the server, and its faults.
#[derive(Clone)]
pub(super) struct ScriptedApi(Arc<Mutex<ScriptedApiState>>, watch::Sender<u64>);

#[derive(Default)]
struct ScriptedApiState {
    objects: BTreeMap<String, Value>,
    version: u64,
    watchers: Vec<Watcher>,
    heard: Vec<String>,
    /// By a part of the path: the code and the words.
    refused: BTreeMap<String, (u16, String)>,
    /// Ends of paths whose objects may be got and neither listed nor watched.
    unwatchable: Vec<String>,
    /// By a part of the path: never answered.
    stuck: Vec<String>,
    away: bool,
    tokens: u64,
    life: i64,
    asked: Vec<Value>,
}

struct Watcher {
    collection: String,
    name: Option<String>,
    events: UnboundedSender<String>,
}

impl Watcher {
    fn sees(&self, path: &str) -> bool {
        let (collection, name) = path.rsplit_once('/').unwrap_or_default();
        collection == self.collection && self.name.as_deref().is_none_or(|own| own == name)
    }
}

impl ScriptedApi {
    pub(super) fn new() -> ScriptedApi {
        let state = ScriptedApiState {
            life: 3600,
            version: 1,
            ..ScriptedApiState::default()
        };
        ScriptedApi(Arc::new(Mutex::new(state)), watch::channel(0).0)
    }

    pub(super) fn client(&self) -> kube::Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move { script.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    fn state(&self) -> MutexGuard<'_, ScriptedApiState> {
        self.0.lock().unwrap()
    }

    /// Makes or changes an object, and sends it to its watches.
    pub(super) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let (_, name) = path.rsplit_once('/').unwrap();
        object["metadata"]["name"] = json!(name);
        if let Some((_, rest)) = path.split_once("/namespaces/") {
            object["metadata"]["namespace"] = json!(rest.split('/').next());
        }
        let known = state.objects.insert(path.to_owned(), object.clone());
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        state.tell(path, kind, &object);
    }

    pub(super) fn delete(&self, path: &str) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version.to_string();
        let mut object = state.objects.remove(path).unwrap();
        object["metadata"]["resourceVersion"] = json!(version);
        state.tell(path, "DELETED", &object);
    }

    pub(super) fn refuse(&self, part: &str, code: u16, words: &str) {
        let refusal = (code, words.to_owned());
        self.state().refused.insert(part.to_owned(), refusal);
    }

    /// Lets objects of this plural be got, and neither listed nor watched: upstream's node authorizer.
    pub(super) fn only_get(&self, plural: &str) {
        self.state().unwatchable.push(format!("/{plural}"));
    }

    pub(super) fn allow(&self, part: &str) {
        self.state().refused.remove(part);
    }

    /// Never answers what has this in its path.
    pub(super) fn hold(&self, part: &str) {
        self.state().stuck.push(part.to_owned());
    }

    pub(super) fn unhold(&self) {
        self.state().stuck.clear();
        self.1.send_modify(|turn| *turn += 1);
    }

    /// The server answers nothing, and all watches end.
    pub(super) fn go_away(&self) {
        let mut state = self.state();
        state.away = true;
        state.watchers.clear();
    }

    pub(super) fn come_back(&self) {
        self.state().away = false;
    }

    pub(super) fn set_life(&self, seconds: i64) {
        self.state().life = seconds;
    }

    /// The requests so far with this in method, path or query; `watch` marks watches.
    pub(super) fn heard(&self, part: &str) -> usize {
        let state = self.state();
        state
            .heard
            .iter()
            .filter(|line| line.contains(part))
            .count()
    }

    pub(super) fn forget(&self) {
        self.state().heard.clear();
    }

    pub(super) fn watchers(&self) -> usize {
        let mut state = self.state();
        state.watchers.retain(|watcher| !watcher.events.is_closed());
        state.watchers.len()
    }

    /// The objects with this in their path.
    pub(super) fn objects(&self, part: &str) -> Vec<(String, Value)> {
        let state = self.state();
        let found = state.objects.iter().filter(|(path, _)| path.contains(part));
        found
            .map(|(path, object)| (path.clone(), object.clone()))
            .collect()
    }

    /// The token requests so far.
    pub(super) fn asked(&self) -> Vec<Value> {
        self.state().asked.clone()
    }

    fn make(&self, collection: &str, body: &[u8]) -> ScriptedResponse {
        let object: Value = serde_json::from_slice(body).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{collection}/{name}");
        if self.state().objects.contains_key(&path) {
            return status(409, &format!("{path} already exists"));
        }
        self.put(&path, object);
        whole(201, &self.state().objects[&path])
    }

    async fn answer(self, request: Request<Body>) -> io::Result<ScriptedResponse> {
        let (method, uri) = (request.method().to_string(), request.uri().clone());
        let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or("").to_owned());
        let body = request
            .into_body()
            .collect_bytes()
            .await
            .unwrap_or_default();
        let watches = query.contains("watch=true");
        let kind = if watches { "watch" } else { "ask" };
        self.state()
            .heard
            .push(format!("{method} {path}?{query} {kind}"));
        loop {
            let mut turns = self.1.subscribe();
            turns.mark_unchanged();
            if !self.state().stuck.iter().any(|part| path.contains(part)) {
                break;
            }
            drop(turns.changed().await);
        }
        let mut state = self.state();
        if state.away {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "nobody there",
            ));
        }
        let refused = state.refused.iter().find(|(part, _)| path.contains(*part));
        if let Some((_, (code, words))) = refused {
            return Ok(status(*code, words));
        }
        if state
            .unwatchable
            .iter()
            .any(|plural| path.ends_with(plural))
        {
            return Ok(status(
                403,
                "a node can only get individual resources of this type",
            ));
        }
        Ok(match () {
            () if method == "POST" && path.ends_with("/token") => state.token(&path, &body),
            () if method == "POST" => {
                drop(state);
                self.make(&path, &body)
            }
            () if watches => state.watch(&path, &query),
            () if state.is_collection(&path) => state.list(&path, &query),
            () => state.get(&path),
        })
    }
}

impl ScriptedApiState {
    fn tell(&self, path: &str, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object}).to_string() + "\n";
        for watcher in self.watchers.iter().filter(|watcher| watcher.sees(path)) {
            drop(watcher.events.send(event.clone()));
        }
    }

    fn is_collection(&self, path: &str) -> bool {
        let last = path.rsplit('/').next().unwrap_or_default();
        [
            "configmaps",
            "secrets",
            "services",
            "runtimeclasses",
            "csidrivers",
            "clustertrustbundles",
            "podcertificaterequests",
            "persistentvolumeclaims",
            "persistentvolumes",
        ]
        .contains(&last)
    }

    fn list(&self, path: &str, query: &str) -> ScriptedResponse {
        let name = selected(query);
        let items = self.objects.iter().filter(|(own, _)| {
            let (collection, own) = own.rsplit_once('/').unwrap_or_default();
            collection == path && name.as_deref().is_none_or(|name| name == own)
        });
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        whole(
            200,
            &json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}),
        )
    }

    fn get(&self, path: &str) -> ScriptedResponse {
        match self.objects.get(path) {
            Some(object) => whole(200, object),
            None => status(404, &format!("{path} not found")),
        }
    }

    fn watch(&mut self, path: &str, query: &str) -> ScriptedResponse {
        let (events, heard) = mpsc::unbounded_channel();
        let watcher = Watcher {
            collection: path.to_owned(),
            name: selected(query),
            events,
        };
        let since = parameter(query, "resourceVersion=").unwrap_or_default();
        let since: u64 = since.parse().unwrap_or_default();
        let version = |object: &Value| -> u64 {
            let version = object["metadata"]["resourceVersion"].as_str();
            version.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let missed = self.objects.iter();
        let missed = missed.filter(|(path, object)| watcher.sees(path) && version(object) > since);
        for (_, object) in missed {
            let event = json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
            drop(watcher.events.send(event));
        }
        self.watchers.push(watcher);
        let frames = stream::unfold(heard, |mut heard| async {
            let line = heard.recv().await?;
            Some((Ok(Frame::data(Bytes::from(line))), heard))
        });
        Response::new(StreamBody::new(frames.boxed()).boxed_unsync())
    }

    fn token(&mut self, path: &str, body: &[u8]) -> ScriptedResponse {
        let mut request: Value = serde_json::from_slice(body).unwrap();
        self.asked
            .push(json!({"path": path, "spec": request["spec"]}));
        self.tokens += 1;
        request["spec"]["expirationSeconds"] = json!(self.life);
        let now = kernel::timestamp();
        let end = now + SignedDuration::from_secs(self.life);
        request["status"] =
            json!({"token": format!("token-{}", self.tokens), "expirationTimestamp": end});
        whole(201, &request)
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|part| part.strip_prefix(name))
}

fn selected(query: &str) -> Option<String> {
    let field = parameter(query, "fieldSelector=")?;
    let name = field.strip_prefix("metadata.name%3D")?;
    name.split("%2C").next().map(str::to_owned)
}

fn status(code: u16, words: &str) -> ScriptedResponse {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "AlreadyExists",
        410 => "Expired",
        _ => "Other",
    };
    whole(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": words,
                "reason": reason, "code": code}),
    )
}

fn whole(code: u16, body: &Value) -> ScriptedResponse {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}
