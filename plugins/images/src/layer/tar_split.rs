//! What a layer's tar had beside the contents of its files, so that the same tar can be made of them again (tar-split).
//!
//! A layer is kept unpacked, and its digest is that of its tar: headers in another order, or written by another
//! program, would be another layer, and the image another image. The file is zstd over records, numbers in them little
//! endian: `r`, four bytes of length, so many bytes of the tar as they were; `c`, four bytes of length, a path of that
//! length, and eight bytes each of offset and length: so much of that file.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::entry::Inside;
use super::unpack::Moved;
use crate::disk::DiskError;

/// Bytes of headers that are kept together.
const RAW_BYTES: usize = 32 << 10;
const BUFFER_BYTES: usize = 64 << 10;
/// Headers repeat themselves: a larger window makes them hardly smaller, and takes memory.
const WINDOW_LOG: u32 = 17;
/// Bytes of a path.
const MAX_PATH_BYTES: u64 = 4096;
const RAW: u8 = b'r';
const CONTENT: u8 = b'c';

/// Writes down a tar while it is read and unpacked.
pub(super) struct TarSplit {
    path: PathBuf,
    out: zstd::stream::write::Encoder<'static, BufWriter<File>>,
    raw: Vec<u8>,
    /// Bytes that come are the content of a file, and were so many.
    content: Option<u64>,
    tar_bytes: u64,
    /// Of the file, kept until who unpacks asks.
    failed: Option<io::Error>,
}

impl TarSplit {
    pub(super) fn create(path: PathBuf) -> Result<Self, DiskError> {
        let made = || {
            let file = BufWriter::with_capacity(BUFFER_BYTES, File::create_new(&path)?);
            let mut out = zstd::stream::write::Encoder::new(file, 1)?;
            out.window_log(WINDOW_LOG)?;
            Ok(out)
        };
        let out = made().map_err(|error: io::Error| DiskError::new("create", &path, error))?;
        Ok(Self {
            path,
            out,
            raw: Vec::with_capacity(RAW_BYTES),
            content: None,
            tar_bytes: 0,
            failed: None,
        })
    }

    /// Takes the next bytes of the tar.
    fn passed(&mut self, bytes: &[u8]) {
        let count = u64::try_from(bytes.len()).expect("a length fits");
        self.tar_bytes += count;
        if let Some(content) = &mut self.content {
            *content += count;
            return;
        }
        self.raw.extend_from_slice(bytes);
        if self.raw.len() >= RAW_BYTES {
            self.write_raw();
        }
    }

    /// What comes from now on is content of a file.
    pub(super) fn begin_content(&mut self) {
        self.write_raw();
        self.content = Some(0);
    }

    /// What came since [`begin_content`](Self::begin_content) is in the file at `path`, from `offset` on.
    pub(super) fn end_content(&mut self, path: &Inside, offset: u64) {
        let length = self.content.take().unwrap_or(0);
        if length == 0 {
            return;
        }
        let mut record = vec![CONTENT];
        record.extend(size_of(path.bytes()));
        record.extend(path.bytes());
        record.extend(offset.to_le_bytes());
        record.extend(length.to_le_bytes());
        self.write(&record);
    }

    fn write_raw(&mut self) {
        if self.raw.is_empty() {
            return;
        }
        let mut raw = std::mem::take(&mut self.raw);
        let head = [&[RAW], size_of(&raw).as_slice()].concat();
        self.write(&head);
        self.write(&raw);
        raw.clear();
        self.raw = raw;
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none()
            && let Err(error) = self.out.write_all(bytes)
        {
            self.failed = Some(error);
        }
    }

    /// Fails if the disk has refused something meanwhile.
    pub(super) fn check(&mut self) -> Result<(), DiskError> {
        let failed = self.failed.take();
        failed.map_or(Ok(()), |error| {
            Err(DiskError::new("write", &self.path, error))
        })
    }

