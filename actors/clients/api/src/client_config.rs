//! How to reach the API server, and why that may be impossible.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Uri};
use http_proxy::ProxyEnvironment;
use kernel::{error_chain, watch};
use kube::config::Kubeconfig;
use rustls::sign::CertifiedKey;

use super::kubeconfig::KubeconfigReader;
use crate::auth::client_certificate::ClientCertificateSource;
use crate::auth::credentials::AuthCredentials;
use crate::transport::dial::Dial;
use crate::transport::server::ServerEndpoint;

/// The API server, and the rate limits of its client. A negative rate is no limit.
#[derive(Debug, Clone)]
pub struct RestConfig {
    /// The path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// `kubeAPIQPS`: requests a second.
    pub qps: i32,
    /// `kubeAPIBurst`: requests.
    pub burst: i32,
    /// `eventRecordQPS`: requests a second.
    pub event_qps: i32,
    /// `eventBurst`: requests.
    pub event_burst: i32,
    /// The deadline of a heartbeat request.
    pub heartbeat_within: Duration,
    /// The User-Agent header, e.g. `kubelet/v1.36.0 (linux/amd64) ...`.
    pub user_agent: String,
    /// `contentType`. Bodies are JSON all the same.
    pub content_type: String,
    pub identity: Identity,
    pub dial: Dial,
    /// The environment's proxies; a kubeconfig's `proxy-url` goes before them.
    pub proxies: ProxyEnvironment,
}

/// Whether the client certificate must exist at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// As the kubeconfig names it.
    There,
    /// It may be requested later.
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
            dial: Dial::Tcp,
            proxies: ProxyEnvironment::default(),
        }
    }
}

/// Why no client can be made from a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum RestConfigError {
    /// The kubeconfig, or a file that it names, cannot be read.
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
    #[error("{variable}: expected {expected}")]
    Proxy {
        variable: &'static str,
        expected: String,
    },
    #[error("the machine's own certificate authorities cannot be read")]
    NoRoots,
}

impl RestConfigError {
    /// Whether the same file may work later, unchanged.
    pub fn transient(&self) -> bool {
        match self {
            RestConfigError::Unread { .. } | RestConfigError::NoRoots => true,
            RestConfigError::Malformed { .. }
            | RestConfigError::Field { .. }
            | RestConfigError::Proxy { .. } => false,
        }
    }
}

/// The server at an address without TLS and credentials.
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
        dial: Dial::Tcp,
        proxy: None,
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

/// The place of a syntax error. The rest of the parser's message may quote the file, which holds secrets.
fn place(error: &dyn std::error::Error) -> String {
    let text = error_chain(error);
    let words: Vec<_> = text.split_whitespace().collect();
    let mut places = words.windows(4);
    let place = places.find(|words| words[0] == "line" && words[2] == "column");
    place.map_or("it is none".to_owned(), |words| {
        words.join(" ").trim_end_matches(':').to_owned()
    })
}
