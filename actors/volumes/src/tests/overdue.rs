//! Drivers that do not answer.

use super::in_use::{CLAIM, ID, objects, within};
use super::*;

/// A call that the driver does not answer, as it is named in events and reports.
struct Overdue<'a>(&'a str);

impl Overdue<'_> {
    fn is_named(&self, text: &str, prefix: &str) -> bool {
        let begins = format!(
            "{prefix}driver d.example.com has not answered {} since 20",
            self.0
        );
        text.starts_with(&begins) && text.ends_with('Z')
    }
}

/// The process of a driver may be stopped, and its socket accept calls all the same.
#[test]
fn a_driver_that_does_not_answer_is_named_within_ten_seconds_until_it_answers() {
    run_paused(|| async {
        let (mut rig, mut cluster) = within(&objects("1Gi", "1Gi", false)).await;
        rig.plugins.backend("d.example.com");
        rig.plugins.fault("stage", ID, StorageFault::Held);
        pass(MOMENT).await;
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 7).await;
        assert_eq!(rig.texts(), NONE);
        assert!(cluster.stuck().is_empty(), "a driver may take its time");
        pass(SECOND * 2).await;
        let (told, stuck) = (rig.texts(), cluster.stuck());
        let stage = Overdue("NodeStageVolume");
        let event = "a FailedMount: MountVolume.MountDevice failed for volume \"pv\" : ";
        assert!(
            told.len() == 1 && stage.is_named(&told[0], event),
            "{told:?}"
        );
        let named =
            |names: &[String]| names.len() == 1 && stage.is_named(&names[0], &format!("{ID}: "));
        assert!(stuck.len() == 1 && named(&stuck[0]), "{stuck:?}");
        let view = rig.view().await;
        assert!(stage.is_named(&view.volumes[0].why, ""), "{view:?}");
        assert_eq!(view.stuck, stuck[0]);
        pass(SECOND * 60).await;
        assert_eq!(rig.texts(), NONE, "once for one call");
        rig.plugins.release();
        answer.await.unwrap().unwrap().unwrap();
        assert_eq!(cluster.stuck(), [NONE], "it answers again");
        assert!(rig.view().await.volumes[0].why.is_empty());
    });
}

#[test]
fn a_driver_that_does_not_take_a_volume_away_is_named_as_well() {
    run_paused(|| async {
        let (mut rig, mut cluster) = within(&objects("1Gi", "1Gi", false)).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        rig.mounted(&pod_with("a", &[CLAIM])).await;
        rig.plugins.fault("unmount", ID, StorageFault::Held);
        rig.plugins.fault("unstage", ID, StorageFault::Held);
        rig.texts();
        cluster.stuck();
        let released = rig.release("a");
        pass(SECOND * 9).await;
        let told = rig.texts();
        let event = "a VolumeStuck: UnmountVolume.TearDown failed for volume \"pv\" : ";
        assert!(
            told.len() == 1 && Overdue("NodeUnpublishVolume").is_named(&told[0], event),
            "{told:?}"
        );
        assert_eq!(cluster.stuck().len(), 1);
        rig.plugins.release();
        released.await.unwrap().unwrap().unwrap();
        pass(SECOND * 9).await;
        assert_eq!(rig.texts(), NONE, "no pod has it any more");
        let stuck = cluster.stuck();
        assert_eq!(stuck.first(), Some(&vec![]), "{stuck:?}");
        let unstage = Overdue("NodeUnstageVolume");
        assert!(
            unstage.is_named(&stuck[1][0], &format!("{ID}: ")),
            "{stuck:?}"
        );
        rig.plugins.release();
        pass(MOMENT).await;
        assert_eq!(cluster.stuck(), [NONE]);
    });
}

#[test]
fn a_call_that_hangs_for_ever_is_given_up_and_the_next_pod_gets_the_volume() {
    run_paused(|| async {
        let (rig, _cluster) = within(&objects("1Gi", "1Gi", false)).await;
        rig.plugins.backend("d.example.com");
        rig.plugins.fault("stage", ID, StorageFault::Held);
        pass(MOMENT).await;
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND).await;
        // The pod goes before its volume came.
        let released = rig.release("a");
        pass(MOUNT_TIMEOUT).await;
        assert!(answer.await.unwrap().unwrap().is_err());
        assert!(
            released.await.unwrap().unwrap().is_err(),
            "the driver may still do it"
        );
        // Its plugin answers for it at last.
        rig.plugins.release();
        rig.release("a").await.unwrap().unwrap().unwrap();
        rig.mounted(&pod_with("b", &[CLAIM])).await;
        rig.release("b").await.unwrap().unwrap().unwrap();
        pass(SECOND).await;
        assert_eq!(
            (rig.plugins.mounted(), rig.plugins.staged()),
            (vec![], vec![])
        );
        rig.assert_serial();
    });
}
