//! Upstream's orphans (pkg/kubelet/kubelet_volumes_test.go, kubelet_volumes_linux_test.go), and mounts in the way.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proto::storage::Access;
use tonic::Code;

use super::*;
use crate::mount::{Depth, bind};
use crate::test_dir::{TestDir, exchange, layers};

const POD: &str = "pods/uid-1";

fn at(test_dir: &TestDir, path: &str) -> PathBuf {
    test_dir.path(&format!("{POD}/{path}"))
}

fn kept(test_dir: &TestDir) -> Vec<String> {
    let base = format!("{}/", test_dir.path(POD).display());
    let kept = pod(&test_dir.path(POD)).unwrap();
    kept.iter().map(|line| line.replace(&base, "")).collect()
}

/// Everything that a kubelet writes for a pod, with its volumes unmounted.
fn usual(test_dir: &TestDir) {
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
        test_dir.folder(&format!("{POD}/{folder}"));
    }
    for file in [
        "volumes/kubernetes.io~configmap/settings/..2026_01_01_00_00_00.1/key",
        "volumes/kubernetes.io~secret/password/value",
        "plugins/kubernetes.io~empty-dir/wrapped_settings/ready",
        "containers/main/4711",
        "etc-hosts",
    ] {
        test_dir.file(&format!("{POD}/{file}"), "content");
    }
    test_dir.file(&format!("{POD}/volume-subpaths/cache/main/1"), "");
    test_dir.file(
        &format!("{POD}/volumes/kubernetes.io~local-volume/file"),
        "",
    );
    let data = at(test_dir, "volumes/kubernetes.io~configmap/settings/..data");
    symlink("..2026_01_01_00_00_00.1", data).unwrap();
    symlink(
        "/dev/null",
        at(test_dir, "volumeDevices/kubernetes.io~csi/raw"),
    )
    .unwrap();
}

/// Upstream's TestCleanupOrphanedPodDirs: "pods-with-volume-subdirs", "pods-with-mounted-volumes".
#[test]
fn what_a_pod_without_volumes_left_is_gone() {
    let test_dir = TestDir::new();
    usual(&test_dir);
    assert_eq!(kept(&test_dir), [""; 0]);
    assert!(!test_dir.path(POD).exists());
    assert_eq!(kept(&test_dir), [""; 0], "again");
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
        let test_dir = TestDir::new();
        usual(&test_dir);
        test_dir.file(&format!("{POD}/{file}"), "data");
        let beside = test_dir.folder(&format!(
            "{POD}/volumes/kubernetes.io~empty-dir/cache/deep/b"
        ));
        assert_eq!(kept(&test_dir), [reason]);
        assert_eq!(std::fs::read(at(&test_dir, file)).unwrap(), b"data");
        assert!(at(&test_dir, "etc-hosts").exists(), "the rest waits");
        // Of a volume with data, folders are data too.
        assert_eq!(beside.exists(), file.contains("cache/deep"));
    }
}

#[test]
fn an_empty_file_within_a_volume_is_data() {
    let test_dir = TestDir::new();
    test_dir.file(
        &format!("{POD}/volumes/kubernetes.io~empty-dir/cache/lock"),
        "",
    );
    assert_eq!(
        kept(&test_dir),
        ["volumes/kubernetes.io~empty-dir/cache: not empty"]
    );
}

#[test]
fn a_link_in_place_of_a_volume_is_kept_and_not_followed() {
    let test_dir = TestDir::new();
    usual(&test_dir);
    let elsewhere = test_dir.folder("elsewhere/empty");
    let link = at(&test_dir, "volumes/kubernetes.io~nfs/link");
    symlink(elsewhere.parent().unwrap(), &link).unwrap();
    assert_eq!(
        kept(&test_dir),
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
        let test_dir = TestDir::new();
        usual(&test_dir);
        let point = test_dir.tmpfs(&format!("{POD}/{place}"));
        std::fs::write(point.join("data"), "data").unwrap();
        assert_eq!(kept(&test_dir), [format!("{place}: is a mount point")]);
        assert!(at(&test_dir, "etc-hosts").exists());
        assert!(point.join("data").exists());
        assert_eq!(layers(&point), 1);
    }
}

#[test]
fn what_an_interrupted_removal_left_is_no_data() {
    let test_dir = TestDir::new();
    test_dir.file(
        &format!("{POD}/volumes/kubernetes.io~empty-dir/deleted~cache/a/file"),
        "data",
    );
    assert!(is_remains("deleted~cache") && !is_remains("deleted"));
    assert_eq!(kept(&test_dir), [""; 0]);
    assert!(!test_dir.path(POD).exists());
}

