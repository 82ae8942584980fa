//! How the node is: what its object in the API says, gathered from whoever knows.
//!
//! - **Owns** what it told last.
//! - **Hears** that it is time to look, and what was found; and which addresses the node's pods get.
//! - **Tells** the keeper of the node's object, fact by fact; and the runtime those addresses.
//! - **Never** judges: which condition comes of a fact is decided there (`logic::node_status`).
//!
//! Upstream: pkg/kubelet/kubelet.go (updateRuntimeUp), kubelet_node_status.go (the setters' sources), kubelet_network.go
//! (updatePodCIDR), 1.36.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::node;
use kernel::{Actor, Addr, Context, Exit, Supervisor};
use logic::node_status::{Fact, Image, Runtime as Told};
use serde::Serialize;

use crate::runtime::{Runtime, RuntimeError};
use crate::{pleg, volumes};

/// It hears its own looks, and who asks for all of it again.
pub const MAILBOX: usize = 16;

/// Between looks at the runtime, as upstream's `updateRuntimeUp`.
const PERIOD: Duration = Duration::from_secs(5);
/// The same until it is ready for the first time: the node is to be ready as soon as its runtime is.
const IMPATIENCE: Duration = Duration::from_millis(100);
/// Between looks at the images: they are many, and nobody is in a hurry.
const IMAGES_PERIOD: Duration = Duration::from_secs(60);
/// Between attempts to tell the runtime the addresses of pods, as upstream's looks at the node.
const RANGES_AGAIN: Duration = Duration::from_secs(10);
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
    /// Tells the runtime that the node's pods get addresses of these ranges, with commas between.
    PodRanges(String),
    /// Tells them if the runtime does not know them.
    TellRanges,
    /// Takes note of which it was told, or tells them again later.
    RangesTold(Result<String, RuntimeError>),
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
    /// The addresses of pods that the runtime knows of.
    pub pod_ranges: String,
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
    ranges: Ranges,
}

/// Which addresses the node's pods get; empty where nobody says.
#[derive(Debug, Default)]
struct Ranges {
    wanted: String,
    told: String,
    telling: bool,
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
            Msg::PodRanges(ranges) => self.want_ranges(ranges, ctx),
            Msg::TellRanges => self.tell_ranges(ctx),
            Msg::RangesTold(outcome) => self.ranges_told(outcome, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            looks: self.looks,
            runtime_answers: self.runtime_answers,
            unhealthy: self.unhealthy.clone(),
            images: self.images,
            pod_ranges: self.ranges.told.clone(),
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
            ranges: Ranges::default(),
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

    fn want_ranges(&mut self, ranges: String, ctx: &mut Context<Msg>) {
        if !ranges.is_empty() {
            self.ranges.wanted = ranges;
            self.tell_ranges(ctx);
        }
    }

    fn tell_ranges(&mut self, ctx: &mut Context<Msg>) {
        let Ranges {
            wanted,
            told,
            telling,
        } = &mut self.ranges;
        if wanted == told || std::mem::replace(telling, true) {
            return;
        }
        let (runtime, ranges) = (self.sources.runtime.clone(), wanted.clone());
        ctx.run(async move {
            let told = runtime.tell_pod_ranges(&ranges).await;
            Msg::RangesTold(told.map(|()| ranges))
        });
    }

    fn ranges_told(&mut self, outcome: Result<String, RuntimeError>, ctx: &mut Context<Msg>) {
        self.ranges.telling = false;
        match outcome {
            Ok(ranges) => {
                tracing::info!(ranges, "the runtime knows the addresses of pods");
                self.ranges.told = ranges;
                // They may be others by now.
                self.tell_ranges(ctx);
            }
            Err(error) => {
                tracing::warn!(
                    "the runtime is not told the addresses of pods: {}",
                    error.told()
                );
                ctx.after(RANGES_AGAIN, Msg::TellRanges);
            }
        }
    }

    fn tell(&self, fact: Fact) {
        if self.node.tell(node::Msg::Learned(fact)).is_err() {
            tracing::warn!("a fact of the node is told with the next look: a mailbox is full");
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::{inbox, pass, run_paused};
    use kernel::{ChildSpec, mailbox};

    use super::*;
    use crate::testing::TestNode;

    /// Upstream's TestUpdateNodeStatusWithLease, its part on pod CIDRs.
    #[test]
    fn the_runtime_is_told_the_addresses_of_pods_until_it_has_heard_them() {
        run_paused(|| async {
            let node = TestNode::start().await;
            let fault = r#"{"call": "UpdateRuntimeConfig", "times": 1, "code": "Internal", "message": "no"}"#;
            node.script(&format!(r#"{{"faults": [{fault}]}}"#));
            let (told, _told) = inbox(MAILBOX);
            let sources = Sources {
                runtime: node.runtime.clone(),
                pleg: node.node.pleg.clone(),
                volumes: node.node.volumes.clone(),
                root: node.node.root.clone(),
            };
            let (vitals, port) = mailbox(MAILBOX);
            let root = &node.node.root;
            root.spawn(ChildSpec::permanent("vitals"), port, move || {
                Vitals::new(sources.clone(), told.clone())
            });
            let known = async || {
                let tree = root.tree().await;
                let vitals = &tree.find("oxlet/vitals").unwrap().snapshot;
                vitals["pod_ranges"].as_str().unwrap().to_owned()
            };
            vitals.tell(Msg::PodRanges(String::new())).unwrap();
            let both = "10.0.0.0/24,2000::/10";
            vitals.tell(Msg::PodRanges(both.to_owned())).unwrap();
            pass(Duration::from_secs(5)).await;
            assert_eq!(known().await, "");
            pass(Duration::from_secs(10)).await;
            assert_eq!(known().await, both);
            // An object that does not say them any more changes nothing.
            vitals.tell(Msg::PodRanges(String::new())).unwrap();
            pass(Duration::from_secs(1)).await;
            assert_eq!(known().await, both);
        });
    }
}
