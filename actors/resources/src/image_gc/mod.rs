//! Removes images that nothing uses: those of which the disk must be relieved, and those that are old.
//!
//! - **Owns** when each image was detected and used last, over restarts too.
//! - **Hears** its own ticks and results, and `DeleteUnused` from the eviction manager.
//! - **Tells** the image manager which images are left, so that the records of the others' pulls go, and the recorder what
//!   could not be freed.
//! - **Never** removes an image that a container or a sandbox may use, nor lets one image that cannot be removed keep the
//!   others.
//!
//! Upstream: pkg/kubelet/images/image_gc_manager.go and `StartGarbageCollection` of kubelet.go (1.36). Decisions:
//! `logic_resources::image_gc`.

mod listing;
mod memory;
mod removal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clients::runtime::RuntimeClient;
use jiff::Timestamp;
use kernel::checkpoint::WriteResult;
use kernel::{Actor, Addr, Context, Exit, Reply};
use logic_api::types::ContainerId;
use logic_resources::image_gc::{
    self as decide, DiskFinding, DiskSpace, ImageGcPolicy, ImageRecords,
};
use pods::images;
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};
use telemetry::{Span, SpanKind, SpanScope};
use thiserror::Error;

use self::listing::{Listing, ListingError};
use self::memory::ImageMemory;
use self::removal::{Removal, RemovalReason};
use crate::stats::bounded_io::BoundedIo;

/// Room for its own results, and for questions of the eviction manager, which asks one at a time.
pub const MAILBOX: usize = 16;
/// Between two collections, as upstream.
const PERIOD: Duration = Duration::from_secs(300);
/// Before the first one: what runs on the node is adopted first.
const FIRST_RUN_DELAY: Duration = Duration::from_secs(10);

/// The reasons of events, as upstream's.
const FAILED: &str = "ImageGCFailed";
const NOT_FREED: &str = "FreeDiskSpaceFailed";
const NO_CAPACITY: &str = "InvalidDiskCapacity";

/// Messages of the image collector.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Collects what is due by space or age.
    Tick,
    /// Removes all unused images that are old enough; answers with the bytes that this has freed.
    DeleteUnused {
        reply: Reply<Result<u64, ImageGcError>>,
    },
    /// Decides what goes, now that it is known what is there and in use.
    Listed(Result<Listing, ListingError>),
    /// Decides whether something goes for its space.
    Measured(Result<DiskSpace, String>),
    /// Takes in what was removed.
    Removed(Removal),
    /// Begins a write of what outlives the agent.
    Write,
    /// Takes the result of a write.
    Written(WriteResult),
}

/// Why a collection failed, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ImageGcError(pub String);

impl ImageGcError {
    /// A later collection finds what is there anew.
    pub fn transient(&self) -> bool {
        true
    }
}

/// The images that are known, and what was removed.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Known images.
    pub images: usize,
    /// Of these, how many nothing uses and the runtime does not keep.
    pub unused: usize,
    /// Images, since the start.
    pub removed: u64,
    /// Bytes, since the start.
    pub freed: u64,
    /// Of the images' file system, when a collection last looked.
    pub space: Option<DiskSpace>,
    /// Why the last collection failed.
    pub last_error: Option<String>,
    /// Files set aside because they were damaged.
    pub set_aside: Option<String>,
}

/// The image collector's section of the configuration.
#[derive(Debug, Clone)]
pub struct ImageGcConfig {
    pub policy: ImageGcPolicy,
    pub node_name: String,
    /// The checkpoint of when images were detected and used.
    pub checkpoint: PathBuf,
    /// Measures the file system of a path; blocking.
    pub measure: fn(&Path) -> io::Result<DiskSpace>,
}

/// The actors and clients that the image collector works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    /// The image manager.
    pub images: Addr<images::Msg>,
    pub recorder: Recorder,
}

/// The image collector.
#[derive(Debug)]
pub struct ImageGc {
    config: ImageGcConfig,
    peers: Peers,

