//! Static pods from a folder of manifests, or from one file (`staticPodPath`).
//!
//! - **Owns** the result of each manifest's last reading, and the problems that were reported.
//! - **Hears** that a file changed (inotify), that the period has passed, and the results of readings.
//! - **Tells** the pod manager the whole set: at once when it changes, and at every period again, so
//!   that a restarted pod manager gets it; the recorder each problem of a manifest.
//! - **Never** waits for a file: reading is blocking work beside it, one reading at a time. Never lets
//!   one bad manifest hide another, nor end the pods that it described while it was good.
//!
//! Upstream: pkg/kubelet/config/{file,file_linux}.go (1.36). A missing path is an empty set, as there;
//! one that cannot be read changes nothing, as there.

mod manifest_state;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::error_chain;
use kernel::{Actor, Addr, Context, Exit};
use logic_api::manifest::StaticPodContext;
use serde::Serialize;
use state::events::Recorder;
use state::folder::{FolderChange, FolderWatch, ReadGate, SETTLED_AFTER, WatchNotice, WatchPacing};

use self::manifest_state::ManifestState;
use self::scan::{ManifestRead, Scan, Scanner, cleaned};
use crate::pod_manager::{self, PodSource};
use crate::sources::manifest::SourceError;
use crate::sources::source_problems::{SourceProblem, SourceProblems};
use crate::sources::unique::{Unique, unique};

/// Room for its own watch, timers and readings: a few at a time.
pub const MAILBOX: usize = 64;
/// A short latency matters. The pauses are upstream's `retryPeriod` and `maxRetryPeriod`.
const WATCH_PACE: WatchPacing = WatchPacing {
    quiet: Duration::from_millis(1),
    rounds: 2,
    missing: Duration::from_secs(1),
    refused: Duration::from_secs(20),
};
/// Between attempts to send the set to a pod manager whose mailbox is full.
const NOTIFY_RETRY_PERIOD: Duration = Duration::from_millis(200);
/// A configured period shorter than this would be a busy loop.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// Messages of the file source.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Reads everything and sends the set again: the period has passed.
    Tick,
    /// Reads the files that changed.
    Changed,
    /// Takes the result of a reading, and sends the set if it differs.
    Scanned(Box<Scanned>),
    /// Sends the set to the pod manager, whose mailbox was full.
    Notify,
    /// Reads after inotify events, or restarts the watch.
    Watched(WatchNotice),
}

impl From<WatchNotice> for Msg {
    fn from(sight: WatchNotice) -> Self {
        Msg::Watched(sight)
    }
}

/// The result of one reading.
#[derive(Debug)]
pub struct Scanned(Scan);

/// The counts of manifests and pods, and the refused manifests.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub path: String,
    pub watching: bool,
    pub manifests: usize,
    pub pods: usize,
    /// Problems by manifest.
    pub refused: BTreeMap<String, Vec<String>>,
    pub readings: u64,
    pub sets_told: u64,
}

/// The file source.
#[derive(Debug)]
pub struct FileSource {
    path: Arc<Path>,
    period: Duration,
    context: StaticPodContext,

    pod_manager: Addr<pod_manager::Msg>,
    source_problems: SourceProblems,

    manifests: BTreeMap<String, ManifestState>,
    /// The set to send; none until the path was read once.
    desired: Option<Vec<Arc<Pod>>>,
    /// The set that was sent last.
    told: Option<Vec<Arc<Pod>>>,
    turns: ReadGate,
    settling: bool,
    /// Manifests that were removed since the reading that is under way began.
    outdated: BTreeSet<String>,
    watch: FolderWatch,
    readings: u64,
    sets_told: u64,
}

