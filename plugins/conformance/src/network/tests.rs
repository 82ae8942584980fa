//! A suite that any plugin passes is worth nothing: this one nods at everything and does nothing.

use std::collections::BTreeSet;

use proto::network::network_server::{Network, NetworkServer};
use proto::network::{
    AddRequest, AddResponse, CheckRequest, CheckResponse, DeleteRequest, DeleteResponse, GcRequest,
    GcResponse, PrepareGcRequest, PrepareGcResponse, StatusRequest, StatusResponse,
};
use tonic::{Request, Response, Status};

use super::super::Outcome;
use super::*;

/// Says yes, and does nothing.
struct Nodder;

type Answer<T> = Result<Response<T>, Status>;

fn yes<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
}

#[tonic::async_trait]
impl Network for Nodder {
    async fn add(&self, _: Request<AddRequest>) -> Answer<AddResponse> {
        yes()
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Answer<DeleteResponse> {
        yes()
    }

    async fn check(&self, _: Request<CheckRequest>) -> Answer<CheckResponse> {
        yes()
    }

    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        yes()
    }

    async fn prepare_gc(&self, _: Request<PrepareGcRequest>) -> Answer<PrepareGcResponse> {
        yes()
    }

    async fn gc(&self, _: Request<GcRequest>) -> Answer<GcResponse> {
        yes()
    }
}

/// What one who does nothing keeps as well: nothing is there, and nothing was asked for that shows.
const EASY: [&str; 5] = [
    "attachment that is there is told again, and not made again",
    "what was never there is taken away with success",
    "attachment is taken away without a word about network, pod and namespace",
    "attachment is taken away with the configuration that was told of it",
    "attachment made and taken away at once ends as either",
];

#[tokio::test]
async fn a_plugin_that_nods_and_does_nothing_breaks_the_laws() {
    let home = tempfile::tempdir().unwrap();
    let info = sdk::Info {
        name: "network-nodder",
        version: "1",
        kind: sdk::Kind::Network,
        capabilities: vec![],
    };
    let plugin = sdk::testing::start(home.path(), info, serde_json::Value::Null, |_| async {
        Ok(sdk::Routes::new(NetworkServer::new(Nodder)))
    })
    .await
    .unwrap();
    let report = run(Target {
        channel: plugin.channel.clone(),
        network: "nodder".to_owned(),
        attached: Arc::new(|_, _| false),
    })
    .await;
    let kept: BTreeSet<_> = report
        .laws
        .iter()
        .filter(|law| law.outcome == Outcome::Kept)
        .map(|law| law.words)
        .collect();
    assert_eq!(kept, EASY.iter().copied().collect(), "{report}");
}
