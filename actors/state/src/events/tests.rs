//! What is recorded, counted, and sent to the API.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kernel::{ChildSpec, Intensity, Supervisor, testing};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

fn event(message: &str) -> Box<Event> {
    Box::new(Event {
        first_seen: Timestamp::UNIX_EPOCH,
        last_seen: Timestamp::UNIX_EPOCH,
        count: 1,
        r#type: EventType::Normal,
        reason: "Started".into(),
        message: message.into(),
        object: InvolvedObject::default(),
        annotations: BTreeMap::new(),
    })
}

async fn listed(messages: &[String]) -> Vec<Event> {
    kept(messages.iter().map(|message| event(message))).await
}

async fn kept(told: impl Iterator<Item = Box<Event>>) -> Vec<Event> {
    let (events, port) = kernel::mailbox(MAILBOX);
    Supervisor::root("test", Intensity::UNLIMITED).spawn(
        ChildSpec::permanent("events"),
        port,
        EventBroadcaster::default,
    );
    for event in told {
        events.tell(Msg::Record(event)).unwrap();
    }
    events
        .ask(Duration::from_secs(1), |reply| Msg::List { reply })
        .await
        .unwrap()
}

#[test]
fn equal_events_are_counted_not_repeated() {
    let kept =
        testing::run_paused(|| async { listed(&["a".into(), "b".into(), "a".into()]).await });
    let counts: Vec<_> = kept.iter().map(|e| (e.message.as_str(), e.count)).collect();
    assert_eq!(counts, [("b", 1), ("a", 2)]);
}

#[test]
fn the_ring_keeps_only_the_newest() {
    let about = |n: usize| {
        let mut event = event(&n.to_string());
        event.object.name = n.to_string();
        event
    };
    let kept = testing::run_paused(|| async move { kept((0..RING + 10).map(about)).await });
    assert_eq!(kept.len(), RING);
    assert_eq!(kept[0].message, "10");
}

#[test]
fn one_noisy_object_does_not_push_out_the_others() {
    let noise = (0..RING).map(|n| event(&n.to_string()));
    let mut other = event("other");
    other.object.name = "other".into();
    let all = std::iter::once(other).chain(noise);
    let kept = testing::run_paused(|| async move { kept(all).await });
    assert_eq!(kept[0].message, "other");
    assert!(kept.len() < 30, "{}", kept.len());
}

#[test]
fn a_message_has_a_bound() {
    testing::run_paused(|| async {
        let (events, mut told) = testing::inbox(4);
        let (now, node) = (Timestamp::UNIX_EPOCH, InvolvedObject::node("node"));
        let message = "é".repeat(1 << 20);
        Recorder::new(events).record(now, EventType::Warning, node, "Failed", message);
        let Some(Msg::Record(event)) = told.next(Duration::from_secs(1)).await else {
            panic!("no event")
        };
        assert_eq!(event.message.len(), MAX_MESSAGE_BYTES);
    });
}

#[test]
fn one_noisy_reason_does_not_keep_the_node_from_reporting_others() {
    let node = |reason: &str, message: &str| {
        let mut event = event(message);
        event.object = InvolvedObject::node("node");
        event.reason = reason.into();
        event
    };
    let noise: Vec<_> = (0..RING)
        .map(|n| node("MissingClusterDNS", &n.to_string()))
        .collect();
    let all = noise.into_iter().chain([node("InvalidManifest", "imge")]);
    let kept = testing::run_paused(|| async move { kept(all).await });
    assert_eq!(kept.last().unwrap().message, "imge");
    assert!(kept.len() < 30, "{}", kept.len());
}

/// What was heard, and what the next requests get instead of their answer: a code, or nothing at all.
#[derive(Clone, Default)]
struct FakeEventApi(Arc<Mutex<FakeEventApiState>>);

#[derive(Default)]
struct FakeEventApiState {
    heard: Vec<(String, Value)>,
    faults: VecDeque<Option<u16>>,
    /// Whether the next object is there already.
    exists: bool,
}

