//! The records of pods' ids, read and written in the blocking pool.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use logic_api::linux::IdRange;
use logic_api::types::PodUid;
use logic_pods::security::user_namespaces::{FILE, decode_record, encode_record};

/// More pods than a node ever has.
const MAX_PODS: usize = 20_000;
/// Many times what a record takes.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// `ROOT/pods/UID`. A UID that is no plain name cannot lead out of this folder.
pub(super) fn folder(pods: &Path, uid: &PodUid) -> PathBuf {
    pods.join(uid.as_str().replace('/', "_"))
}

/// Every record of earlier lives; an error for each that cannot be decoded.
pub(super) async fn records(pods: PathBuf) -> io::Result<Vec<(PodUid, Result<IdRange, String>)>> {
    blocking(move || {
        let entries = match fs::read_dir(&pods) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries.take(MAX_PODS) {
            let entry = entry?;
            let record = read(&entry.path().join(FILE)).transpose();
            if let (Some(record), Some(uid)) = (record, entry.file_name().to_str()) {
                found.push((uid.into(), record));
            }
        }
        Ok(found)
    })
    .await
}

fn read(path: &Path) -> Result<Option<IdRange>, String> {
    let file = match File::open(path) {
        Err(error) if is_absent(&error) => return Ok(None),
        file => file.map_err(|error| error.to_string())?,
    };
    let mut text = Vec::new();
    let length = file.take(MAX_RECORD_BYTES).read_to_end(&mut text);
    length.map_err(|error| error.to_string())?;
    decode_record(&text).map_err(|error| error.to_string())
}

/// A file beside the pods' folders belongs to no pod.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Writes a record so that a power cut leaves it whole or absent. An existing one is not written
/// again.
pub(super) async fn write(folder: PathBuf, range: IdRange) -> io::Result<()> {
    blocking(move || {
        let (file, text) = (folder.join(FILE), encode_record(range));
        if fs::read(&file).is_ok_and(|present| present == text.as_bytes()) {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&folder)?;
        let fresh = folder.join(format!(".{FILE}.new"));
        let mut options = OpenOptions::new();
        let mut out = options
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&fresh, &file)?;
        File::open(&folder)?.sync_all()
    })
    .await
}

/// Removes records; one whose folder is gone counts as removed.
pub(super) async fn remove(pods: PathBuf, uids: Vec<PodUid>) {
    let removed = blocking(move || {
        for uid in uids {
            match fs::remove_file(folder(&pods, &uid).join(FILE)) {
                Err(error) if !is_absent(&error) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    });
    if let Err(error) = removed.await {
        tracing::warn!("cannot remove a record of user ids: {error}");
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let outcome = kernel::spawn_blocking(work).await;
    outcome.unwrap_or_else(|error| Err(io::Error::other(error)))
}
