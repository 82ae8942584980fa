//! A network plugin: its pods have a loopback interface and nothing else (`docs/write-a-plugin.md`).

use std::result::Result;

use proto::network::network_server::{Network, NetworkServer};
use proto::network::*;
use tokio::process::Command;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

struct Isolated;

#[tonic::async_trait]
impl Network for Isolated {
    async fn add(&self, request: Request<AddRequest>) -> Answer<AddResponse> {
        let netns = format!("--net={}", request.get_ref().netns);
        let words = [netns.as_str(), "ip", "link", "set", "lo", "up"];
        let output = Command::new("nsenter").args(words).output().await?;
        match output.status.success() {
            true => Ok(Response::new(AddResponse::default())),
            false => Err(Status::internal(String::from_utf8_lossy(&output.stderr))),
        }
    }
    // An interface goes with its namespace: nothing was made that would have to be taken away.
    async fn delete(&self, _: Request<DeleteRequest>) -> Answer<DeleteResponse> {
        Ok(Response::new(DeleteResponse::default()))
    }
    async fn check(&self, _: Request<CheckRequest>) -> Answer<CheckResponse> {
        Ok(Response::new(CheckResponse::default()))
    }
    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        let (name, ready) = ("isolated".to_owned(), true);
        let networks = vec![NetworkStatus {
            name,
            ready,
            ..Default::default()
        }];
        Ok(Response::new(StatusResponse { networks }))
    }
    async fn prepare_gc(&self, _: Request<PrepareGcRequest>) -> Answer<PrepareGcResponse> {
        Ok(Response::new(PrepareGcResponse::default()))
    }
    async fn gc(&self, _: Request<GcRequest>) -> Answer<GcResponse> {
        Ok(Response::new(GcResponse::default()))
    }
}

async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    setup.health.healthy();
    Ok(sdk::Routes::new(NetworkServer::new(Isolated)))
}

fn main() -> std::process::ExitCode {
    let info = sdk::Info {
        name: "network-isolated",
        version: "1",
        kind: sdk::Kind::Network,
        capabilities: vec![],
    };
    sdk::serve(info, build)
}
