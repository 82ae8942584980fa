//! Small files of the kernel, read into one buffer from folders that are opened once.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat_raw, statat};
use rustix::io::read;

/// Bytes read of one file: the list of ten thousand processes fits.
const MAX_FILE: usize = 1 << 17;
/// Most files fit.
const USUAL_FILE: usize = 1 << 13;
/// Bytes of a line with one number in it: no longer one is a number.
const LINE: usize = 64;

/// A folder from which files are opened: the kernel walks no long path for each of them.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder; none where there is none.
    pub(super) fn open(path: &Path) -> Option<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).ok().map(Folder)
    }

    /// Opens a folder below this one, or itself for an empty path; none where there is none.
    pub(super) fn below(&self, path: &str) -> Option<Folder> {
        let path = if path.is_empty() { "." } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.0, path, flags, Mode::empty()).ok().map(Folder)
    }

    /// The names of the folders in this one.
    pub(super) fn folders(&self) -> Vec<String> {
        let entries = self.list(".").into_iter().flatten();
        let folders = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().to_str().ok()?;
            let is_own = name == "." || name == "..";
            (entry.file_type() == FileType::Directory && !is_own).then(|| name.to_owned())
        });
        folders.collect()
    }

    /// Counts up to so many links in a folder below this one, and those of them whose target begins so.
    pub(super) fn count_links(&self, path: &str, most: u64, beginning: &[u8]) -> (u64, u64) {
        let Some(mut folder) = self.list(path) else {
            return (0, 0);
        };
        let (mut links, mut such) = (0, 0);
        let mut target = [0; 16];
        while links < most
            && let Some(Ok(entry)) = folder.read()
        {
            if entry.file_type() != FileType::Symlink {
                continue;
            }
            links += 1;
            let read = folder
                .fd()
                .and_then(|folder| readlinkat_raw(folder, entry.file_name(), &mut target[..]));
            such += u64::from(read.is_ok_and(|length| target[..length].starts_with(beginning)));
        }
        (links, such)
    }

    /// Whether a folder in this one has none in it, as far as its file system counts them: links are its name, `.`, and
    /// the `..` of each in it.
    pub(super) fn is_leaf(&self, name: &str) -> bool {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| found.st_nlink == 2)
    }

    /// When a file in this folder, or the folder itself as `.`, was changed last.
    pub(super) fn modified(&self, name: &str) -> Option<SystemTime> {
        let found = statat(&self.0, name, AtFlags::empty()).ok()?;
        let seconds = u64::try_from(found.st_mtime).ok()?;
        let nanoseconds = u32::try_from(found.st_mtime_nsec).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
    }

    fn list(&self, path: &str) -> Option<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(&self.0, path, flags, Mode::empty());
        opened.and_then(Dir::new).ok()
    }
}

/// Reads files one after the other.
#[derive(Debug, Default)]
pub(super) struct FileReader {
    buffer: Vec<u8>,
}

impl FileReader {
    /// The text of a file in the folder; empty where it cannot be read or is no text.
    pub(super) fn text(&mut self, folder: &Folder, name: &str) -> &str {
        let Some(file) = open(folder, name) else {
            return "";
        };
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                if length >= MAX_FILE {
                    break;
                }
                self.buffer.resize((length * 2).max(USUAL_FILE), 0);
            }
            match read(&file, &mut self.buffer[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(_) => return "",
            }
        }
        std::str::from_utf8(&self.buffer[..length]).unwrap_or_default()
    }

    /// The number that the file holds, [`u64::MAX`] for `max`; none where it holds no other.
    pub(super) fn number(&mut self, folder: &Folder, name: &str) -> Option<u64> {
        let mut line = [0; LINE];
        // The kernel gives a line at once.
        let length = read(open(folder, name)?, &mut line).ok()?;
        number(std::str::from_utf8(&line[..length]).ok()?)
    }

    /// The limit that the file holds; one that cannot be read is none, so that nothing counts as short for it.
    pub(super) fn limit(&mut self, folder: &Folder, name: &str) -> u64 {
        self.number(folder, name).unwrap_or(u64::MAX)
    }

    /// The number that the file holds, else zero.
    pub(super) fn count(&mut self, folder: &Folder, name: &str) -> u64 {
        self.number(folder, name).unwrap_or(0)
    }
}

fn open(folder: &Folder, name: &str) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(&folder.0, name, flags, Mode::empty()).ok()
}

/// A number, [`u64::MAX`] for `max`; none for anything else, negative numbers and too large ones among them.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        digits => digits.parse().ok(),
    }
}

/// The number that follows a name at the beginning of a line.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    number(rest)
}
