//! Real mounts, in folders of the tests.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proto::storage::Access::{ReadOnly, ReadWrite};
use tonic::Code;

use super::*;
use crate::test_dir::{TestDir, layers};

fn writable(folder: &Path) -> bool {
    let file = folder.join("probe");
    let written = fs::write(&file, b"x").is_ok();
    drop(fs::remove_file(file));
    written
}

#[test]
fn a_tmpfs_has_the_size_and_the_mode_that_were_asked_for() {
    let test_dir = TestDir::new();
    let target = test_dir.folder("memory");
    let options = TmpfsOptions {
        size: 1 << 20,
        inodes: 100,
        mode: 0o700,
        ..TmpfsOptions::default()
    };
    tmpfs(&target, &options).unwrap();
    let figures = rustix::fs::statvfs(&target).unwrap();
    assert_eq!(figures.f_blocks * figures.f_frsize, 1 << 20);
    assert_eq!(figures.f_files, 100);
    let mode = fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert!(fs::write(target.join("big"), vec![1; 2 << 20]).is_err());
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
fn a_tmpfs_stays_out_of_swap_unless_it_may_be_swapped() {
    let test_dir = TestDir::new();
    for (swap, expected) in [(Swap::Refused, true), (Swap::Allowed, false)] {
        let target = test_dir.folder(&format!("{swap:?}"));
        let options = TmpfsOptions {
            swap,
            ..TmpfsOptions::default()
        };
        tmpfs(&target, &options).unwrap();
        let table = MountTable::read().unwrap();
        let words = &table.at(&target).unwrap().super_options;
        let found = words.contains(&"noswap".to_owned());
        assert_eq!(found, expected && knows_noswap(), "{words:?}");
    }
}

#[test]
fn flags_and_propagation_are_those_that_were_asked_for() {
    let test_dir = TestDir::new();
    let target = test_dir.folder("flags");
    let words = ["ro,nosuid", "nodev,noexec,noatime", "size=1m", "shared"];
    let words = words.map(str::to_owned);
    file_system("nowhere", &target, "tmpfs", &words).unwrap();
    let table = MountTable::read().unwrap();
    let entry = table.at(&target).unwrap();
    assert_eq!(
        entry.options,
        ["ro", "nosuid", "nodev", "noexec", "noatime"]
    );
    assert!(entry.propagation[0].starts_with("shared:"), "{entry:?}");
    assert_eq!(entry.source, "nowhere");
}

#[test]
fn what_cannot_be_mounted_is_told_with_the_target() {
    let test_dir = TestDir::new();
    let target = test_dir.folder("t");
    let missing = test_dir.path("missing");
    let path = target.display().to_string();
    let bad = |fs_type, options: &[&str]| {
        let options: Vec<_> = options.iter().map(|&word| word.to_owned()).collect();
        file_system("none", &target, fs_type, &options).unwrap_err()
    };
    for (refusal, code) in [
        (bad("no-such-type", &[]), Code::NotFound),
        (bad("tmpfs", &["size=many"]), Code::Internal),
    ] {
        assert_eq!(refusal.code(), code, "{refusal}");
        assert!(refusal.message().contains(&path), "{refusal}");
    }
    assert_eq!(bad("tmpfs", &["remount"]).code(), Code::InvalidArgument);
    let refusal = tmpfs(&missing, &TmpfsOptions::default()).unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
    let end = "missing: no such file or directory";
    assert!(refusal.message().ends_with(end), "{refusal}");
    assert_eq!(layers(&target), 0);
}

#[test]
fn a_read_only_bind_cannot_be_written_though_its_source_can() {
    let test_dir = TestDir::new();
    let (source, target) = (test_dir.tmpfs("source"), test_dir.folder("target"));
    fs::write(source.join("file"), "content").unwrap();
    bind(&source, &target, ReadOnly, Depth::Single).unwrap();
    assert_eq!(fs::read(target.join("file")).unwrap(), b"content");
    assert!(!writable(&target) && writable(&source));
}

#[test]
fn a_read_only_bind_keeps_the_flags_of_its_source() {
    let test_dir = TestDir::new();
    let (source, target) = (test_dir.folder("source"), test_dir.folder("target"));
    let words = ["nosuid,nodev,noexec,noatime".to_owned()];
    file_system("x", &source, "tmpfs", &words).unwrap();
    bind(&source, &target, ReadOnly, Depth::Single).unwrap();
    let table = MountTable::read().unwrap();
    let options = &table.at(&target).unwrap().options;
    assert_eq!(*options, ["ro", "nosuid", "nodev", "noexec", "noatime"]);
    assert_eq!(table.at(&source).unwrap().options[0], "rw");
}

#[test]
fn a_bind_repeated_is_one_mount() {
    let test_dir = TestDir::new();
    let (source, target) = (test_dir.folder("source"), test_dir.folder("target"));
    for access in [ReadWrite, ReadWrite, ReadOnly, ReadOnly] {
        bind(&source, &target, access, Depth::Single).unwrap();
        assert_eq!(layers(&target), 1);
        assert_eq!(writable(&target), access == ReadWrite);
    }
}

#[test]
fn a_bind_over_something_else_is_refused_and_leaves_it_alone() {
    let test_dir = TestDir::new();
    let (source, target) = (test_dir.folder("source"), test_dir.tmpfs("target"));
    let refusal = bind(&source, &target, ReadWrite, Depth::Single).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert_eq!(layers(&target), 1);
}

#[test]
fn a_bind_takes_what_is_below_only_when_it_is_recursive() {
    let test_dir = TestDir::new();
    let source = test_dir.tmpfs("source");
    let inner = test_dir.tmpfs("source/inner");
    fs::write(inner.join("seen"), "").unwrap();
    let (single, all) = (test_dir.folder("single"), test_dir.folder("all"));
    bind(&source, &single, ReadWrite, Depth::Single).unwrap();
    bind(&source, &all, ReadOnly, Depth::Recursive).unwrap();
    assert!(!single.join("inner/seen").exists());
    assert!(all.join("inner/seen").exists());
    // Read-only all the way down.
    assert!(!writable(&all) && !writable(&all.join("inner")));
    assert!(writable(&inner));
    assert_eq!(layers(&all.join("inner")), 1);
}

#[test]
fn a_file_is_bound_to_a_file() {
    let test_dir = TestDir::new();
    let (source, target) = (
        test_dir.file("source", "content"),
        test_dir.file("target", ""),
    );
    bind(&source, &target, ReadOnly, Depth::Single).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"content");
    assert!(OpenOptions::new().write(true).open(&target).is_err());
    clean_up(&target).unwrap();
    assert!(!target.exists() && source.exists());
}

