//! Who does not answer is found, named and replaced; who is merely busy is left alone.

use std::sync::mpsc;
use std::time::Duration;

use kernel::actor::Actor;
use kernel::system::watchdog::{Watchdog, WatchdogAlarm};
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, Context, Exit, InjectedFault, Reply, Supervisor, mailbox};

use crate::probe::{Msg, Rig, SOON, Temper, count};

const PATIENCE: Duration = Duration::from_secs(2);

fn impatient(rig: &Rig, temper: Temper) -> kernel::Addr<Msg> {
    let spec = ChildSpec::permanent("a").answer_within(PATIENCE);
    rig.spawn(&rig.root, spec, "a", temper)
}

#[test]
fn an_actor_stuck_in_a_message_is_named_and_restarted_and_its_mail_kept() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = impatient(&rig, Temper::Well);
        addr.tell(Msg::Stick).unwrap();
        addr.tell(Msg::Note("behind")).unwrap();
        pass(SOON).await;
        let tree = rig.root.tree().await;
        let node = tree.find("root/a").unwrap();
        assert_eq!(node.busy_with.as_deref(), Some("Stick"));
        assert!(node.snapshot.is_null());

        pass(PATIENCE * 2).await;
        assert_eq!(rig.lines(), ["a starts", "a dies", "a starts", "a behind"]);
        let tree = rig.root.tree().await;
        let node = tree.find("root/a").unwrap();
        assert_eq!(node.last_exit.as_deref(), Some("hung in Stick"));
        assert_eq!((node.restarts, node.busy_with.as_deref()), (1, None));
    });
}

#[test]
fn an_actor_that_owes_an_answer_is_late_until_it_gives_one() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = impatient(&rig, Temper::Well);
        pass(PATIENCE * 10).await;
        assert_eq!(rig.root.late(), [], "an idle one answers its ping at once");
        addr.tell(Msg::Take(PATIENCE)).unwrap();
        pass(PATIENCE).await;
        let late = rig.root.late();
        let names: Vec<_> = late
            .iter()
            .map(|late| (late.path.as_str(), late.busy_with))
            .collect();
        assert_eq!(names, [("root/a", Some("Take"))]);
        pass(SOON * 2).await;
        assert_eq!(rig.root.late(), []);
        assert_eq!(rig.restarts("root/a").await, 0);
    });
}

#[test]
fn an_actor_stuck_in_its_start_is_found_too() {
    run_paused(|| async {
        let rig = Rig::new();
        let _addr = impatient(&rig, Temper::SticksAtStart);
        pass(PATIENCE * 2).await;
        let tree = rig.root.tree().await;
        assert_eq!(
            tree.find("root/a").unwrap().last_exit.as_deref(),
            Some("hung in start")
        );
    });
}

#[test]
fn an_actor_that_is_long_busy_with_many_messages_is_not_hung() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = impatient(&rig, Temper::Well);
        for _ in 0..20 {
            addr.send(Msg::Take(PATIENCE - SOON / 2), PATIENCE * 2)
                .await
                .unwrap();
        }
        pass(PATIENCE * 5).await;
        assert_eq!(count(&addr).await, Ok(0));
        assert_eq!(rig.restarts("root/a").await, 0);
    });
}

#[test]
fn an_idle_actor_lives_for_days() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = impatient(&rig, Temper::Well);
        pass(Duration::from_secs(86_400)).await;
        assert_eq!(count(&addr).await, Ok(0));
        assert_eq!(rig.lines(), ["a starts"]);
    });
}

#[test]
fn injected_faults_panic_and_hang_the_actor_they_name() {
    run_paused(|| async {
        let rig = Rig::new();
        let addr = impatient(&rig, Temper::Well);
        rig.root.inject("root/a", InjectedFault::Panic).unwrap();
        assert_eq!(count(&addr).await, Ok(0));
        assert_eq!(rig.restarts("root/a").await, 1);
        rig.root.inject("root/a", InjectedFault::Hang).unwrap();
        pass(PATIENCE * 2).await;
        assert_eq!(rig.restarts("root/a").await, 2);
        let unknown = rig.root.inject("root/b", InjectedFault::Hang).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no actor root/b");
    });
}

/// Blocks its thread until the test lets go.
struct Blocker {
    release: mpsc::Receiver<()>,
}

#[derive(Debug, strum::IntoStaticStr)]
enum Block {
    Thread { reply: Reply<()> },
}

impl Actor for Blocker {
    type Msg = Block;
    type Snapshot = ();

    async fn handle(
        &mut self,
        Block::Thread { reply }: Block,
        _ctx: &mut Context<Block>,
    ) -> Result<(), Exit> {
        self.release.recv()?;
        reply.send(());
        Ok(())
    }

    fn snapshot(&self) {}
}

#[test]
fn whoever_blocks_the_thread_is_named_and_its_neighbours_are_not_blamed() {
    let (alarms, raised) = mpsc::channel();
    let (let_go, release) = mpsc::channel();
    let watchdog = Watchdog {
        warn_after: Duration::from_millis(200),
        give_up_after: Duration::from_millis(400),
        alarm: Box::new(move |alarm, stuck| {
            alarms.send((alarm, stuck.clone())).unwrap();
            if alarm == WatchdogAlarm::Lost && stuck.actor.is_some() {
                let_go.send(()).unwrap();
            }
        }),
    };
    kernel::system::run_watched(watchdog, async {
        let root = Supervisor::root("root", kernel::Intensity::UNLIMITED);
        let (addr, port) = mailbox(1);
        let mut release = Some(release);
        root.spawn(ChildSpec::transient("blocker"), port, move || Blocker {
            release: release.take().expect("it is made once"),
        });
        let rig = Rig::new();
        let spec = ChildSpec::permanent("neighbour").answer_within(Duration::from_millis(40));
        let neighbour = rig.spawn(&rig.root, spec, "neighbour", Temper::Well);
        let asked = addr.ask(PATIENCE * 10, |reply| Block::Thread { reply });
        asked.await.unwrap();
        // Time for the sweep to come to a wrong conclusion.
        pass(Duration::from_millis(100)).await;
        assert_eq!(count(&neighbour).await, Ok(0));
        assert_eq!(rig.lines(), ["neighbour starts"]);
    })
    .unwrap();
    for expected in [WatchdogAlarm::Late, WatchdogAlarm::Lost] {
        let (alarm, stuck) = raised.try_recv().unwrap();
        assert_eq!(alarm, expected);
        assert_eq!(stuck.actor.as_deref(), Some("root/blocker"));
        assert_eq!(stuck.message, Some("Thread"));
    }
}
