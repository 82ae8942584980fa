//! From the mount request to the mount and back: the order of operations, and what waits for what.

use super::*;

/// Upstream's Test_Run_Positive_VolumeMountControllerAttachEnabled.
#[test]
fn a_volume_is_staged_then_mounted_then_used() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v"), empty_dir("e")]);
    assert_eq!(rig.begin(), ["mount a e", "stage v"]);
    assert!(rig.mounted("a").is_none());
    rig.end_well("stage v");
    assert_eq!(rig.begin(), ["mount a v"]);
    rig.end_well("mount a v");
    rig.end_well("mount a e");
    assert_eq!(rig.begin(), NONE);
    let mounted = rig.mounted("a").unwrap();
    assert_eq!(mounted.volumes["v"].path, PathBuf::from("/a/v"));
    assert_eq!(mounted.volumes.len(), 2);
    assert!(rig.world.is_at_rest());
}

/// Upstream's Test_Run_Positive_VolumeUnmountControllerAttachEnabled.
#[test]
fn a_released_pod_loses_its_volumes_and_the_last_one_unstages() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("v")]);
    let words = rig.settle();
    assert_eq!(words, ["stage v", "mount a v", "mount b v"]);
    rig.release("a");
    assert!(!rig.world.is_released(&"a".into()));
    assert_eq!(rig.settle(), ["unmount a v"]);
    assert!(rig.world.is_released(&"a".into()));
    assert!(rig.mounted("b").is_some());
    rig.release("b");
    assert_eq!(rig.settle(), ["unmount b v", "unstage v"]);
    assert!(rig.world.rows().is_empty());
}

/// Upstream's TestMountingPodsWithSameVolume... of nestedpendingoperations: one at a time.
#[test]
fn operations_on_one_volume_are_one_after_the_other() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("v")]);
    rig.wish("c", &[persistent("w")]);
    assert_eq!(rig.begin(), ["stage v", "stage w"]);
    rig.end_well("stage v");
    assert_eq!(rig.begin(), ["mount a v"]);
    rig.release("b");
    assert_eq!(rig.begin(), NONE);
    rig.end_well("mount a v");
    rig.release("a");
    assert_eq!(rig.begin(), ["unmount a v"]);
    rig.end_well("unmount a v");
    assert_eq!(rig.begin(), ["unstage v"]);
    rig.wish("b", &[persistent("v")]);
    assert_eq!(rig.begin(), NONE, "not while it is being unstaged");
    rig.end_well("unstage v");
    assert_eq!(rig.begin(), ["stage v"]);
}

/// Upstream's Test_Run_Positive_... IsVolumeMountedElsewhere.
#[test]
fn a_volume_for_one_pod_waits_until_the_other_pod_has_left_it() {
    let mut rig = Rig::clean();
    let single = persistent_with("v", |csi| {
        csi.access_mode = Some(AccessMode::ReadWriteOncePod)
    });
    rig.wish("a", std::slice::from_ref(&single));
    rig.settle();
    rig.wish("b", std::slice::from_ref(&single));
    assert_eq!(rig.settle(), NONE);
    assert_eq!(
        rig.news(),
        [
            "b FailedMount: MountVolume.SetUp failed for volume \"v\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        ]
    );
    assert_eq!(rig.settle(), NONE);
    assert_eq!(rig.news(), NONE, "not again before its time");
    rig.release("a");
    assert_eq!(rig.settle(), ["unmount a v", "mount b v"]);
}

/// Upstream's fix for several volumes of a pod that claim the same persistent volume.
#[test]
fn two_names_of_one_volume_are_one_mount() {
    let mut rig = Rig::clean();
    let mut reader = persistent("v");
    reader.access = VolumeAccess::ReadOnly;
    let wishes = [
        ("r".to_owned(), Ok(reader)),
        ("w".to_owned(), Ok(persistent("v"))),
    ];
    rig.wish_for("a", wishes.into(), ResolveTrigger::Requested);
    let tasks = rig.settle();
    assert_eq!(tasks, ["stage v", "mount a v"]);
    let mounted = rig.mounted("a").unwrap();
    assert_eq!(mounted.volumes["r"].access, VolumeAccess::ReadOnly);
    assert_eq!(mounted.volumes["w"].access, VolumeAccess::ReadWrite);
    let held: Vec<_> = rig
        .world
        .measurable()
        .map(|volume| volume.volume.access)
        .collect();
    assert_eq!(held, [VolumeAccess::ReadWrite]);
}

#[test]
fn nothing_is_unmounted_while_somebody_works_within() {
    let mut rig = Rig::clean();
    assert!(!rig.world.enter(&"a".into()));
    rig.wish("a", &[empty_dir("e")]);
    rig.settle();
    assert!(rig.world.enter(&"a".into()));
    rig.release("a");
    assert!(!rig.world.enter(&"a".into()));
    assert_eq!(rig.settle(), NONE);
    rig.world.leave(&"a".into());
    assert_eq!(rig.settle(), ["unmount a e"]);
}
