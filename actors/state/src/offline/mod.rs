//! The node without its API server: what its pods are and need outlives the process and a reboot of the machine.
//!
//! - **Owns** one checkpoint file, and the key that it is sealed with.
//! - **Hears** which pods the API gives this node, what their newest statuses are, which of them have all they need,
//!   and that the [`ObjectStore`] has changed.
//! - **Tells** no actor. The next start of the agent reads it with [`load`].
//! - **Never** writes anything that can be read without this node's key, nor what has not changed. A pod leaves only
//!   when the pods' source drops it, and that goes by a positive answer of the API alone.
//!
//! A new or changed pod or object is written within a second. What changes all the time and comes again, such as
//! a condition or a renewed token, waits a minute for company: flash wears out.
//!
//! Upstream has nothing of the kind: its kubelet starts no pod of the API before it has reached the API.

mod certificates;
mod content;
mod seal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::checkpoint::{
    CheckpointError, CheckpointFile, CheckpointWriter, LoadOutcome, Schema, WriteResult,
};
use kernel::error_chain;
use kernel::{Actor, Context, Exit, TimerId};
use logic_api::objects::StaticObjects;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use serde::{Deserialize, Serialize};

use self::content::{CheckpointContent, CheckpointInput};
use self::seal::{MACHINE_ID, Seal, SealError};
use crate::objects::ObjectStore;

/// Statuses of a thousand pods at once, and room for the rest.
pub const MAILBOX: usize = 2048;
const FILE: &str = "alone.checkpoint";
const SCHEMA: Schema = Schema {
    kind: 41,
    version: 1,
};
/// A crash loses at most this much of what pods are and need.
const SOON: Duration = Duration::from_secs(1);
/// The same for details that come again by themselves.
const LATER: Duration = Duration::from_secs(60);
/// The wait after a failed write.
const AGAIN: Duration = Duration::from_secs(30);

/// What an earlier run of the agent left.
#[derive(Debug, Default)]
pub struct OfflineState {
    pub pods: Vec<Arc<Pod>>,
    pub objects: StaticObjects,
    /// The pods for which every object had been requested: what they refer to and is not here does not exist.
    pub supplied: BTreeSet<PodUid>,
    /// Why what was left cannot be used; then nothing is restored.
    pub trouble: Option<String>,
}

/// Reads the checkpoint in the agent's folder. One that cannot be read is set aside and reported. Blocking.
pub fn load(folder: &Path) -> OfflineState {
    load_on(folder, Path::new(MACHINE_ID))
}

fn load_on(folder: &Path, machine_id: &Path) -> OfflineState {
    match read(folder, machine_id) {
        Ok(Some(content)) => OfflineState {
            objects: content.objects(),
            pods: content.pods(),
            supplied: content.supplied,
            trouble: None,
        },
        Ok(None) => OfflineState::default(),
        Err(error) => OfflineState {
            trouble: Some(error_chain(&error)),
            ..OfflineState::default()
        },
    }
}

fn read(
    folder: &Path,
    machine_id: &Path,
) -> Result<Option<CheckpointContent>, OfflineCheckpointError> {
    let store = CheckpointFile::new(folder.join(FILE), SCHEMA);
    let sealed: Sealed = match store.load()? {
        LoadOutcome::Fresh => return Ok(None),
        LoadOutcome::Found(sealed) => sealed,
        LoadOutcome::SetAside { moved_to, why } => {
            return Err(OfflineCheckpointError::Damaged { moved_to, why });
        }
    };
    let opened = || -> Result<CheckpointContent, OfflineCheckpointError> {
        let packed = Seal::of(folder, machine_id)?.open(&sealed.sealed)?;
        CheckpointContent::unpack(&packed).map_err(OfflineCheckpointError::Content)
    };
    match opened() {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.transient() => Err(error),
        Err(error) => {
            let moved_to = folder.join(format!("{FILE}.unopened"));
            drop(fs::rename(store.path(), &moved_to));
            Err(OfflineCheckpointError::Unopened {
                moved_to,
                source: Box::new(error),
            })
        }
    }
}

