//! What the operator decided about the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The HTTPS server's section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    /// `address` and `port`.
    pub address: SocketAddr,
    pub node_name: String,
    pub tls: TlsPolicy,
    pub authentication: AuthenticationPolicy,
    pub authorization: AuthorizationPolicy,
    pub paths: EndpointPolicy,
    /// `streamingConnectionIdleTimeout`; nought is no limit.
    pub idle: Duration,
    /// `/logs/` shows what is beneath it: `/var/log`.
    pub system_logs: PathBuf,
    /// The program that shows what services wrote, by its path or its name on the PATH.
    pub journalctl: PathBuf,
}

/// `tlsMinVersion` and `tlsCipherSuites`, in Go's words; empty is the default.
#[derive(Debug, Clone, Default)]
pub struct TlsPolicy {
    pub min_version: String,
    pub cipher_suites: Vec<String>,
}

/// How callers become known.
#[derive(Debug, Clone)]
pub struct AuthenticationPolicy {
    /// `authentication.anonymous.enabled`
    pub anonymous: bool,
    /// `authentication.webhook`: how long a review of a token is believed; none if there are none.
    pub tokens: Option<Duration>,
    /// `authentication.x509.clientCAFile`
    pub client_ca: Option<PathBuf>,
}

/// What known callers may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationPolicy {
    AlwaysAllow,
    /// Reviewed by the API server, whose verdicts are believed for so long.
    Webhook {
        allowed: Duration,
        refused: Duration,
    },
}

/// Which paths are served, by the field that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// `enableDebuggingHandlers`
    pub debugging: bool,
    /// `enableSystemLogHandler`
    pub system_logs: bool,
    /// `enableSystemLogQuery`
    pub log_query: bool,
    /// `enableProfilingHandler`
    pub profiling: bool,
    /// `enableDebugFlagsHandler`
    pub debug_flags: bool,
    /// Feature gate `ContainerCheckpoint`.
    pub checkpoint: bool,
    /// Feature gate `PodLogsQuerySplitStreams`.
    pub split_streams: bool,
    /// Feature gate `KubeletFineGrainedAuthz`.
    pub fine_grained: bool,
    /// Feature gate `ComponentStatusz`.
    pub statusz: bool,
    /// Feature gate `ComponentFlagz`.
    pub flagz: bool,
    /// Feature gate `ExtendWebSocketsToKubelet`.
    pub websockets: bool,
}

impl Default for EndpointPolicy {
    fn default() -> Self {
        EndpointPolicy {
            debugging: true,
            system_logs: true,
            log_query: false,
            profiling: true,
            debug_flags: true,
            checkpoint: true,
            split_streams: false,
            fine_grained: true,
            statusz: true,
            flagz: true,
            websockets: true,
        }
    }
}
