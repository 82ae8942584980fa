//! The laws of emptyDir, on the real kernel; upstream's tables are in pkg/volume/emptydir/empty_dir_test.go.

use std::os::unix::fs::symlink;

use proto::storage::EmptyDir;
use rustix::process::umask;
use tonic::Code;

use super::*;
use crate::testing::{Node, facts, mounted};

const KIND: &str = "empty-dir";

fn disk() -> EmptyDir {
    EmptyDir::default()
}

fn memory(size_limit: u64) -> EmptyDir {
    EmptyDir {
        medium: Medium::Memory.into(),
        size_limit,
        ..EmptyDir::default()
    }
}

fn huge(page_size: u64) -> EmptyDir {
    EmptyDir {
        medium: Medium::HugePages.into(),
        page_size,
        ..EmptyDir::default()
    }
}

fn up(place: &Place, volume: &EmptyDir) -> Result<(), Status> {
    set_up(place, &Marker::own(place), volume, None, "")
}

fn down(place: &Place) -> Result<(), Status> {
    tear_down(place, &Marker::own(place))
}

fn group(fs_group: u32) -> Ownership {
    Ownership {
        fs_group,
        ..Ownership::default()
    }
}

/// Upstream's TestPluginEmptyRootContext.
#[test]
fn whatever_was_left_there_is_a_ready_folder_after_set_up_and_none_after_tear_down() {
    for (folder, mark) in [(true, true), (false, false), (true, false), (false, true)] {
        let node = Node::new();
        let place = node.place("u", KIND, "test-volume");
        let marker = Marker::own(&place);
        if folder {
            fs::create_dir_all(&place.target).unwrap();
        }
        if mark {
            marker.set(Mark::Set).unwrap();
        }
        up(&place, &disk()).unwrap();
        assert_eq!(marker.read(), Mark::Set);
        assert!(place.target.is_dir());
        assert!(
            node.path("pods/u/plugins/kubernetes.io~empty-dir/test-volume/ready")
                .is_file()
        );
        if !folder {
            assert_eq!(facts(&place.target).0, 0o777);
        }
        if !mark {
            marker.clear().unwrap();
        }
        if !folder {
            fs::remove_dir(&place.target).unwrap();
        }
        down(&place).unwrap();
        down(&place).unwrap();
        assert_eq!(marker.read(), Mark::Missing);
        assert!(!place.target.exists());
    }
}

#[test]
fn everybody_may_write_whatever_the_umask_says() {
    let node = Node::new();
    let place = node.place("u", KIND, "v");
    let before = umask(Mode::from_raw_mode(0o077));
    up(&place, &disk()).unwrap();
    umask(before);
    assert_eq!(facts(&place.target), (0o777, 0, 0));
    let asked = node.place("u", KIND, "asked");
    let mode = EmptyDir {
        mode: 0o1770,
        ..disk()
    };
    up(&asked, &mode).unwrap();
    assert_eq!(facts(&asked.target).0, 0o1770);
}

#[test]
fn a_volume_that_is_ready_is_not_touched() {
    let node = Node::new();
    for (name, volume) in [("disk", disk()), ("memory", memory(1 << 20))] {
        let place = node.place("u", KIND, name);
        up(&place, &volume).unwrap();
        fs::write(place.target.join("data"), name).unwrap();
        set_mode(&place.target, 0o700).unwrap();
        set_up(&place, &Marker::own(&place), &volume, Some(&group(77)), "").unwrap();
        assert_eq!(facts(&place.target), (0o700, 0, 0));
        assert_eq!(
            fs::read(place.target.join("data")).unwrap(),
            name.as_bytes()
        );
    }
}

#[test]
fn the_volume_belongs_to_the_pod_s_group() {
    let node = Node::new();
    for (name, volume, mode) in [
        ("disk", disk(), 0o2777),
        ("memory", memory(0), 0o3777),
        ("huge", huge(2 << 20), 0o2775),
    ] {
        let place = node.place("u", KIND, name);
        set_up(
            &place,
            &Marker::own(&place),
            &volume,
            Some(&group(4321)),
            "",
        )
        .unwrap();
        assert_eq!(facts(&place.target), (mode, 0, 4321), "{name}");
    }
}

/// Whether the kernel knows `noswap`, as Linux 6.4 and later do.
fn knows_noswap() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(4))
}

