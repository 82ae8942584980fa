//! A registry's folder in Docker's form: `*.crt` are authorities, `*.cert` and `*.key` are certificates of this client.
//!
//! As containerd reads it (`core/remotes/docker/config/hosts.go`, `loadCertFiles`).

use std::fs;
use std::io;
use std::path::Path;

use super::HostsError;
use super::hosts::TlsFiles;
use crate::disk::DiskError;

/// Certificates of one folder.
const MAX_FILES: usize = 64;

/// Returns what is in `folder`, in the order of the names; a `.cert` without its `.key` has the key in it.
pub(super) fn files(folder: &Path) -> Result<TlsFiles, HostsError> {
    let list = || {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            // A link to a file is one: tools that rotate certificates make such.
            let suits = path
                .extension()
                .is_some_and(|kind| kind == "crt" || kind == "cert");
            if suits && path.is_file() {
                paths.push(path);
            }
            if paths.len() > MAX_FILES {
                let reason = format!("more than {MAX_FILES} certificates");
                return Err(io::Error::other(reason));
            }
        }
        paths.sort();
        Ok(paths)
    };
    let mut files = TlsFiles::default();
    for path in list().map_err(|error| DiskError::new("list", folder, error))? {
        if path.extension().is_some_and(|kind| kind == "crt") {
            files.authorities.push(path);
            continue;
        }
        let key = path.with_extension("key");
        let key = if key.exists() { key } else { path.clone() };
        files.client.push((path, key));
    }
    Ok(files)
}
