//! An archive that comes as a stream: kept in a file without a name, because what describes it may come last.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::ArchiveError;
use crate::layer::{Bounded, decompress};
use crate::store::Inner;

/// Keeps all of `reader`, unpacked where gzip or zstd packed it. `origin` is its name in errors.
pub(super) fn keep(
    inner: &Inner,
    mut reader: impl Read,
    origin: &Path,
) -> Result<File, ArchiveError> {
    let failed = |source: io::Error| ArchiveError::Read {
        path: origin.to_owned(),
        source,
    };
    let mut file = unnamed(inner).map_err(failed)?;
    let limits = &inner.limits;
    let plain = decompress::reader(&mut reader, limits.zstd_window_log).map_err(failed)?;
    let none_shared = Arc::new(AtomicU64::new(u64::MAX));
    let mut bounded = Bounded::new(plain, limits.archive_bytes, none_shared);
    let mut out = BufWriter::new(&file);
    io::copy(&mut bounded, &mut out)
        .and_then(|_| out.flush())
        .map_err(failed)?;
    drop(out);
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(file)
}

/// A file in the store's scratch folder that is gone when it is closed, by a crash too.
fn unnamed(inner: &Inner) -> io::Result<File> {
    let path = inner.folders.fresh(&inner.folders.scratch());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
