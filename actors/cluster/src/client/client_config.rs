//! How to get to the server, and why that may not be.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Uri};
use kube::config::Kubeconfig;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::client_certificate::ClientCertificateSource;
use super::credentials::AuthCredentials;
use super::error::chain;
use super::kubeconfig::KubeconfigReader;
use super::server::ServerEndpoint;

/// The server, and how fast it may be asked. A rate below nought is no limit.
#[derive(Debug, Clone)]
pub struct RestConfig {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// kubeAPIQPS.
    pub qps: i32,
    /// kubeAPIBurst.
    pub burst: i32,
    /// eventRecordQPS.
    pub event_qps: i32,
    /// eventBurst.
    pub event_burst: i32,
    /// Within this a heartbeat is answered, or given up.
    pub heartbeat_within: Duration,
    /// E.g. `kubelet/v1.36.0 (linux/amd64) ...`.
    pub user_agent: String,
    /// contentType. Bodies are JSON all the same.
    pub content_type: String,
    pub identity: Identity,
}

/// Whether the client certificate must be there at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// As the kubeconfig names it.
    There,
    /// It may be asked for first.
    Comes,
}

impl RestConfig {
    pub(super) fn unlimited() -> RestConfig {
        RestConfig {
            kubeconfig: PathBuf::new(),
            qps: -1,
            burst: 0,
            event_qps: -1,
            event_burst: 0,
            heartbeat_within: Duration::from_secs(10),
            user_agent: String::new(),
            content_type: String::new(),
            identity: Identity::There,
        }
    }
}

/// Why a kubeconfig leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum RestConfigError {
    /// The kubeconfig, or a file that it names.
    #[error("{path}: cannot be read", path = .path.display())]
    Unread {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: expected a kubeconfig: {reason}", path = .path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("{path}: {field}: expected {expected}", path = .path.display())]
    Field {
        path: PathBuf,
        field: String,
        expected: String,
    },
    #[error("the machine's own certificate authorities cannot be read")]
    NoRoots,
}

impl RestConfigError {
    /// Whether the same file may do later, as it is.
    pub fn transient(&self) -> bool {
        match self {
            RestConfigError::Unread { .. } | RestConfigError::NoRoots => true,
            RestConfigError::Malformed { .. } | RestConfigError::Field { .. } => false,
        }
    }
}

/// The server of a plain address.
pub(super) fn open(base: Uri) -> ServerEndpoint {
    ServerEndpoint {
        host: base
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default(),
        base,
        headers: HeaderMap::new(),
        credentials: AuthCredentials::None,
        heartbeat_within: RestConfig::unlimited().heartbeat_within,
        secured: None,
        identity: watch::channel(None).1,
        own: ClientCertificateSource::default(),
        open: Mutex::default(),
    }
}

/// The server that the current context of a kubeconfig names.
pub(super) fn server(
    access: &RestConfig,
    identity: watch::Receiver<Option<Arc<CertifiedKey>>>,
) -> Result<ServerEndpoint, RestConfigError> {
    let path = &access.kubeconfig;
    let text = std::fs::read_to_string(path).map_err(|source| RestConfigError::Unread {
        path: path.clone(),
        source,
    })?;
    let file = Kubeconfig::from_yaml(&text).map_err(|error| RestConfigError::Malformed {
        path: path.clone(),
        reason: place(&error),
    })?;
    let reading = KubeconfigReader {
        path,
        file,
        identity: access.identity,
    };
    reading.server(access, identity)
}

/// Where a text is no kubeconfig. What else the parser says may quote the text, and the text holds secrets.
fn place(error: &dyn std::error::Error) -> String {
    let text = chain(error);
    let words: Vec<_> = text.split_whitespace().collect();
    let mut places = words.windows(4);
    let place = places.find(|words| words[0] == "line" && words[2] == "column");
    place.map_or("it is none".to_owned(), |words| {
        words.join(" ").trim_end_matches(':').to_owned()
    })
}
