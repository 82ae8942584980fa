//! The state of each pod that must outlive the agent: back-off, start time, times of exits.
//!
//! - **Owns** one checkpoint file with a record a pod, and the two files in which a kubelet keeps what pods are
//!   allocated and what was actuated of it ([`crate::take_over`]).
//! - **Hears** `Keep` and `Forget` from the pod workers, `Load` from a worker that starts.
//! - **Tells** no other actor.
//! - **Never** writes more often than once a [`WRITE_INTERVAL`], nor without a change: flash wears out.
//!
//! Upstream keeps back-off in memory and forgets it on restart; Oxlet does not.

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use kernel::checkpoint::{
    CheckpointFile, CheckpointWriter, LoadOutcome, Schema, WriteProgress, WriteResult,
};
use kernel::{Actor, Context, Exit, Reply, TimerId};
use logic_api::types::PodUid;
use logic_pods::api::take_over::ResourcesByPod;
use logic_pods::resize::{AllocatedResources, POD_LEVEL};
use serde::Serialize;

pub use self::record::{ContainerResources, PodRecord};
use crate::take_over::{self, AllocationFiles};

/// Room for two changes from each of 1,000 pods at once.
pub const MAILBOX: usize = 2048;
/// A crash loses at most the changes of this time; a busy node writes at most once in it, a quiet one never.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
const SCHEMA: Schema = Schema {
    kind: 1,
    version: record::VERSION,
};

/// Messages of the checkpoint manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Replaces the pod's record by this one.
    Keep { uid: PodUid, record: Box<PodRecord> },
    /// Drops the record of a pod that has ended.
    Forget { uid: PodUid },
    /// Answers with the record that an earlier life left, if any.
    Load {
        uid: PodUid,
        reply: Reply<Option<PodRecord>>,
    },
    /// Answers with the resources allocated to each pod in an earlier life.
    Allocations {
        reply: Reply<BTreeMap<PodUid, AllocatedResources>>,
    },
    /// Answers when every record is on the disk as it is now.
    Stored { reply: Reply<()> },
    /// Begins a write if a record has changed.
    Write,
    /// Takes the result of a write.
    Written(WriteResult),
}

/// Counts of records and writes.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Pods of which something is kept.
    pub records: usize,
    /// Since the start.
    pub writes: u64,
    /// Written since the start.
    pub bytes: u64,
    /// Damaged files, by the name that they were given.
    pub set_aside: Vec<String>,
    /// Whether the file on the disk holds all records as they are.
    pub is_stored: bool,
}

/// The checkpoint manager.
#[derive(Debug)]
pub struct CheckpointManager {
    writer: CheckpointWriter,
    allocation_files: AllocationFiles,

    records: BTreeMap<PodUid, PodRecord>,
    timer: Option<TimerId>,
    /// Who waits for the write under way, and for the one after it.
    awaiting_write: Vec<Reply<()>>,
    awaiting_next: Vec<Reply<()>>,
    set_aside: Vec<String>,
}

impl Actor for CheckpointManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match self.writer.store().load_migrating(record::migrate) {
            Ok(LoadOutcome::Fresh) => {}
            Ok(LoadOutcome::Found(records)) => self.records = records,
            Ok(LoadOutcome::SetAside { moved_to, why }) => {
                let text = format!("{}: {why}", moved_to.display());
                tracing::error!("pod records were damaged and are set aside as {text}");
                self.set_aside.push(text);
            }
            Err(error) => return Err(error.into()),
        }
        self.take_over();
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Keep { uid, record } => self.keep(uid, *record, ctx),
            Msg::Forget { uid } => self.forget(&uid, ctx),
            Msg::Load { uid, reply } => reply.send(self.records.get(&uid).cloned()),
            Msg::Allocations { reply } => reply.send(self.allocations()),
            Msg::Stored { reply } => match self.writer.progress() {
                WriteProgress::Due => self.awaiting_next.push(reply),
                WriteProgress::UnderWay => self.awaiting_write.push(reply),
                WriteProgress::Done => reply.send(()),
            },
            Msg::Write => self.write(ctx),
            Msg::Written(written) => self.written(written, ctx),
        }
        Ok(())
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        self.allocation_files
            .pending_writes(self.resources())
            .write_now();
        if let Err(error) = self.writer.flush(&self.records) {
            tracing::error!("pod records could not be written: {error}");
        }
    }

    fn snapshot(&self) -> Snapshot {
        let stats = self.writer.stats();
        Snapshot {
            records: self.records.len(),
            writes: stats.writes,
            bytes: stats.bytes,
            set_aside: self.set_aside.clone(),
            is_stored: self.writer.progress() == WriteProgress::Done,
        }
    }
}

