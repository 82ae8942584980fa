//! A place in a tree of groups, of any depth: one descriptor, and the names on the way.
//!
//! A privileged container nests its groups as deep as it likes, deeper than a path is long or a process has descriptors.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, unlinkat};
use rustix::io::{Errno, Result};

/// A group in a tree.
#[derive(Debug)]
pub(super) struct Place {
    here: OwnedFd,
    /// The names from the folder above the tree's top to here.
    names: Vec<CString>,
}

impl Place {
    /// The folder above the top of the tree.
    pub(super) fn above(top: &Path) -> Result<Place> {
        let folder = top.parent().ok_or(Errno::INVAL)?;
        Ok(Place {
            here: open(folder, folder_flags(), Mode::empty())?,
            names: Vec::new(),
        })
    }

    /// How many levels below the folder above the tree this is.
    pub(super) fn depth(&self) -> usize {
        self.names.len()
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.here
    }

    /// Goes into a group.
    pub(super) fn descend(&mut self, name: &CStr) -> Result<()> {
        self.here = openat(&self.here, name, folder_flags(), Mode::empty())?;
        self.names.push(name.to_owned());
        Ok(())
    }

    /// Goes back to the group above, and returns the name of the one it comes from.
    pub(super) fn ascend(&mut self) -> Result<Option<CString>> {
        let Some(name) = self.names.pop() else {
            return Ok(None);
        };
        self.here = openat(&self.here, c"..", folder_flags(), Mode::empty())?;
        Ok(Some(name))
    }

    /// Removes a group in this one.
    pub(super) fn remove(&self, name: &CStr) -> Result<()> {
        unlinkat(&self.here, name, AtFlags::REMOVEDIR)
    }

    /// Returns the first `limit` groups in this one that are wanted.
    pub(super) fn groups(
        &self,
        limit: usize,
        wanted: impl Fn(&CStr) -> bool,
    ) -> Result<Vec<CString>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.here)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_group =
                entry.file_type() == FileType::Directory && name != c"." && name != c"..";
            if is_group && wanted(name) {
                found.push(name.to_owned());
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// How a group is opened.
fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}
