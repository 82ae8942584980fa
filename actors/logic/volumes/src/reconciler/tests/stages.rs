//! After a restart: what was found, what becomes certain, and what is unmounted.

use super::*;

/// Upstream's TestReconstructVolumesMount and TestCleanOrphanVolumes.
#[test]
fn what_was_found_is_mounted_again_for_who_wants_it_and_goes_with_who_is_gone() {
    let mut rig = Rig::new();
    rig.list([
        found(ReconstructedState::Mounted, "e", VolumeKind::EmptyDir, "a"),
        found(
            ReconstructedState::Mounted,
            "old",
            VolumeKind::EmptyDir,
            "gone",
        ),
    ]);
    assert_eq!(
        rig.settle(),
        NONE,
        "nobody has said yet which pods there are"
    );
    rig.wish("a", &[empty_dir("e")]);
    assert_eq!(rig.settle(), ["mount a e"]);
    rig.pods(&["a"]);
    assert_eq!(rig.settle(), ["unmount gone old", "remove gone"]);
    assert!(rig.mounted("a").is_some());
}

/// Upstream's TestReconstructVolumes.
#[test]
fn what_two_pods_that_are_gone_shared_is_unmounted_from_both_and_unstaged() {
    let mut rig = Rig::new();
    rig.list([
        found(ReconstructedState::Mounted, "v", VolumeKind::Csi, "a"),
        found(ReconstructedState::Mounted, "v", VolumeKind::Csi, "b"),
        found(ReconstructedState::Staged, "v", VolumeKind::Csi, ""),
    ]);
    assert!(rig.mounted("a").is_none());
    assert_eq!(rig.settle(), NONE);
    rig.pods(&[]);
    let words = rig.settle();
    let of = |word: &str| words.iter().position(|done| done == word).unwrap();
    assert!(of("unmount a v").max(of("unmount b v")) < of("unstage v"));
    assert_eq!(words.len(), 5, "and the folders: {words:?}");
}

/// Upstream's TestReconstructedVolumeShouldUnmountSucceedAfterSetupFailed.
#[test]
fn what_was_found_and_cannot_be_mounted_again_goes_with_its_pod() {
    for trace in [
        FailureEffect::Nothing,
        FailureEffect::Refusal,
        FailureEffect::Something,
    ] {
        let mut rig = Rig::new();
        rig.list([
            found(ReconstructedState::Mounted, "v", VolumeKind::Csi, "a"),
            found(ReconstructedState::Staged, "v", VolumeKind::Csi, ""),
        ]);
        rig.wish("a", &[persistent("v")]);
        assert_eq!(rig.begin(), ["stage v"]);
        rig.end_well("stage v");
        assert_eq!(rig.begin(), ["mount a v"]);
        rig.end("mount a v", failure(trace));
        rig.release("a");
        assert_eq!(rig.settle(), ["unmount a v", "unstage v"], "{trace:?}");
    }
}

/// Upstream's readyToUnmount.
#[test]
fn a_pod_that_has_not_spoken_keeps_what_was_found_of_it() {
    let mut rig = Rig::new();
    rig.pods(&["a"]);
    rig.list([
        found(ReconstructedState::Mounted, "v", VolumeKind::Csi, "a"),
        found(ReconstructedState::Staged, "v", VolumeKind::Csi, ""),
        found(ReconstructedState::Staged, "w", VolumeKind::Csi, ""),
    ]);
    assert_eq!(rig.settle(), NONE);
    let states: Vec<_> = rig.world.rows().into_iter().map(|row| row.state).collect();
    assert_eq!(states, ["Left over", "Left over"]);
    rig.wish("a", &[persistent("v")]);
    assert_eq!(rig.settle(), ["stage v", "unstage w", "mount a v"]);
}

#[test]
fn a_claim_that_is_not_resolved_keeps_what_may_be_its_volume() {
    let mut rig = Rig::new();
    rig.pods(&["a"]);
    rig.list([
        found(ReconstructedState::Mounted, "v", VolumeKind::Csi, "a"),
        found(ReconstructedState::Staged, "v", VolumeKind::Csi, ""),
        found(ReconstructedState::Staged, "w", VolumeKind::Csi, ""),
    ]);
    rig.wish_for(
        "a",
        [("data".to_owned(), Err(missing("data")))].into(),
        ResolveTrigger::Requested,
    );
    assert_eq!(rig.settle(), NONE);
    let wishes = [("data".to_owned(), Ok(persistent("w")))];
    rig.wish_for("a", wishes.into(), ResolveTrigger::Resync);
    let mut words = rig.settle();
    words.sort();
    assert_eq!(words, ["mount a w", "stage w", "unmount a v", "unstage v"]);
}

