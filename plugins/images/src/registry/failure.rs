//! What a registry did not do, and why not.

use std::fmt;
use std::time::Duration;

use super::{HostsError, Words};

/// Hosts that were asked before, whose reasons an error has.
const MAX_EARLIER: usize = 4;
/// Characters of one such reason.
const MAX_EARLIER_CHARACTERS: usize = 300;

/// What a registry did not do.
#[derive(Debug)]
pub struct RegistryError {
    /// The host that was asked, the last one if there are several.
    pub registry: String,
    /// The reference or digest.
    pub what: Box<str>,
    /// Why not.
    pub failure: Failure,
    /// What the hosts before it said: mirrors, by name.
    pub earlier: Box<[String]>,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registry {} did not serve {}", self.registry, self.what)?;
        if self.earlier.is_empty() {
            return Ok(());
        }
        write!(f, ", nor did {}", self.earlier.join("; "))
    }
}

impl std::error::Error for RegistryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}

impl RegistryError {
    /// Returns what this host said, for the error of a later one.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!("{} ({}", self.registry, self.failure);
        if let Failure::Configuration(error) = &self.failure {
            text = format!("{text}: {error}");
        }
        let mut text: String = text.chars().take(MAX_EARLIER_CHARACTERS).collect();
        text.push(')');
        text
    }

    /// Adds what the hosts said that were asked before this one.
    pub(crate) fn after(mut self, mut earlier: Vec<String>) -> Self {
        earlier.truncate(MAX_EARLIER);
        self.earlier = earlier.into();
        self
    }

    /// Tells whether the same request may succeed later without anybody's doing.
    pub fn transient(&self) -> bool {
        match self.failure {
            Failure::Connection(_)
            | Failure::Stalled(_)
            | Failure::Slow { .. }
            | Failure::Avoided(_)
            | Failure::Waiting { .. } => true,
            Failure::Status { status, .. } => status >= 500 || status == 429 || status == 408,
            Failure::NotFound(_)
            | Failure::Denied { .. }
            | Failure::Length { .. }
            | Failure::TooLong(_)
            | Failure::Content { .. }
            | Failure::Redirect(_)
            | Failure::Challenge(_)
            | Failure::Configuration(_) => false,
        }
    }
}

/// Why a registry did not serve something.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It can't be reached, or the connection broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// It sent nothing for too long.
    #[error("it sent nothing for {0:?}")]
    Stalled(Duration),
    /// It sends, and too little.
    #[error("it sent {bytes} bytes in {window:?}, expected at least {least}")]
    Slow {
        /// Bytes of the window.
        bytes: u64,
        /// Time spent waiting for it.
        window: Duration,
        /// The least that a window must bring.
        least: u64,
    },
    /// It did not answer a while ago, and another host may.
    #[error("it is not asked again for a while: {0}")]
    Avoided(String),
    /// It asked not to be asked, and that time is not over.
    #[error("it asked to wait, {left:?} more{words}")]
    Waiting {
        /// What is left of the time.
        left: Duration,
        /// What it said then.
        words: Words,
    },
    /// It has no such thing.
    #[error("it has no such thing{0}")]
    NotFound(Words),
    /// It refuses this user.
    #[error("it refuses the credentials: status {status}{words}")]
    Denied {
        /// 401 or 403.
        status: u16,
        /// What it says.
        words: Words,
    },
    /// It answered with an error.
    #[error("status {status}, expected 200{words}{}", asked_to_wait(*.retry_after))]
    Status {
        /// The status of its answer.
        status: u16,
        /// What it says.
        words: Words,
        /// How long it asks to wait, if it does.
        retry_after: Option<Duration>,
    },
    /// It told or sent another length.
    #[error("it sent {found} bytes, expected {expected}")]
    Length {
        /// Bytes told or sent.
        found: u64,
        /// Bytes that the manifest tells.
        expected: u64,
    },
    /// It sent more than a document may have.
    #[error("it sent more than {0} bytes")]
    TooLong(usize),
    /// It sent something else.
    #[error("it sent {found}, expected {expected}")]
    Content {
        /// A content type or digest.
        found: String,
        /// What was to come.
        expected: String,
    },
    /// It redirects in a way that is not followed.
    #[error("its redirect is refused: {0}")]
    Redirect(&'static str),
    /// It asks for credentials in a way that is not answered.
    #[error("its challenge is refused: {0}")]
    Challenge(&'static str),
    /// Its hosts.toml or certificates are of no use.
    #[error("its configuration is of no use")]
    Configuration(#[source] HostsError),
}

fn asked_to_wait(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!("; it asks to wait {wait:?}"))
}
