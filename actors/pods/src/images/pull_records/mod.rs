//! The records of pulls on disk: upstream's files, in upstream's folders.
//!
//! Files are written beside and renamed. A record that cannot be decoded is logged and counts as no pod's.
//! Upstream: pkg/kubelet/images/pullmanager/fs_pullrecords.go (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use logic_api::text::image_reference::without_tag;
use logic_pods::images::records::{
    self, PullCredentials, PullRecordError, PulledRecord, RecordFormat, file_name, is_file_name,
};
use logic_pods::images::verification::PullRecordState;
use metrics::runtime::images;

/// The records. Files are read and written in the blocking pool, one operation at a time; only the image
/// manager's own tasks take the lock.
#[derive(Debug, Clone)]
pub(super) struct PullRecords(Arc<Mutex<PullRecordStore>>);

#[derive(Debug)]
struct PullRecordStore {
    pulling: PathBuf,
    pulled: PathBuf,
    /// The number of running pulls of each image.
    under_way: BTreeMap<String, usize>,
}

impl PullRecords {
    pub(super) fn new(root_dir: &Path) -> Self {
        let folder = root_dir.join("image_manager");
        PullRecords(Arc::new(Mutex::new(PullRecordStore {
            pulling: folder.join("pulling"),
            pulled: folder.join("pulled"),
            under_way: BTreeMap::new(),
        })))
    }

    /// What the records say of an image that is present.
    pub(super) async fn tracked(&self, image: &str, reference: &str) -> PullRecordState {
        let (image, reference) = (image.to_owned(), reference.to_owned());
        let tracked = self.with(move |books| Ok(books.tracked(&image, &reference)));
        tracked.await.unwrap_or(PullRecordState::Damaged)
    }

    /// Writes an intent before a pull. If that fails, the image must not be pulled.
    pub(super) async fn intend(&self, image: &str) -> io::Result<()> {
        let image = image.to_owned();
        self.with(move |books| books.intend(image)).await
    }

    /// Records what an image was pulled with, and removes the intent.
    pub(super) async fn pulled(&self, image: &str, reference: &str, with: PullCredentials) {
        let (image, reference, now) = (image.to_owned(), reference.to_owned(), now());
        let noted = self.with(move |books| {
            // If the record cannot be written, the intent stays, and counts as a pull without a known pod.
            books.learn(&image, &reference, Some(&with), now)?;
            books.over(&image)
        });
        if let Err(error) = noted.await {
            tracing::error!("cannot record a pulled image: {error}");
        }
    }

    /// Removes the intent of a pull that failed.
    pub(super) async fn failed(&self, image: &str) {
        let image = image.to_owned();
        if let Err(error) = self.with(move |books| books.over(&image)).await {
            tracing::error!("cannot remove an image pull intent: {error}");
        }
    }

    /// Adds credentials that were found to give access to an image.
    pub(super) async fn learn(&self, image: &str, reference: &str, with: PullCredentials) {
        let (image, reference, now) = (image.to_owned(), reference.to_owned(), now());
        let learnt = self.with(move |books| books.learn(&image, &reference, Some(&with), now));
        if let Err(error) = learnt.await {
            tracing::error!("cannot write an image pulled record: {error}");
        }
    }

    /// Makes the folders, converts older files into today's form, and returns the images whose
    /// pulls an earlier life began.
    pub(super) async fn open(&self) -> Vec<String> {
        let opened = self.with(PullRecordStore::open).await;
        opened.unwrap_or_else(|error| {
            tracing::error!("cannot read the records of image pulls: {error}");
            Vec::new()
        })
    }

    /// Records an image whose pull an earlier life began as pulled without a known pod.
    pub(super) async fn adopt_existing(&self, image: &str, reference: &str) {
        let (image, reference, now) = (image.to_owned(), reference.to_owned(), now());
        let adopted = self.with(move |books| {
            books.learn(&image, &reference, None, now)?;
            match books.under_way.contains_key(&image) {
                // It is being pulled again: that pull ends the intent.
                true => Ok(()),
                false => {
                    remove(&books.pulling.join(file_name(&image)))?;
                    count(images::intents, &books.pulling);
                    Ok(())
                }
            }
        });
        if let Err(error) = adopted.await {
            tracing::error!("cannot turn an image pull intent into a record: {error}");
        }
    }

    /// Removes the records of images that are gone, unless they were updated since `until`.
    pub(super) async fn prune(&self, present: BTreeSet<String>, until: Timestamp) {
        let pruned = self.with(move |books| books.prune(&present, until)).await;
        if let Err(error) = pruned {
            tracing::error!("cannot remove the records of images that are gone: {error}");
        }
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut PullRecordStore) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let books = self.0.clone();
        let work = kernel::spawn_blocking(move || {
            work(&mut books.lock().unwrap_or_else(PoisonError::into_inner))
        });
        work.await.map_err(io::Error::other)?
    }
}

