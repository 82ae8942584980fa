//! Files: open descriptors, `/dev`, masked paths, the sandbox's files, where one may write.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::process::text;
use super::report::{Report, errno, escaped, outcome};

const O_NONBLOCK: i32 = 0o4000;
const O_NOCTTY: i32 = 0o400;
/// More than any `/dev` here has.
const MAX_DEVICES: usize = 1024;

/// What runtimes hide or make read-only, and some that they don't.
const PATHS: [&str; 24] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/irq",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sys",
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/cgroup",
    "/sys/kernel",
    "/app/secret",
    "/app/hidden",
    "/app/hidden/file",
    "/app/link-to-dir",
];

const PLACES: [&str; 20] = [
    "/",
    "/app",
    "/app/dir",
    "/app/data",
    "/data",
    "/dev",
    "/dev/shm",
    "/etc",
    "/home/web",
    "/mnt",
    "/mnt/new",
    "/mnt/new/inner",
    "/nested",
    "/nested/inner",
    "/proc",
    "/run",
    "/sys",
    "/sys/fs/cgroup",
    "/tmp",
    "/work/link",
];

const CONTENTS: [&str; 8] = [
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/passwd",
    "/etc/group",
    "/app/config",
    "/app/dangling",
    "/data/file",
];

/// Reports every open descriptor.
pub(super) fn descriptors(report: &mut Report) {
    let listed = match fs::read_dir("/proc/self/fd") {
        Ok(listed) => listed,
        Err(error) => return report.put("fd", errno(&error)),
    };
    for entry in listed.flatten() {
        let path = entry.path();
        let link = fs::read_link(&path).unwrap_or_default();
        // The folder that is being read.
        if link.ends_with("fd") && link.starts_with("/proc") {
            continue;
        }
        let name = entry.file_name().display().to_string();
        let link = escaped(link.as_os_str().as_bytes());
        // Pipes and sockets are named by a number.
        let link = link.split(":[").next().unwrap_or_default().to_owned();
        let is = fs::metadata(&path).map_or_else(|error| errno(&error), |data| describe(&data));
        let info = text(&format!("/proc/self/fdinfo/{name}"));
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        report.put(format!("fd.{name}.link"), link);
        report.put(format!("fd.{name}.is"), is);
        report.put(format!("fd.{name}.flags"), flags.unwrap_or_default().trim());
    }
}

pub(super) fn report(report: &mut Report) {
    for name in ["stdin", "stdout", "stderr"] {
        let path = format!("/dev/{name}");
        // Nothing waits: a pipe without a writer would.
        let opened = File::options()
            .read(name == "stdin")
            .write(name != "stdin")
            .custom_flags(O_NONBLOCK | O_NOCTTY)
            .open(&path);
        report.put(format!("reopen.{name}"), outcome(&opened));
    }
    let mut left = MAX_DEVICES;
    devices(Path::new("/dev"), &mut left, report);
    for path in PATHS {
        report.put(format!("path.{path}.is"), described(Path::new(path)));
        report.put(format!("path.{path}.read"), read(Path::new(path)));
        // Opened only, nothing is written.
        let written = File::options().write(true).open(path);
        report.put(format!("path.{path}.write"), outcome(&written));
    }
    for path in PLACES {
        report.put(format!("place.{path}.is"), described(Path::new(path)));
        report.put(format!("place.{path}.create"), create(Path::new(path)));
    }
    for path in CONTENTS {
        report.put(format!("file.{path}.is"), described(Path::new(path)));
        let bytes = fs::read(path);
        let text = bytes.map_or_else(|error| errno(&error), |bytes| escaped(&bytes));
        report.put(format!("file.{path}.text"), text);
    }
    for folder in [
        "/",
        "/app",
        "/data",
        "/mnt/new",
        "/nested",
        "/run",
        "/proc/self/fd/0",
    ] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| escaped(entry.file_name().as_bytes()))
            .collect();
        names.sort_unstable();
        report.put(format!("entries.{folder}"), names.join(" "));
    }
}

fn devices(folder: &Path, left: &mut usize, report: &mut Report) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if *left == 0 {
            return report.put("dev", "more than the probe looks at");
        }
        *left -= 1;
        let path = entry.path();
        let key = format!("dev.{}", escaped(path.as_os_str().as_bytes()));
        report.put(key, described(&path));
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // The node's shared memory and queues are not the container's.
        let shared = ["/dev/shm", "/dev/mqueue"]
            .map(Path::new)
            .contains(&path.as_path());
        if is_folder && !shared {
            devices(&path, left, report);
        }
    }
}

/// Returns type, numbers or target, mode and owner of what a path names, links not followed.
pub(super) fn described(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => {
            let target = fs::read_link(path).unwrap_or_default();
            format!(
                "link to {}, {}:{}",
                escaped(target.as_os_str().as_bytes()),
                data.uid(),
                data.gid()
            )
        }
        Ok(data) => describe(&data),
        Err(error) => errno(&error),
    }
}

fn describe(data: &Metadata) -> String {
    let kind = data.file_type();
    let name = if kind.is_dir() {
        "folder"
    } else if kind.is_file() {
        "file"
    } else if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_char_device() {
        "char"
    } else {
        "block"
    };
    let mut text = format!(
        "{name} {:04o} {}:{}",
        data.mode() & 0o7777,
        data.uid(),
        data.gid()
    );
    if kind.is_char_device() || kind.is_block_device() {
        // The kernel's encoding of a dev_t in user space: glibc's gnu_dev_major and gnu_dev_minor.
        let device = data.rdev();
        let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
        let minor = (device & 0xff) | (device >> 12 & !0xff);
        text.push_str(&format!(" {major}:{minor}"));
    }
    text
}

fn read(path: &Path) -> String {
    if path.is_dir() {
        return match fs::read_dir(path) {
            Ok(mut entries) => match entries.next() {
                Some(_) => "entries".to_owned(),
                None => "empty".to_owned(),
            },
            Err(error) => errno(&error),
        };
    }
    let read = File::options()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)
        .and_then(|mut file| file.read(&mut [0]));
    match read {
        Ok(0) => "empty".to_owned(),
        Ok(_) => "bytes".to_owned(),
        Err(error) => errno(&error),
    }
}

/// Creates a file of a unique name and removes it.
fn create(folder: &Path) -> String {
    let name = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let path = folder.join(format!(".probe-{}", name.trim()));
    let created = File::create_new(&path).and_then(|_| fs::symlink_metadata(&path));
    let told = match &created {
        Ok(data) => format!("{}:{} {:04o}", data.uid(), data.gid(), data.mode() & 0o7777),
        Err(error) => errno(error),
    };
    if created.is_ok() {
        drop(fs::remove_file(&path));
    }
    told
}
