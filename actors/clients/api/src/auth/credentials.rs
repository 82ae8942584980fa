//! The Authorization header: a fixed one, a token in a file that changes, or what a plugin hands out.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use rustls::sign::CertifiedKey;

use super::exec::ExecPlugin;
use crate::error::ApiError;

/// Upstream's `period` of a token file, less its leeway.
const READ_AGAIN: Duration = Duration::from_secs(50);

/// How the client authenticates, beside its certificate.
pub(crate) enum AuthCredentials {
    None,
    Fixed(HeaderValue),
    File(TokenFile),
    Exec(Box<ExecPlugin>),
}

impl AuthCredentials {
    pub(crate) async fn put_into(&self, headers: &mut HeaderMap) -> Result<(), ApiError> {
        let value = match self {
            AuthCredentials::None => None,
            AuthCredentials::Fixed(value) => Some(value.clone()),
            AuthCredentials::File(file) => file.header(kernel::now()),
            AuthCredentials::Exec(plugin) => plugin.lent().await?.header.clone(),
        };
        if let Some(value) = value {
            headers.entry(AUTHORIZATION).or_insert(value);
        }
        Ok(())
    }

    /// The certificate that a plugin hands out.
    pub(crate) async fn certificate(&self) -> Result<Option<Arc<CertifiedKey>>, ApiError> {
        match self {
            AuthCredentials::None | AuthCredentials::Fixed(_) | AuthCredentials::File(_) => {
                Ok(None)
            }
            AuthCredentials::Exec(plugin) => Ok(plugin.lent().await?.certificate.clone()),
        }
    }

    /// The server refused them: returns whether there may be newer ones.
    pub(crate) async fn refused(&self) -> bool {
        match self {
            AuthCredentials::None | AuthCredentials::Fixed(_) => false,
            AuthCredentials::File(file) => file.read_again(),
            AuthCredentials::Exec(plugin) => plugin.forget().await,
        }
    }
}

/// A token in a file that another program renews.
pub(crate) struct TokenFile {
    path: PathBuf,
    now: Mutex<CachedToken>,
}

struct CachedToken {
    header: Option<HeaderValue>,
    read_at: Option<Instant>,
}

impl TokenFile {
    /// `instead` is the header for as long as the file cannot be read.
    pub(super) fn new(path: PathBuf, instead: Option<HeaderValue>) -> TokenFile {
        TokenFile {
            path,
            now: Mutex::new(CachedToken {
                header: instead,
                read_at: None,
            }),
        }
    }

    fn header(&self, now: Instant) -> Option<HeaderValue> {
        let mut token = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at: Instant| now.duration_since(at) < READ_AGAIN;
        if !token.read_at.is_some_and(fresh) {
            match read(&self.path) {
                Some(header) => {
                    token.header = Some(header);
                    token.read_at = Some(now);
                }
                None => tracing::warn!("no token in {}", self.path.display()),
            }
        }
        token.header.clone()
    }

    fn read_again(&self) -> bool {
        let mut token = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        token.read_at = None;
        read(&self.path).is_some_and(|header| Some(&header) != token.header.as_ref())
    }
}

fn read(path: &std::path::Path) -> Option<HeaderValue> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| bearer(text)).flatten()
}

/// The header of a token; nothing if no header can carry it.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    secret(format!("Bearer {token}"))
}

/// The header of a name and a password.
pub(super) fn basic(name: &str, password: &str) -> Option<HeaderValue> {
    let encoded = BASE64.encode(format!("{name}:{password}"));
    secret(format!("Basic {encoded}"))
}

fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
