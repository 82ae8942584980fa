//! Mounts and loop devices, as the kernel tells them.

use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The root of the mount within its file system.
    pub root: PathBuf,
    pub point: PathBuf,
    pub device: String,
    pub read_only: bool,
}

/// Returns every mount of this process's namespace, in the order in which they were made.
pub fn mounts() -> Vec<MountEntry> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<MountEntry> {
    let fields: Vec<&str> = line.split(' ').collect();
    let mut options = fields.get(5)?.split(',');
    Some(MountEntry {
        root: unescaped(fields.get(3)?),
        point: unescaped(fields.get(4)?),
        device: (*fields.get(2)?).to_owned(),
        read_only: options.any(|option| option == "ro"),
    })
}

/// The kernel writes blanks and the like as octal numbers.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Returns what is mounted exactly there: more than one lie on each other.
pub fn mounted_at(point: &Path) -> Vec<MountEntry> {
    let point = resolved(point);
    let mut all = mounts();
    all.retain(|mount| mount.point == point);
    all
}

/// The path without links above its last part, which may itself not be there.
fn resolved(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Shows one path at another.
pub(super) fn bind(source: &Path, target: &Path, access: MountMode) -> Result<()> {
    let none = None::<&str>;
    let what = || format!("bind {} at {}", source.display(), target.display());
    mount(Some(source), target, none, MsFlags::MS_BIND, none).with_context(what)?;
    if access == MountMode::ReadOnly {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, target, none, flags, none).with_context(what)?;
    }
    Ok(())
}

/// Access through a mount, by its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountMode {
    ReadWrite,
    ReadOnly,
}

pub(super) fn unmount(point: &Path) -> Result<()> {
    umount2(point, MntFlags::UMOUNT_NOFOLLOW)
        .with_context(|| format!("unmount {}", point.display()))
}

/// Unmounts every mount that matches, innermost first; returns a line for each that failed.
pub fn unmount_all(fits: impl Fn(&MountEntry) -> bool) -> Vec<String> {
    let all = mounts().into_iter().rev().filter(|mount| fits(mount));
    let failed = all.filter_map(|mount| {
        let gone = umount2(&mount.point, MntFlags::MNT_DETACH);
        let error = gone.err()?;
        Some(format!("{} not unmounted: {error}", mount.point.display()))
    });
    failed.collect()
}

/// The path as its file system has it, for comparing with [`MountEntry::root`], with the device of that file system.
pub fn within_its_file_system(path: &Path) -> Option<(String, PathBuf)> {
    let path = path.canonicalize().ok()?;
    let all = mounts().into_iter().rev();
    let holder = all
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())?;
    let rest = path.strip_prefix(&holder.point).ok()?;
    Some((holder.device, holder.root.join(rest)))
}

/// Waits until nobody else attaches or detaches the file: not even a losetup whose driver was killed meanwhile, as it inherits
/// the lock.
fn alone(file: &Path) -> Result<Flock<File>> {
    let shown = || format!("cannot lock {}", file.display());
    let lock = File::open(file).with_context(shown)?;
    fcntl(&lock, FcntlArg::F_SETFD(FdFlag::empty())).with_context(shown)?;
    let lock = Flock::lock(lock, FlockArg::LockExclusive);
    lock.map_err(|(_, error)| error).with_context(shown)
}

/// Returns the loop device of a file, made if there is none yet.
pub(super) fn loop_device(file: &Path) -> Result<PathBuf> {
    let _alone = alone(file)?;
    if let Some(device) = loop_devices(file)?.into_iter().next() {
        return Ok(device);
    }
    let made = losetup(&["--find", "--show", "--", &file.display().to_string()])?;
    ensure!(!made.is_empty(), "losetup names no device");
    Ok(made.trim().into())
}

/// Returns the loop devices of a file.
pub fn loop_devices(file: &Path) -> Result<Vec<PathBuf>> {
    let shown = losetup(&["--associated", &file.display().to_string()])?;
    let names = shown.lines().filter_map(|line| line.split_once(':'));
    Ok(names.map(|(name, _)| name.into()).collect())
}

/// Returns the loop devices of the files below a folder, as the kernel tells them; that costs no process for each file.
pub(super) fn loops_below(folder: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let shows_ours = |device: &fs::DirEntry| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(folder))
    };
    let ours = devices.filter(shows_ours);
    ours.map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

pub(super) fn detach_loops(file: &Path) -> Result<()> {
    let _alone = alone(file)?;
    for device in loop_devices(file)? {
        losetup(&["--detach", &device.display().to_string()])?;
    }
    Ok(())
}

/// Lets the loop devices of a file see its new size.
pub(super) fn resize_loops(file: &Path) -> Result<()> {
    for device in loop_devices(file)? {
        losetup(&["--set-capacity", &device.display().to_string()])?;
    }
    Ok(())
}

fn losetup(arguments: &[&str]) -> Result<String> {
    let output = Command::new("losetup")
        .args(arguments)
        .output()
        .context("losetup")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("losetup {}: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_with_a_blank_is_read_as_it_is() {
        let line = r"36 35 98:0 /mnt1 /mnt/a\040b\134 ro,noatime master:1 - ext3 /dev/root rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new(r"/mnt/a b\"));
        assert_eq!(mount.root, Path::new("/mnt1"));
        assert!(mount.read_only);
    }
}
