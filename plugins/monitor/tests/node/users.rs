//! Containers whose user isn't root, and their standard streams.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use monitor::{Input, Output};
use serde_json::{Value, json};

use crate::rig::{Box, Rig, oxlet_oci, sh, wait_until, within};

type Change = fn(&mut Value);

const USER: u32 = 1000;
const FIRST_HOST_ID: u32 = 100_000;

/// Opens its standard streams again by name, as a log file is opened.
const REOPEN: &str = "echo out > /proc/self/fd/1; echo err > /proc/self/fd/2";

fn as_user(spec: &mut Value) {
    spec["process"]["user"] = json!({"uid": USER, "gid": USER});
    let none = json!([]);
    spec["process"]["capabilities"] =
        json!({"bounding": none, "effective": none, "permitted": none});
}

fn as_user_of_a_namespace(spec: &mut Value) {
    as_user(spec);
    let ids = json!([{"containerID": 0, "hostID": FIRST_HOST_ID, "size": 65_536}]);
    let linux = &mut spec["linux"];
    linux["uidMappings"] = ids.clone();
    linux["gidMappings"] = ids;
    linux["namespaces"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "user"}));
}

fn user_box(spec: Change) -> Box {
    let script =
        format!("{REOPEN}; while [ ! -e /data/go ]; do sleep 0.02; done; {REOPEN}; sleep 1000");
    Box {
        spec,
        ..sh("box", &script)
    }
}

/// With each runtime, without and with a user namespace. Of oxlet-oci a container joins one that is there already, and
/// has its own in the native runtime's tests.
async fn with_each_user<F: Future<Output = ()>>(law: impl Fn(Rig, Box) -> F) {
    let runc = || PathBuf::from("/usr/sbin/runc");
    let cases: [(PathBuf, Change); 3] = [
        (runc(), as_user),
        (runc(), as_user_of_a_namespace),
        (oxlet_oci(), as_user),
    ];
    for (program, spec) in cases {
        let rig = Rig::with(&program).await;
        // The root of a user namespace is not the owner of the folders above its root.
        for folder in [rig.dir.path().to_owned(), rig.dir.path().join("rootfs")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        law(rig, user_box(spec)).await;
    }
}

#[tokio::test]
async fn a_user_opens_its_standard_streams_again_also_after_a_successor_of_the_monitor() {
    with_each_user(|rig, user_box| async move {
        rig.run(&user_box).await;
        let sorted = || {
            let mut lines: Vec<String> = rig.log("box").lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        wait_until(|| sorted().len() == 2).await;
        assert_eq!(sorted(), ["stderr F err", "stdout F out"]);
        rig.kill_monitor().await;
        rig.succeed().await;
        fs::write(rig.dir.path().join("rootfs/data/go"), "").unwrap();
        wait_until(|| sorted().len() == 4).await;
        assert_eq!(sorted()[1..3], ["stderr F err", "stdout F out"]);
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_user_opens_the_streams_of_a_process_that_is_run_again() {
    with_each_user(|rig, user_box| async move {
        rig.run(&user_box).await;
        rig.kill_monitor().await;
        rig.succeed().await;
        let mut exec = rig.exec("box", &format!("{REOPEN}; cat < /proc/self/fd/0"));
        exec.process["user"] = json!({"uid": USER, "gid": USER});
        exec.stdin = true;
        let mut session = within(rig.monitor.exec(exec)).await.unwrap();
        session.writer().input(b"typed\n").await.unwrap();
        session.writer().close_stdin().await.unwrap();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match within(session.next()).await.unwrap() {
                Output::Stdout(bytes) => stdout.extend(bytes),
                Output::Stderr(bytes) => stderr.extend(bytes),
                Output::ExecEnded(end) => break assert_eq!(end.exit.code(), Some(0), "{stderr:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((&*stdout, &*stderr), (&b"out\ntyped\n"[..], &b"err\n"[..]));
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_users_streams_are_its_own_and_nobody_elses() {
    let rig = Rig::new().await;
    let mut user_box = user_box(as_user);
    user_box.stdin = Input::Open;
    let pid = rig.run(&user_box).await.pid.unwrap();
    for fd in 0..3 {
        let stream = fs::metadata(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert_eq!((stream.uid(), stream.mode() & 0o777), (USER, 0o600), "{fd}");
    }
    // One of the same id in another container does not see the process.
    let neighbour = Box {
        spec: as_user,
        ..sh("neighbour", "exec sleep 1000")
    };
    rig.run(&neighbour).await;
    let said = rig
        .ask(
            "neighbour",
            &format!("cat /proc/{pid}/fd/1 2>&1 || echo none"),
        )
        .await;
    assert!(said.ends_with("none\n"), "{said}");
    rig.end().await;
}
