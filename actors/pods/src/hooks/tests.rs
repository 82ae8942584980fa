//! Invariants of hooks, over a runtime-fake and real sockets in the test's process.

use clients::probe_client::rig::Rig;
use k8s_openapi::api::core::v1::Lifecycle;
use kernel::testing::{Inbox, inbox, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use state::events;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use super::*;

const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs one hook; returns its result, the recorded events, and its duration.
async fn end(
    kind: HookKind,
    handler: &str,
    within: Duration,
) -> (Result<(), HookError>, Vec<String>) {
    let rig = Rig::start().await;
    let (events, mut recorded) = inbox(16);
    let pod = pod(&format!(
        "
metadata: {{name: podFoo, namespace: nsFoo}}
spec:
  containers:
  - name: foo
    image: localhost/busybox
    ports: [{{name: gone, containerPort: 1}}]
    lifecycle: {{preStop: {handler}}}
"
    ));
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let lifecycle: &Lifecycle = container.lifecycle.as_ref().unwrap();
    let hook = LifecycleHook {
        kind,
        handler: lifecycle.pre_stop.as_ref().unwrap(),
        pod: &pod,
        container,
        id: &rig.id,
        ips: &["127.0.0.1".to_owned()],
    };
    assert_eq!(pod.uid(), PodUid::from("podFoo"));
    let end = run(&rig.runtime, &Recorder::new(events), &hook, within).await;
    (end, texts(&mut recorded))
}

fn texts(events: &mut Inbox<events::Msg>) -> Vec<String> {
    let text = |msg| {
        let events::Msg::Record(event) = msg else {
            panic!("{msg:?}");
        };
        format!(
            "{} {}: {}",
            event.object.field_path, event.reason, event.message
        )
    };
    events.drain().into_iter().map(text).collect()
}

fn ended(kind: HookKind, handler: &str, within: Duration) -> (Result<(), HookError>, Vec<String>) {
    run_paused(|| async { end(kind, handler, within).await })
}

fn failed(text: &str) -> Result<(), HookError> {
    Err(HookError::Failed(text.into()))
}

/// Upstream's TestRunHandlerExec and TestRunHandlerExecFailure.
#[test]
fn a_command_that_fails_is_told_to_the_caller_and_no_word_of_it_to_others() {
    let (end, texts) = ended(
        HookKind::PostStart,
        "{exec: {command: ['true']}}",
        HOOK_TIMEOUT,
    );
    assert_eq!((end, texts), (Ok(()), vec![]));
    let handler = "{exec: {command: [sh, -c, 'echo secret; exit 2']}}";
    let text = "Exec lifecycle hook ([sh -c echo secret; exit 2]) for Container \"foo\" in Pod \"podFoo_nsFoo(podFoo)\" failed - error: command 'sh -c echo secret; exit 2' exited with 2: , message: \"secret\\n\"";
    let (end, texts) = ended(HookKind::PostStart, handler, HOOK_TIMEOUT);
    assert_eq!(end, failed(text));
    let event = "spec.containers{foo} FailedPostStartHook: PostStartHook failed";
    assert_eq!(texts, [event]);
    let (end, texts) = ended(HookKind::PreStop, handler, HOOK_TIMEOUT);
    assert_eq!(end, failed(text));
    let event = "spec.containers{foo} FailedPreStopHook: PreStopHook failed";
    assert_eq!(texts, [event]);
}

#[test]
fn a_command_that_does_not_end_is_left_at_the_deadline() {
    let within = Duration::from_millis(2500);
    let (end, texts) = run_paused(|| async {
        let before = kernel::now();
        let handler = "{exec: {command: [sleep, '1000']}}";
        let end = end(HookKind::PreStop, handler, within).await;
        assert_eq!(kernel::now() - before, within);
        end
    });
    assert!(matches!(end, Err(HookError::Deadline(_))), "{end:?}");
    assert_eq!(texts, Vec::<String>::new());
}

/// Upstream's TestRunSleepHandler.
#[test]
fn a_sleep_lasts_as_long_as_it_says_or_as_it_may() {
    for (seconds, slept) in [(0, 0), (5, 5)] {
        run_paused(|| async {
            let before = kernel::now();
            let (end, _) = end(
                HookKind::PreStop,
                &format!("{{sleep: {{seconds: {seconds}}}}}"),
                HOOK_TIMEOUT,
            )
            .await;
            assert_eq!(end, Ok(()));
            assert_eq!(kernel::now() - before, Duration::from_secs(slept));
        });
    }
    let (end, _) = ended(HookKind::PreStop, "{sleep: {seconds: 31}}", HOOK_TIMEOUT);
    let text = "Sleep lifecycle hook (31) for Container \"foo\" in Pod \"podFoo_nsFoo(podFoo)\" failed - error: container terminated before sleep hook finished";
    assert_eq!(end, Err(HookError::Deadline(text.into())));
}

/// Upstream's TestRunHandlerNil.
#[test]
fn a_tcp_socket_is_no_hook() {
    let (end, texts) = ended(HookKind::PreStop, "{tcpSocket: {port: 80}}", HOOK_TIMEOUT);
    let text = "Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{Port:{0 80 },Host:,},Sleep:nil,}";
    assert_eq!((end, texts.len()), (failed(text), 1));
}

/// A server that answers one connection after the other with this; returns its port, and the requests.
async fn server(answer: &'static str) -> (u16, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, hearing) = tokio::sync::mpsc::channel(16);
    spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            request.truncate(length);
            heard
                .send(String::from_utf8_lossy(&request).into_owned())
                .await
                .unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (port, hearing)
}

/// Upstream's TestRunHandlerHttp, TestRunHandlerHttpWithHeaders.
#[test]
fn any_answer_to_a_get_will_do() {
    run_paused(|| async {
        let answer = "HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n";
        let (port, mut heard) = server(answer).await;
        let handler = format!(
            "{{httpGet: {{port: {port}, path: bar, httpHeaders: [{{name: Foo, value: baz}}]}}}}"
        );
        let (end, texts) = end(HookKind::PostStart, &handler, HOOK_TIMEOUT).await;
        assert_eq!((end, texts), (Ok(()), vec![]));
        let request = heard.recv().await.unwrap();
        assert!(request.starts_with("GET /bar HTTP/1.1\r\n"), "{request}");
        for line in ["User-Agent: kube-lifecycle/1.36\r\n", "Foo: baz\r\n"] {
            assert!(request.contains(line), "{request}");
        }
    });
}

/// Upstream's TestRunHandlerHttpFailure and TestRunHandlerHTTPPort.
#[test]
fn a_get_that_reaches_nobody_fails() {
    let whose = "for Container \"foo\" in Pod \"podFoo_nsFoo(podFoo)\" failed - error:";
    let (end, _) = ended(
        HookKind::PostStart,
        "{httpGet: {port: gone, path: bar}}",
        HOOK_TIMEOUT,
    );
    let text = format!(
        "HTTP lifecycle hook (bar) {whose} Get \"http://127.0.0.1:1/bar\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    assert_eq!(end, failed(&text));
    let (end, _) = ended(
        HookKind::PostStart,
        "{httpGet: {port: '', path: bar}}",
        HOOK_TIMEOUT,
    );
    let text =
        format!("HTTP lifecycle hook (bar) {whose} strconv.Atoi: parsing \"\": invalid syntax");
    assert_eq!(end, failed(&text));
}

/// Upstream's TestRunHandlerHttpsFailureFallback.
#[test]
fn https_falls_back_to_http_without_the_secret_and_says_so() {
    run_paused(|| async {
        let (port, mut heard) = server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let handler = format!(
            "{{httpGet: {{scheme: HTTPS, port: {port}, path: bar, httpHeaders: [{{name: Authorization, value: secret}}]}}}}"
        );
        let (end, texts) = end(HookKind::PreStop, &handler, HOOK_TIMEOUT).await;
        assert_eq!(end, Ok(()));
        let event = format!(
            " LifecycleHTTPFallback: request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
        );
        assert_eq!(texts, [event]);
        heard.recv().await.unwrap();
        let plain = heard.recv().await.unwrap();
        assert!(plain.starts_with("GET /bar "), "{plain}");
        assert!(!plain.contains("secret"), "{plain}");
    });
}
