//! The options that a server starts with: a JSON document, so that it can be started by hand.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A server's options; a missing field takes its default.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerOptions {
    /// The port on 127.0.0.1; 0 is any.
    pub port: u16,
    /// Plain HTTP, or HTTPS with clients known by certificates and tokens.
    pub security: AccessControl,
    /// How many changes the history keeps for watches; an older version gets 410 Gone.
    pub history: usize,
    /// Seconds between bookmarks on watches that want them.
    pub bookmark_seconds: f64,
    /// Whether pods without a node are bound to the first ready node.
    pub scheduler: bool,
    /// Whether pods get a service account, with the volume of its token.
    pub service_accounts: bool,
    /// The folder for the double's certificates and keys; none is a temporary one.
    pub folder: Option<PathBuf>,
    /// The host at which every kubelet is called; none is the node's own address.
    pub kubelets_at: Option<String>,
    /// Whether certificate requests of kubelets are approved and signed.
    pub sign_certificates: bool,
    /// Seconds that signed certificates and tokens are good for, unless asked otherwise.
    pub certificate_seconds: i64,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            port: 0,
            security: AccessControl::Plain,
            history: 4096,
            bookmark_seconds: 60.0,
            scheduler: false,
            service_accounts: true,
            folder: None,
            kubelets_at: None,
            sign_certificates: true,
            certificate_seconds: 31_536_000,
        }
    }
}

/// How a server authenticates and authorizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum AccessControl {
    /// Plain HTTP; every request is allowed.
    #[default]
    Plain,
    /// HTTPS; a client without credentials is anonymous, and every request is allowed.
    Open,
    /// HTTPS; only authenticated and authorized requests are allowed.
    Guarded,
}
