//! An archive that comes as a stream: kept in a file without a name, because what describes it may come last.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::ArchiveError;
use crate::blocking::Stop;
use crate::disk::DiskError;
use crate::layer::{Bounded, LayerError, decompress};
use crate::store::Inner;

const BUFFER_BYTES: usize = 256 << 10;

/// Keeps all of `reader`, unpacked where gzip or zstd packed it. `origin` is its name in errors.
pub(super) fn keep(
    inner: &Inner,
    mut reader: impl Read,
    origin: &Path,
    stop: &Stop,
) -> Result<File, ArchiveError> {
    let unreadable = |error: io::Error| match LayerError::from(error) {
        LayerError::Read(source) => ArchiveError::Read {
            path: origin.to_owned(),
            source,
        },
        source @ (LayerError::TooLarge { .. }
        | LayerError::Malformed { .. }
        | LayerError::Refused { .. }
        | LayerError::Mismatch { .. }
        | LayerError::Stopped(_)
        | LayerError::Disk(_)) => ArchiveError::Tar {
            path: origin.to_owned(),
            source,
        },
    };
    let scratch = inner.folders.scratch();
    let unkept = |error: io::Error| {
        let source = DiskError::new("keep an archive in", &scratch, error);
        ArchiveError::Store(source.into())
    };
    let mut file = unnamed(inner).map_err(unkept)?;
    let limits = &inner.limits;
    let plain = decompress::reader(&mut reader, limits.zstd_window_log).map_err(unreadable)?;
    let none_shared = Arc::new(AtomicU64::new(u64::MAX));
    let mut bounded = Bounded::new(plain, limits.archive_bytes, none_shared);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut length = 0;
    loop {
        if let Err(why) = stop.check() {
            return Err(unreadable(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        match bounded.read(&mut buffer) {
            Ok(0) => break,
            // Zeros become a hole: an archive of nothing but them takes no room.
            Ok(count) if is_zero(&buffer[..count]) => {
                let count = i64::try_from(count).expect("a buffer's length fits");
                length = file.seek(SeekFrom::Current(count)).map_err(unkept)?;
            }
            Ok(count) => file.write_all(&buffer[..count]).map_err(unkept)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    // A hole at the end is no part of the file yet.
    if file.metadata().map_err(unkept)?.len() < length {
        file.set_len(length).map_err(unkept)?;
    }
    file.seek(SeekFrom::Start(0)).map_err(unkept)?;
    Ok(file)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
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
