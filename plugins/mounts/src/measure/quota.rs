//! Detects a folder with a project quota, whose statfs figures are the project's own.

use std::path::Path;

use rustix::fs::{IFlags, Mode, OFlags, StatVfs, ioctl_getflags, statvfs};

use crate::table::{self, MountTable};

/// Tells whether the kernel answers for the folder with the figures of its project: it does so when the folder hands
/// its project down and the project has limits. A project that is only counted shows nothing of itself here.
pub(super) fn counts(path: &Path, figures: &StatVfs) -> bool {
    inherits(path) && whole(path).is_some_and(|whole| differ(figures, &whole))
}

fn inherits(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let flags = opened.and_then(ioctl_getflags);
    flags.is_ok_and(|flags| flags.contains(IFlags::PROJECT_INHERIT))
}

/// The figures of the whole file system.
fn whole(path: &Path) -> Option<StatVfs> {
    let real = table::real(path).ok()?;
    let table = MountTable::read().ok()?;
    let entry = table.holding(&real)?;
    // Of a bind, the root is a folder, perhaps of a project itself.
    let whole = table
        .entries()
        .iter()
        .find(|other| other.device == entry.device && other.root == Path::new("/"));
    statvfs(&whole?.mount_point).ok()
}

/// Both bytes and inodes, or a walk is needed for one of them anyway.
fn differ(folder: &StatVfs, whole: &StatVfs) -> bool {
    folder.f_blocks != whole.f_blocks && folder.f_files != whole.f_files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(f_blocks: u64, f_files: u64) -> StatVfs {
        let mut figures = statvfs("/proc").unwrap();
        (figures.f_blocks, figures.f_files) = (f_blocks, f_files);
        figures
    }

    #[test]
    fn figures_are_a_project_s_when_both_differ_from_the_whole() {
        for (folder, expected) in [
            (figures(1000, 100), false),
            (figures(10, 100), false),
            (figures(1000, 10), false),
            (figures(10, 10), true),
        ] {
            assert_eq!(differ(&folder, &figures(1000, 100)), expected);
        }
    }

    #[test]
    fn a_folder_without_a_project_has_the_figures_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let figures = statvfs(folder.path()).unwrap();
        assert!(!counts(folder.path(), &figures));
        assert!(!counts(Path::new("/proc"), &statvfs("/proc").unwrap()));
        assert!(!counts(Path::new("/no/such/path"), &figures));
    }
}
