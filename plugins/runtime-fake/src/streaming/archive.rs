//! `tar` as kubectl cp calls it: one file out of a container, or small files into it.

use std::io::{self, Read};

/// A longer archive is refused.
pub(super) const LONGEST: usize = 4 << 20;

/// The direction of a copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TarOperation {
    Pack(String),
    /// Into this folder.
    Unpack(String),
}

/// Returns what a command line asks for: `cf - PATH`, or `xf - -C FOLDER`.
pub(super) fn kind(args: &[&str]) -> Option<TarOperation> {
    let (flags, rest) = args.split_first()?;
    match rest {
        ["-", path] if flags.contains('c') => Some(TarOperation::Pack((*path).to_owned())),
        ["-", "-C", folder] if flags.contains('x') => {
            Some(TarOperation::Unpack((*folder).to_owned()))
        }
        ["-"] if flags.contains('x') => Some(TarOperation::Unpack("/".to_owned())),
        _ => None,
    }
}

/// Packs one file, under its path without the leading slash, as tar does.
pub(super) fn pack(path: &str, content: &str) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(
        &mut header,
        path.trim_start_matches('/'),
        content.as_bytes(),
    )?;
    builder.into_inner()
}

/// Returns the files of an archive with their paths in the container.
pub(super) fn unpack(folder: &str, packed: &[u8]) -> io::Result<Vec<(String, String)>> {
    let mut archive = tar::Archive::new(packed);
    let mut files = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path()?.display().to_string();
        let path = format!(
            "{}/{}",
            folder.trim_end_matches('/'),
            path.trim_start_matches('/')
        );
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.push((path, String::from_utf8_lossy(&content).into_owned()));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_can_be_unpacked_elsewhere() {
        let packed = pack("/etc/name", "value\n").unwrap();
        let files = unpack("/tmp/", &packed).unwrap();
        assert_eq!(files, [("/tmp/etc/name".to_owned(), "value\n".to_owned())]);
        assert!(unpack("/", b"not an archive, but long enough to be looked at").is_err());
    }

    #[test]
    fn kubectls_command_lines_are_known() {
        assert_eq!(
            kind(&["cf", "-", "/f"]),
            Some(TarOperation::Pack("/f".into()))
        );
        assert_eq!(
            kind(&["-xmf", "-", "-C", "/d"]),
            Some(TarOperation::Unpack("/d".into()))
        );
        assert_eq!(kind(&["-xmf", "-"]), Some(TarOperation::Unpack("/".into())));
        assert_eq!(kind(&["--help"]), None);
    }
}
