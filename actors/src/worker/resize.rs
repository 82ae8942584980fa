//! Where a change of the pod's CPU and memory stands, and what is told of it.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic::pod::PodView;
use logic::resize::{self, Happening, ResizeState};
use logic::resources::linux_resources;
use logic::seen::Seen;
use logic::types::{ContainerId, Waiting, Why};

use super::carry::{Carrier, Problem};
use super::{LATER, Msg, Stage, Worker, timestamp};

impl Worker {
    /// Compares what is promised with what is carried out; what has changed since is an event.
    pub(super) fn follow_resize(&mut self, pod: &Pod, ctx: &Context<Msg>) {
        let Some(seen) = self.seen.as_ref().map(Seen::pod) else {
            return;
        };
        let before = match &self.status {
            Some(_) => self.resize.clone(),
            None => ResizeState::told(self.earlier.as_deref().or(pod.status.as_ref())),
        };
        let syncing = self.stage == Stage::Syncing;
        let pending = self.wish.desired.borrow().pending.clone();
        let mut names = self.memory.record.actuated.keys();
        let next = ResizeState {
            in_progress: syncing && resize::in_progress(pod, &self.memory.record.actuated, seen),
            error: names
                .find_map(|name| self.problems.get(&resize_key(name)))
                .map(|problem| problem.message.clone()),
            generation: before.carried_out(pending.is_some(), pod.metadata.generation),
            pending,
        };
        if next == self.resize {
            return;
        }
        let events: Vec<Why> = happenings(&before, &next)
            .map(|happening| {
                let generation = match &happening {
                    Happening::Completed => before.generation,
                    Happening::Failed(_) | Happening::Started => next.generation,
                    Happening::Waits(..) => pod.metadata.generation,
                };
                happening.event(pod, generation.unwrap_or_default())
            })
            .collect();
        for why in &events {
            self.whys
                .record(pod, why, timestamp(ctx), &self.peers.recorder);
        }
        self.resize = next;
    }
}

fn happenings(old: &ResizeState, new: &ResizeState) -> impl Iterator<Item = Happening> {
    let waits = new.pending.clone().filter(|_| new.pending != old.pending);
    let failed = new.error.clone().filter(|_| new.error != old.error);
    let moved = match (old.in_progress, new.in_progress) {
        (false, true) => Some(Happening::Started),
        (true, false) => Some(Happening::Completed),
        (false, false) | (true, true) => None,
    };
    let waits = waits.map(|(refusal, why)| Happening::Waits(refusal, why));
    moved
        .into_iter()
        .chain(waits)
        .chain(failed.map(Happening::Failed))
}

fn count(began: Instant, success: bool) {
    let success = if success { "true" } else { "false" };
    let took = kernel::now().saturating_duration_since(began);
    let duration = metrics::resizes::DURATION.with_label_values(&[success]);
    duration.observe(took.as_secs_f64() * 1000.0);
}

/// The key of a container's resize among the held.
pub(super) fn resize_key(name: &str) -> String {
    format!("\u{0}resize {name}")
}

impl Carrier {
    /// Has the runtime and the pod's cgroup enforce what is allocated to a container now.
    pub(super) async fn resize(&mut self, id: &ContainerId, name: String) {
        let began = kernel::now();
        let enforced = self.enforce(id, &name).await;
        count(began, enforced.is_ok());
        match enforced {
            Ok(()) => {
                let resources = self.resources(&name);
                self.started
                    .extend(resources.map(|resources| (name, resources)));
            }
            Err(message) => {
                tracing::warn!(pod = %self.uid, container = name, "not resized: {message}");
                let problem = Problem {
                    waiting: Some(Waiting {
                        reason: "Error".to_owned(),
                        message,
                    }),
                    again_after: LATER,
                };
                self.problems.push((resize_key(&name), problem));
            }
        }
    }

    async fn enforce(&self, id: &ContainerId, name: &str) -> Result<(), String> {
        let Some((_, container)) = self.pod.container(name) else {
            return Ok(());
        };
        if let Some(why) = self.memory_in_use().await {
            return Err(why);
        }
        let (node, cgroups) = (&self.peers.rules.node, &self.peers.cgroups);
        let resources = linux_resources(&self.pod, &container, node);
        // The parent grows before its child, and shrinks after it: one of the two must hold.
        let grown = cgroups.update(&self.pod, node).await;
        let runtime = &self.peers.runtime;
        let enforced = runtime.update_container_resources(id, &resources).await;
        enforced.map_err(|error| error.said())?;
        match grown {
            Ok(()) => Ok(()),
            Err(_) => cgroups
                .update(&self.pod, node)
                .await
                .map_err(|error| error.to_string()),
        }
    }

    /// Why a memory limit cannot go down now.
    async fn memory_in_use(&self) -> Option<String> {
        let unknown = resize::memory_refusal(&self.pod, &self.actuated, &BTreeMap::new());
        unknown?;
        let used = self.peers.runtime.memory_use().await;
        let used = used.unwrap_or_default().remove(&self.uid);
        resize::memory_refusal(&self.pod, &self.actuated, &used.unwrap_or_default())
    }
}
