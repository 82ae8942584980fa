//! The base service, over real gRPC on a real Unix socket in this process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use proto::plugin::health_report::Status as Wire;
use proto::plugin::{ConfigureRequest, DrainRequest, HealthReport, HealthRequest, InfoRequest};
use sdk::testing::Plugin;
use sdk::{Health, Info, Kind, Refusal, Routes, Setup, Status};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Notify, watch};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::{Code, Streaming};
use tower::Service;

const MINUTE: u32 = 60_000;

/// A service whose only call takes until it is released.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    released: Arc<Notify>,
}

impl NamedService for Slow {
    const NAME: &'static str = "test.Slow";
}

impl Service<Request<Body>> for Slow {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let slow = self.clone();
        Box::pin(async move {
            slow.begun.notify_one();
            slow.released.notified().await;
            Ok(tonic::Status::aborted("released").into_http())
        })
    }
}

/// Calls `Slow` and returns the status it ends with.
async fn call(plugin: &Plugin) -> Code {
    let mut channel = plugin.channel.clone();
    let request = Request::post("http://localhost/test.Slow/Call")
        .body(Body::empty())
        .unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx))
        .await
        .unwrap();
    let response = channel.call(request).await.unwrap();
    tonic::Status::from_header_map(response.headers())
        .unwrap()
        .code()
}

fn info() -> Info {
    Info {
        name: "test",
        version: "1.2.3",
        kind: Kind::Storage,
        capabilities: vec!["word"],
    }
}

fn configure(bytes: &str) -> ConfigureRequest {
    ConfigureRequest {
        configuration_json: bytes.as_bytes().to_vec(),
    }
}

async fn nothing(_: Setup) -> Result<Routes, Refusal> {
    Ok(Routes::default())
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn next(stream: &mut Streaming<HealthReport>) -> HealthReport {
    stream.next().await.unwrap().unwrap()
}

#[tokio::test]
async fn info_says_who_the_plugin_is_before_it_is_configured() {
    let folder = folder();
    let plugin = sdk::testing::unconfigured(folder.path(), info(), nothing).unwrap();
    let answer = plugin
        .base()
        .info(InfoRequest { contract: 1 })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (
            answer.contract,
            answer.name.as_str(),
            answer.version.as_str()
        ),
        (1, "test", "1.2.3")
    );
    assert_eq!(
        (answer.kind(), answer.capabilities),
        (proto::plugin::Kind::Storage, vec!["word".to_owned()])
    );
}

#[tokio::test]
async fn configure_hands_over_the_section_of_the_plugin_file() {
    let folder = folder();
    let seen = watch::Sender::new(None);
    let tell = seen.clone();
    let build = move |setup: Setup| {
        tell.send_replace(Some((setup.name, setup.generation, setup.configuration)));
        async { Ok(Routes::default()) }
    };
    let _plugin = sdk::testing::start(folder.path(), info(), json!({ "a": 1 }), build)
        .await
        .unwrap();
    assert_eq!(
        *seen.borrow(),
        Some(("test".to_owned(), 1, json!({ "a": 1 })))
    );
}

