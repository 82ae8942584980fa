//! A tar, entry by entry: ustar, GNU and PAX headers, with a bound on each.
//!
//! Which headers count and how is Go's `archive/tar`, that other runtimes read layers with: a difference could show
//! two runtimes two images. Fields are read by the crate tar; its own iterator reads extended headers without bound.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, Header};

use super::LayerError;
use super::entry::{Entry, Kind, refused};
use super::pax::Extended;
use super::sparse::{self, ContentMap, Form, PaxSparse, SparseMap};

const BLOCK: usize = 512;

/// A tar that is read once, from its beginning.
pub(crate) struct Archive<R> {
    reader: R,
    position: u64,
    /// Bytes of the current entry that are still to come, and of its padding.
    content_left: u64,
    padding: u64,
    header_bytes: u64,
}

impl<R: Read> Archive<R> {
    /// Reads from `reader`; an extended header may have `header_bytes`.
    pub(crate) fn new(reader: R, header_bytes: u64) -> Self {
        Self {
            reader,
            position: 0,
            content_left: 0,
            padding: 0,
            header_bytes,
        }
    }

    /// Returns how many bytes were read: after [`next_entry`](Self::next_entry), where the content begins.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next entry whose kind is known; its content follows from [`content`](Self::content).
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, LayerError> {
        let mut extended = Extended::default();
        loop {
            self.skip_content()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let kind = header.entry_type();
            let size = header
                .entry_size()
                .map_err(|_| self.malformed("a size is no number"))?;
            if let Some(field) = special(kind) {
                self.begin_content(size);
                let content = self.extended_content(size)?;
                let added = match field {
                    Special::Pax => extended.add(&content),
                    Special::LongPath => extended_name(&mut extended.path, content),
                    Special::LongLink => extended_name(&mut extended.link, content),
                    Special::Global => Ok(()),
                };
                added.map_err(|reason| self.malformed(reason))?;
                continue;
            }
            let entry = self.entry(&header, size, std::mem::take(&mut extended))?;
            if let Some(entry) = entry {
                return Ok(Some(entry));
            }
        }
    }

    /// Reads the content of the current entry.
    pub(crate) fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Makes an entry of a header and what extends it; one of an unknown kind is none, and skipped.
    fn entry(
        &mut self,
        header: &Header,
        size: u64,
        extended: Extended,
    ) -> Result<Option<Entry>, LayerError> {
        let mut path = extended
            .path
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let mut size = extended.size.unwrap_or(size);
        let sparse = self.sparse(header, &path, size, &extended.sparse)?;
        if sparse.is_some() && !extended.sparse.name.is_empty() {
            path = extended.sparse.name;
        }
        let kind = match kind(header.entry_type(), &path) {
            // Its map has been read already, and the content behind it is what is left.
            Some(Kind::File) if sparse.is_some() => {
                size = self.content_left;
                Kind::File
            }
            Some(_) | None if sparse.is_some() => {
                return Err(refused(&path, "holes in something that is no file"));
            }
            Some(Kind::File) => {
                self.begin_content(size);
                Kind::File
            }
            // Nothing follows their headers, whatever size they tell.
            Some(kind) => kind,
            None => {
                self.begin_content(size);
                return Ok(None);
            }
        };
        let (uid, gid) = owners(header, (extended.uid, extended.gid))
            .ok_or_else(|| refused(&path, "its uid or gid is above 4294967294"))?;
        let mode = match is_blank(&header.as_old().mode) {
            true => 0,
            false => header
                .mode()
                .map_err(|_| refused(&path, "its mode is no number"))?,
        };
        let device = |field: io::Result<Option<u32>>| field.ok().flatten().unwrap_or(0);
        let seconds = header
            .mtime()
            .ok()
            .and_then(|time| i64::try_from(time).ok());
        Ok(Some(Entry {
            kind,
            size: if kind == Kind::File { size } else { 0 },
            sparse,
            mode: mode & 0o7777,
            uid,
            gid,
            mtime: extended.mtime.unwrap_or((seconds.unwrap_or(0), 0)),
            device: (device(header.device_major()), device(header.device_minor())),
            link: extended.link.unwrap_or_else(|| {
                header
                    .link_name_bytes()
                    .map_or_else(Vec::new, |link| link.into_owned())
            }),
            xattrs: extended.xattrs,
            path,
        }))
    }

