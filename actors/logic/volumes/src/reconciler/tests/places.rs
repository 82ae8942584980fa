//! How many are under way at once.

use super::*;

#[test]
fn no_lane_and_no_pod_takes_all_places() {
    let mut rig = Rig::clean();
    for pod in 0..20 {
        let of_one = |n| persistent(&format!("v{pod}-{n}"));
        rig.wish(&format!("p{pod:02}"), &[of_one(0), of_one(1)]);
    }
    let many: Vec<Volume> = (0..20).map(|n| empty_dir(&format!("e{n}"))).collect();
    rig.wish("q", &many);
    rig.wish("r", &[empty_dir("mine")]);
    let begun = rig.begin();
    let of = |word: &str| begun.iter().filter(|begun| begun.starts_with(word)).count();
    assert_eq!(of("stage"), 8, "of one driver");
    assert_eq!(of("mount q"), 6, "for one pod");
    assert_eq!(of("mount r"), 1, "whatever came before it");
}

#[test]
fn what_lingers_gives_its_place_to_others_but_not_in_its_lane() {
    let mut rig = Rig::clean();
    for driver in 0..10 {
        for n in 0..9 {
            let id = format!("v{driver}-{n}");
            let volume = persistent_with(&id, |csi| csi.driver = format!("d{driver}"));
            rig.wish(&format!("p{driver}-{n}"), &[volume]);
        }
    }
    assert_eq!(rig.begin().len(), 64);
    rig.wish("z", &[empty_dir("e")]);
    let plan = rig.world.plan(rig.now);
    assert!(plan.tasks.is_empty());
    assert_eq!(plan.wake, Some(rig.now + 10 * SECOND));
    rig.pass(10 * SECOND);
    let begun = rig.begin();
    assert_eq!(begun.len(), 17, "two more drivers, and the emptyDir");
    assert!(begun.contains(&"mount z e".to_owned()));
}
