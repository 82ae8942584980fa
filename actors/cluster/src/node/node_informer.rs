//! Whoever has a use for the node's object, and cannot look at it by itself, is told when it changes.
//!
//! - **Owns** nothing but its end of the channel.
//! - **Hears** that the object changed.
//! - **Tells** everybody on its list; also when nothing changes, because a successor of one of them knows nothing.
//! - **Never** waits for anybody: who has no room is told a little later, what is true then.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kernel::{Actor, Context, Exit, Recipient};
use serde::Serialize;
use tokio::sync::watch as channel;

/// Its own looks alone.
pub const MAILBOX: usize = 4;

const AGAIN: Duration = Duration::from_millis(100);
/// The longest time in which nobody is told anything.
const SILENCE: Duration = Duration::from_secs(60);

/// What the herald is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Tells everybody, and waits for the next change, or until everybody is told again.
    Changed,
}

/// How often it told.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub told: u64,
}

/// The herald.
#[derive(Debug)]
pub struct NodeInformer {
    object: channel::Receiver<Option<Arc<Node>>>,
    listeners: Vec<Recipient<Option<Arc<Node>>>>,
    told: u64,
}

impl Actor for NodeInformer {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.object.mark_changed();
        self.wait(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Changed => self.tell(ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { told: self.told }
    }
}

impl NodeInformer {
    pub fn new(
        object: channel::Receiver<Option<Arc<Node>>>,
        listeners: Vec<Recipient<Option<Arc<Node>>>>,
    ) -> Self {
        NodeInformer {
            object,
            listeners,
            told: 0,
        }
    }

    fn wait(&self, ctx: &mut Context<Msg>) {
        let mut object = self.object.clone();
        ctx.run(async move {
            match tokio::time::timeout(SILENCE, object.changed()).await {
                Ok(Ok(())) | Err(_) => Msg::Changed,
                // Nobody is left who could change it.
                Ok(Err(_)) => std::future::pending().await,
            }
        });
    }

    fn tell(&mut self, ctx: &mut Context<Msg>) {
        self.told += 1;
        let node = self.object.borrow_and_update().clone();
        let told = self.listeners.iter().map(|one| one.tell(node.clone()));
        match told.filter(Result::is_err).count() {
            0 => self.wait(ctx),
            _ => drop(ctx.after(AGAIN, Msg::Changed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::{inbox, pass, run_paused};
    use kernel::{ChildSpec, Intensity, Supervisor, mailbox};

    use super::*;

    #[derive(Debug, strum::IntoStaticStr)]
    enum InformerEvent {
        Node(Option<Arc<Node>>),
    }

    #[test]
    fn who_has_forgotten_hears_of_the_node_within_a_minute() {
        run_paused(|| async {
            let (object, seen) = channel::channel(None);
            let (listener, mut heard) = inbox(MAILBOX);
            let (_, port) = mailbox(MAILBOX);
            let root = Supervisor::root("test", Intensity::UNLIMITED);
            root.spawn(ChildSpec::permanent("node-informer"), port, move || {
                let listener = Recipient::new(listener.clone(), InformerEvent::Node);
                NodeInformer::new(seen.clone(), vec![listener])
            });
            pass(Duration::from_secs(1)).await;
            assert!(matches!(heard.drain()[..], [InformerEvent::Node(None)]));
            object.send_replace(Some(Arc::default()));
            pass(Duration::from_secs(1)).await;
            assert!(matches!(heard.drain()[..], [InformerEvent::Node(Some(_))]));
            pass(SILENCE).await;
            assert!(matches!(heard.drain()[..], [InformerEvent::Node(Some(_))]));
        });
    }
}
