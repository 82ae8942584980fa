//! What a server is told at its start: a JSON document, so that a person can start one by hand.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a server behaves.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Options {
    /// The port on 127.0.0.1; 0 is any.
    pub port: u16,
    /// Plain HTTP, or HTTPS with clients known by certificates and tokens.
    pub security: AccessControl,
    /// How many events a watch can go back.
    pub history: usize,
    /// Seconds between bookmarks on watches that want them.
    pub bookmark_seconds: f64,
    /// Pods without a node are bound to the only node that is ready.
    pub scheduler: bool,
    /// Service accounts get into pods, with the volume of their token.
    pub service_accounts: bool,
    /// Where the double's certificates and keys are left for clients; none is a folder of its own.
    pub folder: Option<PathBuf>,
    /// Where every kubelet is called, whatever address its node has; none is the node's own.
    pub kubelets_at: Option<String>,
    /// Whether certificate requests of kubelets are approved and signed.
    pub sign_certificates: bool,
    /// Seconds that signed certificates and tokens are good for, unless asked otherwise.
    pub certificate_seconds: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
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

/// Whom a server lets in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum AccessControl {
    /// Plain HTTP; everybody may do everything.
    #[default]
    Plain,
    /// HTTPS; who is not known is anonymous, and everybody may do everything.
    Open,
    /// HTTPS; only who is known and has a right gets in.
    Guarded,
}
