//! The store of attachments: in memory, and as files that outlive the process.
//!
//! A file lies in `results/` when its attachment is made, where libcni would look for it, and in `unfinished/` from
//! before ADD begins until it is made, and from before DEL begins until it is gone. So a process that is killed at any
//! point leaves no attachment untold. Memory is what calls go by: a disk that is full, broken or stuck hinders ADD,
//! which could not be undone after a restart, but never DEL.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blocking_pool::BlockingPool;
use tonic::Status;

use super::record::{self, RecordError};
use super::{Attachment, AttachmentId};

/// Many times what a node has pods.
const ATTACHMENTS_MAX: usize = 16_384;
const RECORD_MAX: u64 = 4 << 20;
/// A disk that takes longer counts as broken for this call.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);
/// Reading the records at the start: less than the time in which the agent expects the plugin.
const LOAD_TIMEOUT: Duration = Duration::from_secs(3);

const MADE: &str = "results";
const UNFINISHED: &str = "unfinished";
/// No name of an attachment begins so.
const SCRATCH: &str = ".writing-";

/// How far an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its ADD runs, for a caller that waits.
    Adding,
    /// Its ADD or its DEL was begun and did not end well, or was cut off.
    Unfinished,
    /// Its ADD is done.
    Made,
}

/// The attachments that there are. Clones are the same store.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: Arc<Path>,
    pool: BlockingPool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<AttachmentId, (Stage, Arc<Attachment>)>,
    /// Names of files that could not be read.
    damaged: BTreeSet<String>,
    /// The folder itself could not be read: any attachment may be missing.
    incomplete: bool,
}

