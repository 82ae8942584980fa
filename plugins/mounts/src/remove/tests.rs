//! Upstream's orphans (pkg/kubelet/kubelet_volumes_test.go, kubelet_volumes_linux_test.go), and mounts in the way.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proto::storage::Access;
use tonic::Code;

use super::*;
use crate::ground::{Ground, exchange, layers};
use crate::mount::{Depth, bind};

const POD: &str = "pods/uid-1";

fn at(ground: &Ground, path: &str) -> PathBuf {
    ground.path(&format!("{POD}/{path}"))
}

fn kept(ground: &Ground) -> Vec<String> {
    let base = format!("{}/", ground.path(POD).display());
    let kept = pod(&ground.path(POD)).unwrap();
    kept.iter().map(|line| line.replace(&base, "")).collect()
}

/// Everything that a kubelet writes for a pod, with its volumes unmounted.
fn usual(ground: &Ground) {
    for folder in [
        "volumes/kubernetes.io~empty-dir/cache",
        "volumes/kubernetes.io~nfs/share",
        "volumes/kubernetes.io~csi/pvc-1/mount",
        "volumes/kubernetes.io~configmap/settings/..2026_01_01_00_00_00.1",
        "plugins/kubernetes.io~empty-dir/wrapped_settings",
        "volume-subpaths/cache/main/0",
        "volumeDevices/kubernetes.io~csi",
        "containers/main",
    ] {
        ground.folder(&format!("{POD}/{folder}"));
    }
    for file in [
        "volumes/kubernetes.io~configmap/settings/..2026_01_01_00_00_00.1/key",
        "volumes/kubernetes.io~secret/password/value",
        "plugins/kubernetes.io~empty-dir/wrapped_settings/ready",
        "containers/main/4711",
        "etc-hosts",
    ] {
        ground.file(&format!("{POD}/{file}"), "content");
    }
    ground.file(&format!("{POD}/volume-subpaths/cache/main/1"), "");
    ground.file(
        &format!("{POD}/volumes/kubernetes.io~local-volume/file"),
        "",
    );
    let data = at(ground, "volumes/kubernetes.io~configmap/settings/..data");
    symlink("..2026_01_01_00_00_00.1", data).unwrap();
    symlink(
        "/dev/null",
        at(ground, "volumeDevices/kubernetes.io~csi/raw"),
    )
    .unwrap();
}

/// Upstream's TestCleanupOrphanedPodDirs: "pods-with-volume-subdirs", "pods-with-mounted-volumes".
#[test]
fn what_a_pod_without_volumes_left_is_gone() {
    let ground = Ground::new();
    usual(&ground);
    assert_eq!(kept(&ground), [""; 0]);
    assert!(!ground.path(POD).exists());
    assert_eq!(kept(&ground), [""; 0], "again");
}

/// Upstream's TestCleanupOrphanedPodDirs: "pod-doesnot-exist-with-volume-subdir-with-file" and its like.
#[test]
fn data_of_a_volume_keeps_the_pod_and_all_of_the_data() {
    for (file, reason) in [
        (
            "volumes/kubernetes.io~empty-dir/cache/deep/file",
            "volumes/kubernetes.io~empty-dir/cache: not empty",
        ),
        (
            "volumes/kubernetes.io~csi/pvc-1/vol_data.json",
            "volumes/kubernetes.io~csi/pvc-1: not empty",
        ),
        (
            "volumes/kubernetes.io~nfs/share/file",
            "volumes/kubernetes.io~nfs/share: not empty",
        ),
        (
            "volumes/example.com~unknown/x/file",
            "volumes/example.com~unknown/x: not empty",
        ),
        (
            "volumes/kubernetes.io~local-volume/file",
            "volumes/kubernetes.io~local-volume/file: not empty",
        ),
        ("volumes/stray", "volumes/stray: not empty"),
        (
            "volume-subpaths/cache/main/2",
            "volume-subpaths/cache/main/2: not empty",
        ),
    ] {
        let ground = Ground::new();
        usual(&ground);
        ground.file(&format!("{POD}/{file}"), "data");
        let beside = ground.folder(&format!(
            "{POD}/volumes/kubernetes.io~empty-dir/cache/deep/b"
        ));
        assert_eq!(kept(&ground), [reason]);
        assert_eq!(std::fs::read(at(&ground, file)).unwrap(), b"data");
        assert!(at(&ground, "etc-hosts").exists(), "the rest waits");
        // Of a volume with data, folders are data too.
        assert_eq!(beside.exists(), file.contains("cache/deep"));
    }
}

