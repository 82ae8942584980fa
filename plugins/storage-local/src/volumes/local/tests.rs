//! The laws of local volumes, with real disks; upstream's tests are in pkg/volume/local/local_test.go.

use std::fs;
use std::os::unix::fs::MetadataExt;

use proto::storage::ChangePolicy;
use tonic::Code;

use super::*;
use crate::testing::{Node, facts, mounted};

const KIND: &str = "local-volume";

fn local(path: &Path) -> Local {
    Local {
        path: path.to_str().unwrap().to_owned(),
        ..Local::default()
    }
}

fn parameters() -> MountParameters {
    MountParameters::default()
}

fn read_only() -> MountParameters {
    MountParameters {
        access: Access::ReadOnly,
        ..parameters()
    }
}

fn with_group(fs_group: u32, policy: ChangePolicy) -> MountParameters {
    let ownership = Ownership {
        fs_group,
        policy: policy.into(),
    };
    MountParameters {
        ownership: Some(ownership),
        ..parameters()
    }
}

/// Upstream's TestMountUnmount.
#[test]
fn a_folder_is_bound_to_the_target_and_stays_when_it_is_taken_away() {
    let node = Node::new();
    let source = node.folder("disks/one");
    let place = node.place("u", KIND, "pv");
    for _ in 0..2 {
        assert!(
            set_up(node.root(), &place, &local(&source), &parameters())
                .unwrap()
                .is_empty()
        );
        assert_eq!(mounted(&place.target).len(), 1);
    }
    fs::write(place.target.join("data"), "data").unwrap();
    for _ in 0..2 {
        tear_down(node.root(), &place).unwrap();
        assert!(mounted(&place.target).is_empty() && !place.target.exists());
    }
    assert_eq!(fs::read(source.join("data")).unwrap(), b"data");
}

#[test]
fn what_is_neither_folder_nor_disk_is_refused() {
    let node = Node::new();
    let file = node.path("file");
    fs::write(&file, "").unwrap();
    let place = node.place("u", KIND, "pv");
    let refused = |local: &Local| {
        let refused = set_up(node.root(), &place, local, &parameters()).unwrap_err();
        assert!(!place.target.exists());
        (refused.code(), refused.message().to_owned())
    };
    for path in [file.as_path(), Path::new("/dev/null")] {
        let words = "only directory and block device are supported".to_owned();
        assert_eq!(refused(&local(path)), (Code::FailedPrecondition, words));
    }
    for (path, code, words) in [
        (
            "",
            Code::InvalidArgument,
            "LocalVolume volume \"pv\" path is empty",
        ),
        (
            "/a/../b",
            Code::InvalidArgument,
            "invalid path: /a/../b must not contain '..'",
        ),
        (
            "/no/such",
            Code::NotFound,
            "path \"/no/such\" does not exist",
        ),
    ] {
        assert_eq!(refused(&local(Path::new(path))), (code, words.to_owned()));
    }
}

/// Upstream's TestPersistentClaimReadOnlyFlag of local volumes.
#[test]
fn a_volume_for_reading_cannot_be_written_and_keeps_its_group() {
    let node = Node::new();
    let source = node.folder("disks/one");
    let place = node.place("u", KIND, "pv");
    let parameters = MountParameters {
        access: Access::ReadOnly,
        ..with_group(777, ChangePolicy::ChangeAlways)
    };
    set_up(node.root(), &place, &local(&source), &parameters).unwrap();
    let refused = fs::write(place.target.join("x"), "").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(facts(&source).2, 0);
}

#[test]
fn the_mount_s_options_are_those_that_a_bind_can_have() {
    let node = Node::new();
    let source = node.folder("disks/one");
    let place = node.place("u", KIND, "pv");
    let options = ["noexec,nosuid", "noatime", "data=ordered"];
    let parameters = MountParameters {
        options: options.map(str::to_owned).to_vec(),
        ..parameters()
    };
    for _ in 0..2 {
        set_up(node.root(), &place, &local(&source), &parameters).unwrap();
        let options = &mounted(&place.target)[0].options;
        for option in ["noexec", "nosuid", "noatime", "rw"] {
            assert!(
                options.contains(&option.to_owned()),
                "{option} not in {options:?}"
            );
        }
    }
    let place = node.place("other", KIND, "pv");
    let parameters = MountParameters {
        access: Access::ReadOnly,
        ..parameters
    };
    set_up(node.root(), &place, &local(&source), &parameters).unwrap();
    let options = &mounted(&place.target)[0].options;
    assert!(options.contains(&"ro".to_owned()) && options.contains(&"noexec".to_owned()));
}

/// Upstream's TestFSGroupMount.
#[test]
fn the_first_pod_s_group_owns_the_volume_and_another_group_is_told_so() {
    let node = Node::new();
    let source = node.folder("disks/one");
    fs::write(source.join("file"), "").unwrap();
    let (first, second) = (node.place("u1", KIND, "pv"), node.place("u2", KIND, "pv"));
    let always = |group| with_group(group, ChangePolicy::ChangeAlways);
    let warnings = |place, group| set_up(node.root(), place, &local(&source), &always(group));
    assert!(warnings(&first, 3000).unwrap().is_empty());
    assert_eq!(
        (facts(&source).2, facts(&source.join("file")).2),
        (3000, 3000)
    );
    assert_eq!(
        warnings(&second, 4000).unwrap(),
        [
            "The requested fsGroup is 4000, but the volume pv has GID 3000. The volume may not be shareable."
        ]
    );
    assert_eq!(facts(&source).2, 3000);
    let third = node.place("u3", KIND, "pv");
    assert!(warnings(&third, 3000).unwrap().is_empty());
    for place in [&first, &second, &third] {
        tear_down(node.root(), place).unwrap();
    }
    assert!(warnings(&second, 4000).unwrap().is_empty());
    assert_eq!(facts(&source).2, 4000);
}

