//! The node's certificates on disk: `FOLDER/PREFIX-TIME.pem` (certificate and key), and a link
//! `FOLDER/PREFIX-current.pem` to the one in use.
//!
//! Upstream: client-go util/certificate/certificate_store.go (1.36).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::key_pair::{PairError, TlsKeyPair};

/// Why a certificate can be neither read nor written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no certificate with its key", path.display())]
    Pair { path: PathBuf, source: PairError },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("expected {} to be a symlink", path.display())]
    NoLink { path: PathBuf },
}

/// One kind of certificate in its folder.
#[derive(Debug, Clone)]
pub struct CertificateStore {
    folder: PathBuf,
    prefix: &'static str,
    given: Option<(PathBuf, PathBuf)>,
}

impl CertificateStore {
    /// `certificate_files` names the files that the operator brought: they count as long as nothing was rotated.
    pub fn new(
        folder: PathBuf,
        prefix: &'static str,
        given: Option<(PathBuf, PathBuf)>,
    ) -> CertificateStore {
        CertificateStore {
            folder,
            prefix,
            given,
        }
    }

    /// `FOLDER/PREFIX-current.pem`.
    pub fn current_path(&self) -> PathBuf {
        self.file("current")
    }

    /// Returns the pair in use: what was rotated last, else the given files, else `PREFIX.crt` and `PREFIX.key`.
    pub fn current(&self) -> Result<Option<TlsKeyPair>, StoreError> {
        self.recover()?;
        let current = self.current_path();
        if current.exists() {
            return load(&current, &current).map(Some);
        }
        let lone = |ending| self.folder.join(format!("{}.{ending}", self.prefix));
        let own = (lone("crt"), lone("key"));
        let mut candidates = self.given.iter().chain([&own]);
        let found = candidates.find(|(certificate, key)| certificate.exists() && key.exists());
        found
            .map(|(certificate, key)| load(certificate, key))
            .transpose()
    }

    /// Keeps a new pair and makes it the one in use: at every moment the link leads to a whole file.
    pub fn update(
        &self,
        certificate: &[u8],
        key: &[u8],
        now: Timestamp,
    ) -> Result<TlsKeyPair, StoreError> {
        let path = self.file(&now.strftime("%Y-%m-%d-%H-%M-%S").to_string());
        let mut both = certificate.to_vec();
        if !both.ends_with(b"\n") {
            both.push(b'\n');
        }
        both.extend_from_slice(key);
        let pair = TlsKeyPair::parse(&both, &both).map_err(|source| StoreError::Pair {
            path: path.clone(),
            source,
        })?;
        self.write(&path, &both).map_err(failed(&path))?;
        self.link(&path)?;
        Ok(pair)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.folder)?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn link(&self, to: &Path) -> Result<(), StoreError> {
        let (current, updated) = (self.current_path(), self.file("updated"));
        for path in [&current, &updated] {
            if fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink()) {
                return Err(StoreError::NoLink { path: path.clone() });
            }
        }
        let place = || {
            match fs::remove_file(&updated) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            symlink(std::path::absolute(to)?, &updated)?;
            fs::rename(&updated, &current)?;
            fs::File::open(&self.folder)?.sync_all()
        };
        place().map_err(failed(&current))
    }

    /// Ends an update that was cut off between its two links.
    fn recover(&self) -> Result<(), StoreError> {
        let (current, updated) = (self.current_path(), self.file("updated"));
        let lies_ready = fs::symlink_metadata(&updated).is_ok_and(|found| found.is_symlink());
        if current.exists() || !lies_ready {
            return Ok(());
        }
        fs::rename(&updated, &current).map_err(failed(&current))
    }

    fn file(&self, qualifier: &str) -> PathBuf {
        self.folder.join(format!("{}-{qualifier}.pem", self.prefix))
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Write { path, source }
}

/// Reads a certificate and a key from files, which may be the same.
pub fn load(certificate: &Path, key: &Path) -> Result<TlsKeyPair, StoreError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|source| StoreError::Read {
            path: path.to_owned(),
            source,
        })
    };
    TlsKeyPair::parse(&read(certificate)?, &read(key)?).map_err(|source| StoreError::Pair {
        path: certificate.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::testing::{signed, signed_as};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn store(folder: &Path) -> CertificateStore {
        CertificateStore::new(folder.join("pki"), "kubelet-client", None)
    }

    /// Upstream's TestUpdateNoRotation and TestUpdateSymlinkReplaceExistingSymlink.
    #[test]
    fn an_update_is_what_the_link_leads_to_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        assert!(store.current().unwrap().is_none());
        for (second, name) in [(0, "a"), (1, "b")] {
            let (certificate, key) = signed_as(name);
            store
                .update(certificate.as_bytes(), key.as_bytes(), at(second))
                .unwrap();
            let current = store.current().unwrap().unwrap();
            assert_eq!(current.subject.common_name, name);
        }
        let target = fs::read_link(store.current_path()).unwrap();
        assert_eq!(
            target,
            folder
                .path()
                .join("pki/kubelet-client-1970-01-01-00-00-01.pem")
        );
        let mode = fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Upstream's `recover`.
    #[test]
    fn an_update_that_was_cut_off_between_its_links_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let (certificate, key) = signed();
        store
            .update(certificate.as_bytes(), key.as_bytes(), at(0))
            .unwrap();
        fs::rename(store.current_path(), store.file("updated")).unwrap();
        assert!(store.current().unwrap().is_some());
    }

    /// Upstream's TestUpdateSymlinkExistingFileError.
    #[test]
    fn a_file_in_the_links_place_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        fs::create_dir(folder.path().join("pki")).unwrap();
        fs::write(store.current_path(), "precious").unwrap();
        let (certificate, key) = signed();
        let refused = store
            .update(certificate.as_bytes(), key.as_bytes(), at(0))
            .unwrap_err();
        assert!(matches!(refused, StoreError::NoLink { .. }), "{refused}");
        assert_eq!(
            fs::read_to_string(store.current_path()).unwrap(),
            "precious"
        );
    }

    /// Upstream's TestCurrentCertKeyFiles and TestCurrentNoFiles.
    #[test]
    fn given_files_count_until_something_was_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (given, own) = (folder.path().join("given"), folder.path().join("pki"));
        fs::create_dir_all(&given).unwrap();
        fs::create_dir_all(&own).unwrap();
        let write = |folder: &Path, name: &str, who: &str| {
            let (certificate, key) = signed_as(who);
            let (crt, k) = (
                folder.join(format!("{name}.crt")),
                folder.join(format!("{name}.key")),
            );
            fs::write(&crt, certificate).unwrap();
            fs::write(&k, key).unwrap();
            (crt, k)
        };
        let files = write(&given, "mine", "given");
        let store = CertificateStore::new(own.clone(), "kubelet-client", Some(files));
        write(&own, "kubelet-client", "own");
        let who = || store.current().unwrap().unwrap().subject.common_name;
        assert_eq!(who(), "given");
        let (certificate, key) = signed_as("rotated");
        store
            .update(certificate.as_bytes(), key.as_bytes(), at(0))
            .unwrap();
        assert_eq!(who(), "rotated");
    }

    #[test]
    fn a_key_of_another_certificate_is_refused_and_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let ((certificate, _), (_, other)) = (signed(), signed());
        let refused = store
            .update(certificate.as_bytes(), other.as_bytes(), at(0))
            .unwrap_err();
        assert!(matches!(refused, StoreError::Pair { .. }), "{refused}");
        assert!(store.current().unwrap().is_none());
    }
}