#[test]
fn an_empty_file_within_a_volume_is_data() {
    let ground = Ground::new();
    ground.file(
        &format!("{POD}/volumes/kubernetes.io~empty-dir/cache/lock"),
        "",
    );
    assert_eq!(
        kept(&ground),
        ["volumes/kubernetes.io~empty-dir/cache: not empty"]
    );
}

#[test]
fn a_link_in_place_of_a_volume_is_kept_and_not_followed() {
    let ground = Ground::new();
    usual(&ground);
    let elsewhere = ground.folder("elsewhere/empty");
    let link = at(&ground, "volumes/kubernetes.io~nfs/link");
    symlink(elsewhere.parent().unwrap(), &link).unwrap();
    assert_eq!(
        kept(&ground),
        ["volumes/kubernetes.io~nfs/link: not a folder"]
    );
    assert!(elsewhere.exists());
}

#[test]
fn where_anything_is_mounted_nothing_is_removed() {
    for place in [
        "volumes/kubernetes.io~nfs/share",
        "volumes/kubernetes.io~secret/token",
        "volumes/kubernetes.io~csi/pvc-1/mount",
        "volume-subpaths/cache/main/0",
        "containers/main/dev",
    ] {
        let ground = Ground::new();
        usual(&ground);
        let point = ground.tmpfs(&format!("{POD}/{place}"));
        std::fs::write(point.join("data"), "data").unwrap();
        assert_eq!(kept(&ground), [format!("{place}: is a mount point")]);
        assert!(at(&ground, "etc-hosts").exists());
        assert!(point.join("data").exists());
        assert_eq!(layers(&point), 1);
    }
}

#[test]
fn what_an_interrupted_removal_left_is_no_data() {
    let ground = Ground::new();
    ground.file(
        &format!("{POD}/volumes/kubernetes.io~empty-dir/deleted~cache/a/file"),
        "data",
    );
    assert!(is_remains("deleted~cache") && !is_remains("deleted"));
    assert_eq!(kept(&ground), [""; 0]);
    assert!(!ground.path(POD).exists());
}

#[test]
fn a_pod_s_folder_must_be_a_folder() {
    let ground = Ground::new();
    let elsewhere = ground.folder("elsewhere");
    ground.file("elsewhere/etc-hosts", "");
    symlink(&elsewhere, ground.path(POD)).unwrap();
    let refusal = pod(&ground.path(POD)).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(elsewhere.join("etc-hosts").exists());
}

#[test]
fn a_folder_that_is_no_pod_s_is_refused() {
    let ground = Ground::new();
    usual(&ground);
    for folder in [
        "pods",
        "pods/uid-1/volumes",
        "pods/uid-1/volumes/kubernetes.io~secret",
        "",
    ] {
        let refusal = pod(&ground.root().join(folder)).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{folder}");
    }
    assert!(at(&ground, "volumes/kubernetes.io~secret/password/value").exists());
}

#[test]
fn many_things_kept_are_counted() {
    let ground = Ground::new();
    for number in 0..50 {
        ground.file(
            &format!("{POD}/volumes/kubernetes.io~nfs/{number}/file"),
            "",
        );
    }
    let kept = kept(&ground);
    assert_eq!((kept.len(), kept[32].as_str()), (33, "... and 18 more"));
}

#[test]
fn an_emptydir_goes_with_all_that_is_in_it() {
    let ground = Ground::new();
    let volume = ground.folder("volumes/cache");
    let outside = ground.file("outside/file", "kept");
    for file in ["a", "b/c", "b/d/e/f"] {
        ground.file(&format!("volumes/cache/{file}"), "data");
    }
    symlink(outside.parent().unwrap(), volume.join("b/link")).unwrap();
    std::fs::hard_link(&outside, volume.join("hard")).unwrap();
    for _ in 0..2 {
        empty_dir(&volume).unwrap();
        assert!(!volume.exists());
    }
    assert_eq!(std::fs::read(&outside).unwrap(), b"kept");
    assert_eq!(
        std::fs::read_dir(ground.path("volumes")).unwrap().count(),
        0
    );
}

