//! A mounted volume whose content changes, is lost, or is asked for anew.

use super::*;

#[test]
fn changed_content_is_mounted_again_at_once_even_after_a_failure() {
    let mut rig = Rig::clean();
    rig.wish("a", &[files("cfg", "one")]);
    assert_eq!(rig.begin(), ["mount a cfg"]);
    rig.end("mount a cfg", failure(FailureEffect::Nothing));
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(rig.settle(), ["mount a cfg"]);
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(rig.settle(), NONE, "nothing changed");
    rig.wish("a", &[files("cfg", "three")]);
    assert_eq!(rig.begin(), ["mount a cfg"]);
    assert!(rig.mounted("a").is_some(), "it is still there meanwhile");
    rig.end("mount a cfg", failure(FailureEffect::Something));
    assert!(rig.mounted("a").is_some(), "with its old content");
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(
        rig.settle(),
        ["mount a cfg"],
        "which of the two is there, nobody knows"
    );
}

/// The content of a mounted volume is not kept, so it must come with the mount request that needs it.
#[test]
fn content_that_comes_while_it_is_mounted_is_never_lost() {
    let mut rig = Rig::clean();
    rig.wish("a", &[files("cfg", "one")]);
    rig.settle();
    rig.wish("a", &[files("cfg", "two")]);
    assert_eq!(rig.begin(), ["mount a cfg"]);
    rig.wish("a", &[files("cfg", "one")]);
    rig.end_well("mount a cfg");
    assert_eq!(rig.begin(), ["mount a cfg"]);
    rig.end_well("mount a cfg");
    rig.release("a");
    assert_eq!(rig.begin(), ["unmount a cfg"]);
    rig.wish("a", &[files("cfg", "one")]);
    rig.end_well("unmount a cfg");
    assert_eq!(rig.settle(), ["mount a cfg"]);
    assert!(rig.mounted("a").is_some());
}

#[test]
fn a_volume_whose_objects_are_gone_stays_mounted_and_says_so() {
    let mut rig = Rig::clean();
    rig.wish("a", &[files("cfg", "one"), empty_dir("e")]);
    rig.settle();
    let gone = UnresolvedVolume {
        step: ResolveStep::Mounting,
        message: "configmap \"cfg\" not found".to_owned(),
        ..missing("x")
    };
    let wishes = || {
        BTreeMap::from([
            ("cfg".to_owned(), Err(gone.clone())),
            ("e".to_owned(), Ok(empty_dir("e"))),
        ])
    };
    rig.wish_for("a", wishes(), ResolveTrigger::Resync);
    assert_eq!(rig.settle(), NONE);
    assert_eq!(rig.news(), ["a FailedMount: configmap \"cfg\" not found"]);
    assert_eq!(rig.mounted("a").unwrap().volumes.len(), 2);
    rig.wish_for("a", wishes(), ResolveTrigger::Resync);
    assert_eq!(rig.news(), NONE, "once");
    rig.wish("a", &[files("cfg", "two"), empty_dir("e")]);
    assert_eq!(rig.settle(), ["mount a cfg"]);
}

#[test]
fn a_driver_that_refreshes_is_asked_again_each_time() {
    let mut rig = Rig::clean();
    let fresh = persistent_with("v", |csi| csi.republish = true);
    rig.wish("a", &[fresh, persistent("w")]);
    rig.settle();
    rig.world.refresh(&"a".into());
    assert_eq!(rig.settle(), ["mount a v"]);
    rig.world.refresh(&"a".into());
    assert_eq!(rig.begin(), ["mount a v"]);
    rig.end("mount a v", failure(FailureEffect::Nothing));
    assert_eq!(rig.news().len(), 1);
    assert!(rig.mounted("a").is_some());
    rig.pass(SECOND);
    assert_eq!(rig.settle(), ["mount a v"]);
}