#[test]
fn what_is_open_is_bound_whatever_has_become_of_its_name() {
    let test_dir = TestDir::new();
    let (source, target) = (test_dir.folder("source"), test_dir.folder("target"));
    fs::write(source.join("right"), "").unwrap();
    let opened = open(&source).unwrap();
    fs::rename(&source, test_dir.path("moved")).unwrap();
    symlink("/", &source).unwrap();
    bind_fd(&opened, &target, ReadWrite, Depth::Single).unwrap();
    assert!(target.join("right").exists());
}

#[test]
fn a_link_at_the_target_is_not_followed() {
    let test_dir = TestDir::new();
    let (source, victim, link) = (
        test_dir.folder("s"),
        test_dir.folder("v"),
        test_dir.path("link"),
    );
    symlink(&victim, &link).unwrap();
    bind(&source, &link, ReadWrite, Depth::Single).unwrap_err();
    tmpfs(&link, &TmpfsOptions::default()).unwrap_err();
    tmpfs(&victim, &TmpfsOptions::default()).unwrap();
    unmount(&link).unwrap();
    assert_eq!(layers(&victim), 1);
}

#[test]
fn unmounting_takes_all_layers_and_may_be_repeated() {
    let test_dir = TestDir::new();
    let target = test_dir.folder("stack");
    for _ in 0..5 {
        tmpfs(&target, &TmpfsOptions::default()).unwrap();
    }
    assert_eq!(layers(&target), 5);
    for _ in 0..3 {
        unmount(&target).unwrap();
        assert_eq!(layers(&target), 0);
    }
    unmount(&test_dir.path("nothing")).unwrap();
    unmount(&test_dir.root().join("no/such/folder")).unwrap();
    unmount(&test_dir.file("file", "").join("below")).unwrap();
}

