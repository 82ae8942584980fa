//! What fails is one incarnation: its mail, its address and its neighbours stay.

use std::time::Duration;

use kernel::testing::{pass, run_paused};
use kernel::{AskError, ChildSpec, Intensity};

use crate::probe::{Msg, ROOM, Rig, SOON, Temper, count};

#[test]
fn a_panic_is_one_restart_and_the_successor_handles_what_was_queued() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        let older_clone = addr.clone();
        addr.tell(Msg::Note("before")).unwrap();
        addr.tell(Msg::Boom).unwrap();
        addr.tell(Msg::Note("behind")).unwrap();
        assert_eq!(count(&older_clone).await, Ok(1));
        assert_eq!(
            rig.lines(),
            ["a starts", "a before", "a dies", "a starts", "a behind"]
        );
        assert_eq!(rig.restarts("root/a").await, 1);
        let tree = rig.root.tree().await;
        assert_eq!(
            tree.find("root/a").unwrap().last_exit.as_deref(),
            Some("panicked: boom")
        );
    });
}

#[test]
fn an_error_is_a_restart_like_a_panic_and_shows_its_text() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::Fail).unwrap();
        assert_eq!(count(&addr).await, Ok(0));
        let tree = rig.root.tree().await;
        let node = tree.find("root/a").unwrap();
        assert_eq!(node.restarts, 1);
        assert_eq!(
            node.last_exit.as_deref(),
            Some("failed: the probe was told to")
        );
    });
}

#[test]
fn the_asker_whose_question_kills_gets_gone() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::Stick).unwrap();
        let asked = addr.ask(Duration::from_secs(60), |reply| Msg::Count { reply });
        let stopped = async { rig.root.stop_child("a") };
        let (answer, ()) = tokio::join!(asked, stopped);
        assert_eq!(answer, Err(AskError::Gone));
    });
}

#[test]
fn timers_and_tasks_end_with_the_incarnation_that_began_them() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::Remind(SOON, "echo")).unwrap();
        addr.tell(Msg::Boom).unwrap();
        addr.tell(Msg::Remind(SOON * 2, "own")).unwrap();
        pass(SOON * 3).await;
        assert_eq!(rig.lines(), ["a starts", "a dies", "a starts", "a own"]);
    });
}

#[test]
fn a_result_that_is_queued_when_its_incarnation_ends_is_not_handled_by_the_successor() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::Remind(SOON, "echo")).unwrap();
        // The reminder is queued behind the end: it comes while the actor is busy.
        addr.tell(Msg::Take(SOON * 2)).unwrap();
        addr.tell(Msg::Boom).unwrap();
        pass(SOON * 3).await;
        assert_eq!(count(&addr).await, Ok(0), "the echo was for another");
        assert_eq!(rig.lines(), ["a starts", "a dies", "a starts"]);
        // Its room is free again.
        for _ in 0..ROOM {
            addr.tell(Msg::Note("own")).unwrap();
        }
        pass(SOON).await;
        assert_eq!(rig.lines(), ["a own"; ROOM]);
    });
}

#[test]
fn a_panic_in_a_child_task_is_the_actors_panic() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::BoomBeside).unwrap();
        pass(SOON).await;
        assert_eq!(rig.lines(), ["a starts", "a dies", "a starts"]);
        let tree = rig.root.tree().await;
        let last_exit = tree.find("root/a").unwrap().last_exit.clone();
        assert_eq!(last_exit.as_deref(), Some("panicked: boom beside"));
    });
}

#[test]
fn an_actor_that_panics_while_it_is_dropped_is_still_restarted() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.spawn(
            &rig.root,
            ChildSpec::permanent("a"),
            "a",
            Temper::BurstsWhenDropped,
        );
        addr.tell(Msg::Fail).unwrap();
        addr.tell(Msg::Note("behind")).unwrap();
        assert_eq!(count(&addr).await, Ok(1));
        assert_eq!(rig.lines(), ["a starts", "a dies", "a starts", "a behind"]);
        std::mem::forget(addr);
    });
}

#[test]
fn a_factory_that_panics_is_tried_again() {
    run_paused(|| async {
        let rig = Rig::new();
        let (addr, port) = kernel::mailbox(4);
        let mut tries = 0;
        let journal = rig.journal.clone();
        rig.root.spawn(ChildSpec::permanent("a"), port, move || {
            tries += 1;
            assert!(tries > 2, "not yet");
            crate::probe::Probe::new("a", Temper::Well, journal.clone())
        });
        assert_eq!(count(&addr).await, Ok(0));
        assert_eq!(rig.restarts("root/a").await, 2);
    });
}

#[test]
fn a_failing_start_backs_off_with_growing_pauses_and_the_mail_waits() {
    run_paused(|| async {
        let rig = Rig::with(Intensity::UNLIMITED);
        let spec = ChildSpec::permanent("a");
        let addr = rig.spawn(&rig.root, spec, "a", Temper::FailsAtStart);
        addr.tell(Msg::Note("kept")).unwrap();
        let starts = |rig: &Rig| {
            rig.lines()
                .iter()
                .filter(|line| *line == "a starts")
                .count()
        };
        pass(Duration::from_millis(25)).await;
        // The first, and its restart at once.
        assert_eq!(starts(&rig), 2);
        for pause in [
            100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000,
        ] {
            pass(Duration::from_millis(pause - 50)).await;
            assert_eq!(starts(&rig), 0, "before {pause} ms");
            pass(Duration::from_millis(50)).await;
            assert_eq!(starts(&rig), 1, "after {pause} ms");
        }
        assert!(format!("{addr:?}").contains("len: 1"));
    });
}

#[test]
fn a_flooded_actor_does_not_starve_its_neighbour() {
    run_paused(|| async {
        let rig = Rig::new();
        let (flooded, neighbour) = (rig.permanent("flooded"), rig.permanent("neighbour"));
        flooded.tell(Msg::Spin).unwrap();
        for _ in 0..10 {
            assert_eq!(count(&neighbour).await, Ok(0));
        }
        let handled = count(&flooded).await.unwrap();
        assert!(
            (1..=1_000).contains(&handled),
            "{handled} messages for ten answers"
        );
        rig.root.shutdown().await;
    });
}