#[tokio::test]
async fn configuration_that_the_plugin_refuses_is_an_invalid_argument_with_its_sentence() {
    let folder = folder();
    let build = |setup: Setup| async move {
        setup.parse::<BTreeMap<String, u8>>()?;
        Ok(Routes::default())
    };
    let plugin = sdk::testing::unconfigured(folder.path(), info(), build).unwrap();
    for (given, said) in [
        (
            r#"{"port": "no"}"#,
            "configuration of plugin test: invalid type: string \"no\", expected u8",
        ),
        (
            "{",
            "configuration of plugin test is not JSON: EOF while parsing an object at line 1 column 1",
        ),
    ] {
        let refused = plugin.base().configure(configure(given)).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::InvalidArgument, said)
        );
    }
    plugin
        .base()
        .configure(configure(r#"{"port": 1}"#))
        .await
        .unwrap();
}

#[tokio::test]
async fn configure_may_be_repeated_but_not_changed() {
    let folder = folder();
    let plugin = sdk::testing::start(folder.path(), info(), json!({ "a": 1 }), nothing)
        .await
        .unwrap();
    plugin
        .base()
        .configure(configure(r#"{"a":1}"#))
        .await
        .unwrap();
    plugin.base().configure(configure("")).await.unwrap();
    let refused = plugin
        .base()
        .configure(configure(r#"{"a":2}"#))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn call_before_configure_waits_for_it() {
    let folder = folder();
    let slow = Slow::default();
    let build = {
        let slow = slow.clone();
        move |_| {
            let slow = slow.clone();
            async { Ok(Routes::new(slow)) }
        }
    };
    let plugin = sdk::testing::unconfigured(folder.path(), info(), build).unwrap();
    let configured = async {
        plugin.base().configure(configure("")).await.unwrap();
        slow.released.notify_one();
    };
    let (code, ()) = tokio::join!(call(&plugin), configured);
    assert_eq!(code, Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn call_that_configure_never_follows_is_refused() {
    let folder = folder();
    let plugin = sdk::testing::unconfigured(folder.path(), info(), nothing).unwrap();
    assert_eq!(call(&plugin).await, Code::FailedPrecondition);
}

#[tokio::test]
async fn health_is_reported_at_once_and_at_every_change() {
    let folder = folder();
    let handle = watch::Sender::new(None::<Health>);
    let give = handle.clone();
    let build = move |setup: Setup| {
        give.send_replace(Some(setup.health));
        async { Ok(Routes::default()) }
    };
    let plugin = sdk::testing::unconfigured(folder.path(), info(), build).unwrap();
    let mut stream = plugin
        .base()
        .health(HealthRequest {
            interval_ms: MINUTE,
        })
        .await
        .unwrap()
        .into_inner();
    let first = next(&mut stream).await;
    assert_eq!(
        (first.status(), first.reason.as_str()),
        (Wire::Degraded, "not configured yet")
    );

    plugin.base().configure(configure("")).await.unwrap();
    assert_eq!(next(&mut stream).await.status(), Wire::Healthy);

    let health = handle.borrow().clone().unwrap();
    health.healthy(); // no change: not sent
    health.set(
        Status::Degraded,
        "backend gone",
        BTreeMap::from([("backend".to_owned(), "x 1".to_owned())]),
    );
    let report = next(&mut stream).await;
    assert_eq!(
        (report.status(), report.reason.as_str()),
        (Wire::Degraded, "backend gone")
    );
    assert_eq!(report.attributes["backend"], "x 1");
}

#[tokio::test(start_paused = true)]
async fn health_is_repeated_each_interval() {
    let folder = folder();
    let plugin = sdk::testing::start(folder.path(), info(), json!(null), nothing)
        .await
        .unwrap();
    let begun = tokio::time::Instant::now();
    let mut stream = plugin
        .base()
        .health(HealthRequest { interval_ms: 1_000 })
        .await
        .unwrap()
        .into_inner();
    for _ in 0..4 {
        assert_eq!(next(&mut stream).await.status(), Wire::Healthy);
    }
    let passed = begun.elapsed();
    assert!(
        passed >= Duration::from_millis(2_990) && passed < Duration::from_secs(4),
        "{passed:?}"
    );
}

#[tokio::test]
async fn health_without_an_interval_is_refused() {
    let folder = folder();
    let plugin = sdk::testing::start(folder.path(), info(), json!(null), nothing)
        .await
        .unwrap();
    let refused = plugin
        .base()
        .health(HealthRequest { interval_ms: 0 })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

async fn slow_plugin(folder: &TempDir, slow: &Slow) -> Plugin {
    let slow = slow.clone();
    let build = move |_| {
        let slow = slow.clone();
        async { Ok(Routes::new(slow)) }
    };
    sdk::testing::start(folder.path(), info(), json!(null), build)
        .await
        .unwrap()
}

#[tokio::test]
async fn drain_waits_for_calls_in_flight_and_ends_the_health_stream() {
    let folder = folder();
    let slow = Slow::default();
    let plugin = slow_plugin(&folder, &slow).await;
    let mut stream = plugin
        .base()
        .health(HealthRequest {
            interval_ms: MINUTE,
        })
        .await
        .unwrap()
        .into_inner();
    next(&mut stream).await;

    let drained = async {
        slow.begun.notified().await;
        let mut base = plugin.base();
        let drain = base.drain(DrainRequest {
            deadline_ms: MINUTE,
        });
        let released = async {
            assert!(stream.next().await.is_none());
            slow.released.notify_one();
        };
        tokio::join!(drain, released)
            .0
            .unwrap()
            .into_inner()
            .abandoned
    };
    let (code, abandoned) = tokio::join!(call(&plugin), drained);
    assert_eq!((code, abandoned), (Code::Aborted, 0));
}

#[tokio::test]
async fn drain_counts_what_it_abandons_at_its_deadline() {
    let folder = folder();
    let slow = Slow::default();
    let plugin = slow_plugin(&folder, &slow).await;
    let drained = async {
        slow.begun.notified().await;
        plugin
            .base()
            .drain(DrainRequest { deadline_ms: 10 })
            .await
            .unwrap()
            .into_inner()
            .abandoned
    };
    tokio::select! {
        _ = call(&plugin) => panic!("the call cannot end"),
        abandoned = drained => assert_eq!(abandoned, 1),
    }
}

#[tokio::test]
async fn drained_plugin_accepts_no_connection() {
    let folder = folder();
    let plugin = sdk::testing::start(folder.path(), info(), json!(null), nothing)
        .await
        .unwrap();
    plugin
        .base()
        .drain(DrainRequest { deadline_ms: 10 })
        .await
        .unwrap();
    // No agent holds the listening socket here: it closes with the plugin's last listener.
    let refused = tokio::net::UnixStream::connect(&plugin.socket)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn socket_of_a_living_server_is_not_taken_over() {
    let folder = folder();
    let _first = sdk::testing::unconfigured(folder.path(), info(), nothing).unwrap();
    let refusal = sdk::testing::unconfigured(folder.path(), info(), nothing).unwrap_err();
    assert!(
        refusal
            .to_string()
            .ends_with("is served by another process"),
        "{refusal}"
    );
}
