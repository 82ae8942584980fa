//! Termination messages of containers, and probe results as lines of the history.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use kernel::Context;
use logic_api::types::{ContainerState, EventLevel, HistoryEvent, ProbeResult, RuntimeContainer};

use super::{Msg, PodWorker};
use crate::prober::ProbeUpdate;
use crate::termination;
use crate::worker::operation::completion::WorkerCompletion;

impl PodWorker {
    /// Has the termination messages of newly exited containers read.
    pub(super) fn read_termination_messages(&mut self, ctx: &mut Context<Msg>) {
        let Some(seen) = self.observed.pod() else {
            return;
        };
        let known = &self.checkpoint.record.termination_messages;
        let ended: Vec<RuntimeContainer> = seen
            .containers
            .iter()
            .filter(|c| c.state == ContainerState::Exited)
            .filter(|c| {
                !known.contains_key(&c.id) && !self.observed.pending_messages.contains(&c.id)
            })
            .cloned()
            .collect();
        if ended.is_empty() {
            return;
        }
        self.observed
            .pending_messages
            .extend(ended.iter().map(|c| c.id.clone()));
        let (pod, rules) = (
            self.updates.goal.borrow().allocated.clone(),
            self.peers.rules.clone(),
        );
        ctx.run(async move {
            let read = ended.iter().map(async |container| {
                let words = termination::last_words(&pod, container, &rules.node).await;
                (container.id.clone(), words)
            });
            WorkerCompletion::TerminationMessages(BTreeMap::from_iter(join_all(read).await)).into()
        });
    }
}

/// A probe result as a line of the history; the event about it is the prober's.
pub(super) fn probe_why(probed: &ProbeUpdate) -> HistoryEvent {
    let probe: &'static str = probed.probe.into();
    let verdict = match probed.verdict() {
        ProbeResult::Unknown => "has not spoken",
        ProbeResult::Success => "succeeds",
        ProbeResult::Failure => "fails",
    };
    HistoryEvent {
        object: Some(probed.container.clone()),
        weight: EventLevel::Note,
        reason: "Probed".to_owned(),
        message: format!("{} probe {verdict}", probe.to_lowercase()),
    }
}
