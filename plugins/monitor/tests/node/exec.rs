//! Processes that are run in containers.

use monitor::{Exit, MonitorError, Output, RefusalKind, Size};

use crate::rig::{Rig, process, read_until, sh, wait_until, with_each_runtime, within};

#[tokio::test]
async fn a_process_is_run_to_its_end_with_its_output_and_code() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        for code in [0, 3] {
            let exec = rig.exec("box", &format!("echo out; echo err >&2; exit {code}"));
            let output = within(rig.monitor.exec_sync(exec, 100)).await.unwrap();
            assert_eq!(
                (output.stdout.as_slice(), output.stderr.as_slice()),
                (&b"out\n"[..], &b"err\n"[..])
            );
            assert_eq!(
                (output.end.exit, output.end.timed_out, output.truncated),
                (Exit::Code(code), false, false)
            );
        }
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn output_beyond_the_limit_is_dropped_and_told() {
    let rig = Rig::new().await;
    rig.run(&sh("box", "sleep 1000")).await;
    let output = within(
        rig.monitor
            .exec_sync(rig.exec("box", "seq 200000; exit 2"), 1000),
    )
    .await
    .unwrap();
    assert_eq!(
        (output.stdout.len(), output.truncated, output.end.exit),
        (1000, true, Exit::Code(2))
    );
    rig.end().await;
}

#[tokio::test]
async fn of_an_output_no_more_comes_from_the_monitor_than_is_wanted() {
    let rig = Rig::new().await;
    rig.run(&sh("box", "sleep 1000")).await;
    let mut exec = rig.exec("box", "seq 200000; seq 3 >&2; exit 2");
    exec.max_output_bytes = Some(1000);
    let mut session = within(rig.monitor.exec(exec)).await.unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let end = loop {
        match within(session.next()).await.unwrap() {
            Output::Stdout(bytes) => stdout.extend(bytes),
            Output::Stderr(bytes) => stderr.extend(bytes),
            Output::ExecEnded(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((stdout.len(), &*stderr), (1000, &b"1\n2\n3\n"[..]));
    assert_eq!((end.exit, end.truncated), (Exit::Code(2), true));
    rig.end().await;
}

#[tokio::test]
async fn a_process_over_its_timeout_is_killed_and_said_to_be() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        let mut exec = rig.exec("box", "echo first; exec sleep 1000");
        exec.timeout_ms = Some(700);
        let output = within(rig.monitor.exec_sync(exec, 100)).await.unwrap();
        assert!(output.end.timed_out, "{output:?}");
        assert_eq!(output.end.exit, Exit::Signal(9));
        assert!(
            !rig.ask("box", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
                .await
                .contains("first")
        );
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_leaves_another_behind_is_over_when_it_ends() {
    let rig = Rig::new().await;
    rig.run(&sh("box", "sleep 1000")).await;
    assert_eq!(rig.ask("box", "sleep 999 & echo gone").await, "gone\n");
    rig.end().await;
}

#[tokio::test]
async fn input_is_written_and_ended() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        let mut exec = rig.exec("box", "cat");
        exec.stdin = true;
        let mut session = within(rig.monitor.exec(exec)).await.unwrap();
        let sent = "0123456789abcdef".repeat(20_000);
        let mut heard = Vec::new();
        // More than all pipes and buffers hold: both directions at a time.
        for part in sent.as_bytes().chunks(16_000) {
            within(session.writer().input(part)).await.unwrap();
            while heard.len() < part.len() {
                let Output::Stdout(bytes) = within(session.next()).await.unwrap() else {
                    panic!()
                };
                heard.extend(bytes);
            }
            assert_eq!(heard, part);
            heard.clear();
        }
        within(session.writer().close_stdin()).await.unwrap();
        let Output::ExecEnded(end) = within(session.next()).await.unwrap() else {
            panic!()
        };
        assert_eq!(end.exit, Exit::Code(0));
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_terminal_has_the_size_that_it_is_given() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        let mut exec = rig.exec("box", "");
        exec.process = process("read a; stty size; read a; stty size; exit 9", true);
        exec.size = Some(Size {
            columns: 90,
            rows: 30,
        });
        exec.stdin = true;
        let mut session = within(rig.monitor.exec(exec)).await.unwrap();
        within(session.writer().input(b"\n")).await.unwrap();
        read_until(&mut session, "30 90").await;
        within(session.writer().resize(Size {
            columns: 111,
            rows: 44,
        }))
        .await
        .unwrap();
        within(session.writer().input(b"\n")).await.unwrap();
        read_until(&mut session, "44 111").await;
        loop {
            if let Output::ExecEnded(end) = within(session.next()).await.unwrap() {
                assert_eq!(end.exit, Exit::Code(9));
                break;
            }
        }
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_cannot_be_run_is_refused_or_ends_with_a_code() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        let mut exec = rig.exec("box", "");
        exec.process["args"] = serde_json::json!(["/bin/nothing"]);
        match within(rig.monitor.exec_sync(exec, 1000)).await {
            Err(MonitorError::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::Runtime);
                assert!(refusal.message.contains("nothing"), "{refusal:?}");
            }
            Ok(output) => assert_ne!(output.end.exit, Exit::Code(0)),
            Err(other) => panic!("{other:?}"),
        }
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_process_whose_client_left_is_killed() {
    let rig = Rig::new().await;
    rig.run(&sh("box", "sleep 1000")).await;
    let mut session = within(rig.monitor.exec(rig.exec("box", "echo up; exec sleep 998")))
        .await
        .unwrap();
    read_until(&mut session, "up").await;
    let pids = within(rig.monitor.processes("box")).await.unwrap();
    let sleeper = pids
        .into_iter()
        .find(|pid| cmdline(*pid).contains("998"))
        .unwrap();
    drop(session);
    wait_until(|| !cmdline(sleeper).contains("998")).await;
    rig.end().await;
}

fn cmdline(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
