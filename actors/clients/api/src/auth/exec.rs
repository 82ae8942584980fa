//! Credential plugins: a command that prints an ExecCredential.
//!
//! It runs when its credentials are needed first, when they expire, and when the server refuses them; once at a time.
//! What it prints is a secret, and never logged.
//!
//! Upstream: client-go plugin/pkg/client/auth/exec/exec.go (1.36).

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use jiff::Timestamp;
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::client_certificate;
use super::credentials::bearer;
use crate::error::ApiError;
use crate::request::measured;

/// A plugin that takes longer is ended.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer of a plugin, in bytes.
const ANSWER: u64 = 1 << 20;
/// A plugin is not run again sooner, however often the server refuses what it gives.
const APART: Duration = Duration::from_secs(1);

/// A command and what it was given.
pub(crate) struct ExecPlugin {
    pub(super) command: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) api_version: String,
    /// For KUBERNETES_EXEC_INFO, where the kubeconfig wants it there.
    pub(super) cluster: Option<serde_json::Value>,
    pub(super) hint: String,
    pub(super) state: Mutex<ExecPluginState>,
}

#[derive(Default)]
pub(super) struct ExecPluginState {
    lent: Option<Arc<ExecCredential>>,
    ran_at: Option<std::time::Instant>,
    refused: bool,
}

/// The credentials of one run of a plugin.
pub(super) struct ExecCredential {
    pub(super) header: Option<HeaderValue>,
    pub(super) certificate: Option<Arc<CertifiedKey>>,
    expires: Option<SystemTime>,
}

/// An answer as the plugin writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialOutput {
    api_version: String,
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ExecCredentialStatus {
    expiration_timestamp: Option<Timestamp>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

/// Why a plugin returned no credentials.
#[derive(Debug, thiserror::Error)]
enum ExecPluginError {
    #[error("executable {0} not found. {1}")]
    Missing(String, String),
    #[error("executable {0} cannot be run: {1}")]
    Unrun(String, std::io::Error),
    #[error("executable {0} failed with exit code {1}")]
    Failed(String, i32),
    #[error("executable {0} did not end within {within:?}", within = TIMEOUT)]
    Late(String),
    #[error("executable {0} printed no ExecCredential: {1}")]
    Malformed(String, &'static str),
}

impl ExecPluginError {
    /// Upstream's exit code and status label of such a run.
    fn counted(&self) -> (i32, &'static str) {
        match self {
            ExecPluginError::Missing(..) => (1, "plugin_not_found_error"),
            ExecPluginError::Failed(_, code) => (*code, "plugin_execution_error"),
            ExecPluginError::Unrun(..)
            | ExecPluginError::Late(_)
            | ExecPluginError::Malformed(..) => (1, "client_internal_error"),
        }
    }
}

impl ExecPlugin {
    /// The plugin's current credentials.
    pub(super) async fn lent(&self) -> Result<Arc<ExecCredential>, ApiError> {
        let mut state = self.state.lock().await;
        let good = |lent: &Arc<ExecCredential>| lent.expires.is_none_or(|at| at > kernel::wall());
        if let Some(lent) = state
            .lent
            .as_ref()
            .filter(|lent| good(lent) && !state.refused)
        {
            measured::plugin_certificate(lent.certificate.as_deref());
            return Ok(Arc::clone(lent));
        }
        state.ran_at = Some(kernel::now());
        let ran = self.run().await;
        let (code, how) = match &ran {
            Ok(_) => (0, "no_error"),
            Err(error) => error.counted(),
        };
        measured::plugin_ran(code, how);
        let no_way = |error| ApiError::unreachable(format!("getting credentials: exec: {error}"));
        let mut lent = ran.map_err(no_way)?;
        // The same certificate is the same identity: connections stay.
        let before = state
            .lent
            .as_ref()
            .and_then(|lent| lent.certificate.clone());
        let der = |key: &Arc<CertifiedKey>| key.cert.clone();
        if before.as_ref().map(der) == lent.certificate.as_ref().map(der) {
            lent.certificate = before;
        } else if let Some(before) = before {
            measured::plugin_certificate_replaced(&before);
        }
        let lent = Arc::new(lent);
        state.lent = Some(Arc::clone(&lent));
        state.refused = false;
        Ok(lent)
    }

    /// Has the plugin run again, unless it just did.
    pub(super) async fn forget(&self) -> bool {
        let mut state = self.state.lock().await;
        let just = |at: std::time::Instant| kernel::now().duration_since(at) < APART;
        if state.ran_at.is_some_and(just) {
            return false;
        }
        state.refused = true;
        true
    }

    async fn run(&self) -> Result<ExecCredential, ExecPluginError> {
        let name = self.command.display().to_string();
        let info = serde_json::json!({
            "kind": "ExecCredential",
            "apiVersion": self.api_version,
            "spec": {"interactive": false, "cluster": self.cluster},
        });
        let mut command = Command::new(&self.command);
        command
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            match error.kind() == std::io::ErrorKind::NotFound {
                true => ExecPluginError::Missing(name.clone(), self.hint.clone()),
                false => ExecPluginError::Unrun(name.clone(), error),
            }
        })?;
        let stdout = child.stdout.take();
        let ended = async {
            let mut text = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(ANSWER).read_to_end(&mut text).await?;
            }
            Ok::<_, std::io::Error>((text, child.wait().await?))
        };
        let (text, status) = tokio::time::timeout(TIMEOUT, ended)
            .await
            .map_err(|_| ExecPluginError::Late(name.clone()))?
            .map_err(|error| ExecPluginError::Unrun(name.clone(), error))?;
        match status.code() {
            Some(0) => self
                .read(&text)
                .map_err(|why| ExecPluginError::Malformed(name, why)),
            code => Err(ExecPluginError::Failed(name, code.unwrap_or(-1))),
        }
    }

    fn read(&self, text: &[u8]) -> Result<ExecCredential, &'static str> {
        let answer: ExecCredentialOutput =
            serde_json::from_slice(text).map_err(|_| "it is not the JSON of one")?;
        if answer.kind != "ExecCredential" {
            return Err("its kind is another");
        }
        if answer.api_version != self.api_version {
            return Err("its apiVersion is not the one of the kubeconfig");
        }
        let status = answer.status.ok_or("it has no status")?;
        let certificate = match (
            status.client_certificate_data.as_str(),
            status.client_key_data.as_str(),
        ) {
            ("", "") => None,
            (certificate, key) => Some(
                client_certificate::parse(certificate.as_bytes(), key.as_bytes())
                    .map_err(|_| "its certificate and key are no pair")?,
            ),
        };
        let header = match status.token.as_str() {
            "" if certificate.is_none() => return Err("it has neither a token nor a certificate"),
            "" => None,
            token => Some(bearer(token).ok_or("its token fits no header")?),
        };
        Ok(ExecCredential {
            header,
            certificate,
            expires: status.expiration_timestamp.map(SystemTime::from),
        })
    }
}
