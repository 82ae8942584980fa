//! Faults on demand: each has its effect, on the requests that it matches, as often as ordered.

use apiserver::{ApiFault, Effect, Server, ServerOptions};
use serde_json::json;

use crate::wire::{TestClient, WatchMessage};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1&labelSelector=app";

async fn start() -> (Server, TestClient) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let wire = TestClient::to(&server);
    (server, wire)
}

fn add(server: &Server, name: &str) {
    server
        .post(
            MAPS,
            &json!({"metadata": {"name": name, "labels": {"app": "x"}}}),
        )
        .unwrap();
}

#[tokio::test]
async fn a_fault_hits_who_matches_so_often_as_it_says() {
    let (server, wire) = start().await;
    server.fault(ApiFault {
        method: Some("get".to_string()),
        ..ApiFault::times(
            2,
            MAPS,
            Effect::Status {
                code: 429,
                retry_after: Some(3),
            },
        )
    });
    assert_eq!(wire.get("/api/v1/nodes").await.unwrap().status, 200);
    for _ in 0..2 {
        let refused = wire.get(MAPS).await.unwrap();
        assert_eq!(
            (refused.status, refused.json()["reason"].as_str()),
            (429, Some("TooManyRequests"))
        );
        assert_eq!(refused.headers["retry-after"], "3");
    }
    assert_eq!(wire.get(MAPS).await.unwrap().status, 200);
    assert!(server.faults().is_empty());
}

#[tokio::test]
async fn answers_are_spoilt_cut_or_never_given() {
    let (server, wire) = start().await;
    server.fault(ApiFault::times(1, MAPS, Effect::Garbage));
    let garbage = wire.get(MAPS).await.unwrap().text.unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&garbage).is_err());
    server.fault(ApiFault::times(1, MAPS, Effect::Cut));
    assert_eq!(wire.get(MAPS).await.unwrap().text, None);
    server.fault(ApiFault::times(1, MAPS, Effect::Refuse));
    assert!(wire.get(MAPS).await.is_err());
    server.fault(ApiFault::times(1, MAPS, Effect::Delay(0.01)));
    assert_eq!(wire.get(MAPS).await.unwrap().status, 200);
}

#[tokio::test]
async fn what_was_lost_on_the_way_back_was_done_and_what_was_refused_was_not() {
    let (server, wire) = start().await;
    let body = r#"{"metadata": {"name": "a"}}"#;
    let kind = ("content-type", "application/json");
    server.fault(ApiFault::once("POST", MAPS, Effect::Refuse));
    assert!(wire.send("POST", MAPS, kind, body).await.is_err());
    assert!(server.get(&format!("{MAPS}/a")).is_err());
    server.fault(ApiFault::once("POST", MAPS, Effect::Lose));
    assert!(wire.send("POST", MAPS, kind, body).await.is_err());
    assert!(server.get(&format!("{MAPS}/a")).is_ok());
    assert_eq!(
        wire.send("POST", MAPS, kind, body).await.unwrap().status,
        409
    );
}

#[tokio::test]
async fn watches_are_cut_within_an_event_or_say_nonsense_or_expire() {
    let (server, wire) = start().await;
    server.fault(ApiFault::watch(MAPS, Effect::HalfEvent));
    let mut half = wire.watch(WATCH).await;
    server.fault(ApiFault::watch(MAPS, Effect::GarbageEvent));
    let mut garbage = wire.watch(WATCH).await;
    server.fault(ApiFault::watch(MAPS, Effect::ExpireEvent));
    let mut expired = wire.watch(WATCH).await;
    add(&server, "a");
    assert!(matches!(half.next().await, WatchMessage::Cut(text) if text.starts_with('{')));
    assert!(matches!(garbage.next().await, WatchMessage::Garbage(_)));
    assert_eq!(garbage.named().await.1, "a");
    assert_eq!(expired.event().await["object"]["code"], 410);
    assert_eq!(expired.next().await, WatchMessage::End(String::new()));
}

#[tokio::test]
async fn stale_watches_say_nothing_until_they_may_and_all_can_be_closed() {
    let (server, wire) = start().await;
    server.fault(ApiFault::watch(MAPS, Effect::Mute));
    let mut mute = wire.watch(WATCH).await;
    let mut plain = wire.watch(WATCH).await;
    server.mute_watches(true);
    add(&server, "a");
    server.mute_watches(false);
    assert_eq!(plain.named().await.1, "a");
    server.close_watches();
    assert_eq!(plain.next().await, WatchMessage::End(String::new()));
    assert_eq!(mute.next().await, WatchMessage::End(String::new()));
    add(&server, "b");
    assert_eq!(wire.watch(WATCH).await.named().await.1, "a");
}

#[tokio::test]
async fn faults_are_ordered_by_hand_too_and_the_journal_is_read() {
    let (server, wire) = start().await;
    let kind = ("content-type", "application/json");
    let order = r#"{"path": "/api/v1/nodes", "times": 2, "effect": {"status": {"code": 503}}}"#;
    assert_eq!(
        wire.send("POST", "/_faults", kind, order)
            .await
            .unwrap()
            .status,
        201
    );
    assert_eq!(wire.get("/api/v1/nodes?limit=1").await.unwrap().status, 503);
    assert_eq!(wire.get("/_faults").await.unwrap().json()[0]["times"], 1);
    assert_eq!(
        wire.send("DELETE", "/_faults", kind, "")
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        wire.send("POST", "/_faults", kind, r#"{"effect": "whatever"}"#)
            .await
            .unwrap()
            .status,
        400
    );
    for order in [
        r#"{"closeWatches": true}"#,
        r#"{"muteWatches": false}"#,
        r#"{"expireHistory": true}"#,
        r#"{"effect": "garbage", "path": "/none"}"#,
    ] {
        assert_eq!(
            wire.send("POST", "/_faults", kind, order)
                .await
                .unwrap()
                .status,
            201,
            "{order}"
        );
    }
    let heard = server.requests();
    assert_eq!(heard.len(), 1);
    let heard = &heard[0];
    assert_eq!(
        (
            heard.method.as_str(),
            heard.path.as_str(),
            heard.query.as_str(),
            heard.status,
            heard.user_agent.as_str()
        ),
        ("GET", "/api/v1/nodes", "limit=1", 503, "wire")
    );
}
