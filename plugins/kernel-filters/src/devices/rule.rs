//! A rule as it is written, and those that every container has.

use serde::Deserialize;

/// One rule of `linux.resources.devices` of the OCI runtime specification 1.2.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRule {
    pub allow: bool,
    /// `a` for all devices, `c` or `b`; all without a word.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    /// -1 or nothing: any.
    #[serde(default)]
    pub major: Option<i64>,
    #[serde(default)]
    pub minor: Option<i64>,
    /// Some of `rwm`; all without a word.
    #[serde(default)]
    pub access: Option<String>,
}

/// What every container may, after the rules of its spec, as with runc (`AllowedDevices` in
/// libcontainer/specconv/spec_linux.go): making nodes, and using null, zero, full, random, urandom, tty, ptmx and
/// pseudo-terminals.
pub(crate) fn defaults() -> impl Iterator<Item = DeviceRule> {
    let nodes = ["c", "b"].map(|kind| (kind, None, None, "m"));
    let memory = [3, 5, 7, 8, 9].map(|minor| ("c", Some(1), Some(minor), "rwm"));
    let terminals = [(5, Some(0)), (5, Some(2)), (136, None)]
        .map(|(major, minor)| ("c", Some(major), minor, "rwm"));
    let all = nodes.into_iter().chain(memory).chain(terminals);
    all.map(|(kind, major, minor, access)| DeviceRule {
        allow: true,
        kind: Some(kind.to_owned()),
        major,
        minor,
        access: Some(access.to_owned()),
    })
}