    /// Writes the rest; returns the bytes of the tar and those of the file.
    pub(super) fn finish(mut self) -> Result<(u64, u64), DiskError> {
        self.write_raw();
        self.check()?;
        let finished = || {
            let mut file = self.out.finish()?;
            file.flush()?;
            Ok(file.get_ref().metadata()?.len())
        };
        let bytes =
            finished().map_err(|error: io::Error| DiskError::new("write", &self.path, error))?;
        Ok((self.tar_bytes, bytes))
    }
}

fn size_of(bytes: &[u8]) -> [u8; 4] {
    let size = u32::try_from(bytes.len()).expect("headers and paths are bounded");
    size.to_le_bytes()
}

/// A reader of a tar that is written down.
pub(super) struct Recorded<'a, R> {
    inner: R,
    split: &'a std::cell::RefCell<TarSplit>,
}

impl<'a, R> Recorded<'a, R> {
    pub(super) fn new(inner: R, split: &'a std::cell::RefCell<TarSplit>) -> Self {
        Self { inner, split }
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Recorded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.split.borrow_mut().passed(&buffer[..count]);
        Ok(count)
    }
}

/// Writes the tar that was written down in the file `split` of the files below `files` to `out`; `moved` are the folders
/// whose entries lie elsewhere. What it writes is to be checked: files may have been replaced by later entries of the tar.
pub(crate) fn assemble(
    split: &Path,
    files: &Path,
    moved: &[Moved],
    out: &mut impl Write,
) -> io::Result<()> {
    let packed = BufReader::with_capacity(BUFFER_BYTES, File::open(split)?);
    let mut records = zstd::stream::read::Decoder::with_buffer(packed)?;
    records.window_log_max(WINDOW_LOG)?;
    let folder = openat2(
        CWD,
        files,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::empty(),
    )?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut kind = [0];
    while records.read(&mut kind)? == 1 {
        let length = u64::from(u32::from_le_bytes(number(&mut records)?));
        match kind[0] {
            RAW => copy(&mut records, length, &mut buffer, out)?,
            CONTENT => {
                let mut path = Vec::new();
                if length > MAX_PATH_BYTES {
                    return Err(io::Error::other("a record has a path that is too long"));
                }
                (&mut records).take(length).read_to_end(&mut path)?;
                let offset = u64::from_le_bytes(number(&mut records)?);
                let length = u64::from_le_bytes(number(&mut records)?);
                let mut content = Section {
                    file: open(&folder, now(&path, moved)?.bytes())?,
                    at: offset,
                };
                copy(&mut content, length, &mut buffer, out)?;
            }
            other => {
                return Err(io::Error::other(format!(
                    "a record of the unknown kind {other}"
                )));
            }
        }
    }
    Ok(())
}

/// Returns where the file of the tar's `path` is.
fn now(path: &[u8], moved: &[Moved]) -> io::Result<Inside> {
    let mut path = Inside::new(path).map_err(io::Error::other)?;
    for one in moved {
        if let Some(found) = path.moved(&one.from, &one.to) {
            path = found.map_err(io::Error::other)?;
        }
    }
    Ok(path)
}

fn number<const N: usize>(records: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    records.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn copy(
    from: &mut impl Read,
    length: u64,
    buffer: &mut [u8],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        from.read_exact(&mut buffer[..wanted])?;
        out.write_all(&buffer[..wanted])?;
        left -= u64::try_from(wanted).expect("a length fits");
    }
    Ok(())
}

/// Opens a regular file of a layer, and nothing else: to open a device or a FIFO does something.
fn open(folder: &impl std::os::fd::AsFd, path: &[u8]) -> io::Result<File> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let failed = |error: rustix::io::Errno| {
        let path = String::from_utf8_lossy(path);
        io::Error::new(error.kind(), format!("{path:?}: {error}"))
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = openat2(folder, path, flags, Mode::empty(), resolve).map_err(failed)?;
    let stat = fstat(&handle).map_err(failed)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        let path = String::from_utf8_lossy(path);
        return Err(io::Error::other(format!("{path:?} is no file any more")));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat2(folder, path, flags, Mode::empty(), resolve).map_err(failed)?;
    Ok(file.into())
}

struct Section {
    file: File,
    at: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += u64::try_from(count).expect("a length fits");
        Ok(count)
    }
}
