//! External endpoints: only connected to.

use std::path::Path;
use std::time::Duration;

use plugin_host::{Declaration, LaunchMethod, PluginState, ServiceKind};
use proto::cri::ImageFsInfoRequest;
use proto::cri::image_service_client::ImageServiceClient;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::rig::{LONG, Rig, run};

fn external(endpoint: &Path) -> Declaration {
    let start = LaunchMethod::External {
        endpoint: endpoint.to_owned(),
    };
    let mut declaration = Declaration::new("test", ServiceKind::Runtime, start);
    declaration.health_interval = Duration::from_millis(20);
    declaration
}

/// Serves gRPC without a single service: every call is Unimplemented, as in a runtime that has never
/// heard of our contract.
fn serve_plainly(endpoint: &Path) -> AbortHandle {
    drop(std::fs::remove_file(endpoint));
    let listener = tokio::net::UnixListener::bind(endpoint).unwrap();
    let incoming = UnixListenerStream::new(listener);
    let serve = Server::builder()
        .add_routes(Routes::default())
        .serve_with_incoming(incoming);
    tokio::spawn(serve).abort_handle()
}

#[test]
fn endpoint_without_our_contract_is_ready_while_it_accepts_connections() {
    run(async {
        let elsewhere = tempfile::tempdir().unwrap();
        let endpoint = elsewhere.path().join("plain.sock");
        let rig = Rig::start(&external(&endpoint));
        let starting = rig
            .see(|view| view.state == PluginState::Starting && !view.reason.is_empty())
            .await;
        assert!(
            starting.reason.starts_with("cannot talk to "),
            "{}",
            starting.reason
        );

        let server = serve_plainly(&endpoint);
        rig.reach(PluginState::Ready).await;
        let shown = rig.snapshot().await;
        assert_eq!(shown.attributes["pid"], std::process::id().to_string());
        assert_eq!((shown.pid, shown.socket), (None, endpoint.clone()));

        server.abort();
        let gone = rig.reach(PluginState::Degraded).await;
        assert!(
            gone.reason.starts_with("cannot connect to "),
            "{}",
            gone.reason
        );
        serve_plainly(&endpoint);
        rig.reach(PluginState::Ready).await;
        rig.end().await;
    });
}

#[test]
fn calls_wait_for_an_endpoint_that_is_not_there_yet() {
    run(async {
        let elsewhere = tempfile::tempdir().unwrap();
        let endpoint = elsewhere.path().join("plain.sock");
        let rig = Rig::start(&external(&endpoint));
        let ask = |channel| async move {
            ImageServiceClient::new(channel)
                .image_fs_info(ImageFsInfoRequest {})
                .await
        };
        let served = async {
            rig.see(|view| !view.reason.is_empty()).await;
            serve_plainly(&endpoint);
        };
        let (asked, made, ()) = tokio::join!(
            rig.line.idempotent(LONG, ask),
            rig.line.creating(LONG, ask),
            served
        );
        for answer in [asked, made] {
            assert_eq!(answer.unwrap_err().code(), Some(tonic::Code::Unimplemented));
        }
        rig.end().await;
    });
}

#[test]
fn endpoint_that_stays_away_is_named_at_the_deadline() {
    run(async {
        let elsewhere = tempfile::tempdir().unwrap();
        let rig = Rig::start(&external(&elsewhere.path().join("nobody.sock")));
        let error = crate::rig::version(&rig.line, Duration::from_millis(100))
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("No such file or directory"),
            "{error}"
        );
        rig.end().await;
    });
}

#[test]
fn external_plugin_of_our_contract_is_configured_and_watched() {
    run(async {
        let elsewhere = tempfile::tempdir().unwrap();
        let info = sdk::Info {
            name: "far",
            version: "3",
            kind: sdk::Kind::Runtime,
            capabilities: vec![],
        };
        let build = |setup: sdk::Setup| async move {
            setup
                .health
                .attribute("told", setup.configuration["word"].to_string());
            Ok(sdk::Routes::default())
        };
        let plugin = sdk::testing::unconfigured(elsewhere.path(), info, build).unwrap();
        let mut declaration = external(&plugin.socket);
        declaration.configuration = serde_json::json!({ "word": 7 });
        let rig = Rig::ready(&declaration).await;
        let shown = rig.snapshot().await;
        assert_eq!(
            (shown.program.as_str(), shown.attributes["told"].as_str()),
            ("far 3", "7")
        );
        // A restart connects again; the plugin is not ours to end.
        assert_eq!(rig.restart().await, Ok(2));
        rig.end().await;
    });
}
