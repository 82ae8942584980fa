//! loopback: brings `lo` up. The engine has done so for every sandbox; the plugin tells it.

use network_cni::{Call, CniError, CniResult, Interface, IpConfig, Work};
use serde::Deserialize;

use crate::conf::{self, NotBuiltIn};
use crate::failure::{OrFail, fail};
use crate::inside;
use crate::links::UP;

const NAME: &str = "lo";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conf {}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let Conf {} = conf::read(call)?;
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => add(&call),
        "DEL" => delete(&call),
        "CHECK" => check(&call),
        _ => Ok(CniResult::default()),
    }))
}

fn add(call: &Call) -> Result<CniResult, CniError> {
    let sandbox = inside::open(&call.netns)?;
    let all = inside::within(&sandbox, |links| {
        let link = links.named(NAME).or_fail("failed to lookup \"lo\"")?;
        links
            .set_up(link.index)
            .or_fail("failed to set \"lo\" UP")?;
        links
            .addresses(link.index)
            .or_fail("could not list addresses")
    })?;
    if let Some(previous) = &call.previous {
        return Ok(previous.clone());
    }
    let of = |v4: bool| {
        all.iter()
            .find(move |one| one.prefixed.address.is_ipv4() == v4)
    };
    let ips = [of(true), of(false)].into_iter().flatten();
    if let Some(other) = all.iter().find(|one| !one.prefixed.address.is_loopback()) {
        let address = other.prefixed.address;
        return Err(fail(format!(
            "loopback interface found with non-loopback address {address:?}"
        )));
    }
    Ok(CniResult {
        interfaces: vec![Interface {
            name: NAME.to_owned(),
            mac: "00:00:00:00:00:00".to_owned(),
            sandbox: call.netns.clone(),
            ..Interface::default()
        }],
        ips: ips
            .map(|one| IpConfig {
                address: one.prefixed.to_string(),
                interface: Some(0),
                ..IpConfig::default()
            })
            .collect(),
        ..CniResult::default()
    })
}

fn delete(call: &Call) -> Result<CniResult, CniError> {
    if let Some(sandbox) = inside::open_if_there(&call.netns)? {
        inside::within(&sandbox, |links| {
            let link = links.named(NAME).or_fail("failed to lookup \"lo\"")?;
            links
                .set_flags(link.index, 0, UP)
                .or_fail("failed to set \"lo\" down")
        })?;
    }
    Ok(CniResult::default())
}

fn check(call: &Call) -> Result<CniResult, CniError> {
    let sandbox = inside::open(&call.netns)?;
    let link = inside::within(&sandbox, |links| {
        links.named(NAME).or_fail("failed to lookup \"lo\"")
    })?;
    match link.flags & UP {
        0 => Err(fail("loopback interface is down")),
        _ => Ok(CniResult::default()),
    }
}