    records: ImageRecords,
    memory: ImageMemory,
    /// By container: the images that it mounts, which never change. Those of containers that are there.
    mounts: BTreeMap<ContainerId, Vec<String>>,
    disk: Rc<BoundedIo>,
    run: Option<Run>,
    /// Whether this life or one before has seen once what is there.
    has_detected: bool,
    /// Who waits for the next run that removes everything.
    asked: Vec<Reply<Result<u64, ImageGcError>>>,
    totals: Totals,
    last_error: Option<String>,
}

/// What was removed since the start, and the space of the file system.
#[derive(Debug, Default)]
struct Totals {
    removed: u64,
    freed: u64,
    space: Option<DiskSpace>,
}

/// What a run is for.
#[derive(Debug)]
enum Purpose {
    /// To see what is there: no image goes.
    Detection,
    /// Images go by age and space.
    Collection,
    /// The eviction manager asked: all unused images go, and it is answered.
    Eviction(Vec<Reply<Result<u64, ImageGcError>>>),
}

/// A run under way.
#[derive(Debug)]
struct Run {
    began: Timestamp,
    purpose: Purpose,
    /// The images that are there: their names by id.
    present: BTreeMap<String, Vec<String>>,
    /// Whether images have gone: by this run, or since the last one.
    any_gone: bool,
    freed: u64,
    errors: Vec<String>,
    span: Span,
}

impl Actor for ImageGc {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.records = self.memory.load(self.config.policy.keyed_by, ctx)?;
        self.has_detected = self.memory.is_restored();
        self.begin(Purpose::Detection, ctx);
        ctx.after(FIRST_RUN_DELAY, Msg::Tick);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Tick => self.tick(ctx),
            Msg::DeleteUnused { reply } => self.delete_unused(reply, ctx),
            Msg::Listed(listed) => self.listed(listed, ctx),
            Msg::Measured(space) => self.measured(space, ctx),
            Msg::Removed(removal) => self.removed(removal, ctx),
            Msg::Write => self.memory.write(&self.records, ctx),
            Msg::Written(written) => self.memory.written(written, ctx),
        }
        Ok(())
    }

    async fn stop(&mut self, _ctx: &mut Context<Msg>) {
        self.memory.flush(&self.records);
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            images: self.records.len(),
            unused: self.records.in_eviction_order().len(),
            removed: self.totals.removed,
            freed: self.totals.freed,
            space: self.totals.space,
            last_error: self.last_error.clone(),
            set_aside: self.memory.set_aside().map(str::to_owned),
        }
    }
}

impl ImageGc {
    pub fn new(config: ImageGcConfig, peers: Peers) -> Self {
        ImageGc {
            records: ImageRecords::new(config.policy.keyed_by),
            memory: ImageMemory::new(config.checkpoint.clone()),
            config,
            peers,
            mounts: BTreeMap::new(),
            disk: Rc::default(),
            run: None,
            has_detected: false,
            asked: Vec::new(),
            totals: Totals::default(),
            last_error: None,
        }
    }

    fn tick(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(PERIOD, Msg::Tick);
        if self.run.is_none() {
            self.begin(Purpose::Collection, ctx);
        }
    }

    fn delete_unused(&mut self, reply: Reply<Result<u64, ImageGcError>>, ctx: &mut Context<Msg>) {
        self.asked.push(reply);
        self.begin_asked(ctx);
    }

    /// Begins the run that was asked for, unless another is under way: that one may have looked before.
    fn begin_asked(&mut self, ctx: &mut Context<Msg>) {
        if self.run.is_none() && !self.asked.is_empty() {
            tracing::info!("attempting to delete unused images");
            let asked = std::mem::take(&mut self.asked);
            self.begin(Purpose::Eviction(asked), ctx);
        }
    }

    fn begin(&mut self, purpose: Purpose, ctx: &mut Context<Msg>) {
        self.run = Some(Run {
            began: ctx.timestamp(),
            purpose,
            present: BTreeMap::new(),
            any_gone: false,
            freed: 0,
            errors: Vec::new(),
            span: Span::begin("Images/GarbageCollect", SpanKind::Internal, Vec::new),
        });
        let (runtime, mounts) = (self.peers.runtime.clone(), std::mem::take(&mut self.mounts));
        let scope = self.scope();
        ctx.run(async move { Msg::Listed(scope.run(listing::list(&runtime, mounts)).await) });
    }

