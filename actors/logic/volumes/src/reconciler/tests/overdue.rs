//! Drivers that do not answer in time.

use jiff::Timestamp;

use super::*;
use crate::{FsGroupChangePolicy, Ownership};

const LATE: Duration = Duration::from_secs(8);

impl Rig {
    /// Marks what is overdue at 2026-01-01T00:00:20Z; returns after which time the next call will be.
    fn mark(&mut self) -> Option<Duration> {
        let at: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        let next = self.world.mark_overdue(self.now, at);
        next.map(|next| next.duration_since(self.now))
    }

    /// Lets this operation be overdue and then end well; returns the events and what is stuck meanwhile.
    fn overdue(&mut self, of: &str) -> (Vec<String>, Vec<String>) {
        assert_eq!(self.begin(), [of]);
        assert_eq!(self.mark(), Some(LATE), "{of}");
        self.pass(LATE);
        assert_eq!(self.mark(), None, "{of}");
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
    assert_eq!(rig.mark(), None);
    assert_eq!(rig.news(), NONE);
    assert_eq!(rig.world.stuck(), NONE);
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
