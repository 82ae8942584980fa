//! Every call against monitors that hang, on a clock that runs by itself.

use std::path::PathBuf;

use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::protocol::{Handler, Input};

fn create() -> Create {
    Create {
        container: "c".to_owned(),
        handler: Handler {
            program: PathBuf::from("/runc"),
            root: PathBuf::from("/state"),
            systemd_cgroup: false,
            is_own: false,
            deadline_ms: 1_000,
        },
        bundle: PathBuf::from("/bundle"),
        log: None,
        log_folder: None,
        stdin: Input::Closed,
        terminal: false,
    }
}

fn exec() -> Exec {
    Exec {
        container: "c".to_owned(),
        process: serde_json::Value::Null,
        stdin: false,
        timeout_ms: None,
        size: None,
        max_output_bytes: None,
    }
}

/// Makes every call there is; returns the name and the error of each.
async fn errors(monitor: &Monitor) -> Vec<(&'static str, MonitorError)> {
    let size = Size {
        columns: 1,
        rows: 1,
    };
    let attach = Attach {
        container: "c".to_owned(),
        stdin: false,
        stdout: true,
        stderr: true,
    };
    let folder = PathBuf::from("/");
    macro_rules! error {
        ($name:literal, $call:expr) => {
            ($name, $call.await.map(drop).unwrap_err())
        };
    }
    vec![
        error!("Status", monitor.status()),
        error!("Create", monitor.create(create())),
        error!("Start", monitor.start("c")),
        error!("Wait", monitor.wait("c")),
        error!("Kill", monitor.kill("c", 9)),
        error!("Delete", monitor.delete("c")),
        error!("ReopenLog", monitor.reopen_log("c")),
        error!("CloseStdin", monitor.close_stdin("c")),
        error!("Resize", monitor.resize("c", size)),
        error!("Update", monitor.update("c", serde_json::Value::Null)),
        error!(
            "Checkpoint",
            monitor.checkpoint("c", folder.clone(), folder)
        ),
        error!("Processes", monitor.processes("c")),
        error!("Exec", monitor.exec(exec())),
        error!("Exec", monitor.exec_sync(exec(), 10)),
        error!("Attach", monitor.attach(attach)),
        error!("Events", monitor.events()),
        error!("Shutdown", monitor.shutdown()),
    ]
}

fn assert_deadlines(errors: Vec<(&'static str, MonitorError)>, socket: &Path, at_most: u64) {
    for (name, error) in errors {
        let MonitorError::Deadline {
            call,
            monitor,
            seconds,
        } = error
        else {
            panic!("{name}: {error:?}");
        };
        assert_eq!((call, &*monitor), (name, socket));
        assert!((1..=at_most).contains(&seconds), "{name}: {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_monitor_that_does_not_answer_ends_with_its_name_within_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let monitor = Monitor::at(dir.path());
    let _silent = UnixListener::bind(&monitor.socket).unwrap();
    assert_deadlines(errors(&monitor).await, &monitor.socket, 20);
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_monitor_with_a_full_queue_ends_within_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let monitor = Monitor::at(dir.path());
    let listener = tokio::net::UnixSocket::new_stream().unwrap();
    listener.bind(&monitor.socket).unwrap();
    let _listener = listener.listen(1).unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = UnixStream::connect(&monitor.socket).await {
        queue.push(stream);
    }
    assert_deadlines(errors(&monitor).await, &monitor.socket, 5);
}

/// A monitor that answers Status, and to everything else says `Streaming` and writes nothing more.
async fn slow_container(listener: UnixListener) {
    let mut open = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        let mut connection = Connection {
            stream,
            socket: PathBuf::new(),
            read: Vec::new(),
        };
        let call: Call = connection.frame().await.unwrap().read().unwrap();
        let reply = if call.request == Request::Status {
            Reply::Pod(PodStatus::default())
        } else {
            Reply::Streaming
        };
        connection
            .send(&Frame::message(&reply).unwrap())
            .await
            .unwrap();
        open.push(connection);
    }
}

#[tokio::test]
async fn a_process_that_says_nothing_for_long_is_waited_for_while_the_monitor_lives() {
    let dir = tempfile::tempdir().unwrap();
    let monitor = Monitor::at(dir.path());
    let serving = tokio::spawn(slow_container(UnixListener::bind(&monitor.socket).unwrap()));
    let running = monitor.exec_sync(exec(), 10);
    let long = async {
        for _ in 0..1000 {
            tokio::time::pause();
            tokio::time::advance(LIFE_PERIOD / 5).await;
            tokio::time::resume();
            // The answers come over a real socket.
            monitor.status().await.unwrap();
        }
    };
    tokio::select! {
        output = running => panic!("{output:?}"),
        () = long => {}
    }
    serving.abort();
}

#[test]
fn a_create_waits_for_its_own_runtime() {
    let request = Request::Create(Box::new(create()));
    assert_eq!(
        answer(&request),
        Answer::Runtime(Duration::from_secs(2) + RUNTIME_MARGIN)
    );
}
