//! The plugin's section of the plugin file: where the runtime is.

use std::path::PathBuf;

use serde::Deserialize;

/// Longer paths do not fit into a socket address.
const LONGEST_PATH: usize = 107;
/// containerd's own limit for identifiers.
const LONGEST_NAMESPACE: usize = 76;

/// Which runtime is adapted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// containerd 1.6 and later.
    Containerd,
    /// CRI-O.
    Crio,
}

impl Flavour {
    /// Returns the runtime's name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "CRI-O",
        }
    }

    fn endpoint(self) -> &'static str {
        match self {
            Self::Containerd => "unix:///run/containerd/containerd.sock",
            Self::Crio => "unix:///var/run/crio/crio.sock",
        }
    }
}

/// The adapter's section of the plugin file, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename = "Section")]
pub struct AdapterSection {
    endpoint: Option<String>,
    namespace: Option<String>,
}

/// The section, checked, with defaults for what it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterConfiguration {
    /// Which runtime is adapted.
    pub flavour: Flavour,
    /// The path of the runtime's CRI socket.
    pub socket: PathBuf,
    /// containerd's namespace for what CRI makes.
    pub namespace: String,
}

/// Why a section cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AdapterConfigurationError {
    /// The endpoint is no Unix socket's address.
    #[error(
        "field \"endpoint\" is {found:?}, expected \"unix:///\" and the path of a socket, at most {LONGEST_PATH} bytes"
    )]
    Endpoint {
        /// What was written.
        found: String,
    },
    /// The namespace is no identifier of containerd's.
    #[error(
        "field \"namespace\" is {found:?}, expected letters and digits with single \"-\", \".\" or \"_\" between them, \
         at most {LONGEST_NAMESPACE}"
    )]
    Namespace {
        /// What was written.
        found: String,
    },
    /// The runtime knows no namespaces.
    #[error("field \"namespace\" is set, but {runtime} has no namespaces: remove it")]
    NoNamespaces {
        /// The runtime's name.
        runtime: &'static str,
    },
}

impl AdapterConfiguration {
    /// Checks a section, and fills in the defaults.
    pub fn read(
        flavour: Flavour,
        section: AdapterSection,
    ) -> Result<Self, AdapterConfigurationError> {
        let endpoint = section
            .endpoint
            .unwrap_or_else(|| flavour.endpoint().to_owned());
        let path = endpoint
            .strip_prefix("unix://")
            .filter(|path| path.starts_with('/') && path.len() > 1);
        let usable = path
            .filter(|path| path.len() <= LONGEST_PATH && !path.contains('\0'))
            .map(PathBuf::from);
        let Some(socket) = usable else {
            return Err(AdapterConfigurationError::Endpoint { found: endpoint });
        };
        if flavour == Flavour::Crio && section.namespace.is_some() {
            return Err(AdapterConfigurationError::NoNamespaces {
                runtime: flavour.name(),
            });
        }
        let namespace = section.namespace.unwrap_or_else(|| "k8s.io".to_owned());
        if !is_identifier(&namespace) {
            return Err(AdapterConfigurationError::Namespace { found: namespace });
        }
        Ok(Self {
            flavour,
            socket,
            namespace,
        })
    }

    /// Returns the socket as an endpoint, for messages.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

fn is_identifier(text: &str) -> bool {
    let word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LONGEST_NAMESPACE && text.split(['-', '.', '_']).all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flavour: Flavour, json: &str) -> Result<AdapterConfiguration, String> {
        let section: AdapterSection =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        AdapterConfiguration::read(flavour, section).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_section_means_the_runtimes_usual_socket() {
        let containerd = read(Flavour::Containerd, "{}").unwrap();
        assert_eq!(
            containerd.endpoint(),
            "unix:///run/containerd/containerd.sock"
        );
        assert_eq!(containerd.namespace, "k8s.io");
        assert_eq!(
            read(Flavour::Crio, "{}").unwrap().endpoint(),
            "unix:///var/run/crio/crio.sock"
        );
    }

    #[test]
    fn what_is_written_is_used() {
        let section = r#"{"endpoint": "unix:///tmp/c.sock", "namespace": "moby.test-1"}"#;
        let configuration = read(Flavour::Containerd, section).unwrap();
        assert_eq!(configuration.socket, PathBuf::from("/tmp/c.sock"));
        assert_eq!(configuration.namespace, "moby.test-1");
    }

    #[test]
    fn a_refusal_names_the_field_and_what_was_expected() {
        let long = format!(r#"{{"endpoint": "unix:///{}"}}"#, "x".repeat(120));
        for (section, expected) in [
            (
                r#"{"endpoint": "tcp://127.0.0.1:1"}"#,
                "\"endpoint\" is \"tcp://127.0.0.1:1\", expected \"unix:///\"",
            ),
            (
                r#"{"endpoint": "unix://relative.sock"}"#,
                "expected \"unix:///\"",
            ),
            (r#"{"endpoint": ""}"#, "expected \"unix:///\""),
            (
                r#"{"endpoint": "unix:///a\u0000b"}"#,
                "expected \"unix:///\"",
            ),
            (long.as_str(), "at most 107 bytes"),
            (r#"{"endpoint": 7}"#, "expected a string"),
            (
                r#"{"namespace": "a,topic==b"}"#,
                "\"namespace\" is \"a,topic==b\", expected letters",
            ),
            (r#"{"namespace": ""}"#, "expected letters"),
            (r#"{"namespace": "a--b"}"#, "expected letters"),
            (
                r#"{"socket": "x"}"#,
                "unknown field `socket`, expected `endpoint` or `namespace`",
            ),
        ] {
            let error = read(Flavour::Containerd, section).unwrap_err();
            assert!(error.contains(expected), "{section}: {error}");
        }
        let error = read(Flavour::Crio, r#"{"namespace": "k8s.io"}"#).unwrap_err();
        assert_eq!(
            error,
            "field \"namespace\" is set, but CRI-O has no namespaces: remove it"
        );
    }
}
