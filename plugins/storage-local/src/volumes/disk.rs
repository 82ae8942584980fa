//! A block device that is mounted as a file system, and formatted first if there is nothing on it (upstream's
//! SafeFormatAndMount, k8s.io/mount-utils).

use std::ffi::OsStr;
use std::path::Path;

use mounts::mount;
use tonic::Status;

use crate::command::{self, Ended, RunError};

/// fsck's: errors were found and corrected.
const CORRECTED: i32 = 1;
/// fsck's: errors are left.
const UNCORRECTED: i32 = 4;
/// blkid's: nothing was found.
const NOTHING: i32 = 2;
/// What upstream calls a partition table, so that it is never formatted.
const PARTITIONS: &str = "unknown data, probably partitions";

/// Mounts the device; options are those of mount(8).
pub(crate) fn format_and_mount(
    device: &Path,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<(), Status> {
    let read_only = options.iter().any(|option| option == "ro");
    match format(device)?.as_str() {
        "" if read_only => {
            return Err(Status::failed_precondition(format!(
                "cannot mount unformatted disk {} as we are manipulating it in read-only mode",
                device.display()
            )));
        }
        "" => make_file_system(device, target, fs_type, options)?,
        found => {
            if found != fs_type {
                let device = device.display();
                tracing::warn!(%device, found, fs_type, "the device has another file system");
            }
            if !read_only {
                check(device)?;
            }
        }
    }
    let source = device.to_string_lossy();
    mount::file_system(&source, target, fs_type, options)
}

/// What is on the device; nothing is "".
fn format(device: &Path) -> Result<String, Status> {
    let words = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"];
    let ended = run("blkid", &words, device)?;
    match ended.code() {
        Some(0) => {}
        Some(NOTHING) => return Ok(String::new()),
        Some(_) | None => {
            return Err(Status::internal(format!(
                "failed to get disk format of disk {}: {}",
                device.display(),
                ended.exit_text()
            )));
        }
    }
    read(&ended.output)
}

fn read(output: &str) -> Result<String, Status> {
    let mut fs_type = "";
    for line in output.lines().filter(|line| !line.is_empty()) {
        match line.split('=').collect::<Vec<_>>().as_slice() {
            ["TYPE", value] => fs_type = value,
            ["PTTYPE", value] if !value.is_empty() => return Ok(PARTITIONS.to_owned()),
            [_, _] => {}
            _ => {
                return Err(Status::internal(format!(
                    "blkid returns invalid output: {output}"
                )));
            }
        }
    }
    Ok(fs_type.to_owned())
}

fn make_file_system(
    device: &Path,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<(), Status> {
    let words: &[&str] = match fs_type {
        // No questions; no blocks are kept for root.
        "ext3" | "ext4" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    };
    let ended = run(&format!("mkfs.{fs_type}"), words, device)?;
    if ended.code() == Some(0) {
        return Ok(());
    }
    Err(Status::internal(format!(
        "format of disk {:?} failed: type:({fs_type:?}) target:({:?}) options:({:?}) errcode:({}) output:({}) ",
        device.display().to_string(),
        target.display().to_string(),
        options.join(","),
        ended.exit_text(),
        ended.output
    )))
}

/// Repairs what can be repaired without a question.
fn check(device: &Path) -> Result<(), Status> {
    let ended = match command::run("fsck".as_ref(), &["-a".as_ref(), device.as_os_str()], None) {
        // Upstream goes on without it, too.
        Err(error) if error.not_found() => return Ok(()),
        ended => ended?,
    };
    let device = device.display();
    match ended.code() {
        Some(0) => {}
        Some(CORRECTED) => tracing::info!(%device, "fsck corrected errors"),
        Some(UNCORRECTED) => {
            return Err(Status::internal(format!(
                "'fsck' found errors on device {device} but could not correct them: {}",
                ended.output
            )));
        }
        Some(_) | None => tracing::info!(%device, output = ended.output, "fsck ended oddly"),
    }
    Ok(())
}

fn run(program: &str, words: &[&str], device: &Path) -> Result<Ended, RunError> {
    let words = words.iter().map(OsStr::new);
    let arguments: Vec<&OsStr> = words.chain([device.as_os_str()]).collect();
    command::run(program.as_ref(), &arguments, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestGetDiskFormat (k8s.io/mount-utils).
    #[test]
    fn a_device_s_format_is_read_from_blkid() {
        for (output, format) in [
            ("DEVNAME=/dev/x\nTYPE=ext4\n", "ext4"),
            ("DEVNAME=/dev/x\nPTTYPE=dos\n", PARTITIONS),
            ("TYPE=ext4\nPTTYPE=dos\n", PARTITIONS),
            ("\n", ""),
        ] {
            assert_eq!(read(output).unwrap(), format);
        }
        for odd in ["no equals sign", "A=B=C"] {
            assert!(read(odd).is_err());
        }
    }
}
