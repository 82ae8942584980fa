//! Results of ADD: read in any version, kept as 1.1.0, written in the version that is asked for.
//!
//! As the specification's section 5 and `pkg/types` of libcni have them. Between 0.4.0 and 1.0.0 addresses lost their
//! `version`; 1.1.0 added fields to interfaces, which older readers are not given.

mod wire;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::wire::to_wire;
use crate::version::Version;

/// The result of an ADD, in the form of 1.1.0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CniResult {
    /// What was made, on the node and in the sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub interfaces: Vec<Interface>,
    /// The addresses.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub ips: Vec<IpConfig>,
    /// The routes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub routes: Vec<Route>,
    /// The resolver's settings.
    #[serde(skip_serializing_if = "Dns::is_empty", deserialize_with = "or_empty")]
    pub dns: Dns,
    /// What the specification does not have.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Bytes; since 1.1.0.
    #[serde(skip_serializing_if = "is_default")]
    pub mtu: u32,
    /// The path of its namespace; empty on the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Since 1.1.0.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// Since 1.1.0.
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

/// An address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpConfig {
    /// "4" or "6"; before 1.0.0.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// With its prefix length.
    pub address: String,
    /// The gateway; empty for none.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "or_empty"
    )]
    pub gateway: String,
    /// The index of its interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// With its prefix length.
    pub dst: String,
    /// The gateway; empty for none.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "or_empty"
    )]
    pub gw: String,
    /// Bytes; 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub mtu: u32,
    /// Bytes; 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub advmss: u32,
    /// The metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The routing table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<u32>,
}

/// The resolver's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Addresses of name servers.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "or_empty"
    )]
    pub domain: String,
    /// Search domains.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub options: Vec<String>,
}

/// Why an output is no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// No JSON of a result.
    #[error("not a result: {0}")]
    Json(String),
    /// A version that is not spoken here.
    #[error("cniVersion {0:?}; expected one of 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0")]
    Version(String),
    /// An address that is none.
    #[error("ips[{index}].address {address:?}; expected an address with a prefix length")]
    Address {
        /// Which one.
        index: usize,
        /// What it says.
        address: String,
    },
    /// An address of an interface that is not there.
    #[error("ips[{index}].interface {interface}; there are {count} interfaces")]
    NoInterface {
        /// Which address.
        index: usize,
        /// What it says.
        interface: u32,
        /// How many there are.
        count: usize,
    },
}

// Go writes an empty slice or address as null.
fn or_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn is_default(value: &u32) -> bool {
    *value == 0
}

impl Dns {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl CniResult {
    /// Reads a plugin's output. One without a version is of `spoken`, as libcni has it.
    ///
    /// # Errors
    /// [`ResultError`] says what is wrong with it.
    pub fn parse(text: &[u8], spoken: Version) -> Result<Self, ResultError> {
        let mut fields: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| ResultError::Json(error.to_string()))?;
        let version = match fields.remove("cniVersion") {
            None => spoken,
            Some(Value::String(text)) if text.is_empty() => spoken,
            Some(Value::String(text)) => Version::parse(&text).ok_or(ResultError::Version(text))?,
            Some(other) => return Err(ResultError::Version(other.to_string())),
        };
        let mut result: Self = serde_json::from_value(Value::Object(fields))
            .map_err(|error| ResultError::Json(error.to_string()))?;
        result.check()?;
        result.upgrade(version);
        Ok(result)
    }

