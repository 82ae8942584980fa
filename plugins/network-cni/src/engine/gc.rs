//! GC: attachments that are not valid any more, of named networks and one owner.
//!
//! First DEL for each of them, side by side; then GC of the plugins, which are told what is valid: what the caller
//! says, all of other owners, and all that began after the mark. Plugins drop whatever they are not told, so no ADD
//! begins on the network while they do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use blocking_pool::KeyedGuard;
use proto::network as wire;
use tokio::time::Instant;
use tonic::Status;

use super::{Engine, to_the_end};
use crate::attachments::{Attachment, AttachmentId, Stage};
use crate::clock::Moment;
use crate::conflist::Network;

/// Without a mark, an ADD so young may be unknown to who gathered the valid attachments.
const UNMARKED_AGE: Duration = Duration::from_secs(600);
/// ADDs of the network wait for so long at most.
const PLUGINS_TIMEOUT: Duration = Duration::from_secs(10);
/// One DEL that hangs leaves the others, and the plugins' GC, their time.
const DEL_TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be collected.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) networks: Vec<String>,
    pub(crate) owner: String,
    pub(crate) valid: BTreeSet<AttachmentId>,
    pub(crate) mark: String,
    pub(crate) end: Instant,
}

impl Engine {
    /// Returns a mark: what begins from now on is not collected by it.
    pub(crate) fn mark(&self) -> String {
        self.clock.now().to_string()
    }

    /// Collects.
    pub(crate) async fn gc(self: Arc<Self>, what: Collection) -> Result<wire::GcResponse, Status> {
        let mark = match what.mark.as_str() {
            "" => self.clock.ago(UNMARKED_AGE),
            text => {
                let mark = self.clock.mark(text);
                mark.map_err(|error| Status::invalid_argument(error.to_string()))?
            }
        };
        to_the_end(async move {
            let mut answer = wire::GcResponse::default();
            self.collect(&what, &mark, &mut answer).await;
            for name in &what.networks {
                if let Ok(network) = self.network(name) {
                    self.collect_within(&network, &what, &mark, &mut answer)
                        .await;
                }
            }
            Ok(answer)
        })
        .await
    }

    async fn collect(&self, what: &Collection, mark: &Moment, answer: &mut wire::GcResponse) {
        // What is left at `end` is the plugins' own collection's.
        let now = Instant::now();
        let end = now + (what.end.saturating_duration_since(now) / 2).min(DEL_TIMEOUT);
        let all = self.store.all().into_iter();
        let stale = all.filter(|(stage, of)| self.is_stale((*stage, of), what, mark));
        let stale: Vec<_> = stale.map(|(_, of)| of).collect();
        let each = stale.iter().map(|of| self.collect_one(of, end));
        let done = futures_util::future::join_all(each).await;
        for (of, done) in stale.iter().zip(done) {
            match done {
                Ok(()) => answer.removed.push(identity(&of.id)),
                Err(status) => answer.failed.push(wire::GcFailure {
                    attachment: Some(identity(&of.id)),
                    message: status.message().to_owned(),
                }),
            }
        }
    }

    /// One whose ADD runs is live, whatever its caller has told the collector of it.
    fn is_stale(
        &self,
        (stage, of): (Stage, &Attachment),
        what: &Collection,
        mark: &Moment,
    ) -> bool {
        stage != Stage::Adding
            && what.networks.contains(&of.id.network)
            && of.owner == what.owner
            && !what.valid.contains(&of.id)
            && self.clock.is_before(&of.began, mark)
    }

    async fn collect_one(&self, of: &Attachment, end: Instant) -> Result<(), Status> {
        let _turn = self.turn(&of.id.sandbox, end).await?;
        // It may have been taken away meanwhile, and made anew.
        match self.store.get(&of.id) {
            Some((_, now)) if now.began == of.began => self.take_away(&now, end).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Has the plugins of a network collect.
    async fn collect_within(
        &self,
        network: &Network,
        what: &Collection,
        mark: &Moment,
        answer: &mut wire::GcResponse,
    ) {
        let end = what.end.min(Instant::now() + PLUGINS_TIMEOUT);
        let mut failed = |message: String| {
            let attachment = wire::Attachment {
                network: network.name.clone(),
                ..wire::Attachment::default()
            };
            answer.failed.push(wire::GcFailure {
                attachment: Some(attachment),
                message,
            });
        };
        let gate = match self.gate(&network.name, end).await {
            Ok(gate) => gate,
            Err(status) => return failed(status.message().to_owned()),
        };
        let of_network = |id: &AttachmentId| id.network == network.name;
        let mut valid = what.valid.clone();
        valid.retain(of_network);
        let all = self.store.all().into_iter();
        let live = all
            .filter(|(stage, of)| of_network(&of.id) && !self.is_stale((*stage, of), what, mark));
        valid.extend(live.map(|(_, of)| of.id.clone()));
        let valid: Vec<_> = valid.into_iter().collect();
        let errors = self.chains.gc(network, &valid, end).await;
        drop(gate);
        errors.iter().for_each(|error| failed(error.to_string()));
    }

    /// Waits until no GC of plugins runs on the network, or no ADD is being written down.
    pub(super) async fn gate(&self, network: &str, end: Instant) -> Result<KeyedGuard, Status> {
        let within = end.saturating_duration_since(Instant::now());
        let gate = self.gates.lock(network, within).await;
        gate.map_err(|_| {
            Status::deadline_exceeded(format!("network {network:?}: its GC did not end in time"))
        })
    }
}

fn identity(id: &AttachmentId) -> wire::Attachment {
    wire::Attachment {
        sandbox_id: id.sandbox.clone(),
        network: id.network.clone(),
        interface_name: id.interface.clone(),
    }
}
