//! Fields, metadata and errors are passed on unchanged; and the error when the backend is absent.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proto::cri;
use proto::plugin::HealthRequest;
use proto::plugin::health_report::Status as Health;
use runtime_adapter::Flavour;
use tokio::sync::mpsc;
use tonic::Code;

use crate::double::{AdapterRig, RuntimeDouble, ScriptedAnswer, frame, message, refused};

const CONTAINERD: (&str, &str) = ("containerd", "2.1.0");
const STATUS: &str = "/runtime.v1.RuntimeService/Status";
/// Field 1 and, as no version of CRI has it yet, field 9000.
const UNKNOWN: &[u8] = b"\x08\x01\xc2\xb2\x04\x06future";

#[tokio::test]
async fn fields_that_nobody_here_knows_pass_byte_for_byte() {
    let answer =
        |_: &_| ScriptedAnswer::Message(UNKNOWN.iter().rev().copied().collect(), HeaderMap::new());
    let (bench, runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, answer).await;
    for path in [
        STATUS,
        "/runtime.v1.RuntimeService/MethodOfTheFuture",
        "/runtime.v1.ImageService/ListImages",
    ] {
        let raw = bench.raw(path, &[], UNKNOWN).await;
        let reversed: Vec<u8> = UNKNOWN.iter().rev().copied().collect();
        assert_eq!(raw.body, frame(&reversed), "{path}");
        let call = runtime.calls.lock().unwrap().pop().unwrap();
        assert_eq!((call.path.as_str(), &call.body), (path, &frame(UNKNOWN)));
    }
}

#[tokio::test]
async fn deadlines_and_metadata_reach_the_runtime_and_its_trailers_come_back() {
    let (bench, runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, |_| {
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-from-the-runtime"),
            HeaderValue::from_static("yes"),
        )]);
        ScriptedAnswer::Message(Vec::new(), trailers)
    })
    .await;
    let raw = bench
        .raw(
            STATUS,
            &[("grpc-timeout", "70S"), ("x-from-the-agent", "yes")],
            b"",
        )
        .await;
    assert_eq!(raw.trailers["x-from-the-runtime"], "yes");
    assert_eq!(raw.trailers["grpc-status"], "0");
    let call = runtime.calls_of("Status").pop().unwrap();
    assert_eq!(call.headers["grpc-timeout"], "70S");
    assert_eq!(call.headers["x-from-the-agent"], "yes");
}

#[tokio::test]
async fn a_refusal_keeps_its_code_its_words_and_its_details() {
    let (bench, _runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, |_| {
        let details = vec![1, 2, 3].into();
        ScriptedAnswer::Refused(Box::new(tonic::Status::with_details(
            Code::AlreadyExists,
            "name \"x\" is reserved",
            details,
        )))
    })
    .await;
    let status = bench
        .client()
        .status(cri::StatusRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::AlreadyExists, "name \"x\" is reserved")
    );
    assert_eq!(status.details(), [1, 2, 3]);
    let raw = bench.raw(STATUS, &[], b"").await;
    assert_eq!(
        raw.head["grpc-status"], "6",
        "an answer of trailers alone stays one"
    );
}

#[tokio::test]
async fn an_absent_runtime_is_unavailable_and_degraded_until_it_comes() {
    let bench = AdapterRig::alone(Flavour::Crio).await;
    let place = format!("CRI-O at unix://{}", bench.socket.display());
    let status = bench
        .client()
        .status(cri::StatusRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        status.message(),
        format!("no {place}: cannot connect: No such file or directory (os error 2)")
    );

    let question = HealthRequest {
        interval_ms: 60_000,
    };
    let mut health = bench
        .plugin
        .base()
        .health(question)
        .await
        .unwrap()
        .into_inner();
    let report = health.message().await.unwrap().unwrap();
    assert_eq!(
        (report.status(), report.reason.as_str()),
        (Health::Degraded, status.message())
    );

    let runtime = RuntimeDouble::start(&bench.socket, ("cri-o", "1.33.0"), |_| {
        message(&cri::StatusResponse::default())
    });
    let report = health.message().await.unwrap().unwrap();
    assert_eq!(
        (report.status(), report.attributes["backend"].as_str()),
        (Health::Healthy, "cri-o 1.33.0")
    );
    bench
        .client()
        .status(cri::StatusRequest::default())
        .await
        .unwrap();

    drop(runtime);
    let report = health.message().await.unwrap().unwrap();
    assert_eq!(report.status(), Health::Degraded);
    assert!(report.reason.contains(&place), "{report:?}");
}

