//! The engine: carries calls out, one after the other for a sandbox, side by side for different ones.
//!
//! What is begun is ended: a call runs in a task of its own, which goes on when its caller goes away. ADD is written
//! down before it begins; whatever is written down and not done is taken away: at once when ADD failed, at the next
//! ADD or DEL of the attachment, by GC, or after a restart as soon as its sandbox is gone.

mod add;
mod delete;
mod gc;
mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blocking_pool::{BlockingPool, KeyedGuard, KeyedLock};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};

pub(crate) use self::gc::Collection;
use crate::attachments::{Attachment, Stage, Store};
use crate::chain::Chains;
use crate::clock::Clock;
use crate::conflist::{Folder, Network};
use crate::netns;
use crate::request::Wanted;

/// A look at a namespace's path.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// What is taken away although nobody waits for it.
const UNDO_TIMEOUT: Duration = Duration::from_secs(60);

/// Everything that calls share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) conf_dir: PathBuf,
    pub(crate) networks: watch::Receiver<Folder>,
    pub(crate) chains: Chains,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) pool: BlockingPool,
    /// One verb at a time for a sandbox.
    pub(crate) sandboxes: KeyedLock,
    /// By network: held while an ADD is written down, and while plugins' GC runs, which must know of every ADD.
    pub(crate) gates: KeyedLock,
}

impl Engine {
    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// Checks that an attachment is as it was made.
    pub(crate) async fn check(self: Arc<Self>, wanted: Wanted) -> Result<(), Status> {
        to_the_end(async move {
            let _turn = self.turn(&wanted.id.sandbox, wanted.end).await?;
            let made = self.of(&wanted).into_iter();
            let made: Vec<_> = made.filter(|(stage, _)| *stage == Stage::Made).collect();
            if made.is_empty() {
                let text = format!("{} is not there", wanted.id);
                return Err(Status::failed_precondition(text));
            }
            for (_, attachment) in made {
                let mut attachment = Attachment::clone(&attachment);
                if !wanted.netns.is_empty() {
                    attachment.netns.clone_from(&wanted.netns);
                }
                self.chains.check(&attachment, wanted.end).await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns the attachments that a request names: one, or those of its interface on any network.
    fn of(&self, wanted: &Wanted) -> Vec<(Stage, Arc<Attachment>)> {
        let id = &wanted.id;
        if !id.network.is_empty() {
            return self.store.get(id).into_iter().collect();
        }
        let all = self.store.all().into_iter();
        all.filter(|(_, of)| (&of.id.sandbox, &of.id.interface) == (&id.sandbox, &id.interface))
            .collect()
    }

    /// Waits until no other verb runs for the sandbox.
    async fn turn(&self, sandbox: &str, end: Instant) -> Result<KeyedGuard, Status> {
        let within = end.saturating_duration_since(Instant::now());
        let turn = self.sandboxes.lock(sandbox, within).await;
        turn.map_err(|_| {
            Status::deadline_exceeded(format!(
                "another call about sandbox {sandbox} did not end in time"
            ))
        })
    }

    /// Returns a network by name, or the default one.
    fn network(&self, name: &str) -> Result<Arc<Network>, Status> {
        let folder = self.networks.borrow();
        if !name.is_empty() {
            return folder.find(name).cloned().ok_or_else(|| {
                let dir = self.conf_dir.display();
                Status::not_found(format!("no valid network {name:?} in {dir}"))
            });
        }
        let network = folder.default_network().cloned();
        network.ok_or_else(|| Status::unavailable(status::no_network(&folder, &self.conf_dir)))
    }

    /// Takes an attachment away, with all that is kept of it.
    async fn take_away(&self, of: &Attachment, end: Instant) -> Result<(), Status> {
        self.store.unmake(&of.id).await;
        let mut of = of.clone();
        if !self.netns_is_there(&of.netns).await {
            of.netns.clear();
        }
        self.chains.del(&of, end).await?;
        self.store.forget(&of.id).await;
        Ok(())
    }

    async fn netns_is_there(&self, path: &str) -> bool {
        let (what, path) = (format!("looking at {path}"), path.to_owned());
        let there = self
            .pool
            .run(&what, LOOK_TIMEOUT, move || Ok(netns::is_there(&path)));
        // One that cannot be looked at in time is there: the plugins find out.
        there.await.unwrap_or(true)
    }

    /// Takes away what was begun and never finished, where the sandbox is gone meanwhile.
    pub(crate) async fn recover(&self) {
        let all = self.store.all().into_iter();
        let unfinished = all.filter(|(stage, _)| *stage == Stage::Unfinished);
        let each = unfinished.map(|(_, of)| async move {
            if self.is_over(&of).await
                && let Err(status) = self.undo(&of).await
            {
                tracing::warn!("{} is not taken away: {}", of.id, status.message());
            }
        });
        futures_util::future::join_all(each).await;
    }

    async fn is_over(&self, of: &Attachment) -> bool {
        !self.clock.is_of_today(&of.began) || !self.netns_is_there(&of.netns).await
    }

    /// Takes an attachment away unless it is done, gone or another one by the time that it can be.
    async fn undo(&self, of: &Arc<Attachment>) -> Result<(), Status> {
        let end = Instant::now() + UNDO_TIMEOUT;
        let _turn = self.turn(&of.id.sandbox, end).await?;
        match self.store.get(&of.id) {
            Some((Stage::Unfinished, now)) if now.began == of.began => {
                self.take_away(&now, end).await
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Carries work to its end, whether its caller waits for it or not.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|gone| {
        Err(Status::new(
            Code::Internal,
            format!("the call ended without an answer: {gone}"),
        ))
    })
}
