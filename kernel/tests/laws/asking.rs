//! Asks go up the tree only.

use std::time::Duration;

use kernel::testing::{pass, run_paused};
use kernel::{
    Actor, Addr, ChildSpec, Context, Exit, Intensity, Reply, Strategy, Supervisor, mailbox,
};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, strum::IntoStaticStr)]
enum Msg {
    /// Asks another, in a child task.
    Ask(Addr<Msg>),
    Answer {
        reply: Reply<()>,
    },
    Answered,
}

struct AskingActor;

impl Actor for AskingActor {
    type Msg = Msg;
    type Snapshot = ();

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Ask(other) => {
                ctx.run(async move {
                    other
                        .ask(SECOND, |reply| Msg::Answer { reply })
                        .await
                        .unwrap();
                    Msg::Answered
                });
            }
            Msg::Answer { reply } => reply.send(()),
            Msg::Answered => {}
        }
        Ok(())
    }

    fn snapshot(&self) {}
}

fn asker(group: &Supervisor, id: &str) -> Addr<Msg> {
    let (addr, port) = mailbox(4);
    group.spawn(ChildSpec::permanent(id), port, || AskingActor);
    addr
}

/// A root with an actor, a group with another, and a third after the group; `asks` names who asks whom.
fn asked(asks: [&str; 2]) {
    run_paused(|| async {
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let first = asker(&root, "first");
        let group = root.supervisor("group", Strategy::OneForOne, Intensity::UNLIMITED);
        let third = asker(&root, "third");
        // Spawned last, but its group stands before the third.
        let second = asker(&group, "second");
        let named = |name| match name {
            "first" => &first,
            "second" => &second,
            _ => &third,
        };
        let [who, whom] = asks.map(named);
        who.tell(Msg::Ask(whom.clone())).unwrap();
        pass(SECOND).await;
    });
}

#[test]
fn an_actor_asks_those_that_stand_before_it_in_the_tree() {
    asked(["second", "first"]);
    asked(["third", "second"]);
}

#[test]
#[should_panic(expected = "test/first asks test/group/second")]
fn a_test_fails_when_an_actor_asks_one_that_is_started_after_it() {
    asked(["first", "second"]);
}

#[test]
#[should_panic(expected = "test/third asks test/third")]
fn an_actor_that_asks_itself_breaks_the_order() {
    asked(["third", "third"]);
}