/// Why the checkpoint can be neither read nor written.
#[derive(Debug, thiserror::Error)]
enum OfflineCheckpointError {
    #[error("what was kept for a time without the API server is lost ({}): {why}", moved_to.display())]
    Damaged { moved_to: PathBuf, why: String },
    #[error("what was kept for a time without the API server cannot be opened ({})", moved_to.display())]
    Unopened {
        moved_to: PathBuf,
        source: Box<OfflineCheckpointError>,
    },
    #[error("the content cannot be read or written")]
    Content(#[source] io::Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl OfflineCheckpointError {
    fn transient(&self) -> bool {
        match self {
            OfflineCheckpointError::Damaged { .. }
            | OfflineCheckpointError::Unopened { .. }
            | OfflineCheckpointError::Content(_) => false,
            OfflineCheckpointError::Seal(error) => error.transient(),
            OfflineCheckpointError::Checkpoint(error) => error.transient(),
        }
    }
}

/// The checkpoint as it is in the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sealed {
    /// A keyed digest: tells whether two contents are the same.
    mark: Vec<u8>,
    sealed: Vec<u8>,
}

/// Messages of the offline checkpoint.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Keeps exactly these pods from now on.
    Pods { pods: Vec<Arc<Pod>> },
    /// Keeps this status with the pod: the API may not have it yet.
    Status { uid: PodUid, status: Arc<PodStatus> },
    /// Takes note for which pods every object has been requested.
    Supplied { uids: BTreeSet<PodUid> },
    /// Looks at what the object store holds now.
    Objects,
    /// Begins a write of what has changed.
    Write,
    /// Writes what is sealed now, unless the file holds it.
    Prepared(Box<SealOutcome>),
    /// Takes note of a write's end.
    Written(WriteResult),
}

/// The sealed content, or why it could not be made.
#[derive(Debug)]
pub struct SealOutcome(Result<Sealed, OfflineCheckpointError>);

/// Snapshot: numbers of pods and writes.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    pub writes: u64,
    pub bytes: u64,
    pub unchanged: u64,
    /// What a crash would lose now: `nothing`, or `details` that come again by themselves, or `more`.
    pub unwritten: &'static str,
    /// Why the last write failed.
    pub trouble: Option<String>,
}

/// Writes pods and objects, sealed, to a file.
#[derive(Debug)]
pub struct OfflineCheckpoint {
    folder: PathBuf,
    machine_id: PathBuf,
    node_name: String,
    shelf: ObjectStore,
    writer: CheckpointWriter,

    /// None until they are known: nothing is written before.
    pods: Option<Vec<Arc<Pod>>>,
    statuses: BTreeMap<PodUid, Arc<PodStatus>>,
    supplied: BTreeSet<PodUid>,
    objects: Arc<StaticObjects>,
    /// The digest of the file's content.
    mark: Option<Vec<u8>>,
    /// The digest of what is being written.
    next_mark: Option<Vec<u8>>,
    due: Option<(Instant, TimerId)>,
    busy: bool,
    unchanged: u64,
    trouble: Option<String>,
}

impl Actor for OfflineCheckpoint {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Ok(LoadOutcome::Found(sealed)) = self.writer.store().load::<Sealed>() {
            self.mark = Some(sealed.mark);
        }
        self.await_objects(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Pods { pods } => self.take_pods(pods, ctx),
            Msg::Status { uid, status } => self.take_status(uid, status, ctx),
            Msg::Supplied { uids } => self.take_supplied(uids, ctx),
            Msg::Objects => self.look_at_objects(ctx),
            Msg::Write => self.write(ctx),
            Msg::Prepared(prepared) => self.prepared(prepared.0, ctx),
            Msg::Written(written) => self.written(written, ctx),
        }
        Ok(())
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        if let Err(error) = self.flush() {
            self.failed(&error);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let stats = self.writer.stats();
        Snapshot {
            pods: self.pods.as_ref().map_or(0, Vec::len),
            writes: stats.writes,
            bytes: stats.bytes,
            unchanged: self.unchanged,
            unwritten: self.unwritten(),
            trouble: self.trouble.clone(),
        }
    }
}

