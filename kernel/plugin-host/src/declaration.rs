//! What the operator says of a plugin.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kernel::Intensity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::confinement::Confinement;

/// A plugin as it was declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// Its name: lower-case letters, digits and dashes; also that of its socket and its directory.
    pub name: String,
    /// Which service it serves.
    pub kind: ServiceKind,
    /// Where it comes from.
    pub start: LaunchMethod,
    /// Its own section of the plugin file, handed over unread; `null` when there is none.
    pub configuration: Value,
    /// Its log level: error, warn, info, debug or trace.
    pub log: String,
    /// It reports its health at least this often; after three times as long without a report it counts as hung.
    pub health_interval: Duration,
    /// From its start to its first health report.
    pub start_within: Duration,
    /// For the calls in flight when it is asked to end.
    pub drain_within: Duration,
    /// From SIGTERM to SIGKILL.
    pub term_within: Duration,
    /// From SIGKILL to the moment at which a process that is still there counts as ended; none means
    /// never.
    ///
    /// A thread may be stuck in the kernel (a dead mount), and then even SIGKILL ends its process only
    /// when that call returns. To go on without it is safe, because a process with SIGKILL pending
    /// never returns to user space: it sends nothing, accepts nothing, begins nothing. All that may
    /// still come of it is the end of the call that it is stuck in; see [`PluginClient::ended`] for the calls
    /// that must wait for that.
    ///
    /// [`PluginClient::ended`]: crate::PluginClient::ended
    pub abandon_within: Option<Duration>,
    /// How many restarts are taken before it counts as failed.
    pub intensity: Intensity,
    /// What its processes may do and use, where the host has a [`Confiner`](crate::Confiner).
    pub confinement: Confinement,
}

/// The service that a plugin serves beside the base one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKind {
    /// CRI's `RuntimeService` and `ImageService`.
    Runtime,
    /// The pod networking service.
    Network,
    /// The storage service, `oxlet.storage.v1`.
    Storage,
}

/// Where a plugin comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchMethod {
    /// A process of ours: started, watched and replaced.
    Managed {
        /// The program's path.
        command: PathBuf,
        /// The program's arguments.
        #[serde(default)]
        args: Vec<String>,
    },
    /// A process that the host does not start: it is only connected to.
    External {
        /// The path of its Unix socket.
        endpoint: PathBuf,
    },
}

impl Declaration {
    /// Declares a plugin with the usual timeouts.
    pub fn new(name: impl Into<String>, kind: ServiceKind, start: LaunchMethod) -> Self {
        Self {
            name: name.into(),
            kind,
            start,
            configuration: Value::Null,
            log: "info".to_owned(),
            health_interval: Duration::from_secs(5),
            start_within: Duration::from_secs(10),
            drain_within: Duration::from_secs(5),
            term_within: Duration::from_secs(2),
            abandon_within: None,
            intensity: Intensity {
                restarts: 5,
                within: Duration::from_secs(60),
            },
            confinement: Confinement::default(),
        }
    }

    /// Refuses what no plugin can be started from.
    ///
    /// # Errors
    /// [`DeclarationError`] names the field and what was expected.
    pub fn check(&self) -> Result<(), DeclarationError> {
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > LONGEST_NAME || !self.name.chars().all(named) {
            return Err(DeclarationError::Name {
                name: self.name.clone(),
            });
        }
        let (field, path) = match &self.start {
            LaunchMethod::Managed { command, .. } => ("command", command),
            LaunchMethod::External { endpoint } => ("endpoint", endpoint),
        };
        if !path.is_absolute() {
            return Err(DeclarationError::Path {
                name: self.name.clone(),
                field,
                path: path.clone(),
            });
        }
        if self.health_interval.is_zero() {
            return Err(DeclarationError::Interval {
                name: self.name.clone(),
            });
        }
        Ok(())
    }

    /// How long the end of its process is waited for.
    pub(super) fn termination_timeouts(&self) -> TerminationTimeouts {
        TerminationTimeouts {
            term: self.term_within,
            abandon: self.abandon_within,
        }
    }

    pub(super) fn configuration_json(&self) -> Vec<u8> {
        if self.configuration.is_null() {
            Vec::new()
        } else {
            self.configuration.to_string().into_bytes()
        }
    }
}

/// How long the end of a process is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct TerminationTimeouts {
    /// From SIGTERM to SIGKILL.
    pub(super) term: Duration,
    /// From SIGKILL to giving it up; none means never.
    pub(super) abandon: Option<Duration>,
}

impl TerminationTimeouts {
    /// With a process that is known to be stuck: nothing is to be waited for.
    pub(super) fn none(self) -> Self {
        Self {
            term: Duration::ZERO,
            abandon: self.abandon.map(|_| Duration::ZERO),
        }
    }
}

/// As long as a label in Kubernetes, and short enough for a socket's path.
const LONGEST_NAME: usize = 63;

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runtime => "runtime",
            Self::Network => "network",
            Self::Storage => "storage",
        })
    }
}

/// Why a plugin cannot be started as declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// The name cannot be that of a file.
    #[error("plugin name {name:?}: expected 1 to 63 lower-case letters, digits or dashes")]
    Name {
        /// As declared.
        name: String,
    },
    /// A path is relative.
    #[error("plugin {name}: {field} {}: expected an absolute path", path.display())]
    Path {
        /// The plugin's name.
        name: String,
        /// Which of its paths.
        field: &'static str,
        /// As declared.
        path: PathBuf,
    },
    /// No time at all between two health reports.
    #[error("plugin {name}: health interval is 0, expected some time")]
    Interval {
        /// The plugin's name.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(name: &str, endpoint: &str) -> Declaration {
        Declaration::new(
            name,
            ServiceKind::Runtime,
            LaunchMethod::External {
                endpoint: endpoint.into(),
            },
        )
    }

    #[test]
    fn name_that_cannot_be_a_file_is_refused() {
        for bad in ["", "a/b", "..", "Upper", "ü", &"x".repeat(64)] {
            let refused = external(bad, "/run/x.sock").check();
            assert_eq!(
                refused,
                Err(DeclarationError::Name {
                    name: bad.to_owned()
                }),
                "{bad}"
            );
        }
        assert_eq!(external("containerd-2", "/run/x.sock").check(), Ok(()));
    }

    #[test]
    fn relative_path_is_refused_with_its_field() {
        let refused = external("a", "run/x.sock").check().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "plugin a: endpoint run/x.sock: expected an absolute path"
        );
    }
}
