//! Objects of the API from a folder of manifests: what pods refer to on a node without an API server.
//!
//! - **Owns** what was last read of each file, and the [`StoreWriter`] of the [`ObjectStore`].
//! - **Hears** that something changed (inotify), that the period has passed, and what was read.
//! - **Tells** no actor: readers of the store see the change, or wait for it.
//! - **Never** waits for a file: reading is blocking work beside it, one reading at a time. Never lets one bad file
//!   hide another, nor takes away what a file held while it was good: that goes when the file is good again without
//!   it, or is gone.
//!
//! The folder's `*.yaml`, `*.yml` and `*.json` are read in the order of their names; of two objects of the same name
//! the first one stays. What is immutable stays as it is until it is taken away (`logic_api::objects`).

mod folder_reader;
pub mod manager;
mod manifest_file;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::error_chain;
use kernel::{Actor, Context, Exit};
use logic_api::objects::StaticObjects;
use serde::Serialize;

use self::folder_reader::{FolderContents, FolderReader};
use self::manifest_file::ManifestFile;
pub use self::store::{Changes, ObjectStore, StoreWriter};
use crate::folder::{FolderWatch, ReadGate, SETTLED_AFTER, WatchNotice, WatchPacing};

/// Its own watch, timers and readings: a handful at a time.
pub const MAILBOX: usize = 64;
/// A change that inotify does not see, such as on another machine, is seen after this time.
const PERIOD: Duration = Duration::from_secs(60);
/// No pod waits for an object within milliseconds.
const PACE: WatchPacing = WatchPacing {
    quiet: Duration::from_millis(25),
    rounds: 4,
    missing: Duration::from_secs(60),
    refused: Duration::from_secs(60),
};

/// Reads the folder once, before it is watched: errors are left for the [`ObjectFolder`] to report. No folder (an
/// empty path) holds nothing.
pub fn load(folder: &str) -> StaticObjects {
    let mut objects = StaticObjects::default();
    if folder.is_empty() {
        return objects;
    }
    let reader = FolderReader {
        folder: Path::new(folder).into(),
        known: BTreeMap::new(),
        now: kernel::wall(),
    };
    if let FolderContents::Found { looks, .. } = reader.read() {
        for look in looks.into_values() {
            drop(objects.merge(ManifestFile::default().after(look).objects));
        }
    }
    objects
}

/// Messages of the object folder.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Reads the folder: the period has passed.
    Tick,
    /// Reads what has changed.
    Changed,
    /// Takes in what was read, and puts it into the store if it differs.
    Read(Box<Findings>),
    /// Reads what the watch has seen, or restarts the watch.
    Watched(WatchNotice),
}

impl From<WatchNotice> for Msg {
    fn from(sight: WatchNotice) -> Self {
        Msg::Watched(sight)
    }
}

/// The result of a reading.
#[derive(Debug)]
pub struct Findings(FolderContents);

/// Snapshot: files, objects and errors.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub path: String,
    pub watching: bool,
    pub files: usize,
    pub objects: usize,
    /// Files or objects that were refused, and why.
    pub refused: Vec<String>,
    pub readings: u64,
    pub changes: u64,
}

/// Follows the folder of manifests.
#[derive(Debug)]
pub struct ObjectFolder {
    path: Arc<Path>,

    store_writer: StoreWriter,

    files: BTreeMap<PathBuf, ManifestFile>,
    /// In the store at the start and in no file, while a file is bad: that one may have held it.
    orphans: StaticObjects,
    told: BTreeSet<String>,
    turns: ReadGate,
    settling: bool,
    watch: FolderWatch,
    readings: u64,
    changes: u64,
}

impl Actor for ObjectFolder {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        tracing::info!(path = %self.path.display(), "objects are read from here");
        self.watch.begin(ctx);
        self.tick(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.tick(ctx),
            Msg::Changed => self.read(ctx),
            Msg::Read(findings) => self.take(findings.0, ctx),
            Msg::Watched(sight) => self.watched(sight, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            path: self.path.display().to_string(),
            watching: self.watch.stands(),
            files: self.files.len(),
            objects: self.store_writer.borrow().len(),
            refused: self.told.iter().cloned().collect(),
            readings: self.readings,
            changes: self.changes,
        }
    }
}