impl OfflineCheckpoint {
    /// `folder` is the agent's own folder.
    pub fn new(folder: &Path, node_name: String, shelf: ObjectStore) -> OfflineCheckpoint {
        OfflineCheckpoint::on(folder, Path::new(MACHINE_ID), (node_name, shelf))
    }

    fn on(
        folder: &Path,
        machine_id: &Path,
        (node_name, shelf): (String, ObjectStore),
    ) -> OfflineCheckpoint {
        let store = CheckpointFile::new(folder.join(FILE), SCHEMA);
        OfflineCheckpoint {
            folder: folder.to_owned(),
            machine_id: machine_id.to_owned(),
            node_name,
            objects: shelf.snapshot(),
            shelf,
            writer: CheckpointWriter::new(store, Duration::ZERO),
            pods: None,
            statuses: BTreeMap::new(),
            supplied: BTreeSet::new(),
            mark: None,
            next_mark: None,
            due: None,
            busy: false,
            unchanged: 0,
            trouble: None,
        }
    }

    fn take_pods(&mut self, pods: Vec<Arc<Pod>>, ctx: &mut Context<Msg>) {
        let uids: BTreeSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        self.statuses.retain(|uid, _| uids.contains(uid));
        let before = self.pods.replace(pods);
        let after = self.pods.iter().flatten();
        let is_other = before.is_none_or(|before| {
            !before
                .iter()
                .map(|pod| essence(pod))
                .eq(after.map(|pod| essence(pod)))
        });
        self.write_within(if is_other { SOON } else { LATER }, ctx);
    }

    fn take_status(&mut self, uid: PodUid, status: Arc<PodStatus>, ctx: &mut Context<Msg>) {
        let before = self.statuses.get(&uid);
        let is_other = before.is_none_or(|before| before.phase != status.phase);
        self.statuses.insert(uid, status);
        self.write_within(if is_other { SOON } else { LATER }, ctx);
    }

    fn take_supplied(&mut self, uids: BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        self.supplied = uids;
        self.write_within(SOON, ctx);
    }

