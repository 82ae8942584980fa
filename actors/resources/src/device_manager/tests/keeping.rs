//! What outlives the agent, and what is removed at its start.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use kernel::InjectedFault;
use logic_placement::devices::checkpoint::DeviceCheckpoint;

use super::*;

/// Upstream's TestCheckpoint, and the rest of TestUpdateCapacityAllocatable.
#[test]
fn what_pods_hold_and_which_resources_there_were_outlives_the_agent() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = PluginDouble::serve(
            &rig.folder(),
            "gpu.sock",
            GPU,
            vec![device("a", "Healthy", &[0, 1]), device("b", "Healthy", &[])],
        );
        gpu.register().await.unwrap();
        pass(SOON).await;
        let devices: &[(&str, &str, &[&str])] = &[("app", GPU, &["a", "b"])];
        rig.allocate("pod", devices).await.unwrap();
        let given = rig.pre_start("pod", "app").await;
        let mut rig = rig.restart().await;
        assert_eq!(rig.counts(GPU), Some((0, 0)));
        assert_eq!(rig.held().await, only("pod", devices));
        assert_eq!(rig.pre_start("pod", "app").await, given);
        let read = DeviceCheckpoint::decode(&fs::read(rig.checkpoint()).unwrap()).unwrap();
        let nodes = read.allocations[0].devices.clone().unwrap();
        let nodes: Vec<_> = nodes.into_iter().collect();
        let at = |node, ids: &[&str]| (node, ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(nodes, [at(-1, &["b"]), at(0, &["a"]), at(1, &["a"])]);
        rig.plugin(GPU, &["a", "b"]).await;
        assert_eq!(rig.counts(GPU), Some((2, 2)));
        rig.forget("pod").await;
        let rig = rig.restart().await;
        assert_eq!(rig.held().await, HeldAssignments::new());
    });
}

#[test]
fn an_actor_that_dies_finds_what_pods_hold_and_plugins_register_again() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a"]).await;
        rig.allocate("pod", &[("app", GPU, &["a"])]).await.unwrap();
        rig.root
            .inject("test/device-manager", InjectedFault::Panic)
            .unwrap();
        pass(Duration::from_secs(5)).await;
        assert_eq!(rig.counts(GPU), Some((0, 0)));
        assert_eq!(rig.held().await, only("pod", &[("app", GPU, &["a"])]));
        assert!(!gpu.socket.exists(), "it is to make its socket anew");
        rig.plugin(GPU, &["a"]).await;
        assert_eq!(rig.counts(GPU), Some((1, 1)));
    });
}

/// Upstream's TestResetExtendedResource.
#[test]
fn a_node_that_has_never_had_devices_has_no_checkpoint() {
    run_paused(|| async {
        let rig = Rig::start().await;
        assert!(!has_checkpoint(rig.root_dir.path()));
        rig.plugin(GPU, &["a"]).await;
        pass(Duration::from_secs(10)).await;
        assert!(has_checkpoint(rig.root_dir.path()));
    });
}

#[test]
fn a_checkpoint_that_is_damaged_is_kept_aside_and_the_node_goes_on() {
    run_paused(|| async {
        let root_dir = Arc::new(tempfile::tempdir().unwrap());
        let folder = plugin_folder(root_dir.path());
        fs::create_dir(&folder).unwrap();
        let path = folder.join("kubelet_internal_checkpoint");
        for damaged in ["{", r#"{"Data":{"RegisteredDevices":{}},"Checksum":1}"#] {
            fs::write(&path, damaged).unwrap();
            let rig = Rig::start_in(root_dir.clone()).await;
            let aside = fs::read_to_string(path.with_extension("damaged")).unwrap();
            assert_eq!((aside.as_str(), path.exists()), (damaged, false));
            assert_eq!(rig.held().await, HeldAssignments::new());
            rig.root.shutdown().await;
        }
    });
}

