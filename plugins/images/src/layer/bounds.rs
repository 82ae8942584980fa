//! Readers that end with an error where too much comes: a few bytes of gzip are a disk full of zeros.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The error within an [`io::Error`] of a reader that gave too much.
#[derive(Debug)]
pub(super) struct Exceeded {
    pub(super) what: &'static str,
    pub(super) limit: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} {}", self.limit, self.what)
    }
}

impl std::error::Error for Exceeded {}

/// A reader of at most so many bytes for itself, and so many for all that share `image_left`.
pub(crate) struct Bounded<R> {
    inner: R,
    limit: u64,
    left: u64,
    image_left: Arc<AtomicU64>,
}

impl<R> Bounded<R> {
    pub(crate) fn new(inner: R, limit: u64, image_left: Arc<AtomicU64>) -> Self {
        Self {
            inner,
            limit,
            left: limit,
            image_left,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let bytes = u64::try_from(count).expect("a buffer's length fits");
        let exceeded = |what, limit| io::Error::other(Exceeded { what, limit });
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or_else(|| exceeded("unpacked bytes", self.limit))?;
        take(&self.image_left, bytes)
            .map_err(|left| exceeded("unpacked bytes left to the image", left))?;
        Ok(count)
    }
}

/// Takes `bytes` from what is `left`; the error says how much that was.
pub(super) fn take(left: &AtomicU64, bytes: u64) -> Result<(), u64> {
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(bytes)
    });
    taken.map(drop)
}
