//! What is not resolved yet, and what a controller attaches first.

use super::*;

/// Upstream's TestWaitForAttachAndMountError.
#[test]
fn what_is_not_resolved_is_told_in_upstreams_words() {
    let mut rig = Rig::clean();
    let wishes = BTreeMap::from([
        ("data".to_owned(), Err(missing("data"))),
        ("e".to_owned(), Ok(empty_dir("e"))),
    ]);
    rig.wish_for("a", wishes, ResolveTrigger::Requested);
    assert_eq!(
        rig.news(),
        [
            "a FailedMount: Unable to attach or mount volumes: unmounted volumes=[data e], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: PVC is not bound"
        ]
    );
    assert_eq!(rig.settle(), ["mount a e"]);
    assert!(rig.mounted("a").is_none());
    assert_eq!(
        rig.world
            .not_mounted(&"a".into(), "context deadline exceeded"),
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context deadline exceeded"
    );
}

/// Upstream's TestGetVolumesInUse (volume manager), Test_Run_Positive_VolumeAttachAndMount... with ReportedInUse.
#[test]
fn an_attached_volume_is_mounted_only_after_it_was_reported_in_use() {
    let mut rig = Rig::clean();
    let mut attached = persistent("v");
    attached.attachment = Attachment::Attached;
    rig.wish("a", &[attached, persistent("w")]);
    let in_use = BTreeSet::from([VolumeId("v".to_owned())]);
    assert_eq!(rig.world.in_use(), in_use);
    assert_eq!(rig.settle(), ["stage w", "mount a w"]);
    assert!(
        rig.world
            .not_mounted(&"a".into(), "")
            .contains("unattached volumes=[v]")
    );
    rig.world.report(in_use.clone());
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
    rig.release("a");
    assert_eq!(rig.world.in_use(), in_use, "until it is unstaged");
    rig.settle();
    assert!(rig.world.in_use().is_empty());
}

/// Upstream's TestGetMountedVolumesForPodAndGetVolumesInUse.
#[test]
fn a_volume_that_a_controller_is_to_attach_is_in_use_from_the_wish_on() {
    let mut rig = Rig::clean();
    let waits = || UnresolvedVolume {
        step: ResolveStep::Attaching,
        attachable: Some(VolumeId("v".to_owned())),
        ..missing("data")
    };
    let in_use = BTreeSet::from([VolumeId("v".to_owned())]);
    for uid in ["a", "b"] {
        rig.wish_for(
            uid,
            [("v".to_owned(), Err(waits()))].into(),
            ResolveTrigger::Requested,
        );
    }
    assert_eq!(rig.world.in_use(), in_use);
    rig.world.report(in_use.clone());
    assert_eq!(rig.settle(), NONE, "nobody has attached it");
    rig.release("b");
    assert_eq!(rig.world.in_use(), in_use, "of the other pod");
    let mut attached = persistent("v");
    attached.attachment = Attachment::Attached;
    rig.wish("a", &[attached]);
    assert_eq!(rig.world.in_use(), in_use);
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
    rig.wish_for(
        "a",
        [("v".to_owned(), Err(waits()))].into(),
        ResolveTrigger::Resync,
    );
    assert_eq!(rig.world.in_use(), in_use, "it is mounted");
    rig.release("a");
    rig.settle();
    assert!(rig.world.in_use().is_empty());
    rig.wish_for(
        "c",
        [("v".to_owned(), Err(waits()))].into(),
        ResolveTrigger::Requested,
    );
    rig.wish("c", &[empty_dir("e")]);
    assert!(rig.world.in_use().is_empty(), "it wants another one now");
}

/// Upstream's TestFindAndRemoveNonattachableVolumes.
#[test]
fn a_volume_that_needs_no_attaching_any_more_waits_for_no_report() {
    let mut rig = Rig::clean();
    let mut attached = persistent("v");
    attached.attachment = Attachment::Attached;
    rig.wish("a", &[attached]);
    assert_eq!(rig.settle(), NONE);
    rig.wish("a", &[persistent("v")]);
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
    assert!(rig.world.in_use().is_empty());
}