#[test]
fn an_answer_that_does_not_read_costs_its_own_devices_alone() {
    run_paused(|| async {
        let rig = Rig::start().await;
        rig.plugin(GPU, &["a", "b"]).await;
        rig.allocate("good", &[("app", GPU, &["a"])]).await.unwrap();
        rig.allocate("bad", &[("app", GPU, &["b"])]).await.unwrap();
        let mut checkpoint =
            DeviceCheckpoint::decode(&fs::read(rig.checkpoint()).unwrap()).unwrap();
        let bad = checkpoint.allocations.iter_mut().find(|it| it.pod == "bad");
        bad.unwrap().answer = Some(vec![0xff; 8]);
        rig.root.shutdown().await;
        fs::write(rig.checkpoint(), checkpoint.encode()).unwrap();
        let rig = Rig::start_in(rig.root_dir).await;
        assert_eq!(rig.held().await, only("good", &[("app", GPU, &["a"])]));
    });
}

#[test]
fn a_pod_is_given_nothing_that_the_checkpoint_cannot_hold() {
    run_paused(|| async {
        let rig = Rig::start().await;
        rig.plugin(GPU, &["a"]).await;
        pass(Duration::from_secs(10)).await;
        let beside = rig.folder().join(".kubelet_internal_checkpoint.tmp");
        fs::create_dir(&beside).unwrap();
        let failed = rig
            .allocate("pod", &[("app", GPU, &["a"])])
            .await
            .unwrap_err();
        let text = failed.to_string();
        let start = "failed to write checkpoint file \"kubelet_internal_checkpoint\": ";
        assert!(text.starts_with(start), "{text}");
        fs::remove_dir(&beside).unwrap();
        assert_eq!(rig.allocate("pod", &[("app", GPU, &["a"])]).await, Ok(()));
        let rig = rig.restart().await;
        assert_eq!(rig.held().await.len(), 1);
    });
}

/// Upstream's CleanupPluginDirectory.
#[test]
fn sockets_of_plugins_are_removed_at_the_start_and_nothing_else() {
    run_paused(|| async {
        let root_dir = Arc::new(tempfile::tempdir().unwrap());
        let folder = plugin_folder(root_dir.path());
        fs::create_dir(&folder).unwrap();
        drop(UnixListener::bind(folder.join("kubelet.sock")).unwrap());
        drop(UnixListener::bind(folder.join("old.sock")).unwrap());
        fs::write(folder.join("notes.txt"), "kept").unwrap();
        fs::create_dir(folder.join("vendor")).unwrap();
        drop(UnixListener::bind(folder.join("vendor/deep.sock")).unwrap());
        let rig = Rig::start_in(root_dir).await;
        let mut left: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["kubelet.sock", "notes.txt", "vendor"]);
        assert!(folder.join("vendor/deep.sock").exists());
        let own = fs::metadata(folder.join("kubelet.sock")).unwrap();
        assert!(own.file_type().is_socket());
        assert_eq!(own.permissions().mode() & 0o777, 0o600);
        rig.root.shutdown().await;
        assert!(!folder.join("kubelet.sock").exists());
    });
}

/// Upstream's TestFeatureGateResourceHealthStatus, for the pods that are told.
#[test]
fn pods_are_named_whose_devices_change_their_health_and_the_checkpoint_is_written_seldom() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a", "b"]).await;
        rig.allocate("pod-a", &[("app", GPU, &["a"])])
            .await
            .unwrap();
        rig.allocate("pod-b", &[("app", GPU, &["b"])])
            .await
            .unwrap();
        pass(Duration::from_secs(10)).await;
        rig.changed_pods();
        gpu.list(healthy(&["a", "b"]));
        pass(SOON).await;
        assert_eq!(rig.changed_pods(), BTreeSet::new());
        gpu.list(vec![
            device("a", "Unhealthy", &[]),
            device("b", "Healthy", &[]),
        ]);
        pass(SOON).await;
        assert_eq!(rig.changed_pods(), ["pod-a".into()].into());
        gpu.list(healthy(&["b"]));
        pass(SOON).await;
        gpu.list(healthy(&["a", "b"]));
        pass(SOON).await;
        assert_eq!(rig.changed_pods(), ["pod-a".into()].into(), "it is back");
        let before = fs::read(rig.checkpoint()).unwrap();
        gpu.list(healthy(&["a"]));
        pass(SOON).await;
        assert_eq!(fs::read(rig.checkpoint()).unwrap(), before, "not yet");
        pass(Duration::from_secs(10)).await;
        assert_ne!(fs::read(rig.checkpoint()).unwrap(), before);
    });
}
