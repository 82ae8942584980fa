//! What containers and probes say: last words read from files, verdicts put into words.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use kernel::Context;
use logic::seen::Seen;
use logic::types::{Container, ContainerState, Verdict, Weight, Why};

use super::{Msg, Worker};
use crate::prober::Probed;
use crate::termination;

impl Worker {
    /// Has the last words read of those who are seen ended for the first time.
    pub(super) fn hear(&mut self, ctx: &mut Context<Msg>) {
        let Some(seen) = self.seen.as_ref().map(Seen::pod) else {
            return;
        };
        let known = &self.memory.record.last_words;
        let ended: Vec<Container> = seen
            .containers
            .iter()
            .filter(|c| c.state == ContainerState::Exited)
            .filter(|c| !known.contains_key(&c.id) && !self.hearing.contains(&c.id))
            .cloned()
            .collect();
        if ended.is_empty() {
            return;
        }
        self.hearing.extend(ended.iter().map(|c| c.id.clone()));
        let (pod, rules) = (
            self.wish.desired.borrow().pod.clone(),
            self.peers.rules.clone(),
        );
        ctx.run(async move {
            let read = ended.iter().map(async |container| {
                let words = termination::last_words(&pod, container, &rules.node).await;
                (container.id.clone(), words)
            });
            Msg::Heard(BTreeMap::from_iter(join_all(read).await))
        });
    }
}

/// A verdict as a line of the pod's story; the event about it is the prober's.
pub(super) fn of_probe(probed: &Probed) -> Why {
    let probe: &'static str = probed.probe.into();
    let verdict = match probed.verdict() {
        Verdict::Unknown => "has not spoken",
        Verdict::Success => "succeeds",
        Verdict::Failure => "fails",
    };
    Why {
        object: Some(probed.container.clone()),
        weight: Weight::Note,
        reason: "Probed".to_owned(),
        message: format!("{} probe {verdict}", probe.to_lowercase()),
    }
}
