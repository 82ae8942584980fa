//! Folders that live as long as their pod: on the disk, in memory, in huge pages (upstream's
//! pkg/volume/emptydir/empty_dir.go, 1.36). The kinds that consist of files lie in one, too.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::{fs, io};

use mounts::answer::failed;
use mounts::mount::{self, Swap, TmpfsOptions};
use mounts::table::{self, MountInfo, MountTable};
use mounts::{ownership, remove};
use proto::storage::{EmptyDir, Medium, Ownership};
use rustix::fs::{Mode, OFlags, fchmod, fstat, open};
use tonic::Status;

use crate::state::marker::{Mark, Marker};
use crate::state::place::Place;

/// Upstream's `perm`.
const MODE: u32 = 0o777;
const TMPFS: &str = "tmpfs";
const HUGETLBFS: &str = "hugetlbfs";

/// Sets the volume up unless it is; nothing of it is touched then.
pub(crate) fn set_up(
    place: &Place,
    marker: &Marker,
    volume: &EmptyDir,
    ownership: Option<&Ownership>,
    label: &str,
) -> Result<(), Status> {
    let mark = marker.read();
    match volume.medium() {
        Medium::Default => {
            if mark != Mark::Missing && place.target.is_dir() {
                return Ok(());
            }
            make(place, volume)?;
        }
        Medium::Memory => {
            if mounted_as(place, TMPFS)?.is_some() {
                if mark != Mark::Missing {
                    return Ok(());
                }
            } else {
                make(place, volume)?;
                mount::tmpfs(&place.target, &tmpfs(volume, label))?;
            }
        }
        Medium::HugePages => {
            if let Some(entry) = mounted_as(place, HUGETLBFS)? {
                same_page_size(place, &entry, volume.page_size)?;
                if mark != Mark::Missing {
                    return Ok(());
                }
            } else {
                make(place, volume)?;
                mount::file_system("nodev", &place.target, HUGETLBFS, &huge_pages(volume))?;
            }
        }
    }
    if let Some(ownership) = ownership {
        ownership::apply(&place.target, ownership, false)?;
    }
    marker.set(match volume.medium() {
        Medium::Default => Mark::Set,
        Medium::Memory | Medium::HugePages => Mark::Memory,
    })
}

/// Tells whether a volume of this medium carries the label as an option of its mount.
pub(crate) fn labelled(medium: Medium, label: &str) -> bool {
    medium == Medium::Memory && !label.is_empty()
}

/// Takes the volume away, with its data.
pub(crate) fn tear_down(place: &Place, marker: &Marker) -> Result<(), Status> {
    marker.clear()?;
    mount::unmount(&place.target)?;
    match fs::symlink_metadata(&place.target) {
        // No volume of ours, and nothing of what it leads to is.
        Ok(found) if found.is_symlink() => fs::remove_file(&place.target)
            .map_err(|error| failed(format!("cannot remove {}", place.target.display()), error)),
        Ok(_) | Err(_) => remove::empty_dir(&place.target),
    }
}

/// Tells whether the volume has a file system of its own.
pub(crate) fn own_file_system(target: &Path) -> Result<bool, Status> {
    match table::is_mount_root(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result.map_err(|error| failed(format!("stat {}", target.display()), error)),
    }
}

fn make(place: &Place, volume: &EmptyDir) -> Result<(), Status> {
    place.make_parents()?;
    let path = &place.target;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(format!("mkdir {}", path.display()), error));
        }
        Ok(()) | Err(_) => {}
    }
    let mode = match volume.mode {
        0 => MODE,
        mode => mode & 0o1777,
    };
    set_mode(path, mode).map_err(|error| failed(format!("chmod {}", path.display()), error))
}

/// Whatever the umask was.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    if fstat(&folder)?.st_mode & 0o7777 != mode {
        fchmod(&folder, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// What is mounted at the target, if it is a file system of this type; another one is refused.
fn mounted_as(place: &Place, fs_type: &str) -> Result<Option<MountInfo>, Status> {
    let path = &place.target;
    let what = |error| failed(format!("stat {}", path.display()), error);
    // Most are new: the table need not be read for them.
    let real = match fs::symlink_metadata(path).and_then(|_| table::real(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        real => real.map_err(what)?,
    };
    match MountTable::read().map_err(what)?.at(&real) {
        Some(entry) if entry.fs_type == fs_type => Ok(Some(entry.clone())),
        Some(entry) => Err(Status::failed_precondition(format!(
            "{} is a mount point of {}, expected {fs_type}",
            path.display(),
            entry.fs_type
        ))),
        None => Ok(None),
    }
}

fn tmpfs(volume: &EmptyDir, label: &str) -> TmpfsOptions {
    TmpfsOptions {
        size: volume.size_limit,
        mode: volume.mode & 0o1777,
        label: label.to_owned(),
        swap: Swap::Refused,
        ..TmpfsOptions::default()
    }
}

// Upstream gives no size: what a pod may take is bounded by its cgroup.
fn huge_pages(volume: &EmptyDir) -> Vec<String> {
    let mut options = Vec::new();
    if volume.page_size > 0 {
        options.push(format!("pagesize={}", volume.page_size));
    }
    if volume.mode > 0 {
        options.push(format!("mode={:o}", volume.mode & 0o1777));
    }
    options
}

fn same_page_size(place: &Place, entry: &MountInfo, wanted: u64) -> Result<(), Status> {
    if wanted == 0 {
        return Ok(());
    }
    let path = place.target.display();
    let option = entry
        .super_options
        .iter()
        .find_map(|option| option.strip_prefix("pagesize="));
    let Some(found) = option.and_then(bytes) else {
        return Err(Status::failed_precondition(format!(
            "pod {}: mounted dir {path} pagesize is not determined",
            place.uid
        )));
    };
    if found != wanted {
        return Err(Status::failed_precondition(format!(
            "pod {}: mounted dir {path} pagesize '{}' and requested medium size '{}' differ",
            place.uid,
            quantity(found),
            quantity(wanted)
        )));
    }
    Ok(())
}

/// "2M", as the kernel has it.
fn bytes(option: &str) -> Option<u64> {
    let end = option
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(option.len());
    let (number, unit) = option.split_at(end);
    let shift = match unit.trim_end_matches(['i', 'I']) {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// "2Mi", as Kubernetes has it.
fn quantity(bytes: u64) -> String {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units
        .iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}
