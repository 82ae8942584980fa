//! Reads a file that an operator named: only a regular file, only so much of it, only text. Checked before it is
//! opened, because opening a FIFO blocks until it has a writer.

use std::fs::{self, File, FileType};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Far above any real configuration, far below what hurts.
pub(crate) const LIMIT: u64 = 4 * 1024 * 1024;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("it does not exist")]
    Missing,
    #[error("it is a link to nothing")]
    DanglingLink,
    #[error("it is a {0}; expected a regular file")]
    NotAFile(&'static str),
    #[error("it is larger than {LIMIT} bytes")]
    TooLarge,
    #[error("it is empty")]
    Empty,
    #[error("it is not UTF-8 text")]
    NotText(#[source] std::str::Utf8Error),
    #[error("it cannot be read")]
    Io(#[source] std::io::Error),
}

/// Returns the text of a file.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let metadata = fs::metadata(path).map_err(|error| {
        if error.kind() != std::io::ErrorKind::NotFound {
            FileError::Io(error)
        } else if fs::symlink_metadata(path).is_ok() {
            FileError::DanglingLink
        } else {
            FileError::Missing
        }
    })?;
    if let Some(other) = other_than_file(metadata.file_type()) {
        return Err(FileError::NotAFile(other));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(FileError::Io)?;
    file.take(LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(FileError::Io)?;
    if bytes.len() as u64 > LIMIT {
        return Err(FileError::TooLarge);
    }
    if bytes.is_empty() {
        return Err(FileError::Empty);
    }
    String::from_utf8(bytes).map_err(|error| FileError::NotText(error.utf8_error()))
}

fn other_than_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("directory"),
        kind if kind.is_fifo() => Some("FIFO"),
        kind if kind.is_socket() => Some("socket"),
        _ => Some("device"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_readable_text_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("good"), "text").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("binary"), [0xff, 0xfe]).unwrap();
        File::create(at("large"))
            .unwrap()
            .set_len(LIMIT + 1)
            .unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        symlink(at("good"), at("link")).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(at("fifo"))
                .status()
                .unwrap()
                .success()
        );
        let _listener = UnixListener::bind(at("socket")).unwrap();

        assert_eq!(read(&at("good")).unwrap(), "text");
        assert_eq!(read(&at("link")).unwrap(), "text");
        for (name, why) in [
            ("missing", "it does not exist"),
            ("dangling", "it is a link to nothing"),
            ("", "it is a directory; expected a regular file"),
            ("fifo", "it is a FIFO; expected a regular file"),
            ("socket", "it is a socket; expected a regular file"),
            ("large", "it is larger than 4194304 bytes"),
            ("empty", "it is empty"),
            ("binary", "it is not UTF-8 text"),
            ("good/inside", "it cannot be read"),
        ] {
            assert_eq!(read(&at(name)).unwrap_err().to_string(), why, "{name}");
        }
        assert_eq!(
            read(Path::new("/dev/null")).unwrap_err().to_string(),
            "it is a device; expected a regular file"
        );
    }
}