#[test]
fn a_pod_s_folder_must_be_a_folder() {
    let test_dir = TestDir::new();
    let elsewhere = test_dir.folder("elsewhere");
    test_dir.file("elsewhere/etc-hosts", "");
    symlink(&elsewhere, test_dir.path(POD)).unwrap();
    let refusal = pod(&test_dir.path(POD)).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(elsewhere.join("etc-hosts").exists());
}

#[test]
fn a_folder_that_is_no_pod_s_is_refused() {
    let test_dir = TestDir::new();
    usual(&test_dir);
    for folder in [
        "pods",
        "pods/uid-1/volumes",
        "pods/uid-1/volumes/kubernetes.io~secret",
        "",
    ] {
        let refusal = pod(&test_dir.root().join(folder)).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{folder}");
    }
    assert!(at(&test_dir, "volumes/kubernetes.io~secret/password/value").exists());
}

#[test]
fn many_things_kept_are_counted() {
    let test_dir = TestDir::new();
    for number in 0..50 {
        test_dir.file(
            &format!("{POD}/volumes/kubernetes.io~nfs/{number}/file"),
            "",
        );
    }
    let kept = kept(&test_dir);
    assert_eq!((kept.len(), kept[32].as_str()), (33, "... and 18 more"));
}

#[test]
fn an_emptydir_goes_with_all_that_is_in_it() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volumes/cache");
    let outside = test_dir.file("outside/file", "kept");
    for file in ["a", "b/c", "b/d/e/f"] {
        test_dir.file(&format!("volumes/cache/{file}"), "data");
    }
    symlink(outside.parent().unwrap(), volume.join("b/link")).unwrap();
    std::fs::hard_link(&outside, volume.join("hard")).unwrap();
    for _ in 0..2 {
        empty_dir(&volume).unwrap();
        assert!(!volume.exists());
    }
    assert_eq!(std::fs::read(&outside).unwrap(), b"kept");
    assert_eq!(
        std::fs::read_dir(test_dir.path("volumes")).unwrap().count(),
        0
    );
}

#[test]
fn an_emptydir_with_a_mount_in_it_is_left_as_it_is() {
    let test_dir = TestDir::new();
    let (volume, data) = (test_dir.folder("cache"), test_dir.file("data/file", "kept"));
    test_dir.file("cache/file", "too");
    let point = test_dir.folder("cache/in/side");
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

    let memory = test_dir.tmpfs("memory");
    empty_dir(&memory).unwrap_err();
    assert_eq!(layers(&memory), 1);
}

#[test]
fn a_removal_that_was_interrupted_goes_on() {
    let test_dir = TestDir::new();
    test_dir.file("volumes/deleted~cache/file", "old");
    let volume = test_dir.path("volumes/cache");
    empty_dir(&volume).unwrap();
    assert_eq!(
        std::fs::read_dir(test_dir.path("volumes")).unwrap().count(),
        0
    );

    for file in 0..300 {
        test_dir.file(&format!("volumes/cache/{file}"), "");
    }
    let cancel = blocking_pool::Cancel::default();
    cancel.set();
    let end = cancel.scope(|| empty_dir(&volume)).unwrap_err();
    assert_eq!(end.code(), Code::DeadlineExceeded);
    assert!(!volume.exists(), "no half of it is taken for the volume");
    empty_dir(&volume).unwrap();
    assert_eq!(
        std::fs::read_dir(test_dir.path("volumes")).unwrap().count(),
        0
    );
}

#[test]
fn an_emptydir_with_the_longest_name_goes_too() {
    let test_dir = TestDir::new();
    let name = "x".repeat(255);
    test_dir.file(&format!("volumes/{name}/file"), "");
    empty_dir(&test_dir.path(&format!("volumes/{name}"))).unwrap();
    assert!(!test_dir.path(&format!("volumes/{name}")).exists());
}

#[test]
fn a_file_in_place_of_an_emptydir_is_kept() {
    let test_dir = TestDir::new();
    let file = test_dir.file("volumes/cache", "data");
    assert_eq!(
        empty_dir(&file).unwrap_err().code(),
        Code::FailedPrecondition
    );
    assert!(file.exists());
    empty_dir(&test_dir.root().join("no/such/folder/cache")).unwrap();
}

#[test]
fn whoever_puts_a_link_in_place_of_a_folder_meanwhile_loses_nothing_outside() {
    let test_dir = TestDir::new();
    for file in 0..20 {
        test_dir.file(&format!("outside/folder/{file}"), "kept");
    }
    let outside = test_dir.path("outside");
    for round in 0..300 {
        let volume = test_dir.folder("volumes/cache");
        test_dir.folder("volumes/cache/d/folder");
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
        drop(empty_dir(&test_dir.path("volumes/cache")));
        over.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
        let left = std::fs::read_dir(outside.join("folder")).unwrap().count();
        assert_eq!(left, 20, "round {round}");
        empty_dir(&test_dir.path("volumes/cache")).unwrap();
    }
}
