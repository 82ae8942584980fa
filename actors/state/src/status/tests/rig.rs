//! An API of pods in this process, and the status manager in front of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::ApiClient;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kernel::testing::{self, Inbox};
use kernel::{Addr, ChildSpec, Intensity, Recipient, Supervisor, mailbox};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::super::{MAILBOX, Msg, Peers, PodResync, StatusClient, StatusManager, StatusWatch};

/// How long the API takes for a request.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(5);
pub(super) const SOON: Duration = Duration::from_millis(50);
/// Longer than updates that are not urgent wait, shorter than the first pause after a failure.
const REST: Duration = Duration::from_millis(150);

/// What the next request gets instead of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestFault {
    Status(u16),
    Busy(u32),
    /// A code, and the page of a proxy.
    Proxy(u16),
    Away,
}

#[derive(Default)]
pub(super) struct FakeStatusApiState {
    pods: BTreeMap<String, Value>,
    version: u64,
    /// `PATCH web`, `DELETE web`.
    heard: Vec<String>,
    bodies: Vec<Value>,
    faults: VecDeque<RequestFault>,
    /// By pod: every request about it gets this code.
    broken: BTreeMap<String, u16>,
    /// What every request gets while the server is away.
    away: Option<RequestFault>,
    now: usize,
    most: usize,
}

#[derive(Clone, Default)]
pub(super) struct FakeStatusApi(Arc<Mutex<FakeStatusApiState>>);

impl FakeStatusApi {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut FakeStatusApiState) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Puts a pod there as another client would.
    pub(super) fn put(&self, mut pod: Value) {
        self.with(|world| {
            world.version += 1;
            pod["metadata"]["resourceVersion"] = json!(world.version.to_string());
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            world.pods.insert(name, pod);
        });
    }

    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = self.pod(name);
        change(&mut pod);
        self.put(pod);
    }

    pub(super) fn remove(&self, name: &str) {
        self.with(|world| world.pods.remove(name));
    }

    pub(super) fn pod(&self, name: &str) -> Value {
        self.with(|world| world.pods.get(name).cloned().unwrap_or_default())
    }

    pub(super) fn phase(&self, name: &str) -> String {
        let pod = self.pod(name);
        pod["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(super) fn listed(&self) -> Vec<Arc<Pod>> {
        let all = self.with(|world| world.pods.values().cloned().collect::<Vec<_>>());
        let read = |pod| Arc::new(serde_json::from_value(pod).unwrap());
        all.into_iter().map(read).collect()
    }

    /// The requests since the last call.
    pub(super) fn heard(&self) -> Vec<String> {
        self.with(|world| std::mem::take(&mut world.heard))
    }

    pub(super) fn last_body(&self) -> Value {
        self.with(|world| world.bodies.last().cloned().unwrap_or_default())
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.with(|world| world.most)
    }

    pub(super) fn fail(&self, fault: RequestFault) {
        self.with(|world| world.faults.push_back(fault));
    }

    /// Every request about this pod gets this code from now on.
    pub(super) fn break_pod(&self, name: &str, code: u16) {
        self.with(|world| world.broken.insert(name.to_owned(), code));
    }

    pub(super) fn go_away(&self, away: bool) {
        self.with(|world| world.away = away.then_some(RequestFault::Away));
    }

    /// A proxy answers for the server with this code.
    pub(super) fn go_away_behind_proxy(&self, code: u16) {
        self.with(|world| world.away = Some(RequestFault::Proxy(code)));
    }

    pub(super) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                api.with(|world| {
                    world.now += 1;
                    world.most = world.most.max(world.now);
                });
                testing::pass(ROUND_TRIP).await;
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
                let body = serde_json::from_slice(&body).unwrap_or_default();
                api.with(|world| {
                    world.now -= 1;
                    world.answer(&parts.method, parts.uri.path(), body)
                })
            }
        });
        kube::Client::new(service, "default")
    }
}

impl FakeStatusApiState {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        body: Value,
    ) -> Result<Response<Body>, std::io::Error> {
        let name = path
            .trim_end_matches("/status")
            .rsplit('/')
            .next()
            .unwrap_or_default();
        self.heard.push(format!("{method} {name}"));
        self.bodies.push(body.clone());
        let fault = self
            .faults
            .pop_front()
            .or(self.broken.get(name).copied().map(RequestFault::Status))
            .or(self.away);
        match fault {
            Some(RequestFault::Away) => return Err(std::io::Error::other("nobody there")),
            Some(RequestFault::Proxy(code)) => {
                let page = Response::builder().status(code);
                return Ok(page.body(Body::from(b"<html>".to_vec())).unwrap());
            }
            Some(RequestFault::Busy(seconds)) => return Ok(refusal(429, seconds)),
            Some(RequestFault::Status(code)) => return Ok(refusal(code, 0)),
            None => {}
        }
        let Some(pod) = self.pods.get_mut(name) else {
            return Ok(refusal(404, 0));
        };
        let uid = match *method {
            Method::DELETE => &body["preconditions"]["uid"],
            _ => &body["metadata"]["uid"],
        };
        if *method != Method::GET && *uid != pod["metadata"]["uid"] {
            return Ok(refusal(409, 0));
        }
        if *method == Method::PATCH {
            self.version += 1;
            pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
            apply(&mut pod["status"], &body["status"]);
        }
        let answer = pod.clone();
        if *method == Method::DELETE {
            self.pods.remove(name);
        }
        Ok(Response::new(Body::from(answer.to_string().into_bytes())))
    }
}

