//! Drivers that do not answer in time.

use jiff::Timestamp;

use super::*;
use crate::{FsGroupChangePolicy, Ownership};

const LATE: Duration = Duration::from_secs(8);

impl Rig {
    /// Marks what is overdue at 2026-01-01T00:00:20Z.
    fn mark(&mut self) {
        let at: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        self.world.mark_overdue(self.now, at);
    }

    /// Lets this operation be overdue and then end well; returns the events and what is stuck meanwhile.
    fn overdue(&mut self, of: &str) -> (Vec<String>, Vec<String>) {
        assert_eq!(self.begin(), [of]);
        let due = Some(self.now + LATE);
        assert_eq!(self.world.next_overdue(), due, "{of}");
        self.pass(LATE);
        self.mark();
        assert_eq!(self.world.next_overdue(), None, "{of}");
        let told = (self.news(), self.world.stuck());
        assert!(self.world.take_overdue_change(), "{of}");
        self.pass(LATE);
        self.mark();
        assert_eq!(self.news(), NONE, "once for one call");
        self.end_well(of);
        assert!(self.world.take_overdue_change(), "{of}");
        assert_eq!(self.world.stuck(), NONE, "{of}");
        self.news();
        told
    }
}

#[test]
fn each_call_of_a_driver_is_named_when_it_is_overdue_and_until_it_is_answered() {
    let mut rig = Rig::clean();
    let grown = DesiredVolume {
        volume: persistent("v"),
        grow: Some(10),
    };
    let wishes = [("v".to_owned(), Ok(grown))];
    rig.world
        .set_desired(&"a".into(), wishes.into(), ResolveTrigger::Requested);
    let late = |rpc: &str| format!("driver d has not answered {rpc} since 2026-01-01T00:00:12Z");
    for (of, rpc, event) in [
        (
            "stage v",
            "NodeStageVolume",
            "FailedMount: MountVolume.MountDevice failed",
        ),
        (
            "mount a v",
            "NodePublishVolume",
            "FailedMount: MountVolume.SetUp failed",
        ),
        (
            "grow a v 10",
            "NodeExpandVolume",
            "FailedMount: MountVolume.Setup failed while expanding volume",
        ),
    ] {
        let cause = late(rpc);
        let told = format!("a {event} for volume \"v\" : {cause}");
        assert_eq!(rig.overdue(of), (vec![told], vec![format!("v: {cause}")]));
    }
    rig.release("a");
    let cause = late("NodeUnpublishVolume");
    let told = format!("a VolumeStuck: UnmountVolume.TearDown failed for volume \"v\" : {cause}");
    let stuck = vec![format!("v: {cause}")];
    assert_eq!(rig.overdue("unmount a v"), (vec![told], stuck));
    let stuck = vec![format!("v: {}", late("NodeUnstageVolume"))];
    assert_eq!(rig.overdue("unstage v"), (Vec::new(), stuck));
}

#[test]
fn a_change_of_ownership_that_takes_its_time_is_told_and_is_not_stuck() {
    let mut rig = Rig::clean();
    let mut volume = persistent("v");
    volume.ownership = Some(Ownership {
        fs_group: 7,
        policy: FsGroupChangePolicy::Always,
    });
    rig.wish("a", &[volume]);
    rig.begin();
    rig.end_well("stage v");
    let (told, stuck) = rig.overdue("mount a v");
    assert!(
        told[0].ends_with("Z, or the ownership of the volume's files is still being changed"),
        "{told:?}"
    );
    assert_eq!(stuck, NONE);
}

#[test]
fn what_calls_no_driver_is_never_overdue() {
    let mut rig = Rig::clean();
    rig.wish("a", &[empty_dir("e"), files("f", "x")]);
    assert_eq!(rig.begin().len(), 2);
    rig.pass(600 * SECOND);
    rig.mark();
    assert_eq!(rig.news(), NONE);
    assert_eq!(rig.world.stuck(), NONE);
}

#[test]
fn a_volume_that_waits_for_a_slot_of_a_driver_that_does_not_answer_is_told_so_once() {
    let mut rig = Rig::clean();
    let volumes: Vec<String> = (0..10).map(|number| format!("v{number}")).collect();
    for (pod, volume) in volumes.iter().enumerate() {
        rig.wish(&format!("p{pod}"), &[persistent(volume)]);
    }
    rig.wish("other", &[empty_dir("e")]);
    assert_eq!(
        rig.begin().len(),
        9,
        "eight of the driver, and the other one"
    );
    assert_eq!(rig.news(), NONE, "a wait for a slot is no news");
    rig.pass(LATE);
    rig.mark();
    assert_eq!(rig.news().len(), 8);
    assert_eq!(rig.begin(), NONE);
    let (told, cause) = (
        rig.news(),
        "driver d has not answered NodeStageVolume since ",
    );
    let event = "FailedMount: MountVolume.MountDevice failed for volume";
    let told_of = |pod: &str, volume: &str| {
        let waits =
            format!("{pod} {event} {volume:?} : waits for other volumes of its driver: {cause}");
        told.iter().filter(|told| told.starts_with(&waits)).count()
    };
    assert_eq!(
        (told.len(), told_of("p8", "v8"), told_of("p9", "v9")),
        (2, 1, 1),
        "{told:?}"
    );
    rig.begin();
    assert_eq!(rig.news(), NONE);
    for volume in &volumes[..8] {
        rig.end_well(&format!("stage {volume}"));
    }
    rig.settle();
    assert!(
        rig.world.rows().iter().all(|row| row.why.is_empty()),
        "{:?}",
        rig.world.rows()
    );
}

#[test]
fn every_pod_that_waits_for_a_volume_to_be_staged_is_told() {
    let mut rig = Rig::clean();
    rig.wish("a", &[persistent("v")]);
    rig.wish("b", &[persistent("v")]);
    let (told, stuck) = rig.overdue("stage v");
    assert_eq!((told.len(), stuck.len()), (2, 1), "{told:?}");
    assert!(told[0].starts_with("a FailedMount") && told[1].starts_with("b FailedMount"));
}
