//! A rule as it is written, and those that every container has.

use std::fmt;

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

impl fmt::Display for DeviceRule {
    /// As the files `devices.allow` and `devices.deny` of cgroup version 1 take it: `c 1:3 rwm`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<i64>| match number {
            Some(number) if number >= 0 => number.to_string(),
            _ => "*".to_owned(),
        };
        write!(
            f,
            "{} {}:{} {}",
            self.kind.as_deref().unwrap_or("a"),
            number(self.major),
            number(self.minor),
            self.access.as_deref().unwrap_or("rwm"),
        )
    }
}

/// What every container may do with devices, after the rules of its spec: what runc allows (`AllowedDevices` in
/// libcontainer/specconv/spec_linux.go of 1.1, and of 1.2.4 and later). That is making nodes, and using null, zero, full,
/// random, urandom, tty, ptmx, pseudo-terminals and tun.
pub fn default_rules() -> impl Iterator<Item = DeviceRule> {
    let nodes = ["c", "b"].map(|kind| (kind, None, None, "m"));
    let memory = [3, 5, 7, 8, 9].map(|minor| ("c", Some(1), Some(minor), "rwm"));
    let others = [(5, Some(0)), (5, Some(2)), (136, None), (10, Some(200))]
        .map(|(major, minor)| ("c", Some(major), minor, "rwm"));
    nodes
        .into_iter()
        .chain(memory)
        .chain(others)
        .map(|(kind, major, minor, access)| DeviceRule {
            allow: true,
            kind: Some(kind.to_owned()),
            major,
            minor,
            access: Some(access.to_owned()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `devices.list` shows of a container of runc 1.1.5, sorted.
    const OF_RUNC: [&str; 11] = [
        "b *:* m",
        "c *:* m",
        "c 10:200 rwm",
        "c 136:* rwm",
        "c 1:3 rwm",
        "c 1:5 rwm",
        "c 1:7 rwm",
        "c 1:8 rwm",
        "c 1:9 rwm",
        "c 5:0 rwm",
        "c 5:2 rwm",
    ];

    #[test]
    fn a_container_may_use_the_devices_that_runc_allows_and_no_others() {
        let mut rules: Vec<String> = default_rules().map(|rule| rule.to_string()).collect();
        rules.sort();
        assert_eq!(rules, OF_RUNC);
    }
}
