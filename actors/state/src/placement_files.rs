//! What pods have to themselves, in the files in which a kubelet keeps it: either agent continues where the other stopped.
//!
//! - **Owns** the state files of the CPU and the memory manager.
//! - **Hears** that what pods hold has changed, and from workers that ask until it is on the disk.
//! - **Tells** no other actor.
//! - **Never** writes a file that has its contents already.
//!
//! A file that cannot be written is tried again; until then the older one stays, as upstream's does.
//!
//! Upstream: pkg/kubelet/cm/{cpumanager,memorymanager}/state/state_checkpoint.go (1.36). Decisions:
//! `logic_placement::NodePlacement`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::{Actor, Context, Exit, Reply, watch};
use logic_placement::StateFile;
use logic_placement::topology::HeldAssignments;
use serde::Serialize;

use crate::assignments::Assignments;
use crate::take_over::write_beside;

/// Room for a question of each pod that starts with something to itself; changes may be dropped, since the newest counts.
pub const MAILBOX: usize = 256;
/// Before a write that failed is tried again.
const RETRY_PERIOD: Duration = Duration::from_secs(10);

/// Messages of the placement files' writer.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Writes the files if what pods hold is not in them.
    Changed,
    /// Answers when the files say what pods hold now.
    Stored { reply: Reply<()> },
    /// Takes the files that were written, and the one that was not, with the reason.
    Written {
        files: Vec<StateFile>,
        failed: Option<String>,
    },
}

/// The files, and whether they are up to date.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub is_stored: bool,
    /// Files since the start.
    pub writes: u64,
    /// Why the last write failed; none if it did not.
    pub failed: Option<String>,
}

/// The placement files' writer.
#[derive(Debug)]
pub struct PlacementFiles {
    root_dir: Arc<Path>,
    assignments: Assignments,

    held: watch::Receiver<Arc<HeldAssignments>>,
    /// The contents of the files as far as they are known.
    contents: BTreeMap<&'static str, Vec<u8>>,
    is_writing: bool,
    /// Who waits for the write under way, and for the one after it.
    awaiting_write: Vec<Reply<()>>,
    awaiting_next: Vec<Reply<()>>,
    failed: Option<String>,
    writes: u64,
}

impl Actor for PlacementFiles {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// What the files hold is read once: a life that changes nothing writes nothing.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        for StateFile { name, .. } in self.wanted() {
            if let Ok(bytes) = fs::read(self.root_dir.join(name)) {
                self.contents.insert(name, bytes);
            }
        }
        self.write(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Changed => self.write(ctx),
            Msg::Stored { reply } => {
                self.awaiting_next.push(reply);
                self.write(ctx);
            }
            Msg::Written { files, failed } => self.written(files, failed, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            is_stored: !self.is_writing && self.held.has_changed() == Ok(false),
            writes: self.writes,
            failed: self.failed.clone(),
        }
    }
}

impl PlacementFiles {
    /// `root_dir` is the folder that the agent shares with a kubelet.
    pub fn new(root_dir: PathBuf, assignments: Assignments) -> Self {
        PlacementFiles {
            root_dir: root_dir.into(),
            held: assignments.follow(),
            assignments,
            contents: BTreeMap::new(),
            is_writing: false,
            awaiting_write: Vec::new(),
            awaiting_next: Vec::new(),
            failed: None,
            writes: 0,
        }
    }

    fn wanted(&mut self) -> Vec<StateFile> {
        let held = self.held.borrow_and_update().clone();
        self.assignments.placement.state_files(&held)
    }

    fn write(&mut self, ctx: &mut Context<Msg>) {
        if self.is_writing {
            return;
        }
        let mut files = self.wanted();
        files.retain(|file| self.contents.get(file.name) != Some(&file.bytes));
        self.awaiting_write.append(&mut self.awaiting_next);
        if files.is_empty() {
            answer(&mut self.awaiting_write);
            return;
        }
        self.is_writing = true;
        let root_dir = self.root_dir.clone();
        ctx.run(async move {
            let written = kernel::spawn_blocking(move || write_all(&root_dir, files)).await;
            written.unwrap_or_else(|error| Msg::Written {
                files: Vec::new(),
                failed: Some(error.to_string()),
            })
        });
    }

    fn written(&mut self, files: Vec<StateFile>, failed: Option<String>, ctx: &mut Context<Msg>) {
        self.is_writing = false;
        for file in files {
            self.writes += 1;
            self.contents.insert(file.name, file.bytes);
        }
        self.failed = failed;
        if let Some(why) = &self.failed {
            tracing::error!("what pods have to themselves is not on the disk: {why}");
            self.awaiting_next.append(&mut self.awaiting_write);
            ctx.after(RETRY_PERIOD, Msg::Changed);
            return;
        }
        answer(&mut self.awaiting_write);
        if !self.awaiting_next.is_empty() || self.held.has_changed() == Ok(true) {
            self.write(ctx);
        }
    }
}

/// Writes one file after the other; the first that fails ends it.
fn write_all(root_dir: &Path, files: Vec<StateFile>) -> Msg {
    let mut written = Vec::new();
    for file in files {
        let path = root_dir.join(file.name);
        if let Err(error) = write_beside(&path, &file.bytes) {
            return Msg::Written {
                files: written,
                failed: Some(format!("{}: {error}", path.display())),
            };
        }
        written.push(file);
    }
    Msg::Written {
        files: written,
        failed: None,
    }
}

fn answer(awaiting: &mut Vec<Reply<()>>) {
    for reply in awaiting.drain(..) {
        reply.send(());
    }
}
