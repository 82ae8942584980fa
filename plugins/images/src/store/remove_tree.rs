//! Trees of any depth removed with three descriptors and no recursion: folders within are moved up, and emptied there.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// Removes everything in the folder `trash`.
pub(super) fn empty(trash: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let trash = openat(CWD, trash, flags, Mode::empty())?;
    let mut next = 0;
    // What is moved up is found by the next pass; one that finds nothing is the last.
    while pass(&trash, &mut next)? {}
    File::from(trash).sync_all()
}

/// Empties and removes what is in the trash now; false if there was nothing.
fn pass(trash: &OwnedFd, next: &mut u64) -> io::Result<bool> {
    let mut found = false;
    for entry in Dir::read_from(trash)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_own(name) {
            continue;
        }
        found = true;
        if is_folder(trash, name, entry.file_type())? {
            empty_folder(trash, name, next)?;
            gone(unlinkat(trash, name, AtFlags::REMOVEDIR))?;
        } else {
            gone(unlinkat(trash, name, AtFlags::empty()))?;
        }
    }
    Ok(found)
}

fn empty_folder(trash: &OwnedFd, name: &CStr, next: &mut u64) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(trash, name, flags, Mode::empty())?;
    loop {
        let mut found = false;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_own(name) {
                continue;
            }
            found = true;
            match is_folder(&folder, name, entry.file_type())? {
                true => move_up(&folder, name, trash, next)?,
                false => gone(unlinkat(&folder, name, AtFlags::empty()))?,
            }
        }
        if !found {
            return Ok(());
        }
    }
}

fn move_up(folder: &OwnedFd, name: &CStr, trash: &OwnedFd, next: &mut u64) -> io::Result<()> {
    loop {
        *next += 1;
        // An empty folder of that name would be replaced, and nothing lost; a full one is in the way.
        match renameat(folder, name, trash, format!("up-{next}")) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            result => return gone(result),
        }
    }
}

fn is_own(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn is_folder(folder: impl AsFd, name: &CStr, told: FileType) -> io::Result<bool> {
    if told != FileType::Unknown {
        return Ok(told == FileType::Directory);
    }
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn gone(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let trash = home.path().join("trash");
        std::fs::create_dir_all(trash.join("0")).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut folder = openat(CWD, trash.join("0"), flags, Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            rustix::fs::symlinkat("/etc", &folder, "link").unwrap();
            folder = openat(&folder, "d", flags, Mode::empty()).unwrap();
        }
        drop(folder);
        empty(&trash).unwrap();
        assert_eq!(std::fs::read_dir(&trash).unwrap().count(), 0);
        assert!(Path::new("/etc/passwd").exists());
    }
}