    fn unwritten(&self) -> &'static str {
        match &self.due {
            _ if self.busy => "more",
            None => "nothing",
            Some((at, _)) if at.saturating_duration_since(kernel::now()) > SOON => "details",
            Some(_) => "more",
        }
    }

    fn await_objects(&mut self, ctx: &mut Context<Msg>) {
        let mut changes = self.shelf.changes();
        ctx.run(async move {
            changes.next().await;
            Msg::Objects
        });
    }

    fn look_at_objects(&mut self, ctx: &mut Context<Msg>) {
        self.await_objects(ctx);
        let now = self.shelf.snapshot();
        let before = std::mem::replace(&mut self.objects, now.clone());
        let is_other = is_other(&before, &now);
        self.write_within(if is_other { SOON } else { LATER }, ctx);
    }

    /// Schedules a write that begins after `wait` at the latest.
    fn write_within(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        let at = ctx.now() + wait;
        match self.due.take() {
            Some(due) if due.0 <= at => self.due = Some(due),
            other => {
                if let Some((_, timer)) = other {
                    ctx.cancel(timer);
                }
                self.due = Some((at, ctx.after(wait, Msg::Write)));
            }
        }
    }

    fn write(&mut self, ctx: &mut Context<Msg>) {
        self.due = None;
        if self.busy {
            return self.write_within(SOON, ctx);
        }
        let Some(stock) = self.stock() else {
            return;
        };
        self.busy = true;
        let (folder, machine_id) = (self.folder.clone(), self.machine_id.clone());
        ctx.run(async move {
            let work = move || prepare(&stock, &folder, &machine_id);
            let prepared = kernel::spawn_blocking(work).await;
            let broke = |error| Err(OfflineCheckpointError::Content(io::Error::other(error)));
            Msg::Prepared(Box::new(SealOutcome(prepared.unwrap_or_else(broke))))
        });
    }

    /// None before the pods are known.
    fn stock(&self) -> Option<CheckpointInput> {
        Some(CheckpointInput {
            pods: self.pods.clone()?,
            supplied: self.supplied.clone(),
            statuses: self.statuses.clone(),
            objects: self.objects.clone(),
            node_name: self.node_name.clone(),
        })
    }

    fn prepared(
        &mut self,
        prepared: Result<Sealed, OfflineCheckpointError>,
        ctx: &mut Context<Msg>,
    ) {
        self.busy = false;
        let sealed = match prepared {
            Ok(sealed) => sealed,
            Err(error) => {
                self.failed(&error);
                return self.write_within(AGAIN, ctx);
            }
        };
        if self.mark.as_ref() == Some(&sealed.mark) {
            self.unchanged += 1;
            return;
        }
        match self.writer.begin(ctx.now(), &sealed) {
            Ok(Some(writing)) => {
                self.busy = true;
                self.next_mark = Some(sealed.mark);
                ctx.run(async move { Msg::Written(writing.run().await) });
            }
            Ok(None) => self.mark = Some(sealed.mark),
            Err(error) => self.failed(&error.into()),
        }
    }

    fn written(&mut self, written: WriteResult, ctx: &mut Context<Msg>) {
        self.busy = false;
        self.mark = None;
        match self.writer.finish(written) {
            Ok(_) => {
                self.mark = self.next_mark.take();
                if self.trouble.take().is_some() {
                    tracing::info!("pods are kept for a time without the API server again");
                }
            }
            Err(error) => {
                self.failed(&error.into());
                self.write_within(AGAIN, ctx);
            }
        }
    }

    fn flush(&mut self) -> Result<(), OfflineCheckpointError> {
        let Some(stock) = self.stock().filter(|_| self.due.is_some() || self.busy) else {
            return Ok(());
        };
        let sealed = prepare(&stock, &self.folder, &self.machine_id)?;
        if self.mark.as_ref() != Some(&sealed.mark) {
            self.writer.flush(&sealed)?;
        }
        Ok(())
    }

    /// Logs an error once, until it is gone.
    fn failed(&mut self, error: &OfflineCheckpointError) {
        let text = error_chain(error);
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("pods cannot be kept for a time without the API server: {text}");
            self.trouble = Some(text);
        }
    }
}

fn prepare(
    stock: &CheckpointInput,
    folder: &Path,
    machine_id: &Path,
) -> Result<Sealed, OfflineCheckpointError> {
    let packed = CheckpointContent::of(stock)
        .pack()
        .map_err(OfflineCheckpointError::Content)?;
    let seal = Seal::of(folder, machine_id)?;
    Ok(Sealed {
        mark: seal.mark(&packed),
        sealed: seal.close(packed)?,
    })
}

/// The essence of a pod: a change of it is written within a second.
fn essence(pod: &Pod) -> (PodUid, Option<i64>, bool, Option<&str>) {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    (pod.uid(), pod.metadata.generation, is_deleted, phase)
}

/// Whether more changed than tokens or renewed certificates.
fn is_other(before: &StaticObjects, now: &StaticObjects) -> bool {
    let tokens = |objects: &StaticObjects| objects.tokens.values().map(Vec::len).sum::<usize>();
    let mut next = StaticObjects {
        tokens: before.tokens.clone(),
        issuances: before.issuances.clone(),
        refused: before.refused.clone(),
        ..now.clone()
    };
    tokens(before) != tokens(now)
        || !certificates::essence(before).eq(certificates::essence(now))
        || next.succeed(before).differs
}
