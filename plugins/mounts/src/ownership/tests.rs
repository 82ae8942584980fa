//! Upstream's tables (pkg/volume/volume_linux_test.go), and walks through trees that change meanwhile.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use proto::storage::ChangePolicy::{ChangeAlways, ChangeOnRootMismatch};

use super::*;
use crate::test_dir::{TestDir, exchange};

const GROUP: u32 = 3000;

fn ownership(policy: ChangePolicy) -> Ownership {
    Ownership {
        fs_group: GROUP,
        policy: policy.into(),
    }
}

fn give(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & PERMISSIONS
}

fn group(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().gid()
}

/// Upstream's TestSkipPermissionChange.
#[test]
fn a_root_that_is_right_is_enough_only_on_root_mismatch() {
    let right = 0o2770;
    for (policy, gid, root, skipped) in [
        (ChangeAlways, 1, 0o700, false),
        (ChangeAlways, GROUP, 0o700, false),
        (ChangeAlways, GROUP, right, false),
        (ChangeOnRootMismatch, 1, right, false),
        (ChangeOnRootMismatch, GROUP, 0o660, false),
        (ChangeOnRootMismatch, GROUP, 0o770, false),
        (ChangeOnRootMismatch, GROUP, 0o2750, false),
        (ChangeOnRootMismatch, GROUP, right, true),
        (ChangeOnRootMismatch, GROUP, 0o2775, true),
        (ChangeOnRootMismatch, GROUP, 0o3777, true),
    ] {
        let test_dir = TestDir::new();
        let volume = test_dir.folder("volume");
        chown(&volume, None, Some(gid)).unwrap();
        give(&volume, root);
        let applied = apply(&volume, &ownership(policy), false).unwrap();
        assert_eq!(
            applied == Applied::Skipped,
            skipped,
            "{policy:?} {gid} {root:o}"
        );
        assert_eq!(group(&volume), GROUP);
        assert_eq!(mode(&volume) & right, right);
    }
}

/// Upstream's TestSkipPermissionChangeCombinations.
#[test]
fn a_read_only_root_needs_less() {
    for (root, read_only, skipped) in [
        (0o2550, true, true),
        (0o2550, false, false),
        (0o2540, true, false),
        (0o550, true, false),
    ] {
        let test_dir = TestDir::new();
        let volume = test_dir.folder("volume");
        chown(&volume, None, Some(GROUP)).unwrap();
        give(&volume, root);
        let applied = apply(&volume, &ownership(ChangeOnRootMismatch), read_only).unwrap();
        assert_eq!(applied == Applied::Skipped, skipped, "{root:o} {read_only}");
    }
}

/// Upstream's TestSetVolumeOwnershipMode.
#[test]
fn a_rogue_folder_below_a_right_root_is_found_only_always() {
    for (policy, root, found) in [
        (ChangeAlways, 0o2770, true),
        (ChangeOnRootMismatch, 0o2770, false),
        (ChangeOnRootMismatch, 0o770, true),
    ] {
        let test_dir = TestDir::new();
        let (volume, rogue) = (
            test_dir.folder("volume"),
            test_dir.folder("volume/roguedir"),
        );
        chown(&volume, None, Some(GROUP)).unwrap();
        give(&volume, root);
        give(&rogue, 0o600);
        apply(&volume, &ownership(policy), false).unwrap();
        assert_eq!(mode(&rogue) == 0o2770, found, "{policy:?} {root:o}");
    }
}

#[test]
fn each_kind_of_file_gets_upstream_s_mask() {
    for (read_only, expected) in [
        (false, [0o660, 0o6775, 0o2770, 0o664]),
        (true, [0o440, 0o6755, 0o2550, 0o644]),
    ] {
        let test_dir = TestDir::new();
        let volume = test_dir.folder("volume");
        let (none, program) = (test_dir.file("volume/0", ""), test_dir.file("volume/x", ""));
        let (folder, plain) = (
            test_dir.folder("volume/d"),
            test_dir.file("volume/d/644", ""),
        );
        give(&none, 0);
        give(&program, 0o6755);
        give(&folder, 0);
        give(&plain, 0o644);
        apply(&volume, &ownership(ChangeAlways), read_only).unwrap();
        let paths = [&none, &program, &folder, &plain];
        assert_eq!(paths.map(|path| mode(path)), expected);
        assert!(paths.iter().all(|path| group(path) == GROUP));
        let owners = paths.map(|path| fs::metadata(path).unwrap().uid());
        assert_eq!(owners, [0; 4], "the owner stays");
    }
}