    /// Reads where the content of a file lies, if the file has holes; what comes next is then the content.
    fn sparse(
        &mut self,
        header: &Header,
        path: &[u8],
        size: u64,
        pax: &PaxSparse,
    ) -> Result<Option<SparseMap>, LayerError> {
        let wrong = |reason| refused(path, reason);
        if header.entry_type() == EntryType::GNUSparse {
            let (real_size, numbers) = self.old_sparse(header, path)?;
            self.begin_content(size);
            let map = SparseMap::new(real_size, &numbers, size);
            return map.map(Some).map_err(wrong);
        }
        let map = match pax.form().map_err(wrong)? {
            Form::Plain => return Ok(None),
            Form::Header => {
                self.begin_content(size);
                let numbers = pax.in_header().map_err(wrong)?;
                SparseMap::new(pax.size(size), numbers, size)
            }
            Form::Content => {
                self.begin_content(size);
                let map = self.content_map(path)?;
                SparseMap::new(pax.size(size), map.numbers(), self.content_left)
            }
        };
        map.map(Some).map_err(wrong)
    }

    /// Reads the map of GNU's old header, which goes on in blocks behind it.
    fn old_sparse(&mut self, header: &Header, path: &[u8]) -> Result<(u64, Vec<u64>), LayerError> {
        let wrong = |reason| refused(path, reason);
        let gnu = header
            .as_gnu()
            .ok_or_else(|| wrong("a sparse entry without GNU's header"))?;
        let real_size = gnu
            .real_size()
            .map_err(|_| wrong("a sparse file's size is no number"))?;
        let mut numbers = Vec::new();
        sparse::add_old(&gnu.sparse, &mut numbers).map_err(wrong)?;
        let mut more = gnu.is_extended();
        let mut left = self.header_bytes / 512;
        while more {
            left = left.checked_sub(1).ok_or_else(|| self.long_map())?;
            let mut further = GnuExtSparseHeader::new();
            if !self.block(further.as_mut_bytes())? {
                return Err(self.malformed("it ends within a sparse map"));
            }
            sparse::add_old(further.sparse(), &mut numbers).map_err(wrong)?;
            more = further.is_extended();
        }
        Ok((real_size, numbers))
    }

    /// Reads the map at the beginning of the content: whole blocks.
    fn content_map(&mut self, path: &[u8]) -> Result<ContentMap, LayerError> {
        let mut map = ContentMap::default();
        let mut left = self.header_bytes / 512;
        loop {
            left = left.checked_sub(1).ok_or_else(|| self.long_map())?;
            let mut block = [0; BLOCK];
            let read = self.content().read_exact(&mut block);
            read.map_err(|error| match error.kind() == io::ErrorKind::UnexpectedEof {
                true => self.malformed("it ends within a sparse map"),
                false => error.into(),
            })?;
            if map.add(&block).map_err(|reason| refused(path, reason))? {
                return Ok(map);
            }
        }
    }

    fn long_map(&self) -> LayerError {
        let limit = self.header_bytes;
        let what = "bytes in a sparse map";
        LayerError::TooLarge { what, limit }
    }

    /// Reads a header; none at the end, which is two blocks of zeros, or the end of the bytes.
    fn header(&mut self) -> Result<Option<Header>, LayerError> {
        let mut header = Header::new_old();
        if !self.block(header.as_mut_bytes())? {
            return Ok(None);
        }
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            let ends = !self.block(header.as_mut_bytes())?
                || header.as_bytes().iter().all(|byte| *byte == 0);
            return match ends {
                true => Ok(None),
                false => Err(self.malformed("a block of zeros is followed by something")),
            };
        }
        let sum = checksum(header.as_bytes());
        match header.cksum() {
            Ok(told) if told == sum => Ok(Some(header)),
            _ => Err(self.malformed("the checksum of a header is wrong")),
        }
    }

    /// Reads a block; false at the end of the bytes.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, LayerError> {
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.malformed("it ends within a header")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.position += 512;
        Ok(true)
    }

    fn begin_content(&mut self, size: u64) {
        self.content_left = size;
        self.padding = (512 - size % 512) % 512;
    }

    fn extended_content(&mut self, size: u64) -> Result<Vec<u8>, LayerError> {
        if size > self.header_bytes {
            let limit = self.header_bytes;
            let what = "bytes in an extended header";
            return Err(LayerError::TooLarge { what, limit });
        }
        let mut content = Vec::new();
        self.content().read_to_end(&mut content)?;
        match self.content_left {
            0 => Ok(content),
            _ => Err(self.malformed("it ends within an extended header")),
        }
    }

    fn skip_content(&mut self) -> Result<(), LayerError> {
        self.content_left = self
            .content_left
            .checked_add(std::mem::take(&mut self.padding))
            .ok_or_else(|| self.malformed("an entry is larger than any file"))?;
        io::copy(&mut self.content(), &mut io::sink())?;
        match self.content_left {
            0 => Ok(()),
            _ => Err(self.malformed("it ends within an entry")),
        }
    }

    /// Returns the error for `reason` here.
    pub(super) fn malformed(&self, reason: &str) -> LayerError {
        LayerError::Malformed {
            position: self.position,
            reason: reason.to_owned(),
        }
    }
}

