//! The parts of a checkpoint put together: first in the container's folder, then as one tar beside its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use blocking_pool::Cancel;
use serde_json::Value;

use super::written;
use crate::layout::{BUNDLE_FILE, MAX_SPEC_BYTES};

/// What an archive is made of.
#[derive(Debug)]
pub(super) struct Parts {
    /// Where CRIU has written; the other parts are put there.
    pub(super) folder: PathBuf,
    pub(super) config: Value,
    /// The folder of the OCI configuration.
    pub(super) bundle: PathBuf,
    /// What the container has written over its image.
    pub(super) upper: PathBuf,
    /// The folder of the pod's logs, and the container's log in it.
    pub(super) log: Option<(PathBuf, PathBuf)>,
}

/// The most bytes of a checkpoint, and of what the container has written as a part of it. Holes are not counted.
const MAX_CHECKPOINT_BYTES: u64 = 64 << 30;

/// Writes within [`MAX_CHECKPOINT_BYTES`], and until the work is to end: also within one large file.
struct Bounded<W> {
    to: W,
    left: u64,
    cancel: Cancel,
}

impl<W> Bounded<W> {
    fn new(to: W) -> Bounded<W> {
        Bounded {
            to,
            left: MAX_CHECKPOINT_BYTES,
            cancel: Cancel::current(),
        }
    }
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.is_set() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let written = self.to.write(bytes)?;
        self.left = self.left.checked_sub(written as u64).ok_or_else(|| {
            let why = format!("the checkpoint has more than {MAX_CHECKPOINT_BYTES} bytes");
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes the archive at `location`, for root alone: whole, or what was there before stays.
pub(super) fn write(parts: &Parts, location: &Path) -> io::Result<()> {
    let folder = &parts.folder;
    fs::write(folder.join("config.dump"), parts.config.to_string())?;
    let spec = files::read_regular(&parts.bundle, Path::new(BUNDLE_FILE), MAX_SPEC_BYTES)?;
    fs::write(folder.join("spec.dump"), spec)?;
    if let Some((logs, log)) = &parts.log {
        match copy_log((logs, log), &folder.join("container.log")) {
            // It was moved away, and isn't opened anew yet.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let diff = File::create(folder.join("rootfs-diff.tar"))?;
    written::write(&parts.upper, Bounded::new(diff))?;
    let mut name = location.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = location.with_file_name(name);
    let written = tar(folder, &partial).and_then(|()| match Cancel::current().is_set() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => fs::rename(&partial, location),
    });
    if written.is_err() {
        drop(fs::remove_file(&partial));
    }
    written
}

/// Copies what a log has now. A link or a FIFO in its place is neither followed nor waited for.
fn copy_log((logs, log): (&Path, &Path), to: &Path) -> io::Result<()> {
    let log = files::open_regular(logs, log)?;
    let size = log.metadata()?.len();
    io::copy(&mut log.take(size), &mut Bounded::new(File::create(to)?))?;
    Ok(())
}

/// Packs what is in a folder, by name.
fn tar(folder: &Path, target: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(target)?;
    let mut tar = tar::Builder::new(Bounded::new(file));
    tar.follow_symlinks(false);
    let mut names: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    // The monitor's settings for CRIU are nobody else's.
    names.retain(|name| name != ".criu");
    names.sort();
    for name in names {
        let path = folder.join(&name);
        if fs::symlink_metadata(&path)?.is_dir() {
            tar.append_dir_all(&name, &path)?;
        } else {
            tar.append_path_with_name(&path, &name)?;
        }
    }
    tar.into_inner()?.to.sync_all()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_archive_has_every_part_by_its_name_and_replaces_an_older_one_whole() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for folder in ["c/checkpoint", "c/.criu", "upper"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (file, content) in [
            ("c/checkpoint/core-1.img", "memory"),
            ("c/dump.log", "said"),
            ("config.json", "{}"),
            ("log", "line"),
            ("x.tar", "older"),
        ] {
            fs::write(at(file), content).unwrap();
        }
        let parts = Parts {
            folder: at("c"),
            config: json!({"id": "a"}),
            bundle: home.path().to_owned(),
            upper: at("upper"),
            log: Some((home.path().to_owned(), PathBuf::from("log"))),
        };
        write(&parts, &at("x.tar")).unwrap();
        let mut archive = tar::Archive::new(File::open(at("x.tar")).unwrap());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            if name != "rootfs-diff.tar" {
                entry.read_to_string(&mut text).unwrap();
            }
            found.push((name, text));
        }
        let expected = [
            ("checkpoint", ""),
            ("checkpoint/core-1.img", "memory"),
            ("config.dump", "{\"id\":\"a\"}"),
            ("container.log", "line"),
            ("dump.log", "said"),
            ("rootfs-diff.tar", ""),
            ("spec.dump", "{}"),
        ];
        let found: Vec<_> = found
            .iter()
            .map(|(name, text)| (name.trim_end_matches('/'), text.as_str()))
            .collect();
        assert_eq!(found, expected);
        let nowhere = at("absent/x.tar");
        assert!(write(&parts, &nowhere).is_err());
        fs::remove_file(at("config.json")).unwrap();
        assert!(write(&parts, &at("x.tar")).is_err());
        assert!(
            tar::Archive::new(File::open(at("x.tar")).unwrap())
                .entries()
                .unwrap()
                .count()
                == 7
        );
        assert!(!at("x.tar.partial").exists());
    }

    #[test]
    fn what_lies_in_a_logs_place_is_neither_followed_nor_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        std::os::unix::fs::symlink("/etc", at("folder")).unwrap();
        for log in ["fifo", "link", "folder/passwd", "../passwd"] {
            copy_log((home.path(), Path::new(log)), &at("copy")).unwrap_err();
            assert!(!at("copy").exists(), "{log}");
        }
    }

    #[test]
    fn an_archive_is_not_written_on_when_it_is_to_end() {
        let cancel = Cancel::default();
        let mut bounded = cancel.scope(|| Bounded::new(io::sink()));
        bounded.write_all(b"before").unwrap();
        cancel.set();
        let stopped = bounded.write_all(b"after").unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::TimedOut);
        let mut bounded = Bounded::new(io::sink());
        bounded.left = 3;
        let refused = bounded.write_all(b"four").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }
}
