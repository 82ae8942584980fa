//! What outlives the agent: when images were detected and used. Upstream begins anew with each start.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kernel::checkpoint::{
    CheckpointError, CheckpointFile, CheckpointWriter, LoadOutcome, Schema, WriteResult,
};
use kernel::{Context, TimerId};
use logic_resources::image_gc::{ImageRecords, KeyedBy, RememberedImage, RememberedImages};

use super::Msg;

const SCHEMA: Schema = Schema {
    kind: 50,
    version: 1,
};
/// A crash loses at most the changes of this time: an image seems younger, and stays longer.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// The checkpoint of the images.
#[derive(Debug)]
pub(super) struct ImageMemory {
    writer: CheckpointWriter,
    tracked_since: Timestamp,
    /// Whether an earlier life has left what it knew.
    is_restored: bool,
    /// As it was when it was last marked to be written.
    marked: Vec<RememberedImage>,
    timer: Option<TimerId>,
    set_aside: Option<String>,
}

impl ImageMemory {
    pub(super) fn new(file: PathBuf) -> Self {
        ImageMemory {
            writer: CheckpointWriter::new(CheckpointFile::new(file, SCHEMA), WRITE_INTERVAL),
            tracked_since: Timestamp::UNIX_EPOCH,
            is_restored: false,
            marked: Vec::new(),
            timer: None,
            set_aside: None,
        }
    }

    /// Reads what an earlier life has left. A damaged file costs the images' age alone.
    pub(super) fn load(
        &mut self,
        keyed_by: KeyedBy,
        ctx: &Context<Msg>,
    ) -> Result<ImageRecords, CheckpointError> {
        let now = ctx.timestamp();
        self.tracked_since = now;
        let loaded: LoadOutcome<RememberedImages> = self.writer.store().load()?;
        match loaded {
            LoadOutcome::Fresh => Ok(ImageRecords::new(keyed_by)),
            LoadOutcome::Found(found) => {
                self.tracked_since = found.tracked_since.min(now);
                self.is_restored = true;
                self.marked.clone_from(&found.images);
                Ok(ImageRecords::restored(keyed_by, found.images, now))
            }
            LoadOutcome::SetAside { moved_to, why } => {
                let text = format!("{}: {why}", moved_to.display());
                tracing::error!("when images were used is not known, it is set aside as {text}");
                self.set_aside = Some(text);
                Ok(ImageRecords::new(keyed_by))
            }
        }
    }

    /// Since when the use of images has been followed.
    pub(super) fn tracked_since(&self) -> Timestamp {
        self.tracked_since
    }

    /// Whether an earlier life has left what it knew: an image that it did not know has come since.
    pub(super) fn is_restored(&self) -> bool {
        self.is_restored
    }

    pub(super) fn set_aside(&self) -> Option<&str> {
        self.set_aside.as_deref()
    }

    /// Has the records written soon, if what is to be remembered of them has changed.
    pub(super) fn follow(&mut self, records: &ImageRecords, ctx: &mut Context<Msg>) {
        let current = records.to_remember();
        if current != self.marked {
            self.marked = current;
            self.writer.mark();
            self.set_timer(ctx);
        }
    }

    pub(super) fn write(&mut self, records: &ImageRecords, ctx: &mut Context<Msg>) {
        self.timer = None;
        let value = self.value(records);
        match self.writer.begin(ctx.now(), &value) {
            Ok(Some(writing)) => drop(ctx.run(async move { Msg::Written(writing.run().await) })),
            Ok(None) => {}
            Err(error) => tracing::error!("images' times could not be written: {error}"),
        }
    }

    pub(super) fn written(&mut self, written: WriteResult, ctx: &mut Context<Msg>) {
        if let Err(error) = self.writer.finish(written) {
            tracing::error!("images' times could not be written: {error}");
        }
        self.set_timer(ctx);
    }

    pub(super) fn flush(&mut self, records: &ImageRecords) {
        let value = self.value(records);
        if let Err(error) = self.writer.flush(&value) {
            tracing::error!("images' times could not be written: {error}");
        }
    }

    fn value(&self, records: &ImageRecords) -> RememberedImages {
        RememberedImages {
            tracked_since: self.tracked_since,
            images: records.to_remember(),
        }
    }

    fn set_timer(&mut self, ctx: &mut Context<Msg>) {
        if let (None, Some(wait)) = (self.timer, self.writer.due(ctx.now())) {
            self.timer = Some(ctx.after(wait, Msg::Write));
        }
    }
}
