//! The laws of lists and watches.

use apiserver::{Server, ServerOptions};
use serde_json::{Value, json};

use crate::wire::{TestClient, WatchMessage};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMED: &str = "/api/v1/namespaces/default/configmaps?watch=1&labelSelector=app";

async fn start() -> (Server, TestClient) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let wire = TestClient::to(&server);
    (server, wire)
}

fn map(name: &str, app: Option<&str>) -> Value {
    let mut map = json!({"metadata": {"name": name}});
    if let Some(app) = app {
        map["metadata"]["labels"] = json!({"app": app});
    }
    map
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_string(), name.to_string())
}

#[tokio::test]
async fn a_watch_goes_on_where_a_list_ended() {
    let (server, wire) = start().await;
    server.post(MAPS, &map("old", None)).unwrap();
    let version = wire.get(MAPS).await.unwrap().json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_string();
    server.post(MAPS, &map("between", None)).unwrap();
    let mut watch = wire
        .watch(&format!("{MAPS}?watch=true&resourceVersion={version}"))
        .await;
    assert_eq!(watch.named().await, pair("ADDED", "between"));
    server
        .patch(&format!("{MAPS}/between"), &json!({"data": {"a": "b"}}))
        .unwrap();
    server.delete(&format!("{MAPS}/between")).unwrap();
    assert_eq!(watch.named().await, pair("MODIFIED", "between"));
    let gone = watch.event().await;
    assert_eq!(gone["type"], "DELETED");
    assert!(
        gone["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            > version.as_str()
    );
}

#[tokio::test]
async fn without_a_version_a_watch_begins_with_what_there_is() {
    let (server, wire) = start().await;
    server.post(MAPS, &map("a", Some("x"))).unwrap();
    for version in ["", "&resourceVersion=0"] {
        let mut watch = wire.watch(&format!("{NAMED}{version}")).await;
        assert_eq!(watch.named().await, pair("ADDED", "a"));
    }
}

#[tokio::test]
async fn who_leaves_a_selection_is_deleted_and_who_enters_it_added() {
    let (server, wire) = start().await;
    let mut watch = wire.watch(NAMED).await;
    server.post(MAPS, &map("a", None)).unwrap();
    server
        .patch(
            &format!("{MAPS}/a"),
            &json!({"metadata": {"labels": {"app": "x"}}}),
        )
        .unwrap();
    server
        .patch(&format!("{MAPS}/a"), &json!({"data": {"k": "v"}}))
        .unwrap();
    server
        .patch(&format!("{MAPS}/a"), &json!({"metadata": {"labels": null}}))
        .unwrap();
    server
        .patch(
            &format!("{MAPS}/a"),
            &json!({"metadata": {"labels": {"app": "y"}}}),
        )
        .unwrap();
    assert_eq!(watch.named().await, pair("ADDED", "a"));
    assert_eq!(watch.named().await, pair("MODIFIED", "a"));
    let left = watch.event().await;
    assert_eq!(
        (&left["type"], &left["object"]["metadata"]["labels"]["app"]),
        (&json!("DELETED"), &json!("x"))
    );
    assert_eq!(watch.named().await, pair("ADDED", "a"));
}

#[tokio::test]
async fn pods_are_watched_by_their_node() {
    let (server, wire) = start().await;
    let mut watch = wire
        .watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn")
        .await;
    let pods = "/api/v1/namespaces/default/pods";
    server.post(pods, &json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})).unwrap();
    server
        .post(
            &format!("{pods}/a/binding"),
            &json!({"metadata": {"name": "a"}, "target": {"name": "n"}}),
        )
        .unwrap();
    assert_eq!(watch.named().await, pair("ADDED", "a"));
    server
        .delete(&format!("{pods}/a?gracePeriodSeconds=0"))
        .unwrap();
    let marked = watch.event().await;
    assert_eq!(
        (
            &marked["type"],
            &marked["object"]["metadata"]["deletionGracePeriodSeconds"]
        ),
        (&json!("MODIFIED"), &json!(0))
    );
    assert_eq!(watch.named().await, pair("DELETED", "a"));
}

#[tokio::test]
async fn one_object_is_watched_by_its_name() {
    let (server, wire) = start().await;
    let mut watch = wire
        .watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Db"))
        .await;
    let mut other = wire.watch(&format!("{MAPS}/b?watch=1")).await;
    server.post(MAPS, &map("a", None)).unwrap();
    server.post(MAPS, &map("b", None)).unwrap();
    assert_eq!(watch.named().await, pair("ADDED", "b"));
    assert_eq!(other.named().await, pair("ADDED", "b"));
}