impl FakeEventApi {
    fn with<T>(&self, act: impl FnOnce(&mut FakeEventApiState) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn fail(&self, faults: impl IntoIterator<Item = Option<u16>>) {
        self.with(|world| world.faults.extend(faults));
    }

    fn exists(&self) {
        self.with(|world| world.exists = true);
    }

    fn heard(&self) -> Vec<(String, Value)> {
        self.with(|world| std::mem::take(&mut world.heard))
    }

    fn requests(&self) -> Vec<String> {
        self.heard()
            .into_iter()
            .map(|(request, _)| request)
            .collect()
    }

    fn sending(&self) -> EventSink {
        let api = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let request = format!("{} {}", parts.method, parts.uri.path());
                let (fault, exists) = api.with(|world| {
                    world.heard.push((request, body));
                    (world.faults.pop_front(), std::mem::take(&mut world.exists))
                });
                let (code, answer) = match fault {
                    _ if exists => (
                        409,
                        json!({ "kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "there" }),
                    ),
                    Some(None) => return Err(std::io::Error::other("nobody there")),
                    Some(Some(code)) => (
                        code,
                        json!({ "kind": "Status", "code": code, "message": "no" }),
                    ),
                    None => (200, json!({ "metadata": {}, "involvedObject": {} })),
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok(Response::builder().status(code).body(answer).unwrap())
            }
        });
        EventSink::over(kube::Client::new(service, "default"), "node-1")
    }

    fn recorder(&self) -> Addr<Msg> {
        let (events, port) = kernel::mailbox(MAILBOX);
        let sending = self.sending();
        Supervisor::root("test", Intensity::UNLIMITED).spawn(
            ChildSpec::permanent("events"),
            port,
            move || EventBroadcaster::new(Some(sending.clone())),
        );
        events
    }
}

fn of_pod(message: &str, second: i64) -> Msg {
    let at = Timestamp::from_second(second).unwrap();
    let object = InvolvedObject {
        kind: "Pod".into(),
        namespace: "shop".into(),
        name: "web".into(),
        uid: "web-uid".into(),
        field_path: "spec.containers{main}".into(),
    };
    Msg::Record(Box::new(Event {
        first_seen: at,
        last_seen: at,
        object,
        ..*event(message)
    }))
}

const SOON: Duration = Duration::from_millis(10);
const EVENTS: &str = "/api/v1/namespaces/shop/events";

/// Upstream's TestEventf and TestWriteEventError's good row.
#[test]
fn an_event_is_an_object_in_the_namespace_of_what_it_is_about() {
    testing::run_paused(|| async {
        let api = FakeEventApi::default();
        let events = api.recorder();
        events.tell(of_pod("here", 1_700_000_000)).unwrap();
        testing::pass(SOON).await;
        let (request, body) = api.heard().remove(0);
        assert_eq!(request, format!("POST {EVENTS}"));
        let expected = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": "web.17979cfe362a0000", "namespace": "shop" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "web-uid",
                "fieldPath": "spec.containers{main}",
            },
            "reason": "Started", "message": "here", "type": "Normal", "count": 1,
            "firstTimestamp": "2023-11-14T22:13:20Z", "lastTimestamp": "2023-11-14T22:13:20Z",
            "source": { "component": "kubelet", "host": "node-1" },
            "reportingComponent": "kubelet", "reportingInstance": "node-1",
        });
        assert_eq!(body, expected);

        // As upstream's AnnotatedEventf.
        let note = BTreeMap::from([("starved_resource".to_owned(), "memory".to_owned())]);
        Recorder::new(events.clone()).annotated(&note).record(
            Timestamp::UNIX_EPOCH,
            EventType::Warning,
            InvolvedObject::node("node-1"),
            "Evicted",
            "low".into(),
        );
        testing::pass(SOON).await;
        let (_, body) = api.heard().remove(0);
        assert_eq!(body["metadata"]["annotations"], json!(note));

        let mut of_node = event("here");
        of_node.object = InvolvedObject::node("node-1");
        events.tell(Msg::Record(of_node)).unwrap();
        testing::pass(SOON).await;
        let (request, body) = api.heard().remove(0);
        assert_eq!(request, "POST /api/v1/namespaces/default/events");
        // With its version, for `kubectl events --for node/node-1`.
        let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1" });
        assert_eq!(body["involvedObject"], node);
    });
}

