//! The kernel's choice between quick changes of cgroups and quick forks.
//!
//! A process that is put into a cgroup waits for every processor to have passed a quiet point: 6 to 18 ms, which a
//! container's start pays once for its runtime and each exec pays as well. With the option `favordynmods` of the
//! unified hierarchy the kernel keeps itself ready for such changes, on every hierarchy (cgroup-v2.rst, kernel 6.0).

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};

const FILE_SYSTEM: &str = "cgroup2";
const OPTION: &str = "favordynmods";

/// Asks the kernel to favour changes of cgroups, with the other options of its unified hierarchy as they are. Nothing
/// is done where that hierarchy is not mounted, by `self/mountinfo` below `proc`, or has the option already.
///
/// The options belong to the hierarchy: a mount that is made with them and attached nowhere sets them. They stay until
/// the machine starts again.
///
/// # Errors
///
/// Where the kernel doesn't know the option, or the process may not mount.
pub fn favor_changes(proc: &Path) -> io::Result<()> {
    let mounts = fs::read_to_string(proc.join("self/mountinfo"))?;
    let Some(options) = options(&mounts).filter(|options| !options.contains(&OPTION)) else {
        return Ok(());
    };
    let context = fsopen(FILE_SYSTEM, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for option in options.into_iter().chain([OPTION]) {
        fsconfig_set_flag(&context, option)?;
    }
    fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&context, flags, MountAttrFlags::empty())?;
    Ok(())
}

/// The options of the unified hierarchy's first mount, without those that every file system has; none without one.
fn options(mountinfo: &str) -> Option<Vec<&str>> {
    let options = mountinfo.lines().find_map(|line| {
        let (_, file_system) = line.split_once(" - ")?;
        let mut fields = file_system.split_whitespace();
        (fields.next()? == FILE_SYSTEM).then(|| fields.nth(1))?
    })?;
    let common = ["rw", "ro"];
    let own = options.split(',').filter(|option| !common.contains(option));
    Some(own.collect())
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn the_hierarchys_other_options_are_kept() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
        assert_eq!(
            options(v2),
            Some(vec!["nsdelegate", "memory_recursiveprot"])
        );
        let hybrid = "31 30 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,favordynmods\n";
        assert_eq!(options(hybrid), Some(vec!["favordynmods"]));
        assert_eq!(
            options("31 30 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"),
            None
        );
    }
}