    fn check(&self) -> Result<(), ResultError> {
        let count = self.interfaces.len();
        for (index, ip) in self.ips.iter().enumerate() {
            if address(&ip.address).is_none() {
                let address = ip.address.clone();
                return Err(ResultError::Address { index, address });
            }
            match ip.interface {
                Some(interface) if usize::try_from(interface).is_ok_and(|at| at >= count) => {
                    return Err(ResultError::NoInterface {
                        index,
                        interface,
                        count,
                    });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    fn upgrade(&mut self, from: Version) {
        if from < Version::V100 {
            self.ips.iter_mut().for_each(|ip| ip.version.clear());
        }
    }

    /// Returns the result as JSON of a version.
    pub fn to_value(&self, version: Version) -> Value {
        let mut result = self.clone();
        if version < Version::V100 {
            for ip in &mut result.ips {
                let v4 = address(&ip.address).is_some_and(|address| address.is_ipv4());
                ip.version = if v4 { "4" } else { "6" }.to_owned();
            }
        }
        if version < Version::V110 {
            for interface in &mut result.interfaces {
                *interface = Interface {
                    name: std::mem::take(&mut interface.name),
                    mac: std::mem::take(&mut interface.mac),
                    sandbox: std::mem::take(&mut interface.sandbox),
                    ..Interface::default()
                };
            }
        }
        let mut value = serde_json::to_value(&result).expect("strings and numbers are JSON");
        value["cniVersion"] = version.as_str().into();
        value
    }
}

/// The address of a text with a prefix length that fits it.
fn address(text: &str) -> Option<IpAddr> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length.parse::<u8>().ok()? <= most).then_some(address)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value, spoken: Version) -> Result<CniResult, ResultError> {
        CniResult::parse(value.to_string().as_bytes(), spoken)
    }

    #[test]
    fn a_result_is_the_same_after_a_way_through_every_version() {
        let old = json!({
            "cniVersion": "0.3.1",
            "interfaces": [{ "name": "eth0", "mac": "aa:bb:cc:dd:ee:ff", "sandbox": "/run/netns/a" }],
            "ips": [
                { "version": "4", "address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0 },
                { "version": "6", "address": "fd00::5/64" },
            ],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "10.2.0.0/16", "gw": "10.1.0.1" }],
            "dns": { "nameservers": ["10.1.0.1"] },
            "future": { "kept": true },
        });
        let result = parse(old.clone(), Version::V110).unwrap();
        assert!(result.ips.iter().all(|ip| ip.version.is_empty()));
        for version in [Version::V031, Version::V040, Version::V100, Version::V110] {
            let written = result.to_value(version);
            assert_eq!(written["cniVersion"], version.as_str());
            assert_eq!(parse(written, version).unwrap(), result);
        }
        assert_eq!(result.to_value(Version::V031), old);
    }

    #[test]
    fn what_came_with_a_version_is_not_told_to_older_readers() {
        let new = json!({
            "cniVersion": "1.1.0",
            "interfaces": [{ "name": "eth0", "mtu": 1400, "socketPath": "/s", "pciID": "0000:00:1f.6" }],
        });
        let result = parse(new.clone(), Version::V110).unwrap();
        assert_eq!(result.to_value(Version::V110), new);
        let older = json!({ "cniVersion": "1.0.0", "interfaces": [{ "name": "eth0" }] });
        assert_eq!(result.to_value(Version::V100), older);
    }

    #[test]
    fn nulls_and_a_missing_version_are_read_as_go_reads_them() {
        let output = json!({ "ips": [{ "address": "10.0.0.2/24", "gateway": null }], "routes": null, "dns": null });
        let result = parse(output, Version::V040).unwrap();
        assert_eq!(result.ips[0].address, "10.0.0.2/24");
        assert!(result.routes.is_empty());
    }

    #[test]
    fn garbage_is_refused_with_what_is_wrong() {
        for (output, words) in [
            (&b"hello"[..], "not a result"),
            (b"[]", "not a result"),
            (b"", "not a result"),
            (br#"{"cniVersion": "9.0.0"}"#, "cniVersion \"9.0.0\""),
            (br#"{"cniVersion": 1}"#, "cniVersion \"1\""),
            (br#"{"ips": [{"address": "10.0.0.2"}]}"#, "ips[0].address"),
            (
                br#"{"ips": [{"address": "10.0.0.2/33"}]}"#,
                "ips[0].address",
            ),
            (
                br#"{"ips": [{"address": "10.0.0.2/8", "interface": 0}]}"#,
                "ips[0].interface 0",
            ),
            (
                br#"{"ips": [{"address": "10.0.0.2/8", "interface": -1}]}"#,
                "not a result",
            ),
        ] {
            let refusal = CniResult::parse(output, Version::V110).unwrap_err();
            let text = refusal.to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