#[test]
fn memory_is_a_tmpfs_of_its_size_that_is_never_swapped() {
    let node = Node::new();
    let place = node.place("u", KIND, "m");
    for _ in 0..2 {
        up(&place, &memory(123 << 10)).unwrap();
        let layers = mounted(&place.target);
        assert_eq!(layers.len(), 1);
        let options = &layers[0].super_options;
        // In whole pages.
        assert!(options.contains(&"size=124k".to_owned()), "{options:?}");
        let found = options.contains(&"noswap".to_owned());
        assert_eq!(found, knows_noswap(), "{options:?}");
    }
    assert_eq!(facts(&place.target).0, 0o1777);
    let full = fs::write(place.target.join("x"), vec![1; 200 << 10]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    down(&place).unwrap();
    assert!(mounted(&place.target).is_empty() && !place.target.exists());
}

#[test]
fn memory_without_a_limit_has_the_kernel_s_own() {
    let node = Node::new();
    let place = node.place("u", KIND, "m");
    up(&place, &memory(0)).unwrap();
    let options = &mounted(&place.target)[0].super_options;
    assert!(
        options.iter().all(|option| !option.starts_with("size=")),
        "{options:?}"
    );
    let asked = node.place("u", KIND, "asked");
    let mode = EmptyDir {
        mode: 0o1750,
        ..memory(0)
    };
    up(&asked, &mode).unwrap();
    assert_eq!(facts(&asked.target).0, 0o1750);
}

#[test]
fn memory_that_is_not_mounted_any_more_is_mounted_again() {
    let node = Node::new();
    let place = node.place("u", KIND, "m");
    up(&place, &memory(1 << 20)).unwrap();
    mount::unmount(&place.target).unwrap();
    assert_eq!(Marker::own(&place).read(), Mark::Memory);
    up(&place, &memory(1 << 20)).unwrap();
    assert_eq!(mounted(&place.target).len(), 1);
}

#[test]
fn a_set_up_that_was_cut_off_after_the_mount_is_completed() {
    let node = Node::new();
    let place = node.place("u", KIND, "m");
    up(&place, &memory(1 << 20)).unwrap();
    Marker::own(&place).clear().unwrap();
    set_up(
        &place,
        &Marker::own(&place),
        &memory(1 << 20),
        Some(&group(9)),
        "",
    )
    .unwrap();
    assert_eq!(mounted(&place.target).len(), 1);
    assert_eq!(facts(&place.target).2, 9);
    assert_eq!(Marker::own(&place).read(), Mark::Memory);
}

#[test]
fn another_file_system_in_the_place_of_memory_is_refused() {
    let node = Node::new();
    let place = node.place("u", KIND, "m");
    fs::create_dir_all(&place.target).unwrap();
    mount::file_system("x", &place.target, "ramfs", &[]).unwrap();
    let refused = up(&place, &memory(0)).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let path = place.target.display();
    assert_eq!(
        refused.message(),
        format!("{path} is a mount point of ramfs, expected tmpfs")
    );
}

/// Upstream's TestPluginHugetlbfs and TestSetupHugepages.
#[test]
fn huge_pages_are_a_hugetlbfs_with_pages_of_that_size() {
    let node = Node::new();
    for (name, page_size, option) in [
        ("two", 2 << 20, "pagesize=2M"),
        ("one", 1 << 30, "pagesize=1024M"),
        ("default", 0, "pagesize=2M"),
    ] {
        let place = node.place("u", KIND, name);
        for _ in 0..2 {
            up(&place, &huge(page_size)).unwrap();
            let layers = mounted(&place.target);
            assert_eq!((layers.len(), layers[0].fs_type.as_str()), (1, HUGETLBFS));
            let options = &layers[0].super_options;
            assert!(options.contains(&option.to_owned()), "{name}: {options:?}");
        }
    }
    let place = node.place("u", KIND, "two");
    let refused = up(&place, &huge(1 << 30)).unwrap_err();
    let path = place.target.display();
    assert_eq!(
        refused.message(),
        format!("pod u: mounted dir {path} pagesize '2Mi' and requested medium size '1Gi' differ")
    );
    up(&place, &huge(0)).unwrap();
    down(&place).unwrap();
    assert!(!place.target.exists());
}

/// Upstream's TestGetPageSize.
#[test]
fn a_page_size_is_read_as_the_kernel_writes_it() {
    for (option, expected) in [
        ("2M", Some(2 << 20)),
        ("2Mi", Some(2 << 20)),
        ("1024M", Some(1 << 30)),
        ("64K", Some(64 << 10)),
        ("4096", Some(4096)),
        ("NN", None),
        ("", None),
        ("2X", None),
        ("99999999999999G", None),
    ] {
        assert_eq!(bytes(option), expected, "{option}");
    }
    for (bytes, text) in [
        (2 << 20, "2Mi"),
        (1 << 30, "1Gi"),
        (65536, "64Ki"),
        (1000, "1000"),
        (0, "0"),
    ] {
        assert_eq!(quantity(bytes), text);
    }
}

#[test]
fn a_link_in_the_place_of_the_volume_is_not_followed() {
    let node = Node::new();
    let elsewhere = node.folder("elsewhere");
    fs::write(elsewhere.join("kept"), "").unwrap();
    for volume in [disk(), memory(0)] {
        let place = node.place("u", KIND, "link");
        place.make_parents().unwrap();
        symlink(&elsewhere, &place.target).unwrap();
        up(&place, &volume).unwrap_err();
        assert!(mounted(&elsewhere).is_empty());
        down(&place).unwrap();
        assert!(!place.target.is_symlink() && elsewhere.join("kept").exists());
    }
    assert_ne!(facts(&elsewhere).0, 0o777);
}

#[test]
fn what_is_mounted_within_the_volume_survives_its_end() {
    let node = Node::new();
    for (name, volume) in [("disk", disk()), ("memory", memory(0))] {
        let place = node.place("u", KIND, name);
        up(&place, &volume).unwrap();
        let inner = place.target.join("inner");
        fs::create_dir(&inner).unwrap();
        mount::tmpfs(&inner, &TmpfsOptions::default()).unwrap();
        fs::write(inner.join("kept"), "kept").unwrap();
        let kept = down(&place).unwrap_err();
        assert_eq!(kept.code(), Code::FailedPrecondition, "{kept}");
        assert_eq!(fs::read(inner.join("kept")).unwrap(), b"kept");
        mount::unmount(&inner).unwrap();
        down(&place).unwrap();
        assert!(!place.target.exists());
    }
}

#[test]
fn files_and_folders_of_all_kinds_are_taken_away_with_the_volume() {
    let node = Node::new();
    let outside = node.folder("outside");
    fs::write(outside.join("kept"), "").unwrap();
    let place = node.place("u", KIND, "v");
    up(&place, &disk()).unwrap();
    fs::create_dir_all(place.target.join("a/b/c")).unwrap();
    fs::write(place.target.join("a/b/file"), "x").unwrap();
    symlink(&outside, place.target.join("a/link")).unwrap();
    set_mode(&place.target.join("a/b"), 0).unwrap();
    down(&place).unwrap();
    assert!(!place.target.exists() && outside.join("kept").exists());
}