#[test]
fn unmounting_takes_nothing_but_the_path_itself() {
    let test_dir = TestDir::new();
    let outer = test_dir.tmpfs("outer");
    let inner = test_dir.tmpfs("outer/inner");
    unmount(&outer.join("inner/..//inner/.")).unwrap();
    assert_eq!((layers(&outer), layers(&inner)), (1, 0));
    test_dir.tmpfs("outer/inner");
    let refusal = unmount(&outer).unwrap_err();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert_eq!((layers(&outer), layers(&inner)), (1, 1));
}

#[test]
fn what_is_busy_is_told_in_upstream_s_words() {
    let test_dir = TestDir::new();
    let target = test_dir.tmpfs("busy");
    let held = File::create(target.join("held")).unwrap();
    let refusal = unmount(&target).unwrap_err();
    let path = target.display();
    assert_eq!(
        refusal.message(),
        format!(
            "unmount failed: exit status 32\nUnmounting arguments: {path}\nOutput: umount: {path}: target is busy."
        )
    );
    unmount_with(&target, How::Detach).unwrap();
    assert_eq!(layers(&target), 0);
    drop(held);
}

#[test]
fn a_mount_that_spreads_is_unmounted_everywhere() {
    let test_dir = TestDir::new();
    let (first, second) = (test_dir.tmpfs("first"), test_dir.folder("second"));
    rustix::mount::mount_change(&first, MountPropagationFlags::SHARED).unwrap();
    bind(&first, &second, ReadWrite, Depth::Single).unwrap();
    let inner = test_dir.tmpfs("first/inner");
    assert_eq!((layers(&inner), layers(&second.join("inner"))), (1, 1));
    unmount(&second.join("inner")).unwrap();
    assert_eq!((layers(&inner), layers(&second.join("inner"))), (0, 0));
    unmount(&inner).unwrap();
    unmount(&first).unwrap();
    assert_eq!((layers(&first), layers(&second)), (0, 1));
}

#[test]
fn a_target_below_a_link_is_found_in_the_table() {
    let test_dir = TestDir::new();
    let real = test_dir.folder("real");
    let link = test_dir.path("link");
    symlink(&real, &link).unwrap();
    test_dir.tmpfs("real/target");
    let target = link.join("target");
    assert!(table::is_mount_point(&target).unwrap());
    bind(&target, &target, ReadOnly, Depth::Single).unwrap();
    assert!(!writable(&real.join("target")));
    unmount(&target).unwrap();
    assert_eq!(layers(&real.join("target")), 0);
}

#[test]
fn cleaning_up_removes_the_place_but_never_content() {
    let test_dir = TestDir::new();
    let target = test_dir.tmpfs("target");
    fs::write(target.join("in"), "").unwrap();
    clean_up(&target).unwrap();
    assert!(!target.exists());
    clean_up(&target).unwrap();

    let full = test_dir.folder("full");
    let file = test_dir.file("full/file", "content");
    for path in [&full, &file] {
        let refusal = clean_up(path).unwrap_err();
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        assert!(refusal.message().ends_with("not empty"), "{refusal}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"content");
}
