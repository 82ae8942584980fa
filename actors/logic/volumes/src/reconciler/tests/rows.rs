//! What an operator sees.

use super::*;

fn states(rig: &Rig) -> Vec<String> {
    let rows = rig.world.rows().into_iter();
    rows.map(|row| {
        format!("{} {} {} {}", row.uid, row.name, row.state, row.why)
            .trim()
            .to_owned()
    })
    .collect()
}

#[test]
fn every_volume_has_a_word_and_a_reason() {
    let mut rig = Rig::clean();
    let wishes = BTreeMap::from([
        ("data".to_owned(), Err(missing("data"))),
        ("e".to_owned(), Ok(empty_dir("e"))),
        ("v".to_owned(), Ok(persistent("v"))),
    ]);
    rig.wish_for("a", wishes, ResolveTrigger::Requested);
    let unbound = "a data Waiting error processing PVC default/data: PVC is not bound";
    assert_eq!(states(&rig), [unbound, "a e Waiting", "a v Waiting"]);
    rig.begin();
    assert_eq!(states(&rig), [unbound, "a e Mounting", "a v Waiting"]);
    rig.end("mount a e", failure(FailureEffect::Something));
    let ending = OperationResult::Stuck {
        generation: 1,
        message: "hangs".to_owned(),
    };
    rig.end("stage v", ending);
    assert_eq!(
        states(&rig),
        [unbound, "a e Mounting no", "a v Stuck hangs"]
    );
    rig.world.process_gone(|_, _| true);
    rig.pass(SECOND);
    rig.settle();
    assert_eq!(states(&rig), [unbound, "a e Mounted", "a v Mounted"]);
    rig.release("a");
    assert_eq!(states(&rig), ["a e Unmounting", "a v Unmounting"]);
    assert_eq!(rig.world.mounted_volumes(&"a".into()), ["e", "v"]);
    rig.settle();
    assert_eq!(states(&rig), NONE);
}
