//! An actor that does what it is told, and writes down what happened to it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use kernel::{Actor, Addr, ChildSpec, Context, Exit, Intensity, Reply, Supervisor, mailbox};
use serde::Serialize;

#[derive(Debug, strum::IntoStaticStr)]
pub(crate) enum Msg {
    /// Writes the word down.
    Note(&'static str),
    /// Answers with the number of notes taken by this incarnation.
    Count { reply: Reply<usize> },
    /// Panics.
    Boom,
    /// Fails.
    Fail,
    /// Ends well.
    Finish,
    /// Never comes back.
    Stick,
    /// Takes this long.
    Take(Duration),
    /// Reports with a note when the time is over.
    Remind(Duration, &'static str),
    /// Runs a child task that panics.
    BoomBeside,
    /// Tells itself the same again.
    Spin,
}

/// What happened, in order, over all incarnations of all probes that share it.
pub(crate) type Journal = Rc<RefCell<Vec<String>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temper {
    Well,
    FailsAtStart,
    SticksAtStart,
    SticksAtStop,
    BurstsWhenDropped,
}

pub(crate) struct Probe {
    name: &'static str,
    temper: Temper,
    journal: Journal,
    notes: usize,
}

#[derive(Serialize)]
pub(crate) struct Snapshot {
    notes: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the probe was told to")]
struct ProbeFailure;

impl Actor for Probe {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.write("starts");
        match self.temper {
            Temper::FailsAtStart => Err(ProbeFailure.into()),
            Temper::SticksAtStart => std::future::pending().await,
            Temper::Well | Temper::SticksAtStop | Temper::BurstsWhenDropped => Ok(()),
        }
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Note(word) => self.note(word),
            Msg::Count { reply } => reply.send(self.notes),
            Msg::Boom => panic!("boom"),
            Msg::Fail => return Err(ProbeFailure.into()),
            Msg::Finish => return Err(Exit::Done),
            Msg::Stick => std::future::pending().await,
            Msg::Take(time) => tokio::time::sleep(time).await,
            Msg::Remind(after, word) => drop(ctx.after(after, Msg::Note(word))),
            Msg::BoomBeside => drop(ctx.run(async { panic!("boom beside") })),
            Msg::Spin => {
                self.notes += 1;
                ctx.addr().tell(Msg::Spin)?;
            }
        }
        Ok(())
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        self.write("stops");
        if self.temper == Temper::SticksAtStop {
            std::future::pending().await
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { notes: self.notes }
    }
}

impl Probe {
    pub(crate) fn new(name: &'static str, temper: Temper, journal: Journal) -> Probe {
        Probe {
            name,
            temper,
            journal,
            notes: 0,
        }
    }

    fn note(&mut self, word: &str) {
        self.notes += 1;
        self.write(word);
    }

    fn write(&self, word: &str) {
        self.journal
            .borrow_mut()
            .push(format!("{} {word}", self.name));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.write("dies");
        if self.temper == Temper::BurstsWhenDropped {
            panic!("burst");
        }
    }
}

/// A tree under test, and the journal of its probes.
pub(crate) struct Rig {
    pub(crate) root: Supervisor,
    pub(crate) journal: Journal,
}

/// Room in every probe's mailbox.
pub(crate) const ROOM: usize = 4;

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::with(Intensity {
            restarts: 3,
            within: Duration::from_secs(10),
        })
    }

    pub(crate) fn with(intensity: Intensity) -> Rig {
        let root = Supervisor::root("root", intensity);
        Rig {
            root,
            journal: Journal::default(),
        }
    }

    pub(crate) fn permanent(&self, name: &'static str) -> Addr<Msg> {
        self.spawn(&self.root, ChildSpec::permanent(name), name, Temper::Well)
    }

    pub(crate) fn beneath(&self, group: &Supervisor, name: &'static str) -> Addr<Msg> {
        self.spawn(group, ChildSpec::permanent(name), name, Temper::Well)
    }

    pub(crate) fn spawn(
        &self,
        group: &Supervisor,
        spec: ChildSpec,
        name: &'static str,
        temper: Temper,
    ) -> Addr<Msg> {
        let (addr, port) = mailbox(ROOM);
        let journal = Rc::clone(&self.journal);
        group.spawn(spec, port, move || {
            Probe::new(name, temper, Rc::clone(&journal))
        });
        addr
    }

    /// Takes the journal's lines since the last look.
    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.journal.borrow_mut())
    }

    /// Returns how many restarts the tree shows for a path.
    pub(crate) async fn restarts(&self, path: &str) -> u64 {
        let tree = self.root.tree().await;
        tree.find(path).map_or(0, |node| node.restarts)
    }
}

pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Asks a probe for its count, which also proves that everything told before is handled.
pub(crate) async fn count(addr: &Addr<Msg>) -> Result<usize, kernel::AskError> {
    addr.ask(SOON, |reply| Msg::Count { reply }).await
}
