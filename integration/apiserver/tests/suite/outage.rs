//! Outages: the server goes and comes back on its port, with what it kept.

use apiserver::{Server, ServerOptions};
use serde_json::json;

use crate::wire::{TestClient, WatchMessage};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_server_that_comes_back_is_where_it_was_and_knows_what_it_knew() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let wire = TestClient::to(&server);
    let version = server
        .post(MAPS, &json!({"metadata": {"name": "a"}}))
        .unwrap()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_string();
    let path = format!("{MAPS}?watch=1&resourceVersion={version}");
    let mut watch = wire.watch(&path).await;
    server.stop();
    assert!(matches!(
        watch.next().await,
        WatchMessage::Cut(_) | WatchMessage::End(_)
    ));
    assert!(wire.get(MAPS).await.is_err());
    server
        .post(MAPS, &json!({"metadata": {"name": "meanwhile"}}))
        .unwrap();
    server.resume().unwrap();
    let mut watch = wire.watch(&path).await;
    assert_eq!(watch.named().await.1, "meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_server_answers_whatever_time_it_is_for_its_caller() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    assert!(server.get("/api/v1/namespaces/default").is_ok());
    tokio::time::advance(std::time::Duration::from_secs(86_400)).await;
    let seen = server
        .wait(
            "/api/v1/namespaces/default",
            std::time::Duration::from_secs(5),
            |object| object.is_some(),
        )
        .await;
    assert!(seen.is_some());
}