    fn listed(&mut self, listed: Result<Listing, ListingError>, ctx: &mut Context<Msg>) {
        let Some(run) = &mut self.run else { return };
        let listing = match listed {
            Ok(listing) => listing,
            Err(ListingError { mounts, source }) => {
                self.mounts = mounts;
                run.errors.push(source.describe());
                return self.finish(ctx);
            }
        };
        self.mounts = listing.mounts;
        let (began, now) = (run.began, ctx.timestamp());
        // What was there before any life of the agent has any age.
        let detected = match self.has_detected {
            true => began,
            false => Timestamp::UNIX_EPOCH,
        };
        self.has_detected = true;
        let gone = self
            .records
            .detect(&listing.images, &listing.uses, detected, now);
        let named = |image: decide::ImageFacts| (image.id, image.names);
        run.present = listing.images.into_iter().map(named).collect();
        run.any_gone = gone > 0;
        self.memory.follow(&self.records, ctx);
        let unused = self.records.in_eviction_order();
        match run.purpose {
            Purpose::Detection => self.finish(ctx),
            Purpose::Collection if self.config.policy.is_off() => self.finish(ctx),
            Purpose::Collection => {
                let since = self.memory.tracked_since();
                let (old, _) = decide::too_old(&self.config.policy, unused, began, since);
                self.remove(RemovalReason::Age, old, ctx);
            }
            Purpose::Eviction(_) => {
                let all = decide::freeable(&self.config.policy, unused, began);
                self.remove(RemovalReason::Space { wanted: u64::MAX }, all, ctx);
            }
        }
    }

    fn remove(
        &mut self,
        reason: RemovalReason,
        images: Vec<decide::UnusedImage>,
        ctx: &mut Context<Msg>,
    ) {
        if images.is_empty() {
            return self.removed(Removal::nothing(reason), ctx);
        }
        let (runtime, scope) = (self.peers.runtime.clone(), self.scope());
        ctx.run(
            async move { Msg::Removed(scope.run(removal::remove(&runtime, reason, images)).await) },
        );
    }

    /// The runtime's calls are within the span of the run.
    fn scope(&self) -> SpanScope {
        let run = self.run.as_ref();
        run.map(|run| run.span.scope()).unwrap_or_default()
    }

    fn removed(&mut self, removal: Removal, ctx: &mut Context<Msg>) {
        let Some(run) = &mut self.run else { return };
        for image in &removal.removed {
            self.records.forget(&image.key);
            run.present.remove(&image.key.id);
            run.any_gone = true;
            run.freed += image.record.bytes;
            self.totals.removed += 1;
            self.totals.freed += image.record.bytes;
        }
        run.errors.extend(removal.complaint());
        let is_asked = matches!(run.purpose, Purpose::Eviction(_));
        match removal.reason {
            RemovalReason::Age => self.measure(ctx),
            RemovalReason::Space { .. } if is_asked => self.finish(ctx),
            RemovalReason::Space { wanted } => self.freed(wanted, removal.freed(), ctx),
        }
    }

    fn measure(&self, ctx: &mut Context<Msg>) {
        let (runtime, disk, measure) = (
            self.peers.runtime.clone(),
            self.disk.clone(),
            self.config.measure,
        );
        ctx.run(async move { Msg::Measured(space(&runtime, &disk, measure).await) });
    }

    fn measured(&mut self, space: Result<DiskSpace, String>, ctx: &mut Context<Msg>) {
        let Some(run) = &mut self.run else { return };
        let space = match space {
            Ok(space) => space,
            Err(error) => {
                run.errors.push(error);
                return self.finish(ctx);
            }
        };
        self.totals.space = Some(space);
        match decide::judge(&self.config.policy, space) {
            DiskFinding::Enough => self.finish(ctx),
            DiskFinding::NoCapacity => {
                run.errors.push(DiskFinding::NO_CAPACITY.to_owned());
                self.warn(NO_CAPACITY, DiskFinding::NO_CAPACITY.to_owned(), ctx);
                self.finish(ctx);
            }
            DiskFinding::Free {
                bytes,
                used_percent,
            } => {
                tracing::info!(
                    used_percent,
                    bytes,
                    "the images' file system is over the high threshold"
                );
                let (began, unused) = (run.began, self.records.in_eviction_order());
                let unused = decide::freeable(&self.config.policy, unused, began);
                self.remove(RemovalReason::Space { wanted: bytes }, unused, ctx);
            }
        }
    }

