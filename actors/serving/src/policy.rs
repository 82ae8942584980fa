//! The operator's policy for the server.

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
    /// `streamingConnectionIdleTimeout`; zero is no limit.
    pub idle: Duration,
    /// The folder that `/logs/` shows: `/var/log`.
    pub system_logs: PathBuf,
    /// The journalctl program, by its path or its name on the PATH.
    pub journalctl: PathBuf,
}

/// `tlsMinVersion`, `tlsCipherSuites` and `tlsCurvePreferences`, in Go's words; empty is the default.
#[derive(Debug, Clone, Default)]
pub struct TlsPolicy {
    /// As in the configuration; empty for TLS 1.2.
    pub min_version: String,
    /// By Go's names; empty for the library's.
    pub cipher_suites: Vec<String>,
    /// By Go's numbers; empty for the library's.
    pub curves: Vec<i32>,
}

/// How callers are authenticated.
#[derive(Debug, Clone)]
pub struct AuthenticationPolicy {
    /// `authentication.anonymous.enabled`
    pub anonymous: bool,
    /// `authentication.webhook`: how long a token's review is cached; none disables tokens.
    pub tokens: Option<Duration>,
    /// `authentication.x509.clientCAFile`
    pub client_ca: Option<PathBuf>,
}

/// How callers are authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationPolicy {
    AlwaysAllow,
    /// Reviewed by the API server, whose decisions are cached for so long.
    Webhook {
        allowed: Duration,
        refused: Duration,
    },
}

/// Which paths are served, by the configuration field that enables them.
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
    /// The flag `--console`.
    pub console: bool,
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
            console: false,
        }
    }
}
