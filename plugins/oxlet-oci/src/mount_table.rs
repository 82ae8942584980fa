//! The mount points of a table of mounts, as `/proc/PID/mountinfo` has them (proc_pid_mountinfo(5)).

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Reads the mount points of a table: the fifth field of each line, with its octal escapes.
pub(crate) fn points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields.map(unescaped).collect()
}

fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_read_with_its_escapes() {
        let table =
            b"1 0 0:1 / / rw - x x rw\n3 2 0:1 / /v/a\\040b\\9 rw shared:1 - x x rw\n\nbroken\n";
        assert_eq!(points(table), ["/", "/v/a b\\9"].map(PathBuf::from));
    }
}