    /// Tells where less was freed than was wanted.
    fn freed(&mut self, wanted: u64, freed: u64, ctx: &mut Context<Msg>) {
        let Some(run) = &mut self.run else { return };
        let space = self.totals.space.unwrap_or_default();
        let finding = decide::judge(&self.config.policy, space);
        if let DiskFinding::Free { used_percent, .. } = finding
            && freed < wanted
        {
            let message = decide::insufficient(space, used_percent, freed);
            run.errors.push(message.clone());
            self.warn(NOT_FREED, message, ctx);
        }
        self.finish(ctx);
    }

    fn finish(&mut self, ctx: &mut Context<Msg>) {
        let Some(run) = self.run.take() else { return };
        if run.any_gone {
            self.memory.follow(&self.records, ctx);
            let names = |(id, names)| std::iter::once(id).chain(names);
            let present: BTreeSet<String> = run.present.into_iter().flat_map(names).collect();
            let collected = images::Msg::Collected {
                present,
                began: run.began,
            };
            if let Err(full) = self.peers.images.tell(collected) {
                tracing::warn!("records of removed images stay until more are removed: {full}");
            }
        }
        let error = (!run.errors.is_empty()).then(|| run.errors.join("; "));
        match run.purpose {
            Purpose::Eviction(asked) => answer(asked, error, run.freed),
            Purpose::Collection => self.ended(error, ctx),
            // The runtime may still be starting: the next run sees what is there.
            Purpose::Detection => tracing::debug!(?error, "images were detected"),
        }
        self.begin_asked(ctx);
    }

    /// A first failure is not worth an event: the runtime may still be starting.
    fn ended(&mut self, error: Option<String>, ctx: &Context<Msg>) {
        match (&error, &self.last_error) {
            (Some(error), Some(_)) => {
                tracing::error!("images could not be collected several times in a row: {error}");
                self.warn(FAILED, error.clone(), ctx);
            }
            (Some(error), None) => tracing::error!("images could not be collected once: {error}"),
            (None, Some(_)) => tracing::info!("images are collected again"),
            (None, None) => {}
        }
        self.last_error = error;
    }

    fn warn(&self, reason: &str, message: String, ctx: &Context<Msg>) {
        let node = InvolvedObject::node(&self.config.node_name);
        self.peers
            .recorder
            .record(ctx.timestamp(), EventType::Warning, node, reason, message);
    }
}

fn answer(asked: Vec<Reply<Result<u64, ImageGcError>>>, error: Option<String>, freed: u64) {
    for reply in asked {
        reply.send(match &error {
            Some(error) => Err(ImageGcError(error.clone())),
            None => Ok(freed),
        });
    }
}

/// The space of the file system that the runtime has its images on.
async fn space(
    runtime: &RuntimeClient,
    disk: &BoundedIo,
    measure: fn(&Path) -> io::Result<DiskSpace>,
) -> Result<DiskSpace, String> {
    let told = runtime.file_systems().await;
    let told = told.map_err(|error| error.describe())?;
    let mountpoint = told.images.map(|images| images.mountpoint);
    let Some(mountpoint) = mountpoint.filter(|mountpoint| !mountpoint.is_empty()) else {
        return Err("the runtime names no file system of images".to_owned());
    };
    let path = PathBuf::from(&mountpoint);
    let measured = disk.run(move || measure(&path)).await;
    let why = |error: &dyn std::fmt::Display| format!("image filesystem {mountpoint}: {error}");
    match measured {
        Ok(space) => space.map_err(|error| why(&error)),
        Err(error) => Err(why(&error)),
    }
}
