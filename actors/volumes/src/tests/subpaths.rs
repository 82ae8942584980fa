//! Work within mounted volumes, and how full they are.

use super::*;

const FULL: Duration = Duration::from_secs(60);

fn subpath(volume: &str) -> Subpath {
    Subpath {
        volume: volume.to_owned(),
        index: 2,
        path: "dir".to_owned(),
        access: logic_volumes::VolumeAccess::ReadWrite,
    }
}

async fn bind(rig: &Rig, volume: &str) -> Result<BTreeMap<u32, PathBuf>, SubpathBindError> {
    let bind = |reply| Msg::Bind {
        uid: "a".into(),
        container: "app".to_owned(),
        subpaths: vec![subpath(volume)],
        reply,
    };
    rig.manager.ask(MOUNT_TIMEOUT, bind).await.unwrap()
}

#[test]
fn a_path_within_a_volume_is_bound_below_the_pods_own_folder() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        let bound = bind(&rig, "e").await.unwrap();
        let target = rig
            .folder
            .path()
            .join("root/pods/a/volume-subpaths/e/app/2");
        assert_eq!(bound, BTreeMap::from([(2, target)]));
    });
}

/// Upstream's text for the pod's owner; the cause stays in the log.
#[test]
fn a_path_that_cannot_be_bound_is_upstreams_error_and_hinders_no_release() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        let unknown = bind(&rig, "other").await.unwrap_err();
        assert_eq!(unknown.transient, Retry::Soon);
        let id = "kubernetes.io/empty-dir/a-e";
        let refused = Status::invalid_argument("the path leads out of the volume");
        rig.plugins
            .fault("bind", id, StorageFault::Refused(refused));
        let error = bind(&rig, "e").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to prepare subPath for volumeMount \"e\" of container \"app\""
        );
        rig.release("a").await.unwrap().unwrap().unwrap();
        assert_eq!(rig.plugins.mounted(), NONE);
    });
}

#[test]
fn nothing_is_unmounted_while_a_path_is_bound() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        rig.plugins
            .fault("bind", "kubernetes.io/empty-dir/a-e", StorageFault::Held);
        let (bound, released) = tokio::join!(bind(&rig, "e"), async {
            let released = rig.release("a");
            pass(SECOND).await;
            assert_eq!(rig.plugins.mounted().len(), 1);
            rig.plugins.release();
            released.await
        });
        bound.unwrap();
        released.unwrap().unwrap().unwrap();
        rig.assert_serial();
    });
}

#[test]
fn files_of_mounted_volumes_are_read_and_others_are_missing() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        let mounted = rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        let root = mounted.volumes["e"].path.clone();
        rig.plugins.file(root.to_str().unwrap(), "env", "A='1'\n");
        let place = |path: &str| ("e".to_owned(), path.to_owned());
        let files = vec![
            place("env"),
            place("none"),
            ("other".to_owned(), "env".to_owned()),
        ];
        let read = |reply| Msg::Read {
            uid: "a".into(),
            files,
            reply,
        };
        let files = rig.manager.ask(MOUNT_TIMEOUT, read).await.unwrap().files;
        assert_eq!(files.len(), 2);
        let found = &files[&place("env")];
        assert_eq!(found.text.as_deref(), Some("A='1'\n"));
        assert_eq!(found.host_path, root.join("env"));
        assert_eq!(files[&place("none")].text, None);
        rig.release("a").await.unwrap().unwrap().unwrap();
    });
}

/// Upstream's volumeStatCalculator: each volume about once a period; a path of the node's own is not measured.
#[test]
fn what_lies_on_the_nodes_disk_is_measured_when_that_is_asked_for() {
    run_paused(|| async {
        let rig = Rig::with("", Some(FULL), |_| {}).await;
        let volumes = [EMPTY_DIR, ("f", "emptyDir: {}"), ("g", "emptyDir: {}")];
        rig.mounted(&pod_with("a", &volumes)).await;
        let measured = || {
            let calls = rig.plugins.calls();
            calls
                .iter()
                .filter(|call| call.starts_with("stats"))
                .count()
        };
        pass(30 * SECOND).await;
        assert_eq!(measured(), 3);
        rig.manager.ask(SECOND, Msg::measure).await.unwrap();
        assert_eq!(measured(), 6);
        let held = "kubernetes.io/empty-dir/a-e";
        rig.plugins.fault("stats", held, StorageFault::Held);
        let asked = rig.manager.ask(SECOND, Msg::measure).await;
        assert_eq!(asked, Err(AskError::Deadline), "one of them hangs");
        assert_eq!(measured(), 9, "and keeps no other");
    });
}

#[test]
fn volumes_are_measured_now_and_then_two_at_a_time() {
    run_paused(|| async {
        let rig = Rig::with("", Some(FULL), |_| {}).await;
        let volumes = [
            EMPTY_DIR,
            ("f", "emptyDir: {}"),
            ("g", "emptyDir: {}"),
            ("h", "hostPath: {path: /x}"),
        ];
        rig.mounted(&pod_with("a", &volumes)).await;
        for name in ["e", "f", "g"] {
            rig.plugins.fault(
                "stats",
                &format!("kubernetes.io/empty-dir/a-{name}"),
                StorageFault::Held,
            );
        }
        let count = || {
            rig.plugins
                .calls()
                .iter()
                .filter(|call| call.starts_with("stats"))
                .count()
        };
        pass(30 * SECOND).await;
        assert_eq!(count(), 2);
        rig.plugins.release();
        pass(MOMENT).await;
        rig.plugins.release();
        pass(MOMENT).await;
        assert_eq!(count(), 3);
        let stats = rig.manager.ask(SECOND, Msg::stats).await.unwrap();
        let of_pod = &stats[&PodUid::from("a")];
        assert_eq!(of_pod.keys().collect::<Vec<_>>(), ["e", "f", "g"]);
        assert_eq!(of_pod["e"].capacity, Some(1 << 30));
        pass(20 * FULL).await;
        assert!((33..=66).contains(&count()), "{}", count());
        let rows = rig.view().await.volumes;
        assert_eq!(rows[0].figures.used, Some(1 << 20));
        rig.release("a").await.unwrap().unwrap().unwrap();
        let stats = rig.manager.ask(SECOND, Msg::stats).await.unwrap();
        assert!(stats.is_empty());
    });
}

#[test]
fn what_cannot_be_measured_is_asked_for_more_and_more_seldom() {
    run_paused(|| async {
        let rig = Rig::with("", Some(FULL), |_| {}).await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        for _ in 0..20 {
            let no = StorageFault::Refused(Status::internal("no"));
            rig.plugins
                .fault("stats", "kubernetes.io/empty-dir/a-e", no);
        }
        pass(40 * FULL).await;
        let count = rig
            .plugins
            .calls()
            .iter()
            .filter(|call| call.starts_with("stats"))
            .count();
        assert!((3..=7).contains(&count), "{count}");
    });
}

#[test]
fn nothing_is_measured_where_nothing_is_to_be() {
    run_paused(|| async {
        let rig = Rig::start("").await;
        rig.mounted(&pod_with("a", &[EMPTY_DIR])).await;
        pass(20 * FULL).await;
        assert!(
            !rig.plugins
                .calls()
                .iter()
                .any(|call| call.starts_with("stats"))
        );
    });
}
