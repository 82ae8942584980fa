//! Paths of the node itself: only looked at, made if the pod asks for that, never mounted (upstream's
//! pkg/volume/hostpath/host_path.go, 1.36).

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::{fs, io};

use mounts::answer::failed;
use proto::storage::HostPath;
use rustix::fs::{Mode, OFlags, open};
use tonic::Status;

use crate::state::place;

const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Checks that the path is what the pod expects, and makes it where the pod says so.
pub(crate) fn check(host_path: &HostPath) -> Result<(), Status> {
    let path = &host_path.path;
    if path.split('/').any(|part| part == "..") {
        return Err(Status::invalid_argument(format!(
            "invalid HostPath `{path}`: must not contain '..'"
        )));
    }
    if path.is_empty() || path.contains('\0') {
        return Err(Status::invalid_argument(format!(
            "invalid HostPath `{}`: must be a path",
            path.escape_default()
        )));
    }
    let place = Path::new(path);
    match host_path.r#type.as_str() {
        "" => Ok(()),
        "DirectoryOrCreate" if !exists(place) => make_folder(place),
        "DirectoryOrCreate" | "Directory" => expect(place, Found::Folder, "a directory"),
        "FileOrCreate" if !exists(place) => make_file(place),
        "FileOrCreate" | "File" => expect(place, Found::File, "a file"),
        "Socket" => expect(place, Found::Socket, "a socket file"),
        "CharDevice" => expect(place, Found::CharDevice, "a character device"),
        "BlockDevice" => expect(place, Found::BlockDevice, "a block device"),
        other => Err(Status::invalid_argument(format!(
            "{other} is an invalid volume type"
        ))),
    }
}

/// The type of a path, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Folder,
    File,
    Socket,
    CharDevice,
    BlockDevice,
    Other,
}

/// Looks at a path of the node.
pub(crate) fn probe(path: &Path) -> io::Result<Found> {
    let kind = fs::metadata(path)?.file_type();
    Ok(match kind {
        _ if kind.is_dir() => Found::Folder,
        _ if kind.is_file() => Found::File,
        _ if kind.is_socket() => Found::Socket,
        _ if kind.is_char_device() => Found::CharDevice,
        _ if kind.is_block_device() => Found::BlockDevice,
        _ => Found::Other,
    })
}

fn exists(path: &Path) -> bool {
    probe(path).is_ok()
}

fn expect(path: &Path, kind: Found, words: &str) -> Result<(), Status> {
    match probe(path) {
        Ok(found) if found == kind => Ok(()),
        Ok(_) | Err(_) => Err(Status::failed_precondition(format!(
            "hostPath type check failed: {} is not {words}",
            path.display()
        ))),
    }
}

fn make_folder(path: &Path) -> Result<(), Status> {
    match place::make_plain(path, FOLDER_MODE) {
        // A link that leads nowhere: upstream lets the runtime find out.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result.map_err(|error| failed(format!("mkdir {}", path.display()), error)),
    }
}

fn make_file(path: &Path) -> Result<(), Status> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(path, flags, Mode::from_raw_mode(FILE_MODE))
        .map(drop)
        .map_err(|error| failed(format!("open {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, makedev, mknodat};

    use super::*;

    const TYPES: [&str; 7] = [
        "DirectoryOrCreate",
        "Directory",
        "FileOrCreate",
        "File",
        "Socket",
        "CharDevice",
        "BlockDevice",
    ];

    fn checked(path: &Path, kind: &str) -> Result<(), Status> {
        check(&HostPath {
            path: path.to_str().unwrap().to_owned(),
            r#type: kind.to_owned(),
        })
    }

    /// Upstream's TestHostPathTypeCheckerInternal and TestOSFileTypeChecker, with real paths.
    #[test]
    fn a_path_passes_as_what_it_is_and_as_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("file"), "").unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink(at("folder"), at("link")).unwrap();
        // Not opened, so that there need be no such disk.
        let mode = Mode::from_raw_mode(FILE_MODE);
        mknodat(CWD, at("disk"), FileType::BlockDevice, mode, makedev(7, 0)).unwrap();
        for (path, good) in [
            (at("folder"), vec!["DirectoryOrCreate", "Directory"]),
            (at("link"), vec!["DirectoryOrCreate", "Directory"]),
            (at("file"), vec!["FileOrCreate", "File"]),
            (at("socket"), vec!["Socket"]),
            ("/dev/null".into(), vec!["CharDevice"]),
            (at("disk"), vec!["BlockDevice"]),
        ] {
            for kind in TYPES {
                let passed = checked(&path, kind).map_err(|status| status.code());
                let expected = match good.contains(&kind) {
                    true => Ok(()),
                    false => Err(tonic::Code::FailedPrecondition),
                };
                assert_eq!(passed, expected, "{} as {kind}", path.display());
            }
        }
    }

    #[test]
    fn a_refusal_is_worded_as_upstream_words_it() {
        for (kind, words) in [
            ("Directory", "a directory"),
            ("File", "a file"),
            ("Socket", "a socket file"),
            ("CharDevice", "a character device"),
            ("BlockDevice", "a block device"),
        ] {
            let refused = checked(Path::new("/no/such"), kind).unwrap_err();
            assert_eq!(
                refused.message(),
                format!("hostPath type check failed: /no/such is not {words}")
            );
        }
        let refused = checked(Path::new("/etc"), "Cupboard").unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (
                tonic::Code::InvalidArgument,
                "Cupboard is an invalid volume type"
            )
        );
    }

    /// Upstream's TestInvalidHostPath.
    #[test]
    fn a_path_does_not_step_back() {
        for kind in ["", "Directory"] {
            let refused = checked(Path::new("/no/backsteps/allowed/.."), kind).unwrap_err();
            assert_eq!(
                (refused.code(), refused.message()),
                (
                    tonic::Code::InvalidArgument,
                    "invalid HostPath `/no/backsteps/allowed/..`: must not contain '..'"
                )
            );
        }
        assert!(checked(Path::new("/no/matter/what..is/there"), "").is_ok());
    }

    /// Upstream's TestPlugin of hostPath.
    #[test]
    fn what_is_missing_is_made_where_the_pod_says_so() {
        let home = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let deep = home.path().join("a/b/c");
        checked(&deep, "DirectoryOrCreate").unwrap();
        checked(&deep, "DirectoryOrCreate").unwrap();
        assert_eq!((mode(&deep), mode(&home.path().join("a"))), (0o755, 0o755));
        let file = deep.join("file");
        checked(&file, "FileOrCreate").unwrap();
        fs::write(&file, "kept").unwrap();
        checked(&file, "FileOrCreate").unwrap();
        assert_eq!(
            (mode(&file), fs::read(&file).unwrap()),
            (0o644, b"kept".to_vec())
        );
        // The folders above a file are not made.
        let refused = checked(&home.path().join("x/file"), "FileOrCreate").unwrap_err();
        assert_eq!(refused.code(), tonic::Code::NotFound);
        assert!(
            refused
                .message()
                .ends_with("x/file: no such file or directory")
        );
        let refused = checked(&file.join("below"), "DirectoryOrCreate").unwrap_err();
        assert!(
            refused.message().ends_with("not a directory"),
            "{}",
            refused.message()
        );
        assert!(!home.path().join("x").exists());
    }
}
