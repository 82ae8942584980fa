//! Events of runtimes that have their own. CRI-O is packaged for none of the test machines: a script stands for it.

use std::time::Duration;

use prost::Message;
use proto::cri::{self, ContainerEventResponse};
use proto::plugin::HealthRequest;
use runtime_adapter::Flavour;
use tokio::sync::mpsc;
use tonic::Code;

use crate::double::{AdapterRig, ScriptedAnswer, message, refused};

#[tokio::test]
async fn a_stream_opens_before_the_runtime_has_anything_to_tell() {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = std::sync::Mutex::new(Some(receiver));
    let script = move |_: &_| ScriptedAnswer::Stream(receiver.lock().unwrap().take().unwrap());
    let (bench, _runtime) = AdapterRig::start(Flavour::Crio, ("cri-o", "1.33.0"), script).await;
    let opened = bench
        .client()
        .get_container_events(cri::GetEventsRequest {})
        .await;
    let mut stream = opened.unwrap().into_inner();
    let event = ContainerEventResponse {
        container_id: "c".to_owned(),
        ..Default::default()
    };
    sender.send(event.encode_to_vec()).unwrap();
    assert_eq!(stream.message().await.unwrap(), Some(event));
}

#[tokio::test]
async fn a_head_that_waits_for_the_first_event_does_not_hold_up_the_agent() {
    let (bench, runtime) = AdapterRig::start(Flavour::Crio, ("cri-o", "1.33.0"), |_| {
        ScriptedAnswer::Never
    })
    .await;
    let mut client = bench.client();
    let opening = tokio::time::timeout(
        Duration::from_secs(5),
        client.get_container_events(cri::GetEventsRequest {}),
    );
    let mut stream = opening.await.expect("a head in time").unwrap().into_inner();
    drop(runtime);
    assert_eq!(
        stream.message().await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn events_that_are_switched_off_or_absent_are_unimplemented() {
    let script = |_: &_| refused(Code::Ok, "");
    let (bench, _runtime) = AdapterRig::start(Flavour::Crio, ("cri-o", "1.33.0"), script).await;
    let off = bench
        .client()
        .get_container_events(cri::GetEventsRequest {})
        .await
        .unwrap_err();
    assert_eq!(off.code(), Code::Unimplemented);
    assert!(off.message().contains("enable_pod_events = true"), "{off}");

    let (bench, runtime) = AdapterRig::start(Flavour::Crio, ("cri-o", "1.24.1"), script).await;
    let absent = bench
        .client()
        .get_container_events(cri::GetEventsRequest {})
        .await
        .unwrap_err();
    assert_eq!(absent.code(), Code::Unimplemented);
    assert!(
        absent.message().contains("has no container events"),
        "{absent}"
    );
    assert!(runtime.calls_of("GetContainerEvents").is_empty());
}

#[tokio::test]
async fn the_health_report_says_of_events_what_the_runtime_answered() {
    type Answer = fn() -> ScriptedAnswer;
    let open: Answer = || ScriptedAnswer::Never;
    let off: Answer = || refused(Code::Ok, "");
    let unknown: Answer = || refused(Code::Unimplemented, "unknown method");
    for (version, answer, before, after) in [
        ("1.33.0", open, None, Some("native")),
        ("1.33.0", off, None, Some("none")),
        ("1.33.0", unknown, None, Some("none")),
        ("1.24.1", off, Some("none"), Some("none")),
    ] {
        let script = move |_: &_| answer();
        let (bench, _runtime) = AdapterRig::start(Flavour::Crio, ("cri-o", version), script).await;
        let reported = async || {
            let question = HealthRequest {
                interval_ms: 60_000,
            };
            let report = bench.plugin.base().health(question).await;
            let report = report.unwrap().into_inner().message().await.unwrap();
            report.unwrap().attributes.remove("container-events")
        };
        assert_eq!(reported().await.as_deref(), before, "{version}");
        let request = cri::GetEventsRequest {};
        drop(bench.client().get_container_events(request).await);
        assert_eq!(reported().await.as_deref(), after, "{version}");
    }
}

#[tokio::test]
async fn a_containerd_of_unknown_version_without_events_gets_them_from_its_own_stream() {
    let (bench, runtime) = AdapterRig::start(
        Flavour::Containerd,
        ("containerd", "unknown"),
        |call| match call.method() {
            "GetContainerEvents" => {
                refused(Code::Unimplemented, "unknown method GetContainerEvents")
            }
            "ListPodSandbox" => message(&cri::ListPodSandboxResponse::default()),
            "ListContainers" => message(&cri::ListContainersResponse::default()),
            _ => ScriptedAnswer::Never,
        },
    )
    .await;
    bench
        .client()
        .get_container_events(cri::GetEventsRequest {})
        .await
        .unwrap();
    assert_eq!(
        runtime.calls_of("Subscribe")[0].path,
        "/containerd.services.events.v1.Events/Subscribe"
    );
}