/// As much of a strategic merge as the tests need.
fn apply(status: &mut Value, patch: &Value) {
    if status.is_null() {
        *status = json!({});
    }
    for (key, value) in patch.as_object().unwrap() {
        match key.as_str() {
            order if order.starts_with('$') => {}
            "conditions" => merge(status, value),
            _ if value.is_null() => drop(status.as_object_mut().unwrap().remove(key)),
            _ => status[key] = value.clone(),
        }
    }
}

fn merge(status: &mut Value, changes: &Value) {
    let mut list = status["conditions"].as_array().cloned().unwrap_or_default();
    for change in changes.as_array().unwrap() {
        let at = list.iter().position(|c| c["type"] == change["type"]);
        match (at, change["$patch"].is_null()) {
            (Some(at), false) => drop(list.remove(at)),
            (Some(at), true) => {
                for (key, value) in change.as_object().unwrap() {
                    list[at][key] = value.clone();
                }
            }
            (None, _) => list.push(change.clone()),
        }
    }
    status["conditions"] = Value::Array(list);
}

fn refusal(code: u16, seconds: u32) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no",
        "reason": "Why", "details": { "retryAfterSeconds": seconds },
    });
    let answer = Response::builder().status(code);
    answer
        .body(Body::from(status.to_string().into_bytes()))
        .unwrap()
}

/// Which actor is asked for all its facts again.
#[derive(Debug, PartialEq, strum::IntoStaticStr)]
pub(super) enum ResyncAsked {
    Statuses,
    Pods,
}

pub(super) struct Rig {
    pub(super) api: FakeStatusApi,
    pub(super) keeper: Addr<Msg>,
    pub(super) asked: Inbox<ResyncAsked>,
    root: Supervisor,
}

/// Starts a status manager that sends as `sending` says.
pub(super) fn keeper(
    sending: impl FnOnce(Recipient<PodResync>) -> StatusClient,
) -> (Supervisor, Addr<Msg>, Inbox<ResyncAsked>) {
    let (keeper, port) = mailbox(MAILBOX);
    let (told, asked) = testing::inbox(64);
    let republish = Recipient::new(told.clone(), |PodResync| ResyncAsked::Statuses);
    let sending = sending(Recipient::new(told, |PodResync| ResyncAsked::Pods));
    let root = Supervisor::root("test", Intensity::UNLIMITED);
    root.spawn(ChildSpec::permanent("status"), port, move || {
        StatusManager::new(Peers {
            republish: republish.clone(),
            api: Some(sending.clone()),
            kept: None,
        })
    });
    (root, keeper, asked)
}

impl Rig {
    pub(super) fn start() -> Rig {
        let api = FakeStatusApi::default();
        let client = ApiClient::from(api.client());
        Rig::with(api, client)
    }

    /// The rate of the node's requests is nearly used up.
    pub(super) fn without_spare_rate() -> Rig {
        let api = FakeStatusApi::default();
        let client = ApiClient::from(api.client()).without_spare_rate();
        Rig::with(api, client)
    }

    fn with(api: FakeStatusApi, client: ApiClient) -> Rig {
        let (root, keeper, asked) = keeper(|pods| StatusClient::new(&client, pods));
        Rig {
            api,
            keeper,
            asked,
            root,
        }
    }

    /// The watch shows what is there.
    pub(super) fn watch(&self) {
        let pods = self.api.listed();
        self.keeper.tell(Msg::Pods { pods }).unwrap();
    }

    pub(super) fn say(&self, uid: &str, status: PodStatus) {
        let (uid, status) = (uid.into(), Arc::new(status));
        self.keeper.tell(Msg::Changed { uid, status }).unwrap();
    }

    pub(super) fn forget(&self, uid: &str) {
        self.keeper.tell(Msg::Forget { uid: uid.into() }).unwrap();
    }

    pub(super) async fn changes(&self) -> StatusWatch {
        let watch = self.keeper.ask(SOON, |reply| Msg::Watch { reply });
        watch.await.unwrap()
    }

    /// The requests from now on until none comes any more.
    pub(super) async fn settle(&self) -> Vec<String> {
        testing::pass(REST).await;
        self.api.heard()
    }

    pub(super) async fn kept(&self) -> Vec<String> {
        let all = self.keeper.ask(SOON, |reply| Msg::All { reply });
        all.await.unwrap().keys().map(ToString::to_string).collect()
    }

    /// The status manager ends, and a successor begins.
    pub(super) fn restart(&self) {
        self.root
            .inject("test/status", kernel::InjectedFault::Panic)
            .unwrap();
    }
}

pub(super) fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("{name}-uid") },
        "spec": { "containers": [{ "name": "main", "image": "localhost/main:1" }] },
        "status": { "phase": "Pending" },
    })
}

pub(super) fn deleted(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod
}

pub(super) fn mirror(name: &str, of: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": of });
    pod
}

pub(super) fn status(phase: &str) -> PodStatus {
    PodStatus {
        phase: Some(phase.into()),
        ..PodStatus::default()
    }
}

pub(super) fn with_message(phase: &str, message: &str) -> PodStatus {
    PodStatus {
        message: Some(message.into()),
        ..status(phase)
    }
}

pub(super) fn with_ready(mut told: PodStatus, verdict: &str) -> PodStatus {
    let ready = PodCondition {
        type_: "Ready".into(),
        status: verdict.into(),
        ..PodCondition::default()
    };
    told.conditions.get_or_insert_default().push(ready);
    told
}

pub(super) fn with_container(told: PodStatus, state: Value) -> PodStatus {
    let container = json!({
        "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    PodStatus {
        container_statuses: Some(vec![serde_json::from_value(container).unwrap()]),
        ..told
    }
}
