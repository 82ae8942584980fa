//! What other actors learn of the node's object.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kernel::checkpoint::{CheckpointFile, CheckpointWriter, LoadOutcome, Schema, WriteResult};
use kernel::{Context, Recipient};
use logic_api::types::EventLevel;
use logic_node::node_status::{NodeEvent, NodeUpdate};
use logic_volumes::VolumeId;
use state::events::{EventType, InvolvedObject};

use super::{Msg, NodeStatusManager};

/// A crash forgets at most this much; then a volume waits until it is reported again.
const WRITE_EVERY: Duration = Duration::from_secs(1);
const SCHEMA: Schema = Schema {
    kind: 40,
    version: 1,
};

/// The volumes that the API server knows to be in use; kept, so that an agent that starts without it mounts them.
#[derive(Debug)]
pub(super) struct VolumesInUseState {
    writer: CheckpointWriter,
    volumes: BTreeSet<VolumeId>,
    telling: ReportState,
}

/// Whether the volume manager has the newest set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportState {
    /// Nothing is known yet.
    Unknown,
    Owed,
    Done,
}

impl VolumesInUseState {
    pub(super) fn new(folder: &Path) -> Self {
        let store = CheckpointFile::new(folder.join("reported-volumes.checkpoint"), SCHEMA);
        VolumesInUseState {
            writer: CheckpointWriter::new(store, WRITE_EVERY),
            volumes: BTreeSet::new(),
            telling: ReportState::Unknown,
        }
    }

    /// What was reported in use before the restart is so still.
    pub(super) fn begin(&mut self, recipient: &Recipient<BTreeSet<VolumeId>>) {
        match self.writer.store().load::<BTreeSet<VolumeId>>() {
            Ok(LoadOutcome::Fresh) => {}
            Ok(LoadOutcome::Found(volumes)) => {
                self.volumes = volumes;
                self.telling = ReportState::Owed;
                self.tell_again(recipient);
            }
            Ok(LoadOutcome::SetAside { moved_to, why }) => {
                let kept = moved_to.display();
                tracing::warn!("which volumes were reported in use is lost, kept as {kept}: {why}");
            }
            Err(error) => tracing::warn!("which volumes were reported in use is lost: {error}"),
        }
    }

    pub(super) fn now(&mut self, listed: Vec<String>, recipient: &Recipient<BTreeSet<VolumeId>>) {
        let volumes: BTreeSet<VolumeId> = listed.into_iter().map(VolumeId).collect();
        if volumes != self.volumes {
            self.volumes = volumes;
            self.telling = ReportState::Owed;
            self.writer.mark();
        }
        if self.telling == ReportState::Unknown {
            self.telling = ReportState::Owed;
        }
        self.tell_again(recipient);
    }

    /// Sends the set again where the mailbox was full.
    pub(super) fn tell_again(&mut self, recipient: &Recipient<BTreeSet<VolumeId>>) {
        if self.telling == ReportState::Owed && recipient.tell(self.volumes.clone()).is_ok() {
            self.telling = ReportState::Done;
        }
    }
}

impl NodeStatusManager {
    pub(super) fn keep(&mut self, ctx: &mut Context<Msg>) {
        match self.reported.writer.due(ctx.now()) {
            None => return,
            Some(wait) if wait.is_zero() => {}
            Some(wait) => {
                ctx.after(wait, Msg::Keep);
                return;
            }
        }
        match self
            .reported
            .writer
            .begin(ctx.now(), &self.reported.volumes)
        {
            Ok(Some(writing)) => {
                ctx.run(async move { Msg::Kept(writing.run().await) });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("what is reported in use is not kept: {error}"),
        }
    }

    pub(super) fn on_checkpointed(&mut self, written: WriteResult, ctx: &mut Context<Msg>) {
        if let Err(error) = self.reported.writer.finish(written) {
            tracing::warn!("what is reported in use is not kept: {error}");
        }
        self.keep(ctx);
    }

    /// Events of a change, once; and in the log what could not be set.
    pub(super) fn tell_person(&mut self, outcome: &NodeUpdate, ctx: &Context<Msg>) {
        for told in &outcome.told {
            if !self.said.contains(told) {
                self.record(told, ctx);
            }
        }
        self.said.clone_from(&outcome.told);
        if outcome.problems != self.problems {
            for problem in &outcome.problems {
                tracing::error!("the node's status is not whole: {problem}");
            }
            self.problems.clone_from(&outcome.problems);
        }
    }

    pub(super) fn tell_scheduling(&mut self, ctx: &Context<Msg>) {
        let spec = self.node.as_ref().and_then(|node| node.spec.as_ref());
        let Some(spec) = spec else { return };
        let closed = spec.unschedulable == Some(true);
        if closed != self.unschedulable {
            self.unschedulable = closed;
            let event = NodeEvent::scheduling(&self.policy.status, closed);
            self.record(&event, ctx);
        }
    }

    fn record(&self, told: &NodeEvent, ctx: &Context<Msg>) {
        let r#type = match told.weight {
            EventLevel::Warning => EventType::Warning,
            EventLevel::Normal | EventLevel::Note => EventType::Normal,
        };
        let object = InvolvedObject::node(&self.policy.status.name);
        let (recorder, now) = (&self.peers.recorder, ctx.timestamp());
        recorder.record(now, r#type, object, told.reason, told.message.clone());
    }

    /// Publishes the object, unless only heartbeats differ.
    pub(super) fn publish(&self) {
        let new = self.node.as_ref().map(quiet);
        self.peers.object.send_if_modified(|held| {
            let same = held.as_deref() == new.as_ref();
            if !same {
                *held = new.map(Arc::new);
            }
            !same
        });
    }
}

/// The object without what changes at every heartbeat, and what is of no use to its readers.
fn quiet(node: &Node) -> Node {
    let mut node = node.clone();
    node.metadata.managed_fields = None;
    node.metadata.resource_version = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
    node
}
