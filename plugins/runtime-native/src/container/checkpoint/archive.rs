//! The parts of a checkpoint put together: first in the container's folder, then as one tar beside its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use blocking_pool::Cancel;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use super::written;

/// What an archive is made of.
#[derive(Debug)]
pub(super) struct Parts {
    /// Where CRIU has written; the other parts are put there.
    pub(super) folder: PathBuf,
    pub(super) config: Value,
    /// The OCI configuration.
    pub(super) spec: PathBuf,
    /// What the container has written over its image.
    pub(super) upper: PathBuf,
    pub(super) log: Option<PathBuf>,
}

/// Writes the archive at `location`, for root alone: whole, or what was there before stays.
pub(super) fn write(parts: &Parts, location: &Path) -> io::Result<()> {
    let folder = &parts.folder;
    fs::write(folder.join("config.dump"), parts.config.to_string())?;
    fs::copy(&parts.spec, folder.join("spec.dump"))?;
    if let Some(log) = &parts.log {
        match copy_log(log, &folder.join("container.log")) {
            // It was moved away, and isn't opened anew yet.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    written::write(&parts.upper, File::create(folder.join("rootfs-diff.tar"))?)?;
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
fn copy_log(log: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = File::from(rustix::fs::open(log, flags, Mode::empty())?);
    let found = log.metadata()?;
    if found.is_file() {
        io::copy(&mut log.take(found.len()), &mut File::create(to)?)?;
    }
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
    let mut tar = tar::Builder::new(file);
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
    tar.into_inner()?.sync_all()
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
            spec: at("config.json"),
            upper: at("upper"),
            log: Some(at("log")),
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
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, Mode::RUSR, 0).unwrap();
        copy_log(&at("fifo"), &at("copy")).unwrap();
        assert!(!at("copy").exists());
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        assert!(copy_log(&at("link"), &at("copy")).is_err());
        assert!(!at("copy").exists());
    }
}
