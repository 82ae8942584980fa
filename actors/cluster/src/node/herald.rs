//! Whoever has a use for the node's object, and cannot look at it by itself, is told when it changes.
//!
//! - **Owns** nothing but its end of the channel.
//! - **Hears** that the object changed.
//! - **Tells** everybody on its list.
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

/// What the herald is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Tells everybody, and waits for the next change.
    Changed,
}

/// How often it told.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub changes: u64,
}

/// The herald.
#[derive(Debug)]
pub struct Herald {
    object: channel::Receiver<Option<Arc<Node>>>,
    listeners: Vec<Recipient<Option<Arc<Node>>>>,
    changes: u64,
}

impl Actor for Herald {
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
        Snapshot {
            changes: self.changes,
        }
    }
}

impl Herald {
    pub fn new(
        object: channel::Receiver<Option<Arc<Node>>>,
        listeners: Vec<Recipient<Option<Arc<Node>>>>,
    ) -> Self {
        Herald {
            object,
            listeners,
            changes: 0,
        }
    }

    fn wait(&self, ctx: &mut Context<Msg>) {
        let mut object = self.object.clone();
        ctx.run(async move {
            if object.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            Msg::Changed
        });
    }

    fn tell(&mut self, ctx: &mut Context<Msg>) {
        self.changes += 1;
        let node = self.object.borrow_and_update().clone();
        let told = self.listeners.iter().map(|one| one.tell(node.clone()));
        match told.filter(Result::is_err).count() {
            0 => self.wait(ctx),
            _ => drop(ctx.after(AGAIN, Msg::Changed)),
        }
    }
}
