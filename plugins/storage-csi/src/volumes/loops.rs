//! A raw device is held open by a loop device over it, as upstream holds it (volumepathhandler, 1.36): the kernel keeps
//! it whatever becomes of this process, and a kubelet finds it. All of it blocks.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

use mounts::answer;
use tonic::Status;

/// The environment of a plugin has no PATH to rely on.
const PROGRAMS: [&str; 4] = [
    "/sbin/losetup",
    "/usr/sbin/losetup",
    "/bin/losetup",
    "/usr/bin/losetup",
];
const CONTROL: &str = "/dev/loop-control";
const BLOCK: &str = "/sys/block";
const DELETED: &[u8] = b" (deleted)";

/// Holds what is at `path` open. A node without loop devices goes without.
pub(super) fn attach_loop_device(path: &Path) -> Result<(), Status> {
    let failed = |why: String| {
        Status::internal(format!(
            "makeLoopDevice failed for path {}: {why}",
            path.display()
        ))
    };
    if over(path)?.is_some() {
        return Ok(());
    }
    let Some(losetup) = losetup() else {
        tracing::warn!(
            "{} is not held open: this node has no losetup or no loop devices",
            path.display()
        );
        return Ok(());
    };
    let output = Command::new(losetup).arg("-f").arg(path).output();
    finished(output).map_err(|why| failed(format!("losetup -f {} failed: {why}", path.display())))
}

/// Whether something was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// It was: the kernel closes what was held a moment later.
    JustNow,
    /// It was not held.
    Nothing,
}

/// Detaches the loop device.
pub(super) fn release(path: &Path) -> Result<Released, Status> {
    let Some(device) = over(path)? else {
        return Ok(Released::Nothing);
    };
    let shown = device.display();
    let why = match losetup() {
        Some(losetup) => finished(Command::new(losetup).arg("-d").arg(&device).output()),
        None => Err("there is no losetup".to_owned()),
    };
    why.map(|()| Released::JustNow).map_err(|why| {
        Status::internal(format!(
            "removeLoopDevice failed for path {}: losetup -d {shown} failed: {why}",
            path.display()
        ))
    })
}

/// The loop device over a path.
fn over(path: &Path) -> Result<Option<PathBuf>, Status> {
    let failed = |error| answer::failed(format!("cannot look for loop devices in {BLOCK}"), error);
    let real = match mounts::table::real(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let devices = match fs::read_dir(BLOCK) {
        Ok(devices) => devices,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    for device in devices {
        let name = device.map_err(failed)?.file_name();
        if !name.as_bytes().starts_with(b"loop") {
            continue;
        }
        // Unused ones have no such file.
        let backing = Path::new(BLOCK).join(&name).join("loop/backing_file");
        if fs::read(backing).is_ok_and(|text| backs(&text, path) || backs(&text, &real)) {
            return Ok(Some(Path::new("/dev").join(name)));
        }
    }
    Ok(None)
}

fn backs(text: &[u8], path: &Path) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_suffix(DELETED).unwrap_or(text);
    text.trim_ascii() == path.as_os_str().as_bytes()
}

fn losetup() -> Option<&'static str> {
    if !Path::new(CONTROL).exists() {
        return None;
    }
    PROGRAMS
        .into_iter()
        .find(|program| Path::new(program).exists())
}

fn finished(output: io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| answer::os_error_text(&error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cleanBackingFilePath cases.
    #[test]
    fn a_backing_file_is_known_though_it_was_deleted() {
        let path = Path::new("/a/b c");
        for text in [
            "/a/b c\n",
            "/a/b c",
            "/a/b c (deleted)\n",
            " /a/b c (deleted)",
        ] {
            assert!(backs(text.as_bytes(), path), "{text:?}");
        }
        assert!(!backs(b"/a/b\n", path));
    }
}