/// Upstream's TestSetVolumeOwnershipOwner, TestChangeFilePermissionSymlink.
#[test]
fn a_link_changes_its_own_group_and_nothing_it_leads_to() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    let (outside, folder) = (test_dir.file("secret", ""), test_dir.folder("folder"));
    let below = test_dir.file("folder/file", "");
    for path in [&outside, &folder, &below] {
        give(path, 0o700);
    }
    symlink(&outside, volume.join("link")).unwrap();
    symlink(&folder, volume.join("to-folder")).unwrap();
    symlink("nowhere", volume.join("dangling")).unwrap();
    let applied = apply(&volume, &ownership(ChangeAlways), false).unwrap();
    assert_eq!(applied, Applied::Changed(4));
    for link in ["link", "to-folder", "dangling"] {
        assert_eq!(group(&volume.join(link)), GROUP);
    }
    for path in [&outside, &folder, &below] {
        assert_eq!((mode(path), group(path)), (0o700, 0));
    }
}

#[test]
fn a_volume_that_is_a_file_is_always_changed() {
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    chown(&file, None, Some(GROUP)).unwrap();
    give(&file, 0o600);
    let applied = apply(&file, &ownership(ChangeOnRootMismatch), false).unwrap();
    assert_eq!((applied, mode(&file)), (Applied::Changed(1), 0o660));
}

#[test]
fn what_is_right_already_is_not_touched() {
    let test_dir = TestDir::new();
    let (volume, file) = (test_dir.folder("volume"), test_dir.file("volume/file", ""));
    apply(&volume, &ownership(ChangeAlways), false).unwrap();
    let before = fs::metadata(&file).unwrap();
    let applied = apply(&volume, &ownership(ChangeAlways), false).unwrap();
    assert_eq!(applied, Applied::Changed(2));
    let after = fs::metadata(&file).unwrap();
    assert_eq!(
        (before.ctime(), before.ctime_nsec()),
        (after.ctime(), after.ctime_nsec())
    );
}

#[test]
fn what_refuses_does_not_keep_the_others() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    let source = test_dir.tmpfs("source");
    fs::write(source.join("fixed"), "").unwrap();
    let (inner, file) = (
        test_dir.folder("volume/inner"),
        test_dir.file("volume/file", ""),
    );
    let access = proto::storage::Access::ReadOnly;
    crate::mount::bind(&source, &inner, access, crate::mount::Depth::Single).unwrap();
    let applied = apply(&volume, &ownership(ChangeAlways), false).unwrap();
    assert_eq!(applied, Applied::Changed(4));
    assert_eq!((group(&inner.join("fixed")), group(&file)), (0, GROUP));
}

#[test]
fn the_root_comes_last_so_that_an_interrupted_change_is_made_again() {
    let test_dir = TestDir::new();
    let volume = test_dir.folder("volume");
    for file in 0..500 {
        test_dir.file(&format!("volume/{file}"), "");
    }
    let cancel = blocking_pool::Cancel::default();
    cancel.set();
    let end = cancel.scope(|| apply(&volume, &ownership(ChangeAlways), false));
    assert_eq!(end.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    assert_eq!(group(&volume), 0);
    let again = apply(&volume, &ownership(ChangeOnRootMismatch), false).unwrap();
    assert_eq!(again, Applied::Changed(501));
}

#[test]
fn a_volume_that_is_not_there_is_told() {
    let test_dir = TestDir::new();
    let missing = test_dir.path("missing");
    let refusal = apply(&missing, &ownership(ChangeAlways), false).unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::NotFound);
}

#[test]
fn whoever_puts_a_link_in_place_of_a_file_meanwhile_changes_nothing_outside() {
    let test_dir = TestDir::new();
    let (volume, secret) = (test_dir.folder("volume"), test_dir.file("secret", ""));
    give(&secret, 0o600);
    test_dir.file("volume/file", "");
    symlink("../secret", volume.join("link")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let swapping = thread::spawn({
        let (over, volume) = (over.clone(), volume.clone());
        move || {
            while !over.load(Ordering::Relaxed) {
                exchange(&volume.join("file"), &volume.join("link"));
            }
        }
    });
    for round in 0..3_000 {
        apply(&volume, &ownership(ChangeAlways), false).unwrap();
        for name in ["file", "link"] {
            drop(lchown(volume.join(name), None, Some(round)));
        }
        assert_eq!((mode(&secret), group(&secret)), (0o600, 0), "round {round}");
    }
    over.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
}

#[test]
fn a_slow_change_is_told_with_the_path_from_the_pod_on() {
    let path = Path::new("/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pvc/mount");
    let words = slow(path, "uid-1");
    assert!(
        words.starts_with(
            "Setting volume ownership for uid-1/volumes/kubernetes.io~csi/pvc/mount is taking"
        ),
        "{words}"
    );
    assert!(
        slow(path, "uid-2").contains("for /var/lib"),
        "unknown pods do no harm"
    );
}
