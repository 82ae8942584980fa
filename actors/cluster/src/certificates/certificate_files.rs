//! A serving certificate from files that the operator brings and replaces.
//!
//! - **Owns** the pair that was read last.
//! - **Hears** that it is time to look, and what was read.
//! - **Tells** the TLS server, through the identity channel.
//! - **Never** takes back a good pair because its files are, for the moment, no pair.
//!
//! Upstream: apiserver dynamiccertificates (certificate and key looked at once a minute, and when they change).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::watch;
use kernel::{Actor, Context, Exit};
use rustls::sign::CertifiedKey;
use serde::Serialize;

use super::key_pair::TlsKeyPair;
use super::store::{StoreError, load};

/// The time between two readings of the files.
const PERIOD: Duration = Duration::from_secs(10);

/// The paths of the certificate and of its key (`tlsCertFile`, `tlsPrivateKeyFile`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Messages of the certificate reloader.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Reads the files; sent by the actor to itself.
    Look,
    /// Offers what was read, if it is new.
    Read(Box<ReloadOutcome>),
}

/// The pair that was read, or why none could be.
#[derive(Debug)]
pub struct ReloadOutcome(Result<TlsKeyPair, StoreError>);

/// Snapshot: the certificate that is offered.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub certificate: String,
    /// The end of its validity; none before the first was read.
    pub not_after: Option<jiff::Timestamp>,
    /// Files that were taken since the start.
    pub changes: u64,
    /// Why the files cannot be used; the certificate before them stays.
    pub trouble: Option<String>,
}

/// Reads the files every ten seconds and offers what is new.
#[derive(Debug)]
pub struct CertificateReloader {
    files: CertificateFiles,
    identity: watch::Sender<Option<Arc<CertifiedKey>>>,

    held: Option<TlsKeyPair>,
    changes: u64,
    trouble: Option<String>,
}

impl Actor for CertificateReloader {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.reload(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Look => self.reload(ctx),
            Msg::Read(found) => self.read(found.0, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            certificate: self.files.certificate.display().to_string(),
            not_after: self.held.as_ref().map(|pair| pair.lifetime.not_after),
            changes: self.changes,
            trouble: self.trouble.clone(),
        }
    }
}

impl CertificateReloader {
    pub fn new(
        files: CertificateFiles,
        identity: watch::Sender<Option<Arc<CertifiedKey>>>,
    ) -> Self {
        CertificateReloader {
            files,
            identity,
            held: None,
            changes: 0,
            trouble: None,
        }
    }

    fn reload(&mut self, ctx: &mut Context<Msg>) {
        let CertificateFiles { certificate, key } = self.files.clone();
        ctx.run(async move {
            let read = kernel::spawn_blocking(move || load(&certificate, &key)).await;
            let broke = |error| {
                Err(StoreError::Read {
                    path: PathBuf::new(),
                    source: std::io::Error::other(error),
                })
            };
            Msg::Read(Box::new(ReloadOutcome(read.unwrap_or_else(broke))))
        });
    }

    fn read(&mut self, found: Result<TlsKeyPair, StoreError>, ctx: &mut Context<Msg>) {
        ctx.after(PERIOD, Msg::Look);
        match found {
            Ok(pair) => {
                self.trouble = None;
                let is_same = |held: &TlsKeyPair| held.certified.cert == pair.certified.cert;
                if !self.held.as_ref().is_some_and(is_same) {
                    self.changes += 1;
                    self.identity.send_replace(Some(pair.certified.clone()));
                    self.held = Some(pair);
                }
            }
            Err(error) => {
                let text = kernel::error_chain(&error);
                if self.trouble.as_ref() != Some(&text) {
                    tracing::error!("{text}");
                    self.trouble = Some(text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use kernel::testing::{pass, run_paused};
    use kernel::{ChildSpec, Intensity, Supervisor, mailbox};

    use super::super::testing::signed;
    use super::*;

    /// Removes the files and writes others, or has a folder with others take their folder's place.
    #[derive(Clone, Copy, Debug)]
    enum Replacement {
        Files,
        Folder,
    }

    fn write(folder: &Path, how: Replacement) -> CertificateFiles {
        let (certificate, key) = signed();
        let identity = folder.join("identity");
        let to = match how {
            Replacement::Files => identity.clone(),
            Replacement::Folder => folder.join("identity.tmp"),
        };
        fs::create_dir_all(&to).unwrap();
        for (name, text) in [("kubelet.cert", certificate), ("kubelet.key", key)] {
            drop(fs::remove_file(to.join(name)));
            fs::write(to.join(name), text).unwrap();
        }
        if matches!(how, Replacement::Folder) {
            drop(fs::remove_dir_all(&identity));
            fs::rename(&to, &identity).unwrap();
        }
        CertificateFiles {
            certificate: identity.join("kubelet.cert"),
            key: identity.join("kubelet.key"),
        }
    }

    /// Upstream's TestKubeletServerCertificateFromFiles.
    #[test]
    fn files_that_are_replaced_are_offered_and_the_last_pair_outlives_them() {
        for how in [Replacement::Files, Replacement::Folder] {
            run_paused(move || async move {
                let folder = tempfile::tempdir().unwrap();
                let files = write(folder.path(), how);
                let (sender, identity) = watch::channel(None);
                let root = Supervisor::root("test", Intensity::UNLIMITED);
                let (_, port) = mailbox(8);
                let here = files.clone();
                root.spawn(ChildSpec::permanent("files"), port, move || {
                    CertificateReloader::new(here.clone(), sender.clone())
                });
                let offered = async || {
                    pass(PERIOD * 2).await;
                    identity.borrow().clone().unwrap()
                };
                let first = offered().await;
                assert!(Arc::ptr_eq(&first, &offered().await), "{how:?}");
                write(folder.path(), how);
                let second = offered().await;
                assert_ne!(first.cert, second.cert, "{how:?}");
                fs::remove_file(&files.certificate).unwrap();
                assert!(Arc::ptr_eq(&second, &offered().await), "{how:?}");
            });
        }
    }
}
