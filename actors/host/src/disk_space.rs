//! The space of file systems, by `statvfs`. It may hang with its disk: it is called on a thread that may.

use std::io;
use std::path::Path;

use logic_resources::image_gc::DiskSpace;

/// The space of the file system that holds the path.
///
/// # Errors
/// Those of `statvfs(2)`: the path is absent, or its disk broken.
pub fn read(path: &Path) -> io::Result<DiskSpace> {
    let stat = rustix::fs::statvfs(path)?;
    // Of a disk that is broken, the numbers may be anything.
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(DiskSpace {
        capacity: bytes(stat.f_blocks),
        available: bytes(stat.f_bavail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_space_a_file_system_of_the_kernel_none_and_an_absent_path_is_an_error() {
        let root = read(Path::new("/")).unwrap();
        assert!(root.capacity > 0 && root.available <= root.capacity);
        assert_eq!(read(Path::new("/proc")).unwrap(), DiskSpace::default());
        let absent = read(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
