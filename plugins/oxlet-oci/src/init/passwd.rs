//! The container's `/etc/passwd`, which anybody may have written: a regular file, opened inside the root, and not too long.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat};

use crate::rootfs::Root;

/// What of it is read, in bytes; further lines are as if they were not there.
const MAX_BYTES: u64 = 4 << 20;

/// Returns the home folder of a user of the root that this process has; `None` if no line says it.
pub(crate) fn home(user: u32) -> Option<String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = Root::new(rustix::fs::open("/", flags, Mode::empty()).ok()?);
    home_in(&read(&root).ok()?, user)
}

fn read(root: &Root) -> io::Result<Vec<u8>> {
    // Without O_NONBLOCK a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = root.open(Path::new("/etc/passwd"), flags)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::from(file).take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Finds the first line of a user: `name:password:uid:gid:comment:home:shell`.
fn home_in(passwd: &[u8], user: u32) -> Option<String> {
    let text = String::from_utf8_lossy(passwd);
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| {
        fields
            .get(2)
            .is_some_and(|field| field.trim().parse() == Ok(user))
    })?;
    line.get(5)
        .map(|home| (*home).to_owned())
        .filter(|home| !home.is_empty() && !home.contains('\0'))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_home_is_that_of_the_first_line_with_the_number() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n\nbad\n7:x:12:0::/wrong:\na:x:7:7::/home/a:\nb:x:7:7::/home/b:\nc:x:8:8:::\n";
        for (user, expected) in [
            (0, Some("/root")),
            (7, Some("/home/a")),
            (8, None),
            (9, None),
        ] {
            assert_eq!(home_in(passwd, user).as_deref(), expected, "{user}");
        }
    }

    #[test]
    fn what_is_no_file_inside_the_root_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("root/etc")).unwrap();
        fs::write(folder.path().join("outside"), "x").unwrap();
        let path = folder.path().join("root/etc/passwd");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder.path().join("root"), flags, Mode::empty()).unwrap();
        let root = Root::new(opened);
        symlink(folder.path().join("outside"), &path).unwrap();
        assert!(read(&root).is_err());
        fs::remove_file(&path).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
        assert!(read(&root).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a:x:1:1::/a:\n").unwrap();
        assert_eq!(read(&root).unwrap(), b"a:x:1:1::/a:\n");
    }
}