impl Actor for FileSource {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        tracing::info!(path = %self.path.display(), "static pods are read from here");
        self.tick(ctx);
        self.watch.begin(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.tick(ctx),
            Msg::Changed => self.read(ctx),
            Msg::Scanned(scanned) => self.scanned(scanned.0, ctx),
            Msg::Notify => self.tell(ctx),
            Msg::Watched(sight) => self.watched(sight, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let bad = self
            .manifests
            .iter()
            .filter(|(_, held)| !held.problems.is_empty());
        let said = |held: &ManifestState| {
            held.problems
                .iter()
                .map(|refused| error_chain(refused))
                .collect()
        };
        Snapshot {
            path: self.path.display().to_string(),
            watching: self.watch.stands(),
            manifests: self.manifests.len(),
            pods: self.desired.as_ref().map_or(0, Vec::len),
            refused: bad
                .map(|(place, held)| (place.clone(), said(held)))
                .collect(),
            readings: self.readings,
            sets_told: self.sets_told,
        }
    }
}

impl FileSource {
    /// `path` is a folder or a file; `period` is `fileCheckFrequency`.
    pub fn new(
        path: PathBuf,
        period: Duration,
        context: impl Into<StaticPodContext>,
        pod_manager: Addr<pod_manager::Msg>,
        recorder: Recorder,
    ) -> Self {
        let context = context.into();
        let path: Arc<Path> = cleaned(&path).into();
        FileSource {
            watch: FolderWatch::new(path.clone(), WATCH_PACE),
            path,
            period: period.max(MIN_PERIOD),
            source_problems: SourceProblems::new(
                PodSource::File,
                recorder,
                pod_manager.clone(),
                &context.node_name,
            ),
            pod_manager,
            context,
            manifests: BTreeMap::new(),
            desired: None,
            told: None,
            turns: ReadGate::default(),
            settling: false,
            outdated: BTreeSet::new(),
            readings: 0,
            sets_told: 0,
        }
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        self.turns.warn_if_slow(&self.path, ctx.now());
        self.tell(ctx);
        self.read(ctx);
        ctx.after(self.period, Msg::Tick);
    }

    fn read(&mut self, ctx: &mut Context<Msg>) {
        if !self.turns.begins(ctx.now()) {
            return;
        }
        self.settling = false;
        self.outdated.clear();
        self.readings += 1;
        let telling = self.manifests.iter().filter(|(_, held)| held.telling);
        let known = telling.filter_map(|(place, held)| Some((place.clone(), held.stamp?)));
        let scanner = Scanner {
            path: self.path.clone(),
            context: self.context.clone(),
            known: known.collect(),
            now: ctx.wall(),
        };
        ctx.run(async move {
            let scan = kernel::spawn_blocking(move || scanner.scan()).await;
            let broke = |_| Scan::Unreadable(SourceError::Broke);
            Msg::Scanned(Box::new(Scanned(scan.unwrap_or_else(broke))))
        });
    }

    fn scanned(&mut self, scan: Scan, ctx: &mut Context<Msg>) {
        let again = self.turns.ends();
        match scan {
            Scan::Missing => self.missing(ctx),
            Scan::Unreadable(why) => self.unreadable(&why, ctx),
            Scan::Found { watched, looks } => {
                self.found(looks, ctx);
                self.watch.found(watched, ctx);
            }
        }
        self.tell_if_changed(ctx);
        if again {
            self.read(ctx);
        }
    }

    fn missing(&mut self, ctx: &Context<Msg>) {
        if self.desired.as_ref().is_none_or(|pods| !pods.is_empty()) {
            tracing::warn!(
                "{} does not exist: no static pods from it",
                self.path.display()
            );
        }
        self.manifests.clear();
        self.source_problems.tell(ctx.wall(), BTreeSet::new());
        self.desired = Some(Vec::new());
    }

    /// The last result stands; before the first one no set is sent.
    fn unreadable(&mut self, why: &SourceError, ctx: &Context<Msg>) {
        let refused = SourceProblem::Refused {
            manifest: self.path.display().to_string(),
            why: error_chain(why),
            version: 0,
        };
        self.source_problems
            .tell(ctx.wall(), BTreeSet::from([refused]));
    }

