//! Removing all below a path, or only its empty folders.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, unlinkat};
use rustix::io::Errno;
use tonic::Status;

use super::{MOUNT_POINT, NOT_EMPTY};
use crate::answer;
use blocking_pool::Cancel;
use files::walk::{self, Crossing, Spot, Visitor};

/// How many failures are listed; the others are only counted.
const LINES_MAX: usize = 32;

/// Paths that were not removed, and why.
#[derive(Debug, Default)]
pub(super) struct Kept {
    lines: Vec<String>,
    more: usize,
}

impl Kept {
    pub(super) fn note(&mut self, path: &Path, why: &str) {
        match self.lines.len() < LINES_MAX {
            true => self.lines.push(format!("{}: {why}", path.display())),
            false => self.more += 1,
        }
    }

    fn note_error(&mut self, path: &Path, error: Errno) {
        match error {
            Errno::XDEV | Errno::BUSY => self.note(path, MOUNT_POINT),
            Errno::NOTEMPTY | Errno::EXIST => self.note(path, NOT_EMPTY),
            error => self.note(path, &answer::os_error_text(&error.into())),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("... and {} more", self.more));
        }
        self.lines
    }
}

/// Removes whatever is at a path, with all below it, as far as that goes. Nothing there is fine.
pub(super) fn remove(path: &Path, kept: &mut Kept) -> Result<(), Status> {
    match unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // EPERM is what POSIX says for a folder.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => {
            kept.note_error(path, error);
            return Ok(());
        }
    }
    match walk::open(path) {
        Ok(folder) => walk::walk(folder, path, Crossing::Refused, &mut Removal { kept })?,
        Err(error) => {
            kept.note_error(path, error);
            return Ok(());
        }
    }
    folder(path, kept);
    Ok(())
}

/// Removes a folder if nothing but folders is below it, else leaves all of it. Nothing there is fine.
pub(super) fn remove_empty(path: &Path, kept: &mut Kept) -> Result<(), Status> {
    let opened = match walk::open(path) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => {
            kept.note_error(path, error);
            return Ok(());
        }
    };
    let mut look = Look::default();
    walk::walk(opened, path, Crossing::Refused, &mut look)?;
    match look.found {
        Some(Errno::NOTEMPTY) => {
            kept.note(path, NOT_EMPTY);
            Ok(())
        }
        Some(error) => {
            kept.note_error(path, error);
            Ok(())
        }
        None => {
            let opened = walk::open(path).map_err(|error| super::failed(path, error))?;
            walk::walk(opened, path, Crossing::Refused, &mut Folders { kept })?;
            folder(path, kept);
            Ok(())
        }
    }
}

/// Removes one empty folder; of one that is not empty, the failure was reported before if it was this removal's.
fn folder(path: &Path, kept: &mut Kept) {
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST) if !kept.is_empty() => {}
        Err(error) => kept.note_error(path, error),
    }
}

fn unlink(spot: &Spot<'_>, flags: AtFlags, kept: &mut Kept) {
    match unlinkat(spot.folder, spot.name, flags) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST) if !kept.is_empty() => {}
        Err(error) => kept.note_error(spot.path, error),
    }
}

/// Removes all on its way.
struct Removal<'k> {
    kept: &'k mut Kept,
}

impl Visitor for Removal<'_> {
    type Error = Status;

    fn check(&mut self) -> Result<(), Status> {
        Cancel::current().check()
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        unlink(spot, AtFlags::empty(), self.kept);
        Ok(())
    }

    fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        unlink(spot, AtFlags::REMOVEDIR, self.kept);
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Status> {
        self.kept.note_error(path, error);
        Ok(())
    }

    fn lost(&mut self, path: &Path, error: Errno) -> Status {
        answer::lost(path, error)
    }
}

/// Removes folders on its way, and nothing else: what came in since the look stays.
struct Folders<'k> {
    kept: &'k mut Kept,
}

impl Visitor for Folders<'_> {
    type Error = Status;

    fn check(&mut self) -> Result<(), Status> {
        Cancel::current().check()
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        self.kept.note(spot.path, NOT_EMPTY);
        Ok(())
    }

    fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        unlink(spot, AtFlags::REMOVEDIR, self.kept);
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Status> {
        self.kept.note_error(path, error);
        Ok(())
    }

    fn lost(&mut self, path: &Path, error: Errno) -> Status {
        answer::lost(path, error)
    }
}

/// Looks whether there is anything but folders.
#[derive(Default)]
struct Look {
    found: Option<Errno>,
}

impl Visitor for Look {
    type Error = Status;

    fn check(&mut self) -> Result<(), Status> {
        Cancel::current().check()
    }

    fn thing(&mut self, _: &Spot<'_>) -> Result<(), Status> {
        self.found = Some(Errno::NOTEMPTY);
        Ok(())
    }

    fn enter(&mut self, _: &Spot<'_>) -> Result<walk::Go, Status> {
        // Enough is known.
        Ok(match self.found {
            Some(_) => walk::Go::Past,
            None => walk::Go::In,
        })
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Status> {
        Ok(())
    }

    fn failed(&mut self, _: &Path, error: Errno) -> Result<(), Status> {
        self.found = Some(error);
        Ok(())
    }

    fn lost(&mut self, path: &Path, error: Errno) -> Status {
        answer::lost(path, error)
    }
}