#[tokio::test]
async fn a_runtime_that_dies_in_the_middle_of_an_answer_is_unavailable() {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = std::sync::Mutex::new(Some(receiver));
    let script = move |_: &_| ScriptedAnswer::Stream(receiver.lock().unwrap().take().unwrap());
    let (bench, runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, script).await;
    sender.send(Vec::new()).unwrap();
    let opened = bench
        .client()
        .get_container_events(cri::GetEventsRequest {})
        .await;
    let mut stream = opened.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    drop(runtime);
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let place = format!(
        "lost containerd at unix://{} during the call",
        bench.socket.display()
    );
    assert!(status.message().starts_with(&place), "{status}");
}

#[tokio::test]
async fn a_call_that_the_runtime_never_answers_does_not_outlive_its_caller() {
    let (bench, _runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, |call| {
        match call.method() {
            "Status" => ScriptedAnswer::Never,
            _ => message(&cri::ListContainersResponse::default()),
        }
    })
    .await;
    // More than may be in flight, one after the other: each must give its place back.
    let mut abandoned = tokio::task::JoinSet::new();
    for _ in 0..1024 {
        let mut client = bench.client();
        abandoned.spawn(async move { client.status(cri::StatusRequest::default()).await });
    }
    let full = loop {
        let answer = bench
            .client()
            .list_containers(cri::ListContainersRequest::default())
            .await;
        if let Err(status) = answer {
            break status;
        }
    };
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(
        full.message()
            .starts_with("1024 calls are in flight to containerd at unix://"),
        "{full}"
    );
    abandoned.shutdown().await;
    let served = async {
        while bench
            .client()
            .list_containers(cri::ListContainersRequest::default())
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served)
        .await
        .expect("places are given back");
}

#[tokio::test]
async fn stopping_a_sandbox_that_is_gone_succeeds_where_containerd_is_too_old_to_say_so() {
    for (version, forgiven) in [("1.6.20", true), ("2.1.0", false)] {
        let script = |_: &_| refused(Code::NotFound, "an error occurred when try to find sandbox");
        let (bench, _runtime) =
            AdapterRig::start(Flavour::Containerd, ("containerd", version), script).await;
        let stopped = bench
            .client()
            .stop_pod_sandbox(cri::StopPodSandboxRequest::default())
            .await;
        assert_eq!(stopped.is_ok(), forgiven, "{version}: {stopped:?}");
        let stopped = bench
            .client()
            .stop_container(cri::StopContainerRequest::default())
            .await;
        assert_eq!(
            stopped.unwrap_err().code(),
            Code::NotFound,
            "only sandboxes are forgiven"
        );
    }
}

#[tokio::test]
async fn of_a_commands_outputs_no_more_is_passed_on_than_the_caller_reads() {
    let answer = cri::ExecSyncResponse {
        stdout: vec![b'o'; 3 << 20],
        stderr: b"err".to_vec(),
        exit_code: 7,
    };
    let script = move |_: &_| message(&answer);
    let (bench, _runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, script).await;
    let mut client = bench.client();
    for (asked, expected) in [(Some(10_240_u64), 10_240), (None, 3 << 20)] {
        let mut request = tonic::Request::new(cri::ExecSyncRequest::default());
        if let Some(asked) = asked {
            request
                .metadata_mut()
                .insert(sdk::MAX_OUTPUT_METADATA, asked.into());
        }
        let output = client.exec_sync(request).await.unwrap().into_inner();
        assert_eq!(output.stdout.len(), expected, "{asked:?}");
        assert_eq!((&*output.stderr, output.exit_code), (&b"err"[..], 7));
    }
}

#[tokio::test]
async fn a_command_that_is_refused_or_late_is_told_in_the_runtimes_words() {
    let (bench, _runtime) = AdapterRig::start(Flavour::Containerd, CONTAINERD, |_| {
        refused(Code::DeadlineExceeded, "command timed out")
    })
    .await;
    let request = cri::ExecSyncRequest::default();
    let status = bench.client().exec_sync(request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::DeadlineExceeded, "command timed out")
    );
}