    fn found(&mut self, mut looks: BTreeMap<String, ManifestRead>, ctx: &mut Context<Msg>) {
        looks.retain(|place, _| !self.outdated.contains(place));
        let mut before = std::mem::take(&mut self.manifests);
        for (place, look) in looks {
            let old = before.remove(&place).unwrap_or_default();
            self.manifests.insert(place, old.after(look, ctx.wall()));
        }
        if self.manifests.values().any(ManifestState::is_unsettled)
            && !std::mem::replace(&mut self.settling, true)
        {
            ctx.after(SETTLED_AFTER, Msg::Changed);
        }
        self.collect(ctx);
    }

    /// Makes the set of the manifests' pods, and reports the manifests' problems.
    fn collect(&mut self, ctx: &Context<Msg>) {
        let manifests = self
            .manifests
            .iter()
            .map(|(place, held)| (place.as_str(), held.pods.as_slice()));
        let Unique { pods, duplicates } = unique(manifests);
        if !self.is_single_mistake(&pods) {
            self.desired = Some(pods);
        }
        let mut source_problems: BTreeSet<SourceProblem> = self
            .manifests
            .iter()
            .flat_map(|(place, held)| held.source_problems(place))
            .collect();
        source_problems.extend(
            duplicates
                .iter()
                .map(|(place, refused)| SourceProblem::Refused {
                    manifest: place.clone(),
                    why: error_chain(refused),
                    version: self.manifests.get(place).map_or(0, ManifestState::version),
                }),
        );
        self.source_problems.tell(ctx.wall(), source_problems);
    }

    /// The path is a single file that was never good: it is unknown which pods it should define.
    fn is_single_mistake(&self, pods: &[Arc<Pod>]) -> bool {
        let single = self
            .manifests
            .iter()
            .find(|(place, _)| Path::new(place) == &*self.path);
        self.desired.is_none()
            && pods.is_empty()
            && single.is_some_and(|(_, held)| !held.problems.is_empty())
    }

    fn tell_if_changed(&mut self, ctx: &mut Context<Msg>) {
        if self.desired.is_some() && !same(self.desired.as_deref(), self.told.as_deref()) {
            self.tell(ctx);
        }
    }

    /// Sends the set; retries until the mailbox has room for it.
    fn tell(&mut self, ctx: &mut Context<Msg>) {
        let Some(pods) = self.desired.clone() else {
            return;
        };
        let set = pod_manager::Msg::SetPods {
            source: PodSource::File,
            pods: pods.clone(),
        };
        match self.pod_manager.tell(set) {
            Ok(()) => {
                self.sets_told += 1;
                self.told = Some(pods);
            }
            Err(full) => {
                tracing::warn!("static pods not handed on yet: {full}");
                ctx.after(NOTIFY_RETRY_PERIOD, Msg::Notify);
            }
        }
    }

    fn watched(&mut self, sight: WatchNotice, ctx: &mut Context<Msg>) {
        if let Some(change) = self.watch.on_notice(sight, ctx) {
            self.removed(&change, ctx);
            self.read(ctx);
        }
    }

    /// Ends what the removed files described, also where they are there again: as upstream, that is another life of the pod.
    fn removed(&mut self, change: &FolderChange, ctx: &mut Context<Msg>) {
        let is_removed = |place: &str| {
            let name = Path::new(place).file_name();
            name.is_some_and(|name| change.removed.contains(name))
        };
        let removed = self.manifests.extract_if(.., |place, _| is_removed(place));
        let removed: BTreeSet<String> = removed.map(|(place, _)| place).collect();
        if removed.is_empty() {
            return;
        }
        // A reading that is under way may have seen them before.
        self.outdated.extend(removed);
        self.collect(ctx);
        self.tell_if_changed(ctx);
    }
}

/// Whether both have the very same pods in the same order.
fn same(one: Option<&[Arc<Pod>]>, other: Option<&[Arc<Pod>]>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b))
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