impl ObjectFolder {
    /// The store of `supply` holds what [`load`] found, or what this actor put there before it restarted.
    pub fn new(path: PathBuf, store_writer: StoreWriter) -> Self {
        let path: Arc<Path> = path.into();
        ObjectFolder {
            watch: FolderWatch::new(path.clone(), PACE),
            path,
            store_writer,
            files: BTreeMap::new(),
            orphans: StaticObjects::default(),
            told: BTreeSet::new(),
            turns: ReadGate::default(),
            settling: false,
            readings: 0,
            changes: 0,
        }
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        self.turns.warn_if_slow(&self.path, ctx.now());
        self.read(ctx);
        ctx.after(PERIOD, Msg::Tick);
    }

    fn read(&mut self, ctx: &mut Context<Msg>) {
        if !self.turns.begins(ctx.now()) {
            return;
        }
        self.settling = false;
        let stamps = self.files.iter();
        let reader = FolderReader {
            folder: self.path.clone(),
            known: stamps
                .filter_map(|(path, held)| Some((path.clone(), held.stamp?)))
                .collect(),
            now: ctx.wall(),
        };
        ctx.run(async move {
            let read = kernel::spawn_blocking(move || reader.read()).await;
            let broke = |panicked| FolderContents::Unreadable(std::io::Error::other(panicked));
            Msg::Read(Box::new(Findings(read.unwrap_or_else(broke))))
        });
    }

    fn take(&mut self, reading: FolderContents, ctx: &mut Context<Msg>) {
        let again = self.turns.ends();
        match reading {
            FolderContents::Missing => {
                self.files.clear();
                self.put(vec![format!("{} does not exist", self.path.display())]);
            }
            // What was read before stays.
            FolderContents::Unreadable(error) => {
                let mut all: Vec<String> = self.told.iter().cloned().collect();
                all.push(format!("{}: {}", self.path.display(), error_chain(&error)));
                self.complain(all);
            }
            FolderContents::Found { place, looks } => {
                let mut before = std::mem::take(&mut self.files);
                for (path, look) in looks {
                    let held = before.remove(&path).unwrap_or_default();
                    self.files.insert(path, held.after(look));
                }
                self.put(Vec::new());
                self.watch.found(place, ctx);
            }
        }
        let unsettled = self.files.values().any(|held| !held.settled);
        if unsettled && !std::mem::replace(&mut self.settling, true) {
            ctx.after(SETTLED_AFTER, Msg::Changed);
        }
        if again {
            self.read(ctx);
        }
    }

    /// Puts what the files hold into the store, if it differs.
    fn put(&mut self, mut complaints: Vec<String>) {
        let before = self.store_writer.borrow().clone();
        let mut objects = self.gathered(&mut complaints);
        let is_bad = self.files.values().any(|held| !held.problems.is_empty());
        if is_bad && self.readings == 0 {
            self.orphans = before.missing_in(&objects);
        } else if !is_bad {
            self.orphans = StaticObjects::default();
        }
        drop(objects.merge(self.orphans.clone()));
        let came = objects.succeed(&before);
        complaints.extend(came.refused);
        if came.differs {
            self.changes += 1;
            self.store_writer.send_replace(Arc::new(objects));
        }
        self.readings += 1;
        self.complain(complaints);
    }

    fn gathered(&self, complaints: &mut Vec<String>) -> StaticObjects {
        let mut objects = StaticObjects::default();
        for (path, held) in &self.files {
            let path = path.display();
            let twice = objects.merge(held.objects.clone()).into_iter();
            if held.settled {
                let wrong = held.problems.iter();
                complaints.extend(wrong.map(|problem| format!("{path}: {problem}")));
                complaints.extend(
                    twice.map(|object| {
                        format!("{path}: {object} stands in a file before it already")
                    }),
                );
            }
        }
        objects
    }

    /// Logs an error once, until it is gone.
    fn complain(&mut self, complaints: Vec<String>) {
        let all: BTreeSet<String> = complaints.into_iter().collect();
        for text in all.difference(&self.told) {
            tracing::warn!("objects: {text}");
        }
        self.told = all;
    }

    fn watched(&mut self, sight: WatchNotice, ctx: &mut Context<Msg>) {
        if self.watch.on_notice(sight, ctx).is_some() {
            self.read(ctx);
        }
    }
}
