//! Clients and runtimes that do not behave.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use monitor::{Call, Frame, MonitorError, RefusalKind, Reply, Request};
use tokio::task::JoinSet;

use crate::rig::{Rig, sh, within};

/// Sends bytes and reads all that comes back.
fn say(rig: &Rig, bytes: &[u8]) -> Option<Reply> {
    let mut stream = UnixStream::connect(rig.folder().join("monitor.sock")).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    Frame::take(&mut answer)
        .unwrap()
        .map(|frame| frame.read().unwrap())
}

fn refusal(reply: Option<Reply>) -> monitor::Refusal {
    match reply {
        Some(Reply::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_newer_version_is_refused_by_name() {
    let rig = Rig::new().await;
    let call = Call {
        version: 99,
        request: Request::Status,
    };
    let mut bytes = Vec::new();
    Frame::message(&call).unwrap().encode(&mut bytes);
    let refusal = refusal(say(&rig, &bytes));
    assert_eq!(refusal.kind, RefusalKind::Version);
    assert!(
        refusal.message.contains("99") && refusal.message.contains("speaks 1"),
        "{refusal:?}"
    );
    rig.end().await;
}

#[tokio::test]
async fn garbage_is_refused_and_the_next_client_is_served() {
    let rig = Rig::new().await;
    let long = [&u32::MAX.to_le_bytes()[..], &[0]].concat();
    let mut unknown = Vec::new();
    Frame::Message(br#"{"version":1,"request":"Fly"}"#.to_vec()).encode(&mut unknown);
    for bytes in [&long, &b"GET / HTTP/1.1\r\n\r\n".to_vec(), &unknown] {
        assert_eq!(refusal(say(&rig, bytes)).kind, RefusalKind::Invalid);
    }
    assert!(
        within(rig.monitor.status())
            .await
            .unwrap()
            .containers
            .is_empty()
    );
    rig.end().await;
}

#[tokio::test]
async fn an_id_that_leads_elsewhere_is_refused() {
    let rig = Rig::new().await;
    for id in ["..", "a/b", "", ".hidden"] {
        let mut create = rig.bundle(&sh("fine", "true"));
        create.container = id.to_owned();
        let error = within(rig.monitor.create(create)).await.unwrap_err();
        assert!(
            matches!(&error, MonitorError::Refused(refusal) if refusal.kind == RefusalKind::Invalid),
            "{error:?}"
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn only_root_reaches_the_socket() {
    let rig = Rig::new().await;
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(rig.folder().join("monitor.sock")) & 0o077, 0);
    assert_eq!(mode(rig.folder()), 0o700);
    rig.end().await;
}

/// A program in a runtime's place.
fn runtime(rig: &Rig, script: &str) -> std::path::PathBuf {
    let path = rig.dir.path().join("runtime");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_runtime_that_hangs_is_killed_at_its_deadline_and_others_go_on() {
    let rig = Rig::new().await;
    let mut create = rig.bundle(&sh("stuck", "true"));
    create.handler.program = runtime(&rig, "case \"$*\" in *create*) sleep 1000;; esac");
    create.handler.deadline_ms = 400;
    let beside = sh("beside", "true");
    let (stuck, _) = tokio::join!(within(rig.monitor.create(create)), rig.exit(&beside));
    match stuck {
        Err(MonitorError::Refused(refusal)) => assert_eq!(refusal.kind, RefusalKind::Deadline),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        within(rig.monitor.status()).await.unwrap().containers.len(),
        1
    );
    rig.end().await;
}

#[tokio::test]
async fn a_removal_that_fails_is_told_and_can_be_asked_for_again() {
    let rig = Rig::new().await;
    let broken = rig.dir.path().join("broken");
    let script = format!(
        "case \"$*\" in *delete*) if [ -e {0} ]; then echo no way >&2; exit 1; fi;; esac; exec /usr/sbin/runc \"$@\"",
        broken.display()
    );
    let mut create = rig.bundle(&sh("kept", "exit 1"));
    create.handler.program = runtime(&rig, &script);
    within(rig.monitor.create(create)).await.unwrap();
    within(rig.monitor.start("kept")).await.unwrap();
    within(rig.monitor.wait("kept")).await.unwrap();
    fs::write(&broken, "").unwrap();
    let error = within(rig.monitor.delete("kept")).await.unwrap_err();
    assert!(error.to_string().contains("no way"), "{error}");
    let status = within(rig.monitor.status()).await.unwrap();
    assert!(
        status.containers[0].problems[0].contains("no way"),
        "{status:?}"
    );
    fs::remove_file(broken).unwrap();
    within(rig.monitor.delete("kept")).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn what_streams_has_bounds_of_its_own_and_holds_up_no_call() {
    let rig = Rig::new().await;
    rig.run(&sh("box", "sleep 1000")).await;
    // No more at a time than the monitor makes at once.
    let mut sessions = Vec::new();
    for _ in 0..13 {
        let mut ten = JoinSet::new();
        for _ in 0..10 {
            let (monitor, exec) = (rig.monitor.clone(), rig.exec("box", "exec sleep 1000"));
            ten.spawn(async move { monitor.exec(exec).await });
        }
        sessions.extend(within(ten.join_all()).await);
    }
    let refused: Vec<_> = sessions
        .iter()
        .filter_map(|one| one.as_ref().err())
        .collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    for error in refused {
        assert!(
            matches!(error, MonitorError::Refused(refusal) if refusal.kind == RefusalKind::Full),
            "{error:?}"
        );
        assert!(error.to_string().contains("128 processes"), "{error}");
    }
    let mut attached = Vec::new();
    while let Ok(session) = rig.monitor.attach(rig.joining("box")).await {
        attached.push(session);
    }
    let mut heard = Vec::new();
    while let Ok(events) = rig.monitor.events().await {
        heard.push(events);
    }
    assert_eq!((attached.len(), heard.len()), (64, 16));
    within(rig.monitor.kill("box", 9)).await.unwrap();
    within(rig.monitor.wait("box")).await.unwrap();
    within(rig.monitor.delete("box")).await.unwrap();
    rig.end().await;
}