impl CheckpointManager {
    /// `file` is the agent's own checkpoint; `root_dir` is the folder that it shares with a kubelet.
    pub fn new(file: PathBuf, root_dir: &Path) -> Self {
        CheckpointManager {
            writer: CheckpointWriter::new(CheckpointFile::new(file, SCHEMA), WRITE_INTERVAL),
            allocation_files: AllocationFiles::new(root_dir),
            records: BTreeMap::new(),
            timer: None,
            awaiting_write: Vec::new(),
            awaiting_next: Vec::new(),
            set_aside: Vec::new(),
        }
    }

    /// Reads what pods are allocated from the files that this agent shares with a kubelet.
    fn take_over(&mut self) {
        let left = self.allocation_files.read();
        for text in &left.set_aside {
            tracing::error!("what pods are allocated cannot be read: {text}");
        }
        self.set_aside.extend(left.set_aside);
        let take_over::PodAllocations {
            allocated,
            actuated,
        } = left.resources;
        for (uid, allocated) in allocated {
            if allocated.is_some() {
                self.records.entry(uid).or_default().allocated = Some(allocated);
            }
        }
        let nothing = ResourceRequirements::default();
        for (uid, mut actuated) in actuated {
            actuated.containers.retain(|_, own| *own != nothing);
            if !actuated.containers.is_empty() {
                let record = self.records.entry(uid).or_default();
                record.actuated.clone_from(&actuated.containers);
                let level = actuated.pod.clone().filter(|level| *level != nothing);
                let level = level.map(|level| (POD_LEVEL.to_owned(), level));
                record.actuated.extend(level);
                // Without a record of what was allocated, the actuated resources count as allocated.
                record.allocated.get_or_insert(actuated);
            }
        }
    }

    /// The resources of all pods, in the form that a kubelet would read.
    fn resources(&self) -> take_over::PodAllocations {
        let records = self.records.iter();
        let actuated = records.filter(|(_, record)| !record.actuated.is_empty());
        let actuated = actuated.map(|(uid, record)| {
            let mut containers = record.actuated.clone();
            let actuated = AllocatedResources {
                pod: containers.remove(POD_LEVEL),
                containers,
            };
            (uid.clone(), actuated)
        });
        take_over::PodAllocations {
            allocated: self.allocations(),
            actuated: actuated.collect(),
        }
    }

    fn keep(&mut self, uid: PodUid, record: PodRecord, ctx: &mut Context<Msg>) {
        if self.records.get(&uid) != Some(&record) {
            self.records.insert(uid, record);
            self.write_soon(ctx);
        }
    }

    fn allocations(&self) -> ResourcesByPod {
        let records = self.records.iter();
        records
            .filter_map(|(uid, record)| Some((uid.clone(), record.allocated.clone()?)))
            .collect()
    }

    fn forget(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        if self.records.remove(uid).is_some() {
            self.write_soon(ctx);
        }
    }

    fn write_soon(&mut self, ctx: &mut Context<Msg>) {
        self.writer.mark();
        self.set_timer(ctx);
    }

    fn set_timer(&mut self, ctx: &mut Context<Msg>) {
        if let (None, Some(wait)) = (self.timer, self.writer.due(ctx.now())) {
            self.timer = Some(ctx.after(wait, Msg::Write));
        }
    }

    fn write(&mut self, ctx: &mut Context<Msg>) {
        self.timer = None;
        match self.writer.begin(ctx.now(), &self.records) {
            Ok(Some(writing)) => {
                self.awaiting_write.append(&mut self.awaiting_next);
                // Before the agent's own file: where the two differ, the shared ones are newer.
                let pending_writes = self.allocation_files.pending_writes(self.resources());
                ctx.run(async move {
                    pending_writes.write().await;
                    Msg::Written(writing.run().await)
                });
            }
            Ok(None) => answer(&mut self.awaiting_next),
            Err(error) => tracing::error!("pod records could not be written: {error}"),
        }
    }

    fn written(&mut self, written: WriteResult, ctx: &mut Context<Msg>) {
        match self.writer.finish(written) {
            Ok(_) => answer(&mut self.awaiting_write),
            Err(error) => {
                tracing::error!("pod records could not be written: {error}");
                self.awaiting_next.append(&mut self.awaiting_write);
            }
        }
        self.set_timer(ctx);
    }
}

fn answer(awaiting: &mut Vec<Reply<()>>) {
    for reply in awaiting.drain(..) {
        reply.send(());
    }
}
