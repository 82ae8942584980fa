//! Opening what lies below a folder without ever leaving it, even if its links change meanwhile.

mod hand;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;
use tonic::{Code, Status};

use crate::answer;

/// How often openat2 is tried again after EAGAIN or EINTR: folders are being renamed.
const TRIES: usize = 32;

/// A folder that nothing is opened above of.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

/// Why something below a folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    /// A link or a ".." on the way leads out of the folder.
    #[error("{path} leads out of {root}")]
    Escapes {
        /// The path, relative to the folder.
        path: PathBuf,
        /// The folder.
        root: PathBuf,
    },
    /// The content is larger than the caller's limit.
    #[error("{path} is larger than {most} bytes")]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The caller's limit, in bytes.
        most: usize,
    },
    /// No plain file, where one is needed.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{act} {path}")]
    System {
        /// The operation that failed.
        act: &'static str,
        /// The path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl SafeError {
    /// Tells whether the same call may succeed later without a change by its caller.
    pub fn transient(&self) -> bool {
        match self {
            Self::Escapes { .. } | Self::TooLarge { .. } | Self::NotAFile { .. } => false,
            Self::System { .. } => true,
        }
    }

    /// Tells whether it failed because there is nothing at the path.
    pub fn not_found(&self) -> bool {
        self.is(io::ErrorKind::NotFound)
    }

    /// Tells whether the system says this.
    pub fn is(&self, kind: io::ErrorKind) -> bool {
        match self {
            Self::System { source, .. } => source.kind() == kind,
            Self::Escapes { .. } | Self::TooLarge { .. } | Self::NotAFile { .. } => false,
        }
    }
}

impl From<SafeError> for Status {
    fn from(error: SafeError) -> Self {
        let text = error.to_string();
        match error {
            SafeError::Escapes { .. } => Self::invalid_argument(text),
            SafeError::TooLarge { .. } => Self::new(Code::ResourceExhausted, text),
            SafeError::NotAFile { .. } => Self::failed_precondition(text),
            SafeError::System { source, .. } => answer::failed(text, source),
        }
    }
}

impl Root {
    /// Opens a folder; links in its own path are followed.
    pub fn open(path: &Path) -> Result<Self, SafeError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty());
        Ok(Self {
            folder: folder.map_err(|error| system("open", path, error))?,
            path: path.to_owned(),
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what lies at `relative`, as O_PATH: good for a look, a bind, or as the start of another path.
    ///
    /// Links are followed as long as they stay below; "" is the folder itself.
    ///
    /// # Errors
    /// [`SafeError::Escapes`] where a link or `..` leads out of the folder.
    pub fn open_path(&self, relative: &Path) -> Result<OwnedFd, SafeError> {
        self.open_with(relative, OFlags::PATH, Mode::empty())
    }

    /// Opens what lies at `relative` with these flags.
    pub fn open_with(
        &self,
        relative: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, SafeError> {
        let path = match relative.as_os_str().is_empty() {
            true => Path::new("."),
            false => relative,
        };
        match self.beneath(path, flags | OFlags::CLOEXEC, mode) {
            Ok(opened) => Ok(opened),
            Err(Errno::XDEV) => Err(SafeError::Escapes {
                path: relative.to_owned(),
                root: self.path.clone(),
            }),
            Err(error) => Err(system("open", &self.path.join(relative), error)),
        }
    }

    fn beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            match openat2(&self.folder, path, flags, mode, resolve) {
                // A rename or a mount happened somewhere while ".." was followed.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The kernel, or a seccomp filter, does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                result => return result,
            }
        }
        hand::open(self.folder.as_fd(), path, flags, mode)
    }

    /// Makes the folders of `relative` that are missing, and opens the last one as O_PATH.
    ///
    /// Links are followed in the part that exists. Each new folder gets exactly `mode`, whatever the umask is.
    pub fn make_dirs(&self, relative: &Path, mode: Mode) -> Result<OwnedFd, SafeError> {
        let (mut folder, mut made) = self.nearest(relative)?;
        let missing = relative.strip_prefix(&made).unwrap_or(Path::new(""));
        for name in missing.components() {
            made.push(name);
            let failed = |error| system("mkdir", &self.path.join(&made), error);
            folder = make_dir(folder.as_fd(), name.as_os_str(), mode).map_err(failed)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |error| system("mkdir", &self.path.join(relative), error);
        rustix::fs::openat(&folder, c".", flags, Mode::empty()).map_err(failed)
    }

    /// The longest part of a path that exists, opened.
    fn nearest(&self, relative: &Path) -> Result<(OwnedFd, PathBuf), SafeError> {
        for part in relative.ancestors() {
            match self.open_path(part) {
                Ok(folder) => return Ok((folder, part.to_owned())),
                Err(error) if error.not_found() && part != Path::new("") => {}
                Err(error) => return Err(error),
            }
        }
        Err(system("open", &self.path, Errno::NOENT))
    }

    /// Reads a plain file of at most so many bytes.
    ///
    /// # Errors
    /// [`SafeError::TooLarge`], [`SafeError::NotAFile`], [`SafeError::Escapes`].
    pub fn read_file(&self, relative: &Path, most: usize) -> Result<Vec<u8>, SafeError> {
        let path = || self.path.join(relative);
        // A fifo or a device must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.open_with(relative, flags, Mode::empty())?;
        let stat = stat(&opened).map_err(|error| system("stat", &path(), error))?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(SafeError::NotAFile { path: path() });
        }
        let mut bytes = Vec::new();
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        let read = File::from(opened).take(limit).read_to_end(&mut bytes);
        read.map_err(|source| SafeError::System {
            act: "read",
            path: path(),
            source,
        })?;
        if bytes.len() > most {
            return Err(SafeError::TooLarge { path: path(), most });
        }
        Ok(bytes)
    }

    /// Makes a plain file that was not there, for writing; its folder must be there.
    pub fn create(&self, relative: &Path, mode: Mode) -> Result<File, SafeError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.open_with(relative, flags, mode).map(File::from)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Makes one folder, and opens it. What appears there meanwhile is opened too if it is a folder, never followed if it
/// is a link.
fn make_dir(parent: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> Result<OwnedFd, Errno> {
    let made = match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOTDIR) if !made => return Err(Errno::EXIST),
        result => result?,
    };
    if made {
        rustix::fs::fchmod(&folder, mode)?;
    }
    Ok(folder)
}

fn stat(opened: &OwnedFd) -> rustix::io::Result<Stat> {
    rustix::fs::fstat(opened)
}

fn system(act: &'static str, path: &Path, error: Errno) -> SafeError {
    SafeError::System {
        act,
        path: path.to_owned(),
        source: error.into(),
    }
}