/// Upstream's TestEventfNoNamespace (repetition) and TestUpdateExpiredEvent.
#[test]
fn a_repeated_event_is_counted_in_the_same_object_and_made_again_when_that_is_gone() {
    testing::run_paused(|| async {
        let api = FakeEventApi::default();
        let events = api.recorder();
        for second in [1_700_000_000, 1_700_000_060] {
            events.tell(of_pod("again", second)).unwrap();
        }
        testing::pass(SOON).await;
        let (request, body) = api.heard().remove(1);
        assert_eq!(request, format!("PATCH {EVENTS}/web.17979cfe362a0000"));
        let expected =
            json!({ "count": 2, "lastTimestamp": "2023-11-14T22:14:20Z", "message": "again" });
        assert_eq!(body, expected);

        api.fail([Some(404)]);
        events.tell(of_pod("again", 1_700_000_120)).unwrap();
        testing::pass(SOON).await;
        let (request, body) = api.heard().remove(1);
        assert_eq!(request, format!("POST {EVENTS}"));
        let (name, first) = (&body["metadata"]["name"], &body["firstTimestamp"]);
        assert_eq!(
            (name, first),
            (
                &json!("web.17979cfe362a0000"),
                &json!("2023-11-14T22:13:20Z")
            )
        );
        assert_eq!(body["count"], 3);
    });
}

/// Upstream's TestWriteEventError.
#[test]
fn what_is_refused_is_given_up_and_what_is_unanswered_tried_again_in_order() {
    testing::run_paused(|| async {
        let api = FakeEventApi::default();
        let events = api.recorder();
        api.fail([Some(403), None, None]);
        for message in ["refused", "late", "last"] {
            events.tell(of_pod(message, 1_700_000_000)).unwrap();
        }
        testing::pass(Duration::from_secs(21)).await;
        let heard = api.heard();
        let messages: Vec<_> = heard
            .iter()
            .map(|(_, body)| body["message"].as_str().unwrap())
            .collect();
        assert_eq!(messages, ["refused", "late", "late", "late", "last"]);
    });
}

/// Upstream's TestWriteEventError row on the limit of tries, and its queue of a thousand.
#[test]
fn an_outage_costs_events_but_neither_memory_nor_those_that_come_after() {
    testing::run_paused(|| async {
        let api = FakeEventApi::default();
        let events = api.recorder();
        api.fail((0..12).map(|_| None));
        events.tell(of_pod("lost", 1_700_000_000)).unwrap();
        for n in 0..1100 {
            let mut other = event("late");
            other.object.name = format!("other-{n}");
            events.tell(Msg::Record(other)).unwrap();
        }
        testing::pass(Duration::from_secs(125)).await;
        let requests = api.requests();
        assert_eq!(requests.len(), 12 + 1000);
        assert!(
            requests[12].ends_with("/default/events"),
            "{}",
            requests[12]
        );
    });
}

#[test]
fn an_event_that_the_api_has_already_is_counted_there() {
    testing::run_paused(|| async {
        let api = FakeEventApi::default();
        let events = api.recorder();
        api.exists();
        events.tell(of_pod("told", 1_700_000_000)).unwrap();
        testing::pass(SOON).await;
        let name = format!("{EVENTS}/web.17979cfe362a0000");
        assert_eq!(
            api.requests(),
            [format!("POST {EVENTS}"), format!("PATCH {name}")]
        );
    });
}

/// Upstream's TestFieldPath and TestGenerateContainerRef; a container without a name is refused before.
#[test]
fn an_event_about_a_container_says_where_in_its_pod_it_stands() {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "ok", "namespace": "test-ns", "uid": "bar"},
        "spec": {
            "containers": [{"name": "foo"}, {"name": "bar"}, {"name": "baz"}],
            "initContainers": [{"name": "first"}],
            "ephemeralContainers": [{"name": "debug"}],
        },
    }));
    let pod = pod.unwrap();
    for (container, path) in [
        (Some("foo"), "spec.containers{foo}"),
        (Some("baz"), "spec.containers{baz}"),
        (Some("first"), "spec.initContainers{first}"),
        (Some("debug"), "spec.ephemeralContainers{debug}"),
        (None, ""),
    ] {
        let expected = InvolvedObject {
            kind: "Pod".into(),
            namespace: "test-ns".into(),
            name: "ok".into(),
            uid: "bar".into(),
            field_path: path.into(),
        };
        assert_eq!(InvolvedObject::pod(&pod, container), expected);
    }
}
