//! Passes changes of the node's object on to actors that do not read it by themselves.
//!
//! - **Owns** nothing but its end of the channel.
//! - **Hears** that the object changed.
//! - **Tells** each of its subscribers; also when nothing changes, because a restarted subscriber knows nothing.
//! - **Never** waits for a subscriber: one whose mailbox is full gets the newest state a little later.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kernel::watch as channel;
use kernel::{Actor, Context, Exit, Recipient};
use serde::Serialize;

/// Its own messages alone.
pub const MAILBOX: usize = 4;

const AGAIN: Duration = Duration::from_millis(100);
/// The longest time between two notifications.
const SILENCE: Duration = Duration::from_secs(60);

/// Messages of the node informer.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Notifies every subscriber, then waits for the next change or resync.
    Changed,
}

/// Snapshot: how many notifications were sent.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Changes that listeners got since the start.
    pub told: u64,
}

/// Watches the channel of the node's object, and notifies the subscribers.
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
                // The sender is gone: the object cannot change any more.
                Ok(Err(_)) => std::future::pending().await,
            }
        });
    }

    fn tell(&mut self, ctx: &mut Context<Msg>) {
        self.told += 1;
        let node = self.object.borrow_and_update().clone();
        let sends = self.listeners.iter().map(|one| one.tell(node.clone()));
        match sends.filter(Result::is_err).count() {
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
