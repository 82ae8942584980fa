//! Failures: how they are reported, when they are retried, and what state they leave.

use logic_api::types::EventLevel;

use super::*;

#[test]
fn what_fails_is_told_and_tried_again_later_and_later() {
    let mut rig = Rig::clean();
    rig.wish("a", &[empty_dir("e")]);
    for delay in [500, 1000, 2000, 4000] {
        assert_eq!(rig.begin(), ["mount a e"]);
        rig.end("mount a e", failure(FailureEffect::Something));
        assert_eq!(
            rig.news(),
            ["a FailedMount: MountVolume.SetUp failed for volume \"e\" : no"]
        );
        let plan = rig.world.plan(rig.now);
        assert_eq!(plan.wake, Some(rig.now + Duration::from_millis(delay)));
        rig.pass(Duration::from_millis(delay - 1));
        assert_eq!(rig.begin(), NONE);
        rig.pass(Duration::from_millis(1));
    }
    assert_eq!(rig.settle(), ["mount a e"]);
    assert!(rig.mounted("a").is_some());
}

#[test]
fn what_hangs_is_left_alone_until_its_process_is_gone_and_others_go_on() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("w")]);
    rig.begin();
    let ending = OperationResult::Stuck {
        generation: 7,
        message: "stage of v hangs".to_owned(),
    };
    rig.end("stage v", ending);
    assert_eq!(rig.settle(), ["mount b w"]);
    assert_eq!(rig.world.stuck(), ["v: stage of v hangs"]);
    assert!(rig.news()[0].contains("MountVolume.MountDevice failed for volume \"v\""));
    rig.pass(600 * SECOND);
    assert_eq!(rig.settle(), NONE);
    rig.world
        .process_gone(|kind, generation| kind == VolumeKind::Csi && generation == 6);
    assert_eq!(rig.settle(), NONE);
    rig.world
        .process_gone(|kind, generation| kind == VolumeKind::Csi && generation == 7);
    assert_eq!(rig.world.stuck(), NONE);
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
}

#[test]
fn a_failure_that_left_nothing_behind_is_not_unmounted() {
    for (trace, expected) in [
        (FailureEffect::Nothing, &[][..]),
        (FailureEffect::Refusal, &[]),
        (FailureEffect::Something, &["unmount a e"]),
    ] {
        let mut rig = Rig::clean();
        rig.wish("a", &[empty_dir("e")]);
        rig.begin();
        rig.end("mount a e", failure(trace));
        rig.release("a");
        assert_eq!(rig.settle(), expected, "{trace:?}");
        assert!(rig.world.is_released(&"a".into()));
    }
}

#[test]
fn a_driver_that_comes_back_is_tried_at_once() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    for _ in 0..8 {
        rig.begin();
        rig.end("stage v", failure(FailureEffect::Nothing));
        rig.pass(64 * SECOND);
    }
    rig.begin();
    rig.end("stage v", failure(FailureEffect::Nothing));
    rig.world.retry_driver("other");
    assert_eq!(rig.settle(), NONE);
    rig.world.retry_driver("d");
    assert_eq!(rig.settle(), ["stage v", "mount a v"]);
}

#[test]
fn news_of_success_are_normal_and_of_failure_warnings() {
    let mut rig = Rig::clean();
    rig.wish("a", &[empty_dir("e")]);
    rig.begin();
    rig.end("mount a e", failure(FailureEffect::Nothing));
    let news = rig.world.take_events();
    assert_eq!((news.len(), news[0].weight), (1, EventLevel::Warning));
}
