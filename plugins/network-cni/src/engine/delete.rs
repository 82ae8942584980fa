//! DEL: by the record of the attachment, by what the caller kept of it, or by the network's configuration of today.

use std::sync::Arc;

use tonic::Status;

use super::{Engine, to_the_end};
use crate::attachments::{Attachment, AttachmentId};
use crate::clock::Moment;
use crate::conflist::Network;
use crate::request::Wanted;

impl Engine {
    /// Takes the attachments that are named away. All are tried; the first error is answered.
    pub(crate) async fn delete(
        self: Arc<Self>,
        wanted: Wanted,
        kept: Option<Arc<Network>>,
    ) -> Result<(), Status> {
        to_the_end(async move {
            let _turn = self.turn(&wanted.id.sandbox, wanted.end).await?;
            let known = self.of(&wanted);
            if known.is_empty() {
                return self.delete_unknown(&wanted, kept).await;
            }
            let mut answer = Ok(());
            for (_, attachment) in known {
                let mut attachment = Attachment::clone(&attachment);
                if attachment.netns.is_empty() {
                    attachment.netns.clone_from(&wanted.netns);
                }
                let taken = self.take_away(&attachment, wanted.end).await;
                answer = answer.and(taken);
            }
            answer
        })
        .await
    }

    /// Nothing is known of it. It may have been made all the same, where a record was lost, or by another program: the
    /// chain is run, but its failure counts only where there is a sign that there is something.
    async fn delete_unknown(
        &self,
        wanted: &Wanted,
        kept: Option<Arc<Network>>,
    ) -> Result<(), Status> {
        let is_kept = kept.is_some();
        let network = kept.or_else(|| self.network(&wanted.id.network).ok());
        let name = match (&network, wanted.id.network.as_str()) {
            (Some(network), "") => network.name.clone(),
            (Some(network), name) if network.name != name => {
                let text = format!(
                    "configuration_json is of network {:?}, not {name:?}",
                    network.name
                );
                return Err(Status::invalid_argument(text));
            }
            (_, name) => name.to_owned(),
        };
        let id = AttachmentId {
            network: name,
            ..wanted.id.clone()
        };
        let Some(network) = network else {
            self.store.forget(&id).await;
            return Ok(());
        };
        id.check().map_err(Status::invalid_argument)?;
        let counts = is_kept || self.store.may_miss(&id);
        match self.take_away(&wanted.of(&id, &network), wanted.end).await {
            Err(status) if !counts => {
                tracing::info!(
                    "nothing is known of {id}, and DEL fails: {}",
                    status.message()
                );
                Ok(())
            }
            answer => answer,
        }
    }
}

impl Wanted {
    /// Returns the attachment as it would be on a network.
    pub(super) fn of(&self, id: &AttachmentId, network: &Arc<Network>) -> Attachment {
        Attachment {
            id: id.clone(),
            network: network.clone(),
            netns: self.netns.clone(),
            arguments: self.arguments.clone(),
            capabilities: self.capabilities.clone(),
            result: None,
            owner: String::new(),
            began: Moment::default(),
        }
    }
}
