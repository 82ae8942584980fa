//! How a layer becomes a folder: decompressed, hashed and unpacked as it comes, in bounded memory.
//!
//! Everything in a layer is hostile. **Invariant:** every path of it is resolved below the layer's own folder, by
//! descriptors; nothing of it is opened that could be a device; and nothing is used before both digests are right.

mod archive;
mod bounds;
pub(crate) mod decompress;
mod entry;
mod lower;
mod pax;
mod settle;
mod sparse;
mod tar_split;
mod tree;
mod unpack;
mod whiteout;

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub(crate) use self::archive::Archive;
pub(crate) use self::bounds::Bounded;
pub(crate) use self::entry::{Inside, Kind};
pub(crate) use self::tar_split::assemble;
pub(crate) use self::unpack::{Moved, Unpacked};

use self::tar_split::{Recorded, TarSplit};
use self::unpack::on_disk;
use crate::blocking::Stop;
use crate::digest::{Digest, HashingReader};
use crate::disk::{Disk, DiskError};
use crate::limits::Limits;

/// What remains of a layer's tar beside its files, in the layer's folder.
pub(crate) const SPLIT: &str = "tar-split";

/// A layer that is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Its bytes can't be read, or are no valid gzip or zstd.
    #[error("the layer can't be read")]
    Read(#[source] io::Error),
    /// Its tar is malformed.
    #[error("the layer's tar is malformed at byte {position}: {reason}")]
    Malformed {
        /// In the unpacked layer.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// One of its entries is refused.
    #[error("entry {entry:?} of the layer is refused: {reason}")]
    Refused {
        /// The entry's path.
        entry: String,
        /// Why.
        reason: &'static str,
    },
    /// It is larger than it may be.
    #[error("the layer has more than {limit} {what}")]
    TooLarge {
        /// Of what there is too much.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Its content is not what was announced.
    #[error("the {what} of the layer is {found}, expected {expected}")]
    Mismatch {
        /// The digest or size of what.
        what: &'static str,
        /// What came.
        found: String,
        /// What the manifest or config says.
        expected: String,
    },
    /// It was given up before it was done.
    #[error("the layer is given up: {0}")]
    Stopped(&'static str),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl From<io::Error> for LayerError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<bounds::Exceeded>() {
            Ok(exceeded) => Self::TooLarge {
                what: exceeded.what,
                limit: exceeded.limit,
            },
            Err(error) => Self::Read(error),
        }
    }
}

/// What is known of a layer before it comes.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Of the bytes as they come; none in an archive that names layers by path.
    pub(crate) packed: Option<(Digest, u64)>,
    /// Of the unpacked tar.
    pub(crate) diff: Digest,
}

/// What a layer's unpacking needs beside its bytes.
#[derive(Clone, Debug)]
pub(crate) struct UnpackContext {
    /// The scratch folder of this layer; the files go to `files` in it.
    pub(crate) scratch: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) limits: Limits,
    /// Unpacked bytes that the image may still have.
    pub(crate) image_left: Arc<AtomicU64>,
    /// When to end.
    pub(crate) stop: Stop,
}

impl UnpackContext {
    /// Fails when it is time to end.
    fn check_time(&self) -> Result<(), LayerError> {
        self.stop.check().map_err(LayerError::Stopped)
    }
}

/// Unpacks a layer to the end, and checks what it was.
pub(crate) fn unpack(
    reader: impl Read,
    expected: &Expected,
    context: &UnpackContext,
) -> Result<Unpacked, LayerError> {
    let mut packed = HashingReader::new(reader);
    let (unpacked, diff) = unpack_tar(&mut packed, context)?;
    drain(&mut packed)?;
    let (digest, size) = packed.finish();
    if let Some((expected_digest, expected_size)) = &expected.packed {
        same("size", &size, expected_size)?;
        same("digest", &digest, expected_digest)?;
    }
    same("diff id", &diff, &expected.diff)?;
    Ok(unpacked)
}

fn unpack_tar(
    packed: &mut impl Read,
    context: &UnpackContext,
) -> Result<(Unpacked, Digest), LayerError> {
    let plain = decompress::reader(packed, context.limits.zstd_window_log)?;
    let bounded = Bounded::new(
        plain,
        context.limits.layer_bytes,
        context.image_left.clone(),
    );
    let path = context.scratch.join(SPLIT);
    context.disk.unsynced(&path);
    let split = RefCell::new(TarSplit::create(path)?);
    let mut tar = Recorded::new(HashingReader::new(bounded), &split);
    let mut unpacked = unpack::unpack(&mut tar, context, &split)?;
    drain(&mut tar)?;
    let diff = tar.into_inner().finish().0;
    let (tar_bytes, split_bytes) = split.into_inner().finish()?;
    unpacked.tar_bytes = tar_bytes;
    unpacked.inodes += 1;
    unpacked.bytes = unpacked.bytes.saturating_add(on_disk(split_bytes));
    Ok((unpacked, diff))
}

fn drain(reader: &mut impl Read) -> io::Result<()> {
    io::copy(reader, &mut io::sink()).map(drop)
}

fn same<T: PartialEq + ToString>(
    what: &'static str,
    found: &T,
    expected: &T,
) -> Result<(), LayerError> {
    match found == expected {
        true => Ok(()),
        false => Err(LayerError::Mismatch {
            what,
            found: found.to_string(),
            expected: expected.to_string(),
        }),
    }
}

#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod sparse_tests;
#[cfg(test)]
mod tests;