#[test]
fn a_root_that_is_right_is_enough_where_the_pod_says_so() {
    let node = Node::new();
    let source = node.folder("disks/one");
    let place = node.place("u", KIND, "pv");
    let parameters = |policy| with_group(3000, policy);
    set_up(
        node.root(),
        &place,
        &local(&source),
        &parameters(ChangePolicy::ChangeAlways),
    )
    .unwrap();
    tear_down(node.root(), &place).unwrap();
    let file = source.join("file");
    fs::write(&file, "").unwrap();
    std::os::unix::fs::chown(&file, None, Some(5)).unwrap();
    let mismatch = parameters(ChangePolicy::ChangeOnRootMismatch);
    set_up(node.root(), &place, &local(&source), &mismatch).unwrap();
    assert_eq!(facts(&file).2, 5);
}

#[test]
fn an_empty_disk_is_formatted_once_and_mounted_for_the_node_and_each_pod() {
    let mut node = Node::new();
    let device = node.disk("image");
    let root = node.root().to_owned();
    let global = global(&root, "pv");
    let (first, second) = (node.place("u1", KIND, "pv"), node.place("u2", KIND, "pv"));
    for _ in 0..2 {
        set_up(&root, &first, &local(&device), &parameters()).unwrap();
        set_up(&root, &second, &local(&device), &parameters()).unwrap();
    }
    assert_eq!(mounted(&global)[0].fs_type, "ext4");
    assert_eq!(
        mounted(&first.target).len() + mounted(&second.target).len(),
        2
    );
    fs::write(first.target.join("data"), "data").unwrap();
    assert_eq!(fs::read(second.target.join("data")).unwrap(), b"data");

    tear_down(&root, &first).unwrap();
    assert_eq!(
        (mounted(&first.target).len(), mounted(&global).len()),
        (0, 1)
    );
    tear_down(&root, &second).unwrap();
    assert!(mounted(&global).is_empty() && !global.exists() && !second.target.exists());

    set_up(&root, &first, &local(&device), &read_only()).unwrap();
    assert_eq!(fs::read(first.target.join("data")).unwrap(), b"data");
    assert!(mounted(&global)[0].read_only());
    tear_down(&root, &first).unwrap();
}

#[test]
fn a_disk_has_the_file_system_that_the_volume_names() {
    let mut node = Node::new();
    let device = node.disk("image");
    let root = node.root().to_owned();
    let place = node.place("u", KIND, "pv");
    let local = Local {
        fs_type: "ext2".to_owned(),
        ..local(&device)
    };
    let parameters = MountParameters {
        options: vec!["noatime".to_owned(), "errors=remount-ro".to_owned()],
        ..parameters()
    };
    set_up(&root, &place, &local, &parameters).unwrap();
    let entry = &mounted(&place.target)[0];
    assert_eq!(entry.fs_type, "ext2");
    assert!(entry.options.contains(&"noatime".to_owned()));
    assert!(
        entry
            .super_options
            .contains(&"errors=remount-ro".to_owned())
    );
}

#[test]
fn an_empty_disk_is_not_formatted_for_reading() {
    let mut node = Node::new();
    let device = node.disk("image");
    let root = node.root().to_owned();
    let place = node.place("u", KIND, "pv");
    let refused = set_up(&root, &place, &local(&device), &read_only()).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let (device, global) = (device.display(), global(&root, "pv"));
    assert_eq!(
        refused.message(),
        format!(
            "local: failed to mount device {device} at {} (fstype: ext4), error cannot mount unformatted disk {device} as we are manipulating it in read-only mode",
            global.display()
        )
    );
    assert!(!global.exists() && !place.target.exists());
}

#[test]
fn a_disk_with_partitions_is_never_formatted() {
    let mut node = Node::new();
    let device = node.disk("image");
    // A table of partitions as DOS knew it, with one partition.
    let mut sector = vec![0_u8; 512];
    sector[446..462].copy_from_slice(&[0, 2, 3, 0, 0x83, 10, 10, 10, 0, 8, 0, 0, 0, 0x60, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&device, &sector).unwrap();
    let root = node.root().to_owned();
    let place = node.place("u", KIND, "pv");
    set_up(&root, &place, &local(&device), &parameters()).unwrap_err();
    assert_eq!(fs::read(&device).unwrap()[..512], sector);
}

#[test]
fn a_tear_down_that_was_cut_off_is_completed() {
    let mut node = Node::new();
    let device = node.disk("image");
    let root = node.root().to_owned();
    let place = node.place("u", KIND, "pv");
    set_up(&root, &place, &local(&device), &parameters()).unwrap();
    mount::unmount(&place.target).unwrap();
    tear_down(&root, &place).unwrap();
    assert!(mounted(&global(&root, "pv")).is_empty() && !place.target.exists());
    // The disk is free again.
    assert!(fs::OpenOptions::new().write(true).open(&device).is_ok());
}

#[test]
fn content_in_the_place_of_the_mount_is_never_removed() {
    let node = Node::new();
    let place = node.place("u", KIND, "pv");
    fs::create_dir_all(&place.target).unwrap();
    fs::write(place.target.join("data"), "data").unwrap();
    let refused = tear_down(node.root(), &place).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(fs::metadata(place.target.join("data")).unwrap().size(), 4);
}
