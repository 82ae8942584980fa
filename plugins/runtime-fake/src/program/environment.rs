//! What a program can touch: its log, a few small files of its own, and the host's files that are
//! mounted into it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use cri_server::OutputStream;
use prost::Message;
use proto::cri::{ContainerConfig, Mount};

/// The files that a container made outside its mounts, by path. They are kept in memory and in the journal, so they are
/// few.
pub(crate) type ContainerFiles = BTreeMap<String, String>;

const FILES: usize = 64;
const FILE_BYTES: usize = 4 << 10;
const HOST_FILE_BYTES: u64 = 1 << 20;

/// The surroundings of a program while it is carried out.
pub(crate) struct ProgramEnvironment<'a> {
    files: &'a mut ContainerFiles,
    /// The encoded configuration of the container, whose mounts are seldom needed.
    config: &'a [u8],
    out: &'a mut dyn FnMut(i64, OutputStream, &str),
    /// Whether the program is the container's own, which signals to the first process hit.
    pub(crate) inside: bool,
    /// Signals that a command sent to the container's own process.
    pub(crate) signals: Vec<u8>,
    /// Whether anything was done that must not be done again.
    pub(crate) changed: bool,
}

impl<'a> ProgramEnvironment<'a> {
    /// Returns the environment of the container's own program.
    pub(crate) fn inside(
        files: &'a mut ContainerFiles,
        config: &'a [u8],
        out: &'a mut dyn FnMut(i64, OutputStream, &str),
    ) -> ProgramEnvironment<'a> {
        ProgramEnvironment {
            files,
            config,
            out,
            inside: true,
            signals: Vec::new(),
            changed: false,
        }
    }

    /// Returns the environment of a command run in the container.
    pub(crate) fn beside(
        files: &'a mut ContainerFiles,
        config: &'a [u8],
        out: &'a mut dyn FnMut(i64, OutputStream, &str),
    ) -> ProgramEnvironment<'a> {
        ProgramEnvironment {
            inside: false,
            ..ProgramEnvironment::inside(files, config, out)
        }
    }

    pub(crate) fn write(&mut self, at: i64, stream: OutputStream, text: &str) {
        (self.out)(at, stream, text);
    }

    /// Returns the content of a file, cut off where it is too long to be looked at here.
    pub(crate) fn read(&mut self, path: &str) -> Option<String> {
        let Some((host, _)) = self.mounted(path) else {
            return self.files.get(path).cloned();
        };
        if host.is_dir() {
            return Some(String::new());
        }
        let mut bytes = Vec::new();
        let regular = fs::metadata(&host).ok()?.is_file();
        let file = regular.then(|| fs::File::open(&host).ok()).flatten()?;
        file.take(HOST_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes or appends to a file; returns whether that was possible.
    pub(crate) fn put(&mut self, path: &str, text: &str, append: bool) -> bool {
        if let Some((host, mount)) = self.mounted(path) {
            let mut options = fs::OpenOptions::new();
            options
                .create(true)
                .append(append)
                .write(true)
                .truncate(!append);
            return !mount.readonly
                && options
                    .open(host)
                    .and_then(|mut file| file.write_all(text.as_bytes()))
                    .is_ok();
        }
        if self.files.len() >= FILES && !self.files.contains_key(path) {
            return false;
        }
        let file = self.files.entry(path.to_owned()).or_default();
        if !append {
            file.clear();
        }
        if file.len() + text.len() > FILE_BYTES {
            return false;
        }
        file.push_str(text);
        true
    }

    pub(crate) fn remove(&mut self, path: &str) -> bool {
        match self.mounted(path) {
            Some((host, mount)) => !mount.readonly && fs::remove_file(host).is_ok(),
            None => self.files.remove(path).is_some(),
        }
    }

    fn mounted(&self, path: &str) -> Option<(PathBuf, Mount)> {
        let path = Path::new(path);
        if self.config.is_empty() || path.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        let config = ContainerConfig::decode(self.config).unwrap_or_default();
        let below = config
            .mounts
            .into_iter()
            .filter(|mount| path.starts_with(&mount.container_path));
        let mount = below.max_by_key(|mount| mount.container_path.len())?;
        let inner = path.strip_prefix(&mount.container_path).ok()?;
        let host = Path::new(&mount.host_path);
        let host = if inner.as_os_str().is_empty() {
            host.to_owned()
        } else {
            host.join(inner)
        };
        (!mount.host_path.is_empty()).then_some((host, mount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_the_hosts_own_file_and_nothing_above_it() {
        let host = tempfile::tempdir().unwrap();
        fs::write(host.path().join("key"), "value\n").unwrap();
        let mount = |container_path: &str, readonly| Mount {
            container_path: container_path.into(),
            host_path: host.path().display().to_string(),
            readonly,
            ..Mount::default()
        };
        let config = ContainerConfig {
            mounts: vec![mount("/etc/ro", true), mount("/data", false)],
            ..Default::default()
        };
        let config = config.encode_to_vec();
        let (mut files, mut out) = (ContainerFiles::new(), |_: i64, _: OutputStream, _: &str| {});
        let mut environment = ProgramEnvironment::inside(&mut files, &config, &mut out);
        assert_eq!(environment.read("/etc/ro/key").as_deref(), Some("value\n"));
        assert!(!environment.put("/etc/ro/key", "x", false));
        assert!(!environment.remove("/etc/ro/key"));
        assert!(environment.put("/data/new", "x", false));
        assert_eq!(fs::read_to_string(host.path().join("new")).unwrap(), "x");
        assert_eq!(environment.read("/data/../etc"), None);
        assert!(environment.put("/tmp/own", "y", true));
        assert_eq!(environment.read("/tmp/own").as_deref(), Some("y"));
    }

    #[test]
    fn files_of_its_own_are_few_and_small() {
        let (mut files, mut out) = (ContainerFiles::new(), |_: i64, _: OutputStream, _: &str| {});
        let mut environment = ProgramEnvironment::inside(&mut files, &[], &mut out);
        assert!(!environment.put("/big", &"x".repeat(FILE_BYTES + 1), false));
        for n in 0..200 {
            environment.put(&format!("/{n}"), "", false);
        }
        assert!(files.len() <= FILES);
    }
}