/// The content of an entry; ends early where the tar does.
pub(crate) struct Content<'a, R>(&'a mut Archive<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.0.content_left).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.0.reader.read(&mut buffer[..wanted])?;
        let bytes = u64::try_from(count).expect("a buffer's length fits");
        self.0.content_left -= bytes;
        self.0.position += bytes;
        Ok(count)
    }
}

/// Headers that say something about the next entry.
enum Special {
    Pax,
    LongPath,
    LongLink,
    /// About all entries; like Go's reader, nobody applies them.
    Global,
}

fn special(kind: EntryType) -> Option<Special> {
    if kind.is_pax_local_extensions() {
        return Some(Special::Pax);
    }
    if kind.is_pax_global_extensions() {
        return Some(Special::Global);
    }
    if kind.is_gnu_longname() {
        return Some(Special::LongPath);
    }
    kind.is_gnu_longlink().then_some(Special::LongLink)
}

fn extended_name(name: &mut Option<Vec<u8>>, mut content: Vec<u8>) -> Result<(), &'static str> {
    let end = content.iter().position(|byte| *byte == 0);
    content.truncate(end.unwrap_or(content.len()));
    *name = Some(content);
    Ok(())
}

/// Returns the kind of an entry; before POSIX a folder was a file whose name ends in a slash.
fn kind(kind: EntryType, path: &[u8]) -> Option<Kind> {
    let is_folder = path.ends_with(b"/");
    let kinds = [
        (kind.is_dir() || (kind.is_file() && is_folder), Kind::Folder),
        (
            kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse(),
            Kind::File,
        ),
        (kind.is_hard_link(), Kind::HardLink),
        (kind.is_symlink(), Kind::Symlink),
        (kind.is_character_special(), Kind::CharDevice),
        (kind.is_block_special(), Kind::BlockDevice),
        (kind.is_fifo(), Kind::Fifo),
    ];
    let found = kinds.into_iter().find(|(is_it, _)| *is_it);
    found.map(|(_, kind)| kind)
}

/// Sums a header's bytes, those of its checksum as blanks.
fn checksum(header: &[u8; BLOCK]) -> u32 {
    let outside = header
        .iter()
        .enumerate()
        .filter(|(at, _)| !(148..156).contains(at));
    let sum: u32 = outside.map(|(_, byte)| u32::from(*byte)).sum();
    sum + 8 * u32::from(b' ')
}

/// Returns the uid and gid of an entry: from its extended header, else from its own header, else root's. `None` if either
/// is above 4294967294; chown(2) takes 4294967295 to mean "do not change".
fn owners(header: &Header, extended: (Option<u64>, Option<u64>)) -> Option<(u32, u32)> {
    let fields = header.as_old();
    let number = |extended: Option<u64>, field: &[u8; 8], own: io::Result<u64>| {
        let number = match extended {
            Some(number) => number,
            None if is_blank(field) => 0,
            None => own.ok()?,
        };
        u32::try_from(number).ok().filter(|id| *id != u32::MAX)
    };
    let uid = number(extended.0, &fields.uid, header.uid())?;
    let gid = number(extended.1, &fields.gid, header.gid())?;
    Some((uid, gid))
}

/// Whether nothing is written in a number's field: zero, as Go's archive/tar and GNU tar read it.
fn is_blank(field: &[u8; 8]) -> bool {
    field.iter().all(|byte| matches!(byte, 0 | b' '))
}
