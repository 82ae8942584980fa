//! Drivers that fail, lie, hang, or are not there.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use proto::storage::{ExpandRequest, MountRequest, State, StatsRequest};
use tonic::Code;

use crate::double::{Double, Fault, Manner};
use crate::rig::{DRIVER, ID, is_mounted, rig, said, volume};

const BOOM: &str = "rpc error: code = Internal desc = boom";

/// Upstream's TestAttacherMountDevice and TestMounterSetUp: final errors, and those that are not.
#[tokio::test]
async fn a_final_error_leaves_nothing_and_another_one_everything() {
    let mut rig = rig().await;
    for (code, word, answered) in [
        (Code::Internal, "Internal", Code::Internal),
        (
            Code::InvalidArgument,
            "InvalidArgument",
            Code::FailedPrecondition,
        ),
        (Code::PermissionDenied, "PermissionDenied", Code::Unknown),
    ] {
        rig.double.fail("stage", Fault::Says(code));
        let text = format!("rpc error: code = {word} desc = boom");
        assert_eq!(said(rig.stage().await), (answered, text));
        rig.assert_clean();
    }
    for (code, answered) in [
        (Code::Unavailable, Code::Unavailable),
        (Code::DeadlineExceeded, Code::DeadlineExceeded),
        (Code::ResourceExhausted, Code::ResourceExhausted),
        (Code::Aborted, Code::Unavailable),
        (Code::Cancelled, Code::Unavailable),
    ] {
        rig.double.fail("stage", Fault::DoesAndSays(code));
        assert_eq!(said(rig.stage().await).0, answered);
        assert_eq!(
            rig.list().await,
            [(State::Staged, ID.to_owned(), String::new())]
        );
        assert!(is_mounted(&rig.staging()));
    }
    rig.stage().await.unwrap();
    rig.double.fail("publish", Fault::Says(Code::Internal));
    assert_eq!(
        said(rig.mount("u1").await),
        (Code::Internal, BOOM.to_owned())
    );
    assert_eq!(rig.list().await.len(), 1);
    rig.double.fail("publish", Fault::Says(Code::Unavailable));
    assert_eq!(said(rig.mount("u1").await).0, Code::Unavailable);
    assert_eq!(
        rig.list().await[0],
        (State::LeftOver, ID.to_owned(), "u1".to_owned())
    );
    rig.unmount("u1").await.unwrap();
    rig.unstage().await.unwrap();
    rig.assert_clean();
}

/// Upstream: a volume that is published stays when publishing it again fails.
#[tokio::test]
async fn a_volume_that_cannot_be_published_again_stays_as_it_was() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    let path = rig.mount("u1").await.unwrap();
    fs::write(path.join("file"), "data").unwrap();
    rig.double.fail("publish", Fault::Says(Code::Internal));
    assert_eq!(said(rig.mount("u1").await).0, Code::Internal);
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "data");
    assert!(path.with_file_name("vol_data.json").exists());
    rig.unmount("u1").await.unwrap();
}

/// Upstream's TestUnmounterTeardown and TestAttacherUnmountDevice: errors.
#[tokio::test]
async fn what_a_driver_does_not_take_away_stays_known() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    let path = rig.mount("u1").await.unwrap();
    rig.double.fail("unpublish", Fault::Says(Code::Internal));
    let text = format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {BOOM}");
    assert_eq!(said(rig.unmount("u1").await), (Code::Internal, text));
    assert!(path.with_file_name("vol_data.json").exists());
    // It says that it did, and did not.
    rig.double.fail("unpublish", Fault::Nothing);
    let text = format!(
        "kubernetes.io/csi: {} is still mounted after NodeUnpublishVolume",
        path.display()
    );
    assert_eq!(
        said(rig.unmount("u1").await),
        (Code::FailedPrecondition, text)
    );
    assert!(is_mounted(&path) && path.with_file_name("vol_data.json").exists());
    rig.unmount("u1").await.unwrap();
    rig.double.fail("unstage", Fault::Says(Code::Internal));
    let text = format!("kubernetes.io/csi: attacher.UnmountDevice failed: {BOOM}");
    assert_eq!(said(rig.unstage().await), (Code::Internal, text));
    rig.double.fail("unstage", Fault::Nothing);
    assert_eq!(said(rig.unstage().await).0, Code::FailedPrecondition);
    rig.unstage().await.unwrap();
    rig.assert_clean();
}

