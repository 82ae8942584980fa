//! The number of mounts at a path, by the kernel's mount table.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

/// Counts the mounts at exactly this path; the path itself is not looked at.
pub(super) fn layers(path: &Path) -> io::Result<usize> {
    let real = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => match fs::canonicalize(folder) {
            Ok(folder) => folder.join(name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        },
        (Some(_) | None, _) => path.to_owned(),
    };
    let wanted = escaped(&real);
    let table = fs::read("/proc/self/mountinfo")?;
    let points = table
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    Ok(points.filter(|point| *point == wanted).count())
}

/// As the kernel writes it there.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            byte => escaped.push(byte),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_by_whole_paths() {
        assert_eq!(layers(Path::new("/proc")).unwrap(), 1);
        assert_eq!(layers(Path::new("/pro")).unwrap(), 0);
        assert_eq!(layers(Path::new("/no/such/folder")).unwrap(), 0);
        assert_eq!(escaped(Path::new("/a b\\c")), b"/a\\040b\\134c");
    }
}
