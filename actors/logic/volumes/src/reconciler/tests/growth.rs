//! A volume that is to be larger.

use super::*;

/// Upstream's Test_Run_..._ExpandInUse and expandVolumeDuringMount.
#[test]
fn a_volume_grows_before_its_pod_starts_and_under_it() {
    let mut rig = Rig::clean();
    let grow = |rig: &mut Rig, size| {
        let wish = DesiredVolume {
            volume: persistent("v"),
            grow: Some(size),
        };
        rig.world.set_desired(
            &"a".into(),
            [("v".to_owned(), Ok(wish))].into(),
            ResolveTrigger::Resync,
        );
    };
    grow(&mut rig, 10);
    rig.begin();
    rig.end_well("stage v");
    rig.begin();
    rig.end_well("mount a v");
    assert_eq!(rig.begin(), ["grow a v 10"]);
    assert!(rig.mounted("a").is_none(), "too small yet");
    rig.end("grow a v 10", failure(FailureEffect::Something));
    assert_eq!(
        rig.news(),
        ["a FailedMount: MountVolume.Setup failed while expanding volume for volume \"v\" : no"]
    );
    rig.pass(SECOND);
    assert_eq!(rig.settle(), ["grow a v 10"]);
    assert_eq!(
        rig.news(),
        [
            "a FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"v\" edge"
        ]
    );
    assert!(rig.mounted("a").is_some());
    grow(&mut rig, 10);
    assert_eq!(rig.settle(), NONE);
    grow(&mut rig, 20);
    assert_eq!(rig.begin(), ["grow a v 20"]);
    assert!(rig.mounted("a").is_some(), "it is used meanwhile");
    rig.end("grow a v 20", failure(FailureEffect::Refusal));
    assert_eq!(
        rig.news(),
        ["a VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"v\" : no"]
    );
    rig.pass(600 * SECOND);
    assert_eq!(rig.settle(), NONE, "not to this size");
    grow(&mut rig, 30);
    assert_eq!(rig.settle(), ["grow a v 30"]);
}

/// Upstream's Test_Run_Positive_VolumeFSResizeControllerAttachEnabled: expanded, whether its files are mounted or it is
/// raw; in use; and, by the first law of [`crate::resolve::expansion`], a driver that expands nothing.
#[test]
fn a_volume_in_use_is_left_at_its_size_until_it_comes_anew() {
    for mode in [VolumeMode::FileSystem, VolumeMode::Block] {
        let mut rig = Rig::clean();
        let grow = |rig: &mut Rig, uid: &str, grow: Option<u64>| {
            let volume = Volume {
                mode,
                ..persistent("v")
            };
            let wish = DesiredVolume { volume, grow };
            let wishes = [("v".to_owned(), Ok(wish))].into();
            rig.world
                .set_desired(&uid.into(), wishes, ResolveTrigger::Resync);
        };
        grow(&mut rig, "a", None);
        rig.settle();
        grow(&mut rig, "a", Some(15));
        assert_eq!(rig.settle(), ["grow a v 15"], "{mode:?}");
        rig.news();
        grow(&mut rig, "a", Some(20));
        rig.begin();
        rig.end("grow a v 20", failure(FailureEffect::Nothing));
        assert_eq!(rig.news(), NONE, "the claim is told");
        assert!(rig.mounted("a").is_some());
        rig.pass(600 * SECOND);
        grow(&mut rig, "a", Some(30));
        assert_eq!(rig.settle(), NONE, "to no size");
        rig.release("a");
        rig.settle();
        // A pod that begins with it is not kept from starting either.
        grow(&mut rig, "b", Some(30));
        rig.begin();
        rig.end_well("stage v");
        rig.begin();
        rig.end_well("mount b v");
        assert_eq!(rig.begin(), ["grow b v 30"], "{mode:?}");
        rig.end("grow b v 30", failure(FailureEffect::Nothing));
        assert!(rig.mounted("b").is_some());
    }
}
