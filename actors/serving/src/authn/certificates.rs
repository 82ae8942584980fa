//! Authentication by client certificate: issued by an authority of `clientCAFile`, which may change at any time.
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/authentication/request/x509/x509.go,
//! pkg/server/dynamiccertificates/dynamic_cafile_content.go (1.36).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use metrics::node::queues::{self, WorkResult};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use crate::reviews::AuthenticatedUser;

/// The file is checked at most this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The deadline of a check: without an answer of the disk the known authorities stay.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest bundle in bytes; real ones have some hundred kilobytes.
const MOST: u64 = 8 * 1024 * 1024;
/// The key of the user's extra that names the credential.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
/// The attribute of a subject that holds a user's UID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// Why a certificate does not authenticate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("the client certificate is not trusted: {0}")]
    Untrusted(rustls::Error),
    #[error("the client certificate cannot be read: {0}")]
    Unreadable(String),
}

/// Why no authorities can be loaded.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("cannot read the client CA file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} holds no certificate that can be an authority: {why}", path.display())]
    Bad { path: PathBuf, why: String },
}

/// The authorities of client certificates, as in the file.
#[derive(Debug)]
pub(crate) struct Authorities {
    path: PathBuf,
    current: RefCell<LoadedAuthorities>,
    looked: Cell<Instant>,
}

#[derive(Debug, Clone)]
struct LoadedAuthorities {
    verifier: Arc<dyn ClientCertVerifier>,
    seen: FileVersion,
}

/// The file's metadata when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    changed: (i64, i64),
    size: u64,
}

impl Authorities {
    pub(crate) async fn load(path: PathBuf) -> Result<Self, AuthoritiesError> {
        let (from, began) = (path.clone(), kernel::now());
        let loaded = beside(move || load(&from)).await;
        let loaded = loaded.unwrap_or_else(|source| {
            Err(AuthoritiesError::Read {
                path: path.clone(),
                source,
            })
        })?;
        looked(began, WorkResult::Done);
        Ok(Authorities {
            path,
            current: RefCell::new(loaded),
            looked: Cell::new(kernel::now()),
        })
    }

    /// Returns the certificate's user; none if it has no common name.
    pub(crate) async fn user(
        &self,
        chain: &[CertificateDer<'static>],
    ) -> Result<Option<Rc<AuthenticatedUser>>, CertificateError> {
        let Some((certificate, others)) = chain.split_first() else {
            return Ok(None);
        };
        self.reload_if_due().await;
        let verifier = Arc::clone(&self.current.borrow().verifier);
        let now = kernel::wall().duration_since(UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(now.unwrap_or_default());
        // Certificates without a user count too, as upstream's do.
        count(certificate, now);
        verifier
            .verify_client_cert(certificate, others, now)
            .map_err(CertificateError::Untrusted)?;
        Ok(user(certificate)?.map(Rc::new))
    }

    /// Reads the file again if it has changed. If it cannot be read, nothing changes.
    async fn reload_if_due(&self) {
        let now = kernel::now();
        if now.saturating_duration_since(self.looked.get()) < LOOK_EVERY {
            return;
        }
        self.looked.set(now);
        let (path, seen) = (self.path.clone(), self.current.borrow().seen);
        let began = now;
        let found = beside(
            move || match fs::metadata(&path).map(|meta| seen_in(&meta)) {
                Ok(now) if now == seen => None,
                Ok(_) => Some(load(&path)),
                Err(source) => Some(Err(AuthoritiesError::Read { path, source })),
            },
        );
        match found.await {
            Ok(None) => looked(began, WorkResult::Done),
            Ok(Some(Ok(loaded))) => {
                tracing::info!("the client CA file has changed and was read again");
                *self.current.borrow_mut() = loaded;
                looked(began, WorkResult::Done);
            }
            Ok(Some(Err(error))) => {
                tracing::warn!("the client CA file stays as it was: {error}");
                looked(began, WorkResult::Again);
            }
            Err(error) => {
                tracing::warn!("the client CA file cannot be looked at: {error}");
                looked(began, WorkResult::Again);
            }
        }
    }
}

/// Counts a check of the file; a failed one is repeated.
fn looked(began: Instant, end: WorkResult) {
    let took = kernel::now().saturating_duration_since(began);
    queues::worked(queues::CLIENT_AUTHORITIES, took, end);
}

/// Records how long a caller's certificate has yet to live; negative if it has expired.
fn count(certificate: &CertificateDer<'_>, now: UnixTime) {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return;
    };
    let left = parsed.validity().not_after.timestamp() as f64 - now.as_secs() as f64;
    metrics::api::callers::CERTIFICATE_LIVES.observe(left);
}

async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let work = kernel::spawn_blocking(work);
    match tokio::time::timeout(LOOK_TIMEOUT, work).await {
        Ok(done) => done.map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn seen_in(meta: &Metadata) -> FileVersion {
    FileVersion {
        file: (meta.dev(), meta.ino()),
        changed: (meta.mtime(), meta.mtime_nsec()),
        size: meta.size(),
    }
}

fn load(path: &Path) -> Result<LoadedAuthorities, AuthoritiesError> {
    let read = |source| AuthoritiesError::Read {
        path: path.to_owned(),
        source,
    };
    let bad = |why: String| AuthoritiesError::Bad {
        path: path.to_owned(),
        why,
    };
    let seen = seen_in(&fs::metadata(path).map_err(read)?);
    if seen.size > MOST {
        return Err(bad(format!("it has {} bytes", seen.size)));
    }
    let pem = fs::read(path).map_err(read)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| bad(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| bad(error.to_string()))?;
    Ok(LoadedAuthorities { verifier, seen })
}

fn user(certificate: &CertificateDer<'_>) -> Result<Option<AuthenticatedUser>, CertificateError> {
    let unreadable =
        |error: &dyn std::fmt::Display| CertificateError::Unreadable(error.to_string());
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| unreadable(&error))?;
    let subject = parsed.subject();
    let texts = |found: Vec<Result<String, _>>| found.into_iter().collect::<Result<Vec<_>, _>>();
    let names = texts(subject.iter_common_name().map(text).collect())?;
    let groups = texts(subject.iter_organization().map(text).collect())?;
    // The last one counts, as in Go.
    let Some(name) = names
        .into_iter()
        .next_back()
        .filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let id = format!("X509SHA256={}", hex(&Sha256::digest(certificate)));
    Ok(Some(AuthenticatedUser {
        name,
        uid: uid(subject)?,
        groups,
        extra: BTreeMap::from([(CREDENTIAL.to_owned(), vec![id])]),
    }))
}

fn uid(subject: &X509Name<'_>) -> Result<String, CertificateError> {
    let all = subject.iter_attributes();
    let mut found = all.filter(|attribute| attribute.attr_type().to_id_string() == UID);
    match (found.next(), found.next()) {
        (None, _) => Ok(String::new()),
        (Some(one), None) => match text(one)? {
            empty if empty.is_empty() => Err(CertificateError::Unreadable(
                "the UID of its subject is empty".to_owned(),
            )),
            uid => Ok(uid),
        },
        (Some(_), Some(_)) => Err(CertificateError::Unreadable(
            "its subject has more than one UID".to_owned(),
        )),
    }
}

fn text(
    attribute: &x509_parser::x509::AttributeTypeAndValue<'_>,
) -> Result<String, CertificateError> {
    let text = attribute.as_str();
    text.map(str::to_owned)
        .map_err(|error| CertificateError::Unreadable(error.to_string()))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}