#[test]
fn a_plugin_that_cannot_list_yet_delays_only_its_own_kinds() {
    let mut rig = Rig::new();
    rig.pods(&[]);
    let local = || StateOfWorld::kinds().filter(|kind| *kind != VolumeKind::Csi);
    rig.world.listed(
        local(),
        vec![found(
            ReconstructedState::Mounted,
            "old",
            VolumeKind::EmptyDir,
            "gone",
        )],
    );
    assert_eq!(
        rig.settle(),
        ["unmount gone old"],
        "but its folder may hold more"
    );
    rig.wish("a", &[empty_dir("e")]);
    rig.settle();
    rig.release("a");
    rig.settle();
    assert!(
        rig.world.is_released(&"a".into()),
        "it had no volume of a driver"
    );
    rig.release("b");
    assert!(!rig.world.is_released(&"b".into()), "who knows what it had");
    rig.world.listed(
        [VolumeKind::Csi],
        vec![found(
            ReconstructedState::Mounted,
            "v",
            VolumeKind::Csi,
            "b",
        )],
    );
    let words = rig.settle();
    assert!(words.contains(&"unmount b v".to_owned()), "{words:?}");
    assert!(words.contains(&"remove gone".to_owned()), "{words:?}");
    assert!(rig.world.is_released(&"b".into()));
}

#[test]
fn a_folder_is_removed_only_of_a_pod_that_nobody_knows() {
    let mut rig = Rig::new();
    rig.world.folders(["a".into(), "b".into()]);
    assert_eq!(
        rig.settle(),
        NONE,
        "before anybody said which pods there are"
    );
    rig.pods(&["a"]);
    assert_eq!(rig.settle(), NONE, "before it is known what is mounted");
    rig.list([]);
    assert_eq!(rig.settle(), ["remove b"]);
    rig.wish("a", &[empty_dir("e")]);
    rig.settle();
    rig.release("a");
    assert_eq!(rig.settle(), ["unmount a e"]);
    rig.pods(&[]);
    assert_eq!(rig.settle(), ["remove a"]);
}

/// As after a restart, for a pod of which only the runtime knows.
#[test]
fn a_folder_is_removed_of_a_pod_that_was_known_and_ended_without_a_word() {
    let mut rig = Rig::clean();
    rig.world.folders(["a".into()]);
    rig.pods(&["a"]);
    assert_eq!(rig.settle(), NONE);
    rig.pods(&[]);
    assert_eq!(rig.settle(), ["remove a"]);
    rig.pods(&[]);
    assert_eq!(rig.settle(), NONE, "once");
}

#[test]
fn a_folder_that_could_not_be_removed_is_tried_again_and_a_pod_that_comes_back_waits() {
    let mut rig = Rig::clean();
    rig.pods(&[]);
    rig.world.folders(["a".into()]);
    assert_eq!(rig.begin(), ["remove a"]);
    rig.end("remove a", failure(FailureEffect::Something));
    assert_eq!(rig.begin(), NONE);
    rig.pass(SECOND);
    assert_eq!(rig.begin(), ["remove a"]);
    rig.wish("a", &[empty_dir("e")]);
    assert_eq!(rig.begin(), NONE, "not while its folder is being removed");
    rig.wish("a", &[]);
    assert!(rig.mounted("a").is_none(), "even without any volume");
    rig.wish("a", &[empty_dir("e")]);
    rig.end_well("remove a");
    assert_eq!(rig.settle(), ["mount a e"]);
}

#[test]
fn a_pod_that_nobody_knows_any_more_is_released() {
    let mut rig = Rig::clean();
    rig.wish("a", &[empty_dir("e")]);
    rig.settle();
    rig.pods(&["a"]);
    assert_eq!(rig.settle(), NONE);
    rig.pods(&["b"]);
    assert_eq!(rig.settle(), ["unmount a e", "remove a"]);
}

