//! Configurations of steps, read strictly: what is not known here is known to the plugin's program.

use std::net::IpAddr;

use network_cni::{Call, Dns};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::address::{self, Prefixed};
use crate::host_local::Ipam;

/// What a call's configuration has beside the plugin's own fields.
const RUNTIME_KEYS: [&str; 8] = [
    "cniVersion",
    "name",
    "type",
    "capabilities",
    "prevResult",
    "disableCheck",
    "cni.dev/valid-attachments",
    "cni.dev/attachments",
];

/// Why a call is not built in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotBuiltIn(pub(crate) String);

/// Reads a plugin's configuration.
pub(crate) fn read<T: DeserializeOwned>(call: &Call) -> Result<T, NotBuiltIn> {
    let mut fields = call.configuration.clone();
    for key in RUNTIME_KEYS {
        fields.remove(key);
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| NotBuiltIn(error.to_string()))
}

/// The fields of plugins that make an interface.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Runtime {
    pub(crate) mac: String,
    pub(crate) ips: Vec<String>,
    pub(crate) ip_ranges: Vec<Vec<crate::host_local::RangeConf>>,
}

/// `args`, by which an orchestrator asks for more than a runtime knows of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Arguments {
    pub(crate) cni: CniArguments,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CniArguments {
    pub(crate) mac: String,
    pub(crate) ips: Vec<String>,
}

/// What `CNI_ARGS` asks of a plugin that is built in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) mac: String,
    pub(crate) ip: Option<String>,
}

impl Asked {
    pub(crate) fn of(call: &Call) -> Result<Self, NotBuiltIn> {
        let mut asked = Self::default();
        let lenient = call.arguments.iter().any(|(key, value)| {
            key == "IgnoreUnknown" && matches!(value.as_str(), "1" | "true" | "TRUE" | "True")
        });
        for (key, value) in &call.arguments {
            match key.as_str() {
                "MAC" => asked.mac.clone_from(value),
                "IP" => asked.ip = Some(value.clone()),
                "IgnoreUnknown" => {}
                _ if lenient => {}
                other => return Err(NotBuiltIn(format!("CNI argument {other:?}"))),
            }
        }
        Ok(asked)
    }
}

/// `ipam`: none where it is empty, as for a network without addresses.
pub(crate) fn ipam(
    call: &Call,
    fields: Option<&Map<String, Value>>,
    (runtime, arguments): (&Runtime, &Arguments),
) -> Result<Option<Ipam>, NotBuiltIn> {
    let Some(fields) = fields else {
        return Ok(None);
    };
    match fields.get("type").and_then(Value::as_str) {
        None | Some("") => Ok(None),
        Some("host-local") => {
            let asked = Asked::of(call)?;
            let texts = asked.ip.iter();
            let texts = texts.chain(&arguments.cni.ips).chain(&runtime.ips);
            let wanted = texts.map(|text| wanted(text)).collect::<Result<_, _>>()?;
            let ipam = Ipam::read(&call.network, fields.clone(), runtime.ip_ranges.clone());
            Ok(Some(ipam?.asked(wanted)))
        }
        Some(other) => Err(NotBuiltIn(format!("ipam {other:?}"))),
    }
}

/// An address that is asked for, with or without a prefix length.
fn wanted(text: &str) -> Result<IpAddr, NotBuiltIn> {
    let address = Prefixed::parse(text).map(|of| of.address);
    address
        .or_else(|| address::parse(text))
        .ok_or_else(|| NotBuiltIn(format!("address {text:?}")))
}

/// Reads a hardware address: six bytes in hexadecimal digits.
pub(crate) fn mac(text: &str) -> Option<Vec<u8>> {
    let bytes = text.split([':', '-']).map(|part| match part.len() {
        2 => u8::from_str_radix(part, 16).ok(),
        _ => None,
    });
    let bytes: Vec<_> = bytes.collect::<Option<_>>()?;
    (bytes.len() == 6).then_some(bytes)
}

/// Tells whether a resolver's settings say anything.
pub(crate) fn says(dns: &Dns) -> bool {
    *dns != Dns::default()
}