/// Upstream's TestNodeExpand: in use, never, and otherwise.
#[tokio::test]
async fn a_driver_that_never_will_grow_a_volume_is_told_apart() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    for (code, word, answered) in [
        (Code::OutOfRange, "OutOfRange", Code::InvalidArgument),
        (Code::NotFound, "NotFound", Code::InvalidArgument),
        (
            Code::FailedPrecondition,
            "FailedPrecondition",
            Code::FailedPrecondition,
        ),
        (Code::Internal, "Internal", Code::Internal),
    ] {
        rig.double.fail("expand", Fault::Says(code));
        let request = ExpandRequest {
            volume: Some(volume()),
            size: 1,
            within_ms: 20_000,
            ..ExpandRequest::default()
        };
        let between = if answered == Code::InvalidArgument {
            ""
        } else {
            ": "
        };
        let text = format!(
            "Expander.NodeExpand failed to expand the volume {between}rpc error: code = {word} desc = boom"
        );
        assert_eq!(said(rig.storage.expand(request).await), (answered, text));
    }
    rig.unstage().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_hangs_is_answered_for_in_time_and_hinders_no_other() {
    let mut rig = rig().await;
    let manner = Manner {
        name: "e.example.com",
        ..Manner::default()
    };
    let folder = rig.home.path().join("e");
    let other = Double::new(&folder, manner);
    let _other = [
        other.serve(folder.join("e.sock")),
        other.register(rig.registry.join("e.sock"), &folder.join("e.sock")),
    ];
    other.told(1).await;
    rig.double.fail("publish", Fault::Hangs);
    let request = MountRequest {
        within_ms: 5_000,
        ..rig.mount_request("u1")
    };
    let mut storage = rig.storage.clone();
    let hanging = tokio::spawn(async move { storage.mount(request).await });
    rig.double.asked("publish").await;
    let mut volume = volume();
    volume.id = "kubernetes.io/csi/e.example.com^vol-1".to_owned();
    if let Some(proto::storage::volume::Source::Csi(csi)) = &mut volume.source {
        csi.driver = "e.example.com".to_owned();
    }
    let request = MountRequest {
        volume: Some(volume),
        ..rig.mount_request("u2")
    };
    rig.storage.mount(request).await.unwrap();
    assert!(!hanging.is_finished());
    let (code, message) = said(hanging.await.unwrap());
    assert_eq!(code, Code::DeadlineExceeded);
    assert_eq!(
        message,
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    // What it was about to do may still happen: it stays known.
    assert!(
        rig.list()
            .await
            .contains(&(State::LeftOver, ID.to_owned(), "u1".to_owned()))
    );
    rig.unmount("u1").await.unwrap();
}

/// The caller goes away: what was begun is carried to its end.
#[tokio::test]
async fn a_call_is_finished_though_nobody_waits_for_it() {
    let mut rig = rig().await;
    rig.double.fail("stage", Fault::Hangs);
    let mut storage = rig.storage.clone();
    let call = tokio::spawn(async move {
        let request = proto::storage::StageRequest {
            within_ms: 1_000,
            ..crate::rig::stage_request()
        };
        storage.stage(request).await
    });
    rig.double.asked("stage").await;
    call.abort();
    // The next call about the volume waits for the first one.
    rig.stage().await.unwrap();
    assert_eq!(rig.double.words(), ["stage", "stage"]);
    rig.unstage().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_went_away_is_told_by_its_name() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    rig.mount("u1").await.unwrap();
    let mut events = rig.watch().await;
    rig.end();
    while events.word().await != format!("gone {DRIVER}") {}
    let missing = format!("driver name {DRIVER} not found in the list of registered CSI drivers");
    for (answer, before) in [
        (
            said(rig.unmount("u1").await),
            "Unmounter.TearDownAt failed to get CSI client",
        ),
        (
            said(rig.mount("u1").await.map(drop)),
            "mounter.SetUpAt failed to get CSI client",
        ),
    ] {
        let text = format!("kubernetes.io/csi: {before}: {missing}");
        assert_eq!(answer, (Code::NotFound, text));
    }
    let request = ExpandRequest {
        volume: Some(volume()),
        size: 1,
        within_ms: 20_000,
        ..ExpandRequest::default()
    };
    let growing = said(rig.storage.expand(request).await);
    assert_eq!(growing, (Code::Unavailable, missing), "it may come");
    // What is mounted stays, and is taken away when the driver is back.
    assert!(is_mounted(&rig.target("u1")));
    rig.serve();
    rig.double.told(2).await;
    rig.unmount("u1").await.unwrap();
    rig.unstage().await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_driver_that_has_much_to_say_is_heard_in_part() {
    let mut rig = rig().await;
    rig.double.fail("stage", Fault::Rambles);
    let (code, message) = said(rig.stage().await);
    assert_eq!(code, Code::Internal);
    assert!(
        message.starts_with("rpc error: code = Internal desc = boom boom "),
        "{message}"
    );
    assert!(message.len() < 2_200, "{}", message.len());
}

/// The registrar is there, its driver is not: a crash that the kubelet's watcher does not see.
#[tokio::test]
async fn a_driver_that_crashed_is_unreachable_until_it_is_back() {
    let mut rig = rig().await;
    let endpoint = rig.home.path().join("d.sock");
    fs::remove_file(&endpoint).unwrap();
    let (code, message) = said(rig.stage().await);
    assert_eq!(code, Code::Unavailable);
    let expected = format!(
        "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix {}: \
         connect: no such file or directory\"",
        endpoint.display()
    );
    assert_eq!(message, expected);
    drop(UnixListener::bind(&endpoint).unwrap());
    let (code, message) = said(rig.stage().await);
    assert!(
        code == Code::Unavailable && message.contains("connection refused"),
        "{message}"
    );
    let _back = rig.double.serve(endpoint);
    rig.stage().await.unwrap();
    rig.unstage().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_answers_garbage_is_unreachable() {
    let mut rig = rig().await;
    let endpoint = rig.home.path().join("d.sock");
    fs::remove_file(&endpoint).unwrap();
    let listener = tokio::net::UnixListener::bind(&endpoint).unwrap();
    let junk = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.writable().await.unwrap();
            stream.try_write(b"HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
        }
    });
    let (code, message) = said(rig.stage().await);
    assert_eq!(code, Code::Unavailable);
    assert!(
        message.starts_with("rpc error: code = Unavailable desc = "),
        "{message}"
    );
    junk.abort();
}

#[tokio::test]
async fn a_driver_that_brings_something_else_is_not_believed() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    for (fault, found) in [(Fault::Link, "a link"), (Fault::Nothing, "missing")] {
        rig.double.fail("publish", fault);
        let (code, message) = said(rig.mount("u1").await);
        assert_eq!(code, Code::FailedPrecondition);
        let expected =
            format!("is {found} after NodePublishVolume, expected a folder made by the driver");
        assert!(message.ends_with(&expected), "{message}");
        rig.unmount("u1").await.unwrap();
    }
    rig.unstage().await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn figures_that_hang_keep_nobody_from_unmounting() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    rig.mount("u1").await.unwrap();
    rig.double.fail("stats", Fault::Hangs);
    let request = StatsRequest {
        volume_id: ID.to_owned(),
        kind: "csi".to_owned(),
        path: rig.target("u1").display().to_string(),
        within_ms: 60_000,
        ..StatsRequest::default()
    };
    let mut storage = rig.storage.clone();
    let hanging = tokio::spawn(async move { storage.stats(request).await });
    rig.double.asked("stats").await;
    let unmounted = tokio::time::timeout(Duration::from_secs(20), rig.unmount("u1")).await;
    unmounted.unwrap().unwrap();
    assert!(!hanging.is_finished());
    hanging.abort();
}