#[test]
fn what_cannot_be_told_whose_it_is_is_known_by_its_place() {
    let mut rig = Rig::new();
    let nameless = |id, uid| ReconstructedVolume {
        id: None,
        driver: String::new(),
        volume_handle: String::new(),
        ..found(ReconstructedState::LeftOver, id, VolumeKind::Csi, uid)
    };
    let staged = ReconstructedVolume {
        pod: None,
        state: ReconstructedState::Staged,
        ..nameless("v", "")
    };
    rig.list([nameless("v", "a"), nameless("v", "b"), staged]);
    rig.wish("a", &[persistent("v")]);
    rig.pods(&["a"]);
    let words = rig.settle();
    assert_eq!(
        words,
        [
            "unmount b kubernetes.io/csi/b-v",
            "stage v",
            "mount a v",
            "remove b"
        ]
    );
    rig.release("a");
    assert_eq!(rig.settle(), ["unmount a v", "unstage v"]);
}

#[test]
fn a_place_that_holds_another_volume_is_emptied_first() {
    let mut rig = Rig::clean();
    let with_id = |id: &str| Volume {
        folder: "pv".to_owned(),
        name: "data".to_owned(),
        ..persistent(id)
    };
    rig.wish("a", &[with_id("v")]);
    rig.settle();
    rig.wish("a", &[with_id("w")]);
    let words = rig.settle();
    assert_eq!(words[0], "unmount a v");
    assert!(words.contains(&"mount a w".to_owned()), "{words:?}");
    assert!(words.contains(&"unstage v".to_owned()), "{words:?}");
}

/// Upstream's SELinux mount mismatch in the actual state of the world.
#[test]
fn a_volume_staged_with_another_label_is_staged_anew_when_nobody_has_it() {
    let mut rig = Rig::clean();
    let labelled = |label: &str| Volume {
        selinux_label: label.to_owned(),
        ..persistent_with("v", |csi| csi.selinux_mount = true)
    };
    rig.wish("a", &[labelled("one")]);
    rig.settle();
    rig.wish("b", &[labelled("two")]);
    assert_eq!(rig.settle(), NONE);
    assert_eq!(
        rig.news(),
        [
            "b FailedMount: Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[]: conflicting SELinux labels of volume v: \"one\" and \"two\""
        ]
    );
    rig.release("a");
    assert_eq!(
        rig.settle(),
        ["unmount a v", "unstage v", "stage v", "mount b v"]
    );
}

/// Upstream's VolumeExists of the desired state: what another pod leaves conflicts with nobody.
#[test]
fn a_pod_is_not_refused_for_the_label_of_one_that_is_leaving() {
    let mut rig = Rig::clean();
    let labelled = |label: &str| Volume {
        selinux_label: label.to_owned(),
        ..persistent_with("v", |csi| csi.selinux_mount = true)
    };
    rig.wish("a", &[labelled("one")]);
    rig.settle();
    rig.release("a");
    rig.wish("b", &[labelled("two")]);
    assert_eq!(
        rig.settle(),
        ["unmount a v", "unstage v", "stage v", "mount b v"]
    );
    assert_eq!(rig.news(), NONE);
}

#[test]
fn a_volume_of_one_pod_alone_is_not_staged() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent_with("v", |csi| csi.ephemeral = true)]);
    assert_eq!(rig.settle(), ["mount a v"]);
}

#[test]
fn what_failed_to_stage_half_way_is_unstaged() {
    for (trace, expected) in [
        (FailureEffect::Nothing, &[][..]),
        (FailureEffect::Something, &["unstage v"]),
    ] {
        let mut rig = Rig::clean();
        rig.wish("a", &[persistent("v")]);
        rig.begin();
        rig.end("stage v", failure(trace));
        rig.release("a");
        assert_eq!(rig.settle(), expected, "{trace:?}");
        assert!(rig.world.rows().is_empty());
    }
}

#[test]
fn a_kind_that_no_plugin_serves_waits_for_one() {
    let mut rig = Rig::new();
    rig.world = StateOfWorld::new("edge");
    rig.wish("a", &[empty_dir("e")]);
    assert_eq!(rig.settle(), NONE);
    rig.world.introduce(abilities());
    assert_eq!(rig.settle(), ["mount a e"]);
}
