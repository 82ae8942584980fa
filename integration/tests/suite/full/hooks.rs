//! Hooks at the start and at the end of containers, the signal that ends them, and their last words.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::*;

on_each_runtime! {
    hooks_run_before_ready_and_within_the_grace,
    a_failing_post_start_hook_ends_its_container,
    last_words_come_from_the_file_or_from_the_log,
    a_stop_signal_is_passed_to_the_runtime,
    hooks_may_be_requests,
}

async fn hooks_run_before_ready_and_within_the_grace(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    // Deaf to SIGTERM: only its hook ends it before the grace is over.
    let deaf = "trap '' TERM; trap 'exit 0' INT; while true; do sleep 0.2; done";
    let lifecycle = json!({
        "postStart": exec(&["sh", "-c", "sleep 1; echo well > /tmp/started"]),
        "preStop": exec(&["sh", "-c", "kill -INT 1"]),
    });
    let grace = json!({ "terminationGracePeriodSeconds": 100 });
    let app = with(container_of("app", deaf), json!({ "lifecycle": lifecycle }));
    node_rig.drop_pod(&pod(
        "hooked",
        with(grace.clone(), json!({ "containers": [app] })),
    ));
    let lifecycle = json!({ "preStop": { "sleep": { "seconds": 3 } } });
    let app = with(
        container_of("app", SERVE_ON),
        json!({ "lifecycle": lifecycle }),
    );
    node_rig.drop_pod(&pod("slow", with(grace, json!({ "containers": [app] }))));

    let hooked = node_rig
        .until(
            "hooked",
            "is ready, but not before its hook is through",
            is_ready,
        )
        .await;
    let words = node_rig
        .exec(&hooked, "app", &["cat", "/tmp/started"])
        .await;
    assert_eq!(words.trim(), "well");
    node_rig.until_running("slow").await;

    let began = Instant::now();
    node_rig.remove_pod("hooked");
    node_rig.remove_pod("slow");
    node_rig.until_gone("slow").await;
    let slow = began.elapsed();
    assert!(slow >= Duration::from_secs(3), "{slow:?}");
    node_rig.until_gone("hooked").await;
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

async fn a_failing_post_start_hook_ends_its_container(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let lifecycle = json!({ "postStart": exec(&["false"]) });
    let app = with(
        container_of("app", SERVE_ON),
        json!({ "lifecycle": lifecycle }),
    );
    node_rig.drop_pod(&pod(
        "bad",
        json!({ "containers": [app, container_of("well", SERVE_ON)] }),
    ));
    node_rig
        .until_event("FailedPostStartHook", &["PostStartHook failed"])
        .await;
    let pod = node_rig
        .until("bad", "shows why", |pod| {
            let (reason, message) = waiting(pod, "app");
            reason == "PostStartHookError" && message.contains("Exec lifecycle hook ([false])")
        })
        .await;
    assert!(is_running(container(&pod, "well").unwrap()));
    node_rig
        .until("bad", "is tried again", |pod| {
            assert!(!is_ready(pod));
            restarts(pod, "app") >= 1
        })
        .await;
}

async fn last_words_come_from_the_file_or_from_the_log(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let from_log = json!({ "terminationMessagePolicy": "FallbackToLogsOnError" });
    let file = json!({ "terminationMessagePath": "/tmp/words" });
    node_rig.drop_pod(&pod(
        "words",
        json!({
            "restartPolicy": "Never",
            "containers": [
                with(container_of("file", "echo from the file > /tmp/words; exit 1"), file),
                with(container_of("log", "echo from the log; exit 1"), from_log.clone()),
                with(container_of("well", "echo not told; exit 0"), from_log.clone()),
                with(container_of("both", "echo log; echo file > /dev/termination-log; exit 1"), from_log),
            ],
        }),
    ));
    let pod = node_rig
        .until("words", "has failed", |pod| phase(pod) == "Failed")
        .await;
    let message = |name: &str| ended(&pod, name).unwrap().message.unwrap_or_default();
    assert_eq!(message("file"), "from the file\n");
    assert_eq!(message("log"), "from the log\n");
    assert_eq!(message("well"), "");
    assert_eq!(message("both"), "file\n");
    assert_eq!(ended(&pod, "log").unwrap().exit_code, 1);
}

async fn a_stop_signal_is_passed_to_the_runtime(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let script = "trap 'exit 0' TERM; trap 'exit 9' USR1; while true; do sleep 0.2; done";
    let app = with(
        container_of("app", script),
        json!({ "lifecycle": { "stopSignal": "SIGUSR1" } }),
    );
    node_rig.drop_pod(&pod(
        "told",
        json!({ "os": { "name": "linux" }, "containers": [app] }),
    ));
    let pod = node_rig.until_running("told").await;
    // containerd 1.6 does not know the field: the pod runs, and ends by SIGTERM.
    let shown = (on != TestRuntime::Containerd).then(|| "SIGUSR1".to_owned());
    assert_eq!(container(&pod, "app").unwrap().stop_signal, shown);
    node_rig.remove_pod("told");
    node_rig.until_gone("told").await;
}

async fn hooks_may_be_requests(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, mut requests) = mpsc::channel(8);
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).await.unwrap();
            heard
                .send(String::from_utf8_lossy(&asked[..length]).into_owned())
                .await
                .unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    });
    let get = |path: &str| {
        let headers = json!([{ "name": "X-Hook", "value": "yes" }]);
        json!({ "httpGet": { "host": "127.0.0.1", "port": port, "path": path, "httpHeaders": headers } })
    };
    let lifecycle = json!({ "postStart": get("/started?by=hook"), "preStop": get("/stopping") });
    let app = with(
        container_of("app", SERVE_ON),
        json!({ "lifecycle": lifecycle }),
    );
    let grace = json!({ "terminationGracePeriodSeconds": 30, "containers": [app] });
    node_rig.drop_pod(&pod("asks", grace));
    node_rig.until_running("asks").await;
    let request = requests.try_recv().unwrap();
    assert!(
        request.starts_with("GET /started?by=hook HTTP/1.1\r\n"),
        "{request}"
    );
    let lower = request.to_lowercase();
    assert!(
        lower.contains("x-hook: yes\r\n") && lower.contains("user-agent: kube-lifecycle/"),
        "{request}"
    );
    node_rig.remove_pod("asks");
    node_rig.until_gone("asks").await;
    let request = requests.try_recv().unwrap();
    assert!(
        request.starts_with("GET /stopping HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(requests.try_recv().is_err(), "each hook asks once");
    serving.abort();
}
