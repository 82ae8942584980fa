//! ADD: written down, made, written down again; whatever fails on the way is undone.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;

use super::{Engine, LOOK_TIMEOUT, UNDO_TIMEOUT};
use crate::attachments::{Attachment, AttachmentId, Stage};
use crate::conflist::Network;
use crate::netns::{self, NetnsError};
use crate::request::Wanted;

/// Why an attachment was not made.
struct Failure {
    status: Status,
    /// What there may be of it.
    half: Option<Attachment>,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, half: None }
    }
}

impl Engine {
    /// Makes an attachment, or returns it as it was made.
    pub(crate) async fn add(
        self: Arc<Self>,
        wanted: Wanted,
        owner: String,
    ) -> Result<Arc<Attachment>, Status> {
        let (answer, answered) = oneshot::channel();
        drop(tokio::spawn(async move {
            let turn = match self.turn(&wanted.id.sandbox, wanted.end).await {
                Ok(turn) => turn,
                Err(status) => return drop(answer.send(Err(status))),
            };
            match self.make(&wanted, owner).await {
                Ok(made) => drop(answer.send(Ok(made))),
                Err(Failure { status, half }) => {
                    // The caller has its answer at its deadline; what follows has time of its own.
                    drop(answer.send(Err(status)));
                    self.clean_up(half).await;
                }
            }
            drop(turn);
        }));
        let lost = || Status::internal("the call ended without an answer");
        answered.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn clean_up(&self, half: Option<Attachment>) {
        let Some(half) = half else { return };
        let end = Instant::now() + UNDO_TIMEOUT;
        if let Err(status) = self.take_away(&half, end).await {
            let id = &half.id;
            tracing::warn!(
                "{id} was half made and is not taken away: {}",
                status.message()
            );
        }
    }

    async fn make(&self, wanted: &Wanted, owner: String) -> Result<Arc<Attachment>, Failure> {
        let network = self.network(&wanted.id.network)?;
        let id = AttachmentId {
            network: network.name.clone(),
            ..wanted.id.clone()
        };
        id.check().map_err(Status::invalid_argument)?;
        if let Some(made) = self.cleared(&id, &network, wanted).await? {
            return Ok(made);
        }
        self.loopback(&wanted.netns).await?;
        let attachment = Attachment {
            id,
            network,
            netns: wanted.netns.clone(),
            arguments: wanted.arguments.clone(),
            capabilities: wanted.capabilities.clone(),
            result: None,
            owner,
            began: self.clock.now(),
        };
        self.run(attachment, wanted.end).await
    }

    /// Returns the attachment if it is made; takes away what there is of it otherwise.
    async fn cleared(
        &self,
        id: &AttachmentId,
        network: &Arc<Network>,
        wanted: &Wanted,
    ) -> Result<Option<Arc<Attachment>>, Status> {
        match self.store.get(id) {
            Some((Stage::Made, made)) if self.clock.is_of_today(&made.began) => Ok(Some(made)),
            Some((_, half)) => {
                self.take_away(&half, wanted.end).await?;
                Ok(None)
            }
            None if self.store.may_miss(id) => {
                self.take_away(&wanted.of(id, network), wanted.end).await?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn loopback(&self, netns: &str) -> Result<(), Status> {
        if netns.is_empty() {
            return Err(Status::invalid_argument("netns: missing"));
        }
        let (what, path) = (format!("bringing up loopback in {netns}"), netns.to_owned());
        let up = move || netns::bring_loopback_up(&path).map_err(refused);
        self.pool.run(&what, LOOK_TIMEOUT, up).await
    }

    async fn run(&self, of: Attachment, end: Instant) -> Result<Arc<Attachment>, Failure> {
        let gate = self.gate(&of.id.network, end).await?;
        let of = Attachment {
            // Anew within the gate: after every mark that a GC under way goes by.
            began: self.clock.now(),
            ..of
        };
        self.store.begin(of.clone()).await?;
        drop(gate);
        let result = match self.chains.add(&of, end).await {
            Ok(result) => result,
            Err(error) => {
                return Err(Failure {
                    status: error.into(),
                    half: Some(of),
                });
            }
        };
        let made = Attachment {
            result: Some(result),
            ..of
        };
        match self.store.finish(made.clone()).await {
            Ok(()) => Ok(Arc::new(made)),
            Err(status) => Err(Failure {
                status,
                half: Some(made),
            }),
        }
    }
}

fn refused(error: NetnsError) -> Status {
    let text = error.to_string();
    match error {
        NetnsError::Open { .. } | NetnsError::NotOne(_) | NetnsError::Host(_) => {
            Status::invalid_argument(text)
        }
        NetnsError::Loopback { .. } => Status::internal(text),
    }
}