#[test]
fn an_emptydir_with_a_mount_in_it_is_left_as_it_is() {
    let ground = Ground::new();
    let (volume, data) = (ground.folder("cache"), ground.file("data/file", "kept"));
    ground.file("cache/file", "too");
    let point = ground.folder("cache/in/side");
    // Of the same device: only the table of mounts tells.
    bind(
        data.parent().unwrap(),
        &point,
        Access::ReadWrite,
        Depth::Single,
    )
    .unwrap();
    let refusal = empty_dir(&volume).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    let words = format!("cannot remove {}: is a mount point", point.display());
    assert_eq!(refusal.message(), words);
    assert!(data.exists() && volume.join("file").exists());
    crate::mount::unmount(&point).unwrap();
    empty_dir(&volume).unwrap();
    assert!(data.exists() && !volume.exists());

    let memory = ground.tmpfs("memory");
    empty_dir(&memory).unwrap_err();
    assert_eq!(layers(&memory), 1);
}

#[test]
fn a_removal_that_was_interrupted_goes_on() {
    let ground = Ground::new();
    ground.file("volumes/deleted~cache/file", "old");
    let volume = ground.path("volumes/cache");
    empty_dir(&volume).unwrap();
    assert_eq!(
        std::fs::read_dir(ground.path("volumes")).unwrap().count(),
        0
    );

    for file in 0..300 {
        ground.file(&format!("volumes/cache/{file}"), "");
    }
    let cancel = crate::bench::Cancel::default();
    cancel.set();
    let end = cancel.with(|| empty_dir(&volume)).unwrap_err();
    assert_eq!(end.code(), Code::DeadlineExceeded);
    assert!(!volume.exists(), "no half of it is taken for the volume");
    empty_dir(&volume).unwrap();
    assert_eq!(
        std::fs::read_dir(ground.path("volumes")).unwrap().count(),
        0
    );
}

#[test]
fn an_emptydir_with_the_longest_name_goes_too() {
    let ground = Ground::new();
    let name = "x".repeat(255);
    ground.file(&format!("volumes/{name}/file"), "");
    empty_dir(&ground.path(&format!("volumes/{name}"))).unwrap();
    assert!(!ground.path(&format!("volumes/{name}")).exists());
}

#[test]
fn a_file_in_place_of_an_emptydir_is_kept() {
    let ground = Ground::new();
    let file = ground.file("volumes/cache", "data");
    assert_eq!(
        empty_dir(&file).unwrap_err().code(),
        Code::FailedPrecondition
    );
    assert!(file.exists());
    empty_dir(&ground.root().join("no/such/folder/cache")).unwrap();
}

#[test]
fn whoever_puts_a_link_in_place_of_a_folder_meanwhile_loses_nothing_outside() {
    let ground = Ground::new();
    for file in 0..20 {
        ground.file(&format!("outside/folder/{file}"), "kept");
    }
    let outside = ground.path("outside");
    for round in 0..300 {
        let volume = ground.folder("volumes/cache");
        ground.folder("volumes/cache/d/folder");
        symlink(&outside, volume.join("link")).unwrap();
        let aside = aside(&volume);
        let over = Arc::new(AtomicBool::new(false));
        let swapping = thread::spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Relaxed) {
                    for folder in [&volume, &aside] {
                        if folder.join("d").exists() && folder.join("link").exists() {
                            let (one, other) = (folder.join("d"), folder.join("link"));
                            drop(std::panic::catch_unwind(|| exchange(&one, &other)));
                        }
                    }
                }
            }
        });
        drop(empty_dir(&ground.path("volumes/cache")));
        over.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
        let left = std::fs::read_dir(outside.join("folder")).unwrap().count();
        assert_eq!(left, 20, "round {round}");
        empty_dir(&ground.path("volumes/cache")).unwrap();
    }
}