#[tokio::test]
async fn a_version_that_is_forgotten_is_told_and_ends_the_watch() {
    let (server, wire) = start().await;
    let version = wire.get(MAPS).await.unwrap().json()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_string();
    server.expire_history();
    let mut watch = wire
        .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
        .await;
    let event = watch.event().await;
    assert_eq!(
        (
            &event["type"],
            &event["object"]["code"],
            &event["object"]["reason"]
        ),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.next().await, WatchMessage::End(String::new()));
}

#[tokio::test]
async fn the_history_is_as_long_as_it_is_told() {
    let server = Server::start(ServerOptions {
        history: 3,
        ..ServerOptions::default()
    })
    .await
    .unwrap();
    let wire = TestClient::to(&server);
    let versions: Vec<String> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| {
            server.post(MAPS, &map(name, None)).unwrap()["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .to_string()
        })
        .collect();
    let mut old = wire
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", versions[0]))
        .await;
    assert_eq!(old.event().await["type"], "ERROR");
    let mut young = wire
        .watch(&format!("{MAPS}?watch=1&resourceVersion={}", versions[1]))
        .await;
    assert_eq!(young.named().await, pair("ADDED", "c"));
}

#[tokio::test]
async fn bookmarks_come_at_their_interval_to_those_who_want_them() {
    let server = Server::start(ServerOptions {
        bookmark_seconds: 0.02,
        ..ServerOptions::default()
    })
    .await
    .unwrap();
    let wire = TestClient::to(&server);
    let mut watch = wire
        .watch(&format!("{NAMED}&allowWatchBookmarks=true"))
        .await;
    let mut plain = wire.watch(NAMED).await;
    let first = watch.event().await;
    assert_eq!(
        (&first["type"], &first["object"]["kind"]),
        (&json!("BOOKMARK"), &json!("ConfigMap"))
    );
    server
        .post(
            "/api/v1/namespaces",
            &json!({"metadata": {"name": "other"}}),
        )
        .unwrap();
    let newest = server.get("/api/v1/namespaces/other").unwrap();
    let version = |object: &Value| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // A mark carries on past what the watch does not see.
    while version(&watch.event().await["object"]) < version(&newest) {}
    server.post(MAPS, &map("a", Some("x"))).unwrap();
    assert_eq!(plain.named().await, pair("ADDED", "a"));
}

#[tokio::test]
async fn a_list_by_watch_ends_with_a_mark_that_says_so() {
    let (server, wire) = start().await;
    server.post(MAPS, &map("a", Some("x"))).unwrap();
    let mut watch = wire.watch(&format!("{NAMED}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")).await;
    assert_eq!(watch.named().await, pair("ADDED", "a"));
    let mark = watch.event().await;
    assert_eq!(
        (
            &mark["type"],
            &mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]
        ),
        (&json!("BOOKMARK"), &json!("true"))
    );
    let refused = wire
        .get(&format!("{NAMED}&sendInitialEvents=true"))
        .await
        .unwrap();
    assert_eq!(refused.status, 422);
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let (_server, wire) = start().await;
    let mut watch = wire.watch(&format!("{NAMED}&timeoutSeconds=1")).await;
    assert_eq!(watch.next().await, WatchMessage::End(String::new()));
}

#[tokio::test]
async fn tables_come_to_those_who_accept_them() {
    let (server, wire) = start().await;
    server.post(MAPS, &map("a", Some("x"))).unwrap();
    let accept = (
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    );
    let table = wire
        .send("GET", &format!("{MAPS}?labelSelector=app"), accept, "")
        .await
        .unwrap()
        .json();
    assert_eq!(
        (
            &table["kind"],
            &table["rows"][0]["cells"][0],
            &table["rows"][0]["object"]["kind"]
        ),
        (
            &json!("Table"),
            &json!("a"),
            &json!("PartialObjectMetadata")
        )
    );
    let accept = (
        "accept",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    );
    let short = wire
        .send("GET", &format!("{MAPS}?labelSelector=app"), accept, "")
        .await
        .unwrap()
        .json();
    assert_eq!(
        (&short["kind"], &short["items"][0]["metadata"]["name"]),
        (&json!("PartialObjectMetadataList"), &json!("a"))
    );
}
