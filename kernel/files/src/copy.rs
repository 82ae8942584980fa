//! Copying files whose content somebody else has chosen.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// How much is copied between two questions whether to go on, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Copies the content of `from` to `to`, which is empty, and returns how many bytes of data were written. Holes stay
/// holes: `to` has the size of `from`, and only its data uses space. Both are regular files.
///
/// `go_on` is asked before each piece of 256 KiB.
///
/// # Errors
/// [`ErrorKind::FileTooLarge`] for more than `max_bytes` of data; [`ErrorKind::TimedOut`] where `go_on` said no; the
/// kernel's.
pub fn copy_sparse(
    from: &File,
    to: &File,
    max_bytes: u64,
    go_on: &mut dyn FnMut() -> bool,
) -> io::Result<u64> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut at, mut written) = (0, 0_u64);
    while let Some(data) = next_data(from, at, size)? {
        let end = seek(from, SeekFrom::Hole(data))?.min(size);
        at = data;
        while at < end {
            if !go_on() {
                return Err(ErrorKind::TimedOut.into());
            }
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let piece = &mut buffer[..left.min(PIECE_BYTES)];
            let read = from.read_at(piece, at)?;
            if read == 0 {
                // The file became shorter meanwhile.
                return Ok(written);
            }
            let length = u64::try_from(read).unwrap_or(u64::MAX);
            written = written.saturating_add(length);
            if written > max_bytes {
                let text = format!("more than {max_bytes} bytes of data");
                return Err(io::Error::new(ErrorKind::FileTooLarge, text));
            }
            to.write_all_at(&piece[..read], at)?;
            at += length;
        }
    }
    Ok(written)
}

/// Where the next data of a file begins at or after `at`; `None` if only a hole is left.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<u64>> {
    if at >= size {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data).filter(|data| *data < size)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn sparse() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * GIB).unwrap();
        file.write_all_at(b"middle", 4 * GIB).unwrap();
        file
    }

    #[test]
    fn a_hole_stays_a_hole() {
        let (from, to) = (sparse(), tempfile::tempfile().unwrap());
        let written = copy_sparse(&from, &to, 1 << 20, &mut || true).unwrap();
        assert!(written < 1 << 20, "{written}");
        let copied = to.metadata().unwrap();
        assert_eq!(copied.len(), 8 * GIB);
        assert!(copied.blocks() * 512 < 1 << 20);
        let mut middle = [0; 6];
        to.read_exact_at(&mut middle, 4 * GIB).unwrap();
        assert_eq!(&middle, b"middle");
    }

    #[test]
    fn a_copy_ends_at_its_bound_and_when_it_is_told() {
        let (from, to) = (sparse(), tempfile::tempfile().unwrap());
        let bounded = copy_sparse(&from, &to, 3, &mut || true).unwrap_err();
        assert_eq!(bounded.kind(), ErrorKind::FileTooLarge);
        let stopped = copy_sparse(&from, &to, GIB, &mut || false).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::TimedOut);
    }
}