impl PullRecordStore {
    fn tracked(&self, image: &str, reference: &str) -> PullRecordState {
        match self.record(reference) {
            Ok(Some(record)) => return PullRecordState::Pulled(Box::new(record)),
            Ok(None) => {}
            Err(error) => {
                tracing::error!("a record of an image pull is of no use: {error}");
                return PullRecordState::Damaged;
            }
        }
        if self.under_way.contains_key(image) {
            return PullRecordState::Begun;
        }
        match read(&self.pulling.join(file_name(image)), records::decode_intent) {
            Ok(Some((intended, _))) if intended == image => PullRecordState::Begun,
            Ok(_) => PullRecordState::Unknown,
            Err(error) => {
                tracing::error!("an image pull intent is of no use: {error}");
                PullRecordState::Damaged
            }
        }
    }

    fn record(&self, reference: &str) -> io::Result<Option<PulledRecord>> {
        let found = read(
            &self.pulled.join(file_name(reference)),
            records::decode_pulled,
        )?;
        Ok(found
            .map(|(record, _)| record)
            .filter(|record| record.image_ref == reference))
    }

    fn intend(&mut self, image: String) -> io::Result<()> {
        write(&self.pulling, &image, &records::encode_intent(&image))?;
        count(images::intents, &self.pulling);
        *self.under_way.entry(image).or_default() += 1;
        Ok(())
    }

    fn over(&mut self, image: &str) -> io::Result<()> {
        match self.under_way.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                remove(&self.pulling.join(file_name(image)))?;
                count(images::intents, &self.pulling);
                self.under_way.remove(image);
            }
        }
        Ok(())
    }

    fn learn(
        &self,
        image: &str,
        reference: &str,
        with: Option<&PullCredentials>,
        now: Timestamp,
    ) -> io::Result<()> {
        let name = without_tag(image).map_err(io::Error::other)?;
        let known = self.record(reference).unwrap_or_else(|error| {
            tracing::warn!("a record of an image pull is replaced: {error}");
            None
        });
        let is_new = known.is_none();
        let mut record = known.unwrap_or_else(|| PulledRecord::new(reference, now));
        let changed = with.is_some_and(|with| record.merge(&name, with, now));
        if !(is_new || changed) {
            return Ok(());
        }
        write(&self.pulled, reference, &records::encode_pulled(&record))?;
        count(images::pulled_records, &self.pulled);
        Ok(())
    }

    /// A record that cannot be read stays: it keeps its image closed.
    fn prune(&self, present: &BTreeSet<String>, until: Timestamp) -> io::Result<()> {
        let mut failed = Ok(());
        for path in files(&self.pulled)? {
            let record = match read(&path, records::decode_pulled) {
                Ok(Some((record, _))) => record,
                Ok(None) => continue,
                Err(error) => {
                    tracing::error!("a record of an image pull is of no use: {error}");
                    continue;
                }
            };
            let is_older = record.last_updated_time.is_none_or(|at| at < until);
            if is_older && !present.contains(&record.image_ref) {
                failed = failed.and(remove(&path));
            }
        }
        count(images::pulled_records, &self.pulled);
        failed
    }

    fn open(&mut self) -> io::Result<Vec<String>> {
        let mut folders = DirBuilder::new();
        folders.recursive(true).mode(0o700);
        folders.create(&self.pulling)?;
        folders.create(&self.pulled)?;
        for path in files(&self.pulled)? {
            match read(&path, records::decode_pulled) {
                Ok(Some((record, RecordFormat::Older))) => {
                    let text = records::encode_pulled(&record);
                    write(&self.pulled, &record.image_ref, &text)?;
                }
                Ok(_) => {}
                Err(error) => tracing::error!("a record of an image pull is of no use: {error}"),
            }
        }
        let mut intents = Vec::new();
        for path in files(&self.pulling)? {
            match read(&path, records::decode_intent) {
                Ok(Some((image, form))) => {
                    if form == RecordFormat::Older {
                        write(&self.pulling, &image, &records::encode_intent(&image))?;
                    }
                    intents.push(image);
                }
                Ok(None) => {}
                Err(error) => tracing::error!("an image pull intent is of no use: {error}"),
            }
        }
        count(images::intents, &self.pulling);
        count(images::pulled_records, &self.pulled);
        Ok(intents)
    }
}

/// Sets a gauge to the number of records in a folder.
fn count(show: fn(usize), folder: &Path) {
    if let Ok(files) = files(folder) {
        show(files.len());
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_file_name) && entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn read<T>(path: &Path, decode: fn(&[u8]) -> Result<T, PullRecordError>) -> io::Result<Option<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let why = |error: PullRecordError| io::Error::other(format!("{}: {error}", path.display()));
    decode(&text).map(Some).map_err(why)
}

/// Writes beside and renames, so that the file is old or new, never partial.
fn write(folder: &Path, subject: &str, text: &[u8]) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let path = folder.join(file_name(subject));
    let beside = path.with_extension("tmp");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        drop(fs::remove_file(&beside));
    }
    written
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn now() -> Timestamp {
    kernel::timestamp()
}

#[cfg(test)]
mod tests;
