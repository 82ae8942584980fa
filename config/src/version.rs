//! What the agent says its version is. Tools read the kubelet's, so ours is Kubernetes' with our own
//! as build metadata.

use std::fmt::Write;

/// The Kubernetes version whose behaviour this is.
pub const KUBERNETES: &str = "1.36.0";

/// The action of the `--version` flag.
pub(crate) enum VersionRequest {
    Print(String),
    /// Run, and report this version.
    Report(String),
}

pub(crate) fn answer(requested: Option<&str>) -> VersionRequest {
    let version = format!("v{KUBERNETES}+oxlet.{}", env!("CARGO_PKG_VERSION"));
    match requested {
        None | Some("false") => VersionRequest::Report(version),
        Some("true") => VersionRequest::Print(format!("Kubernetes {version}\n")),
        Some("raw") => VersionRequest::Print(raw(&version)),
        Some(dynamic) => VersionRequest::Report(dynamic.to_owned()),
    }
}

/// Go's `version.Info` as `%#v` prints it.
fn raw(version: &str) -> String {
    let mut numbers = KUBERNETES.split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    let mut text = String::new();
    writeln!(
        text,
        "version.Info{{Major:{major:?}, Minor:{minor:?}, GitVersion:{version:?}}}"
    )
    .expect("writing to a String cannot fail");
    text
}
