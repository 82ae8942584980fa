//! How the node is: what its object in the API says, gathered from whoever knows.
//!
//! - **Owns** what it told last.
//! - **Hears** that it is time to look, and what was found.
//! - **Tells** the keeper of the node's object, fact by fact.
//! - **Never** judges: which condition comes of a fact is decided there (`logic::node_status`).
//!
//! Upstream: pkg/kubelet/kubelet.go (updateRuntimeUp), kubelet_node_status.go (the setters' sources), 1.36.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::node;
use kernel::{Actor, Addr, Context, Exit, Supervisor};
use logic::node_status::{Fact, Image, Runtime as Told};
use serde::Serialize;

use crate::runtime::Runtime;
use crate::{pleg, volumes};

/// It hears its own looks, and who asks for all of it again.
pub const MAILBOX: usize = 16;

/// Between looks at the runtime, as upstream's `updateRuntimeUp`.
const PERIOD: Duration = Duration::from_secs(5);
/// The same until it is ready for the first time: the node is to be ready as soon as its runtime is.
const IMPATIENCE: Duration = Duration::from_millis(100);
/// Between looks at the images: they are many, and nobody is in a hurry.
const IMAGES_PERIOD: Duration = Duration::from_secs(60);
/// The keepers answer from memory.
const WITHIN: Duration = Duration::from_secs(2);

/// What the gatherer is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Asks the runtime and the managers how they are.
    Look,
    /// Tells what was found.
    Found(Box<Found>),
    /// Asks the runtime for its images.
    LookAtImages,
    /// Tells which there are.
    Images(Option<Vec<Image>>),
    /// Tells everything again: who hears it has a successor.
    TellAgain,
}

/// What a look found.
#[derive(Debug)]
pub struct Found {
    runtime: Option<Told>,
    unhealthy: BTreeMap<String, String>,
    /// None where the keeper of volumes did not answer.
    stuck: Option<Vec<String>>,
}

/// What was told last.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub looks: u64,
    pub runtime_answers: bool,
    pub unhealthy: BTreeMap<String, String>,
    pub images: usize,
}

/// Whom it asks.
#[derive(Debug, Clone)]
pub struct Sources {
    pub runtime: Runtime,
    pub pleg: Addr<pleg::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub root: Supervisor,
}

/// The gatherer.
#[derive(Debug)]
pub struct Vitals {
    sources: Sources,
    node: Addr<node::Msg>,

    looks: u64,
    was_ready: bool,
    runtime_answers: bool,
    unhealthy: BTreeMap<String, String>,
    images: usize,
}

impl Actor for Vitals {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.look(ctx);
        self.look_at_images(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Look => self.look(ctx),
            Msg::Found(found) => self.found(*found, ctx),
            Msg::LookAtImages => self.look_at_images(ctx),
            Msg::Images(images) => self.found_images(images, ctx),
            // The next look comes soon, and tells everything.
            Msg::TellAgain => self.was_ready = false,
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            looks: self.looks,
            runtime_answers: self.runtime_answers,
            unhealthy: self.unhealthy.clone(),
            images: self.images,
        }
    }
}

impl Vitals {
    pub fn new(sources: Sources, node: Addr<node::Msg>) -> Self {
        Vitals {
            sources,
            node,
            looks: 0,
            was_ready: false,
            runtime_answers: false,
            unhealthy: BTreeMap::new(),
            images: 0,
        }
    }

    fn look(&mut self, ctx: &mut Context<Msg>) {
        self.looks += 1;
        let sources = self.sources.clone();
        ctx.run(async move {
            let pleg = sources
                .pleg
                .ask(WITHIN, |reply| pleg::Msg::Health { reply });
            let volumes = sources
                .volumes
                .ask(WITHIN, |reply| volumes::Msg::View { reply });
            let runtime = sources.runtime.told();
            let (pleg, volumes, runtime) =
                futures_util::future::join3(pleg, volumes, runtime).await;
            let mut unhealthy = BTreeMap::new();
            if let Ok(Err(why)) = pleg {
                unhealthy.insert("PLEG".to_owned(), why);
            }
            let stuck = volumes.map(|view| view.stuck).ok();
            Msg::Found(Box::new(Found {
                runtime: runtime
                    .inspect_err(|error| {
                        tracing::warn!("the runtime does not tell how it is: {}", error.told())
                    })
                    .ok(),
                unhealthy,
                stuck,
            }))
        });
    }

    fn found(&mut self, found: Found, ctx: &mut Context<Msg>) {
        self.runtime_answers = found.runtime.is_some();
        self.unhealthy = found.unhealthy;
        let is_up = |told: &Told| {
            let up = |condition: &Option<logic::node_status::RuntimeCondition>| {
                let yes = logic::node::Support::Yes;
                condition.as_ref().is_some_and(|one| one.state == yes)
            };
            up(&told.ready) && up(&told.network)
        };
        let is_well = self.unhealthy.is_empty() && found.runtime.as_ref().is_some_and(is_up);
        self.was_ready |= is_well;
        if let Some(runtime) = found.runtime {
            self.tell(Fact::Runtime(Box::new(runtime)));
        }
        self.tell(Fact::Unhealthy(self.unhealthy.clone()));
        if let Some(stuck) = found.stuck {
            self.tell(Fact::Stuck(stuck));
        }
        let degraded = self.sources.root.degraded();
        let degraded = degraded.into_iter().map(|child| (child.id, child.why));
        self.tell(Fact::Degraded(degraded.collect()));
        let pause = match self.was_ready {
            true => PERIOD,
            false => IMPATIENCE,
        };
        ctx.after(pause, Msg::Look);
    }

    fn look_at_images(&mut self, ctx: &mut Context<Msg>) {
        let runtime = self.sources.runtime.clone();
        ctx.run(async move {
            let listed = runtime.images().await.ok();
            let image = |image: crate::runtime::ListedImage| Image {
                names: image.names,
                bytes: image.bytes,
            };
            Msg::Images(listed.map(|images| images.into_iter().map(image).collect()))
        });
    }

    fn found_images(&mut self, images: Option<Vec<Image>>, ctx: &mut Context<Msg>) {
        if let Some(images) = images {
            self.images = images.len();
            self.tell(Fact::Images(images));
        }
        ctx.after(IMAGES_PERIOD, Msg::LookAtImages);
    }

    fn tell(&self, fact: Fact) {
        if self.node.tell(node::Msg::Learned(fact)).is_err() {
            tracing::warn!("a fact of the node is told with the next look: a mailbox is full");
        }
    }
}