impl Store {
    /// Reads what there is below `dir`. What cannot be read is told and counts as possibly there.
    pub(crate) async fn load(dir: &Path, pool: BlockingPool) -> Self {
        let owned = dir.to_owned();
        let read = pool.run("reading the attachments", LOAD_TIMEOUT, move || {
            Ok(load(&owned))
        });
        let state = read.await.unwrap_or_else(|status| {
            tracing::warn!("{}", status.message());
            State {
                incomplete: true,
                ..State::default()
            }
        });
        Self {
            dir: dir.into(),
            pool,
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(crate) fn get(&self, id: &AttachmentId) -> Option<(Stage, Arc<Attachment>)> {
        self.state().known.get(id).cloned()
    }

    /// Returns all attachments, those of one sandbox and interface beside others.
    pub(crate) fn all(&self) -> Vec<(Stage, Arc<Attachment>)> {
        self.state().known.values().cloned().collect()
    }

    /// Tells whether there may be an attachment that is not known.
    pub(crate) fn may_miss(&self, id: &AttachmentId) -> bool {
        let state = self.state();
        state.incomplete || state.damaged.contains(&id.file_name())
    }

    /// Writes down that ADD begins; without that it must not begin.
    pub(crate) async fn begin(&self, of: Attachment) -> Result<(), Status> {
        let of = Arc::new(of);
        self.admit(&of)?;
        let path = self.path(UNFINISHED, &of.id);
        let written = self.save(path, &of).await;
        if written.is_err() {
            self.state().known.remove(&of.id);
        }
        written
    }

    fn admit(&self, of: &Arc<Attachment>) -> Result<(), Status> {
        let mut state = self.state();
        if state.known.len() >= ATTACHMENTS_MAX {
            let text = format!(
                "{} was not begun: there are {ATTACHMENTS_MAX} attachments",
                of.id
            );
            return Err(Status::resource_exhausted(text));
        }
        let name = of.id.file_name();
        if let Some(other) = state.known.keys().find(|id| id.file_name() == name) {
            let text = format!(
                "{} was not begun: its record has the name of that of {other}",
                of.id
            );
            return Err(Status::invalid_argument(text));
        }
        state
            .known
            .insert(of.id.clone(), (Stage::Adding, of.clone()));
        Ok(())
    }

    /// Writes down that ADD is done.
    pub(crate) async fn finish(&self, of: Attachment) -> Result<(), Status> {
        let of = Arc::new(of);
        self.save(self.path(MADE, &of.id), &of).await?;
        let begun = self.path(UNFINISHED, &of.id);
        let entry = (Stage::Made, of.clone());
        self.state().known.insert(of.id.clone(), entry);
        self.tried("forgetting the beginning of", &of.id, move || {
            fs::remove_file(begun)
        })
        .await;
        Ok(())
    }

    /// Writes down that DEL begins. A disk that refuses is told, and hinders nothing.
    pub(crate) async fn unmake(&self, id: &AttachmentId) {
        if let Some(entry) = self.state().known.get_mut(id) {
            entry.0 = Stage::Unfinished;
        }
        let (from, to) = (self.path(MADE, id), self.path(UNFINISHED, id));
        self.tried("writing down the end of", id, move || fs::rename(from, to))
            .await;
    }

    /// Forgets an attachment that is gone. A disk that refuses is told, and hinders nothing.
    pub(crate) async fn forget(&self, id: &AttachmentId) {
        {
            let mut state = self.state();
            state.known.remove(id);
            state.damaged.remove(&id.file_name());
        }
        let paths = [self.path(MADE, id), self.path(UNFINISHED, id)];
        self.tried("forgetting", id, move || {
            let [made, unfinished] = paths.map(fs::remove_file);
            missing_is_fine(made).and(missing_is_fine(unfinished))
        })
        .await;
    }

    async fn save(&self, path: PathBuf, of: &Arc<Attachment>) -> Result<(), Status> {
        let (what, of) = (format!("writing {}", path.display()), of.clone());
        let write = move || {
            save(&path, &record::write(&of)).map_err(|error| {
                Status::internal(format!(
                    "{}: cannot write {}: {error}",
                    of.id,
                    path.display()
                ))
            })
        };
        self.pool.run(&what, DISK_TIMEOUT, write).await
    }

    async fn tried(
        &self,
        what: &str,
        id: &AttachmentId,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) {
        let what = format!("{what} {id}");
        let done = self.pool.run(&what, DISK_TIMEOUT, move || {
            missing_is_fine(work()).map_err(|error| Status::internal(error.to_string()))
        });
        if let Err(status) = done.await {
            tracing::warn!("{what}: {}", status.message());
        }
    }

    fn path(&self, folder: &str, id: &AttachmentId) -> PathBuf {
        self.dir.join(folder).join(id.file_name())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Writes a file so that there is all of it or nothing under its name. What a reboot loses is gone with the sandboxes:
/// nothing is synced.
fn save(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let scratch = path.with_file_name(format!("{SCRATCH}{name}"));
    let written = write_scratch(&scratch, text).and_then(|()| fs::rename(&scratch, path));
    if written.is_err() {
        // It would be overwritten by the next one; on a full disk its space counts.
        drop(fs::remove_file(&scratch));
    }
    written
}

fn write_scratch(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)
}

fn load(dir: &Path) -> State {
    let mut state = State::default();
    // What is in both folders was made: the process was killed between the two steps of `finish`.
    for (folder, stage) in [(UNFINISHED, Stage::Unfinished), (MADE, Stage::Made)] {
        let folder = dir.join(folder);
        if let Err(error) = load_folder(&folder, stage, &mut state) {
            tracing::warn!("folder {} cannot be read: {error}", folder.display());
            state.incomplete = true;
        }
    }
    state
}

fn load_folder(folder: &Path, stage: Stage, state: &mut State) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(SCRATCH) {
            drop(fs::remove_file(entry.path()));
            continue;
        }
        match load_record(&entry.path(), &name) {
            Ok(read) => drop(state.known.insert(read.id.clone(), (stage, Arc::new(read)))),
            Err(error) => {
                tracing::warn!("record {}: {error}", entry.path().display());
                state.damaged.insert(name);
            }
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
}

fn load_record(path: &Path, name: &str) -> Result<Attachment, LoadError> {
    let mut text = Vec::new();
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("not a file").into());
    }
    File::open(path)?.take(RECORD_MAX).read_to_end(&mut text)?;
    Ok(record::read(&text, name)?)
}
