//! One entry of a tar, with its extended headers applied.

use std::ops::Range;

use super::LayerError;
use super::sparse::{Part, SparseMap};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Folder,
    Fifo,
}

/// An entry; names are bytes as they stand in the tar.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) path: Vec<u8>,
    /// Where a link leads.
    pub(crate) link: Vec<u8>,
    /// Bytes of its content in the tar.
    pub(crate) size: u64,
    /// Where the content lies, if the file has holes.
    pub(crate) sparse: Option<SparseMap>,
    /// Permissions, setuid, setgid and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since 1970 and nanoseconds.
    pub(crate) mtime: (i64, u32),
    /// Major and minor.
    pub(crate) device: (u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Returns the size of the file, with its holes.
    pub(super) fn logical_size(&self) -> u64 {
        self.sparse.as_ref().map_or(self.size, SparseMap::size)
    }

    /// Returns where the content of the tar lies in the file, in order.
    pub(super) fn parts(&self) -> Vec<Part> {
        let whole = Part {
            offset: 0,
            length: self.size,
        };
        self.sparse
            .as_ref()
            .map_or_else(|| vec![whole], |map| map.parts().to_vec())
    }
}

/// The components of a path below the root of a layer; none for the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inside(Vec<u8>);

/// The longest path that the kernel resolves in one go, and the longest name.
const PATH_BYTES_MAX: usize = 4095;
const NAME_BYTES_MAX: usize = 255;

impl Inside {
    /// Cleans a path: slashes and dots that say nothing are dropped, `..` is refused.
    pub(crate) fn new(path: &[u8]) -> Result<Self, &'static str> {
        let mut clean = Vec::with_capacity(path.len());
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => return Err("its path has a .."),
                _ if name.len() > NAME_BYTES_MAX => {
                    return Err("a name in it is longer than 255 bytes");
                }
                _ if name.contains(&0) => return Err("its path has a NUL"),
                _ => {}
            }
            if !clean.is_empty() {
                clean.push(b'/');
            }
            clean.extend_from_slice(name);
        }
        match clean.len() > PATH_BYTES_MAX {
            true => Err("its path is longer than 4095 bytes"),
            false => Ok(Self(clean)),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path of `name`, a clean one, in this folder.
    pub(super) fn child(&self, name: &[u8]) -> Result<Self, &'static str> {
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        match path.len() > PATH_BYTES_MAX {
            true => Err("its path is longer than 4095 bytes"),
            false => Ok(Self(path)),
        }
    }

    /// Returns the path `below` seen from this folder.
    pub(super) fn child_path(&self, below: &Self) -> Result<Self, &'static str> {
        match below.0.is_empty() {
            true => Ok(self.clone()),
            false => self.child(&below.0),
        }
    }

    /// Returns the folder that it lies in; the root's is the root, as in a chroot.
    pub(super) fn parent(&self) -> Self {
        self.split()
            .map_or_else(Self::default, |(parent, _)| parent)
    }

    /// Returns where it is after `from` was moved to `to`; none where that changes nothing.
    pub(super) fn moved(&self, from: &Self, to: &Self) -> Option<Result<Self, &'static str>> {
        let rest = self.0.strip_prefix(from.bytes())?;
        match rest.strip_prefix(b"/") {
            Some(below) => Some(to.child(below)),
            None => rest.is_empty().then(|| Ok(to.clone())),
        }
    }

    /// Splits off the last name; none for the root.
    pub(crate) fn split(&self) -> Option<(Self, &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (Self(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (Self(Vec::new()), &self.0),
        })
    }

    /// Returns the range of the paths below this one, in the order of paths; this one is no root.
    pub(crate) fn below(&self) -> Range<Self> {
        let followed_by = |byte| Self([self.0.as_slice(), &[byte]].concat());
        followed_by(b'/')..followed_by(b'/' + 1)
    }

    /// Returns where each leading part of the path ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = usize> {
        let slashes = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let whole = (!self.0.is_empty()).then_some(self.0.len());
        slashes.map(|(at, _)| at).chain(whole)
    }
}

/// Returns the names that a link's text leads through, the last first: as a stack to take them from.
pub(super) fn steps(target: &[u8]) -> Vec<Vec<u8>> {
    let names = target.split(|byte| *byte == b'/');
    let mut steps: Vec<_> = names
        .filter(|name| !matches!(*name, b"" | b"."))
        .map(<[u8]>::to_vec)
        .collect();
    steps.reverse();
    steps
}

/// Links that one path may lead through, as in the kernel.
pub(super) const MAX_LINKS: usize = 40;

/// Returns the refusal of the entry at `path`.
pub(super) fn refused(path: &[u8], reason: &'static str) -> LayerError {
    let entry = String::from_utf8_lossy(path).chars().take(300).collect();
    LayerError::Refused { entry, reason }
}
