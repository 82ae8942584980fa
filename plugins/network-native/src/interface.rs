//! A pod's interface: its addresses and routes, as the plugins' library configures them.

use std::net::IpAddr;
use std::time::Duration;

use blocking_pool::Cancel;
use network_cni::{CniError, CniResult};

use crate::address::{self, Prefixed};
use crate::failure::{OrFail, fail};
use crate::links::{Link, Links, NOWHERE, OPERATING, Route};
use crate::sysctl;

/// How long duplicates of an address are waited for, and how often they are looked at.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_INTERVAL: Duration = Duration::from_millis(5);

/// The addresses of a result.
pub(crate) fn addresses(result: &CniResult) -> Result<Vec<Prefixed>, CniError> {
    let read =
        |text: &str| Prefixed::parse(text).ok_or_else(|| fail(format!("invalid address {text:?}")));
    result.ips.iter().map(|ip| read(&ip.address)).collect()
}

/// The gateway of a result's address; none where it has none.
pub(crate) fn gateway(text: &str) -> Result<Option<IpAddr>, CniError> {
    match text {
        "" => Ok(None),
        text => address::parse(text)
            .map(Some)
            .ok_or_else(|| fail(format!("invalid IP address: {text}"))),
    }
}

/// Gives the link its addresses, sets it up and gives it its routes. Returns it as it is then.
pub(crate) fn configure(
    links: &mut Links,
    name: &str,
    result: &CniResult,
) -> Result<Link, CniError> {
    let link = links
        .named(name)
        .or_fail(format!("failed to lookup {name:?}"))?;
    let all = addresses(result)?;
    if all.iter().any(|of| of.address.is_ipv6()) {
        enable_ipv6(name)?;
    }
    for of in &all {
        let added = links.add_address(link.index, *of);
        added.or_fail(format!("failed to add IP addr {of} to {name:?}"))?;
    }
    links
        .set_up(link.index)
        .or_fail(format!("failed to set {name:?} UP"))?;
    let gateways = result.ips.iter().map(|ip| gateway(&ip.gateway));
    let gateways: Vec<_> = gateways.collect::<Result<_, _>>()?;
    let gateways: Vec<_> = gateways.into_iter().flatten().collect();
    if gateways.iter().any(IpAddr::is_ipv6) {
        settle(links, &link)?;
    }
    for route in &result.routes {
        let route = planned(route, link.index, &gateways)?;
        let added = links.add_route(&route, 0);
        added.or_fail(format!(
            "failed to add route '{} dev {name}'",
            route.destination
        ))?;
    }
    links
        .named(name)
        .or_fail(format!("failed to lookup {name:?}"))
}

/// A route without a gateway goes by the first one of its version.
fn planned(of: &network_cni::Route, link: u32, gateways: &[IpAddr]) -> Result<Route, CniError> {
    let destination = Prefixed::parse(&of.dst)
        .ok_or_else(|| fail(format!("invalid CIDR address: {}", of.dst)))?;
    let is_v4 = destination.address.is_ipv4();
    let default = gateways.iter().find(|one| one.is_ipv4() == is_v4).copied();
    Ok(Route {
        gateway: gateway(&of.gw)?.or(default),
        priority: of.priority.filter(|priority| *priority > 0),
        table: of.table,
        scope: match of.scope {
            None => 0,
            Some(scope) => u8::try_from(scope)
                .map_err(|_| fail(format!("route scope {scope}; expected at most {NOWHERE}")))?,
        },
        ..Route::to(destination, link)
    })
}

fn enable_ipv6(name: &str) -> Result<(), CniError> {
    for link in ["lo", name] {
        let parameter = format!("net/ipv6/conf/{link}/disable_ipv6");
        match sysctl::read(&parameter) {
            Ok(value) if value != "0" => sysctl::write(&parameter, "0")
                .or_fail(format!("failed to enable IPv6 for interface {link:?}"))?,
            Ok(_) => {}
            Err(error) => tracing::warn!("{parameter} is not read: {error}"),
        }
    }
    // Addresses stay where the interface is down for a while.
    sysctl::write(&format!("net/ipv6/conf/{name}/keep_addr_on_down"), "1").or_fail(format!(
        "failed to enable keep_addr_on_down for interface {name:?}"
    ))
}

/// Waits until the kernel has looked for duplicates of the addresses.
fn settle(links: &mut Links, link: &Link) -> Result<(), CniError> {
    let mut waited = Duration::ZERO;
    loop {
        let all = links
            .addresses(link.index)
            .or_fail("could not list addresses")?;
        if let Some(double) = all.iter().find(|one| one.is_duplicate()) {
            let (name, address) = (&link.name, double.prefixed.address);
            return Err(fail(format!(
                "link {name} has address {address} in DADFAILED state"
            )));
        }
        if !all
            .iter()
            .any(|one| one.prefixed.address.is_ipv6() && one.is_tentative())
        {
            return Ok(());
        }
        if waited >= SETTLE_TIMEOUT {
            let now = links.named(&link.name).or_fail("failed to retrieve link")?;
            return match now.state == OPERATING {
                true => Err(fail(format!(
                    "link {} still has tentative addresses",
                    link.name
                ))),
                false => Ok(()),
            };
        }
        let rest = Cancel::current().sleep(SETTLE_INTERVAL);
        rest.map_err(|_| fail(format!("link {} has tentative addresses", link.name)))?;
        waited += SETTLE_INTERVAL;
    }
}

/// Checks that an interface has the addresses and the routes of a result.
pub(crate) fn check(links: &mut Links, name: &str, result: &CniResult) -> Result<Link, CniError> {
    let found = links
        .find(name)
        .or_fail(format!("failed to lookup {name:?}"))?;
    let link = found.ok_or_else(|| fail(format!("Interface name {name} not found")))?;
    let has = links
        .addresses(link.index)
        .or_fail("could not list addresses")?;
    for of in addresses(result)? {
        if !has.iter().any(|one| one.prefixed == of) {
            return Err(fail(format!(
                "Failed to match addr {of} on interface {name}"
            )));
        }
    }
    let routes = links.routes().or_fail("could not list routes")?;
    for route in &result.routes {
        let wanted = planned(route, link.index, &[])?;
        let is_it = |(to, by): &(Prefixed, Option<IpAddr>)| {
            *to == wanted.destination.network()
                && wanted.gateway.is_none_or(|gateway| *by == Some(gateway))
        };
        if !routes.iter().any(is_it) {
            return Err(fail(format!(
                "Expected Route {} not found in routing table",
                wanted.destination
            )));
        }
    }
    Ok(link)
}
