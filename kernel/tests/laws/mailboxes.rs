//! Mail: bounded, kept, answered or refused, never silently lost.

use std::time::Duration;

use kernel::testing::{inbox, pass, run_paused};
use kernel::{AskError, ChildSpec, Overloaded, mailbox};

use crate::probe::{Msg, Probe, ROOM, Rig, SOON, Temper, count};

#[test]
fn a_mailbox_holds_its_capacity_and_no_more_however_many_clones_send() {
    run_paused(|| async {
        let (addr, _port) = mailbox::<Msg>(10);
        let accepted = (0..100)
            .filter(|_| addr.clone().tell(Msg::Note("x")).is_ok())
            .count();
        assert_eq!(accepted, 10);
        let mailbox = format!("{addr:?}");
        assert!(
            mailbox.contains("len: 10, capacity: 10, overloaded: 90"),
            "{mailbox}"
        );
    });
}

#[test]
fn a_refused_message_comes_back_to_its_sender() {
    run_paused(|| async {
        let (addr, _port) = mailbox::<Msg>(1);
        addr.tell(Msg::Boom).unwrap();
        let Err(Overloaded(msg)) = addr.tell(Msg::Note("mine")) else {
            panic!("accepted beyond its capacity")
        };
        assert!(matches!(msg, Msg::Note("mine")));
    });
}

#[test]
fn what_is_told_before_the_actor_is_spawned_is_handled_after() {
    run_paused(|| async {
        let rig = Rig::new();
        let (addr, port) = mailbox(ROOM);
        addr.tell(Msg::Note("early")).unwrap();
        rig.root.spawn(ChildSpec::permanent("a"), port, {
            let journal = rig.journal.clone();
            move || Probe::new("a", Temper::Well, journal.clone())
        });
        assert_eq!(count(&addr).await, Ok(1));
        assert_eq!(rig.lines(), ["a starts", "a early"]);
    });
}

#[test]
fn room_comes_back_as_messages_are_handled() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        for _ in 0..100 {
            addr.send(Msg::Note("x"), SOON).await.unwrap();
        }
        pass(SOON).await;
        assert_eq!(count(&addr).await, Ok(100));
    });
}

#[test]
fn send_waits_for_room_and_gives_up_at_its_deadline() {
    run_paused(|| async {
        let (addr, mut inbox) = inbox::<Msg>(1);
        addr.tell(Msg::Note("first")).unwrap();
        let before = kernel::now();
        assert!(addr.send(Msg::Note("late"), SOON).await.is_err());
        assert_eq!(kernel::now() - before, SOON);

        let waiting = addr.send(Msg::Note("second"), SOON);
        let reading = async {
            pass(SOON / 2).await;
            inbox.next(SOON).await
        };
        let (sent, first) = tokio::join!(waiting, reading);
        assert!(sent.is_ok());
        assert!(matches!(first, Some(Msg::Note("first"))));
        assert!(matches!(inbox.drain().as_slice(), [Msg::Note("second")]));
    });
}

#[test]
fn an_ask_ends_at_its_deadline() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        addr.tell(Msg::Take(Duration::from_secs(20))).unwrap();
        let before = kernel::now();
        assert_eq!(count(&addr).await, Err(AskError::Deadline));
        assert_eq!(kernel::now() - before, SOON);
    });
}

#[test]
fn an_ask_of_a_full_mailbox_is_refused_at_once() {
    run_paused(|| async {
        let (addr, _port) = mailbox::<Msg>(1);
        addr.tell(Msg::Boom).unwrap();
        assert_eq!(count(&addr).await, Err(AskError::Overloaded));
    });
}

#[test]
fn an_ask_of_an_actor_that_ends_is_answered_with_gone() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = rig.spawn(&rig.root, ChildSpec::transient("a"), "a", Temper::Well);
        addr.tell(Msg::Finish).unwrap();
        // Queued behind the end, and asked after it: neither hangs.
        assert_eq!(count(&addr).await, Err(AskError::Gone));
        assert_eq!(count(&addr).await, Err(AskError::Gone));
        assert!(addr.tell(Msg::Note("x")).is_err());
        assert!(addr.send(Msg::Note("x"), SOON).await.is_err());
    });
}

#[test]
fn a_port_that_is_never_spawned_closes_its_mailbox() {
    run_paused(|| async {
        let (addr, port) = mailbox::<Msg>(1);
        let asked = addr.ask(SOON, |reply| Msg::Count { reply });
        let (answer, ()) = tokio::join!(asked, async { drop(port) });
        assert_eq!(answer, Err(AskError::Gone));
    });
}

#[test]
fn an_inbox_gives_room_back_only_as_the_test_reads_it() {
    run_paused(|| async {
        let (addr, mut inbox) = inbox::<Msg>(2);
        addr.tell(Msg::Note("1")).unwrap();
        addr.tell(Msg::Note("2")).unwrap();
        assert!(addr.tell(Msg::Note("3")).is_err());
        assert!(matches!(inbox.next(SOON).await, Some(Msg::Note("1"))));
        addr.tell(Msg::Note("4")).unwrap();
        assert!(addr.tell(Msg::Note("5")).is_err());
        assert_eq!(inbox.drain().len(), 2);
        assert!(inbox.next(SOON).await.is_none());
    });
}

#[test]
fn other_threads_send_through_the_same_address() {
    kernel::system::run(async {
        let rig = Rig::new();
        let addr = rig.permanent("a");
        let sender = addr.clone();
        let sent =
            std::thread::spawn(move || (1..ROOM).all(|_| sender.tell(Msg::Note("x")).is_ok()));
        assert!(
            kernel::spawn_blocking(|| sent.join())
                .await
                .unwrap()
                .unwrap()
        );
        assert_eq!(count(&addr).await, Ok(ROOM - 1));
    })
    .unwrap();
}
