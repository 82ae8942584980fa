//! host-local: addresses from ranges, kept as files of one folder, which the program of that name shares.

mod holders;
mod ranges;
mod store;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use network_cni::{CniError, CniResult, Dns, IpConfig, Route};
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use self::ranges::RangeConf;
use self::ranges::{RangeSet, overlap};
use self::store::Store;
use crate::conf::NotBuiltIn;
use crate::failure::{OrFail, fail};

const DEFAULT_DIR: &str = "/var/lib/cni/networks";

/// `ipam`, as the program reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    #[serde(rename = "type")]
    _type: String,
    subnet: Option<String>,
    range_start: Option<String>,
    range_end: Option<String>,
    gateway: Option<String>,
    ranges: Vec<Vec<RangeConf>>,
    routes: Vec<RouteConf>,
    data_dir: String,
    resolv_conf: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RouteConf {
    dst: String,
    gw: Option<String>,
    mtu: u32,
    advmss: u32,
    priority: Option<u32>,
    table: Option<u32>,
    scope: Option<u32>,
}

/// Gives addresses of one network.
#[derive(Clone, Debug)]
pub(crate) struct Ipam {
    dir: PathBuf,
    resolv_conf: String,
    routes: Vec<Route>,
    ranges: Vec<Vec<RangeConf>>,
    asked: Vec<IpAddr>,
}

/// Whose addresses are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder<'a> {
    pub(crate) container: &'a str,
    pub(crate) interface: &'a str,
}

impl Ipam {
    pub(crate) fn read(
        network: &str,
        fields: Map<String, Value>,
        runtime: Vec<Vec<RangeConf>>,
    ) -> Result<Self, NotBuiltIn> {
        let conf: Conf = serde_json::from_value(Value::Object(fields))
            .map_err(|error| NotBuiltIn(format!("ipam: {error}")))?;
        let old = conf.subnet.is_some().then(|| {
            vec![RangeConf {
                subnet: conf.subnet.unwrap_or_default(),
                range_start: conf.range_start,
                range_end: conf.range_end,
                gateway: conf.gateway,
            }]
        });
        let dir = match conf.data_dir.as_str() {
            "" => DEFAULT_DIR,
            dir => dir,
        };
        let routes = conf.routes.into_iter().map(|route| Route {
            dst: route.dst,
            gw: route.gw.unwrap_or_default(),
            mtu: route.mtu,
            advmss: route.advmss,
            priority: route.priority,
            table: route.table,
            scope: route.scope,
        });
        Ok(Self {
            dir: PathBuf::from(dir).join(network),
            resolv_conf: conf.resolv_conf,
            routes: routes.collect(),
            ranges: runtime.into_iter().chain(old).chain(conf.ranges).collect(),
            asked: Vec::new(),
        })
    }

    /// Gives these addresses where they are in a range.
    pub(crate) fn asked(self, asked: Vec<IpAddr>) -> Self {
        Self { asked, ..self }
    }

    fn sets(&self) -> Result<Vec<RangeSet>, CniError> {
        if self.ranges.is_empty() {
            return Err(fail("no IP ranges specified"));
        }
        let read = |(index, set): (usize, &Vec<RangeConf>)| {
            RangeSet::read(set).or_fail(format!("invalid range set {index}"))
        };
        let sets: Vec<_> = self
            .ranges
            .iter()
            .enumerate()
            .map(read)
            .collect::<Result<_, _>>()?;
        match overlap(&sets) {
            Some((one, other)) => Err(fail(format!("range set {one} overlaps with {other}"))),
            None => Ok(sets),
        }
    }

    /// Gives an address of each range set.
    pub(crate) fn add(&self, of: Holder<'_>) -> Result<CniResult, CniError> {
        let sets = self.sets()?;
        let dns = match self.resolv_conf.as_str() {
            "" => Dns::default(),
            path => resolver(&fs::read_to_string(path).or_fail(format!("open {path}"))?),
        };
        let store = Store::open(&self.dir)?;
        let mut ips = Vec::new();
        if let Err(error) = self.give(&store, &sets, of, &mut ips) {
            // Only what this call gave: a holder that asks twice keeps what it has.
            if !ips.is_empty() {
                store.release(of);
            }
            return Err(error);
        }
        Ok(CniResult {
            ips,
            routes: self.routes.clone(),
            dns,
            ..CniResult::default()
        })
    }

    fn give(
        &self,
        store: &Store,
        sets: &[RangeSet],
        of: Holder<'_>,
        given: &mut Vec<IpConfig>,
    ) -> Result<(), CniError> {
        let mut asked = self.asked.clone();
        for (index, set) in sets.iter().enumerate() {
            let at = asked
                .iter()
                .position(|address| set.range_of(*address).is_some());
            let wanted = at.map(|at| asked.remove(at));
            let one = match wanted {
                Some(address) => set.give(store, index, of, address),
                None => set.give_any(store, index, of),
            };
            given.push(one.map_err(|error| {
                fail(format!(
                    "failed to allocate for range {index}: {}",
                    error.msg
                ))
            })?);
        }
        if asked.is_empty() {
            return Ok(());
        }
        let left: Vec<_> = asked.iter().map(|address| format!(" {address}")).collect();
        let left = left.concat();
        Err(fail(format!("failed to allocate all requested IPs:{left}")))
    }

    /// Takes a holder's addresses back.
    pub(crate) fn delete(&self, of: Holder<'_>) -> Result<(), CniError> {
        Store::open(&self.dir)?.release(of);
        Ok(())
    }

    /// Tells whether a holder has an address.
    pub(crate) fn check(&self, of: Holder<'_>) -> Result<(), CniError> {
        self.sets()?;
        match Store::open(&self.dir)?.held(of).is_empty() {
            true => Err(fail(format!(
                "host-local: Failed to find address added by container {}",
                of.container
            ))),
            false => Ok(()),
        }
    }
}

/// Reads resolv.conf(5).
fn resolver(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(key), values) = (words.next(), words.map(ToOwned::to_owned)) else {
            continue;
        };
        let values: Vec<String> = values.collect();
        match (key, values.first()) {
            ("nameserver", Some(address)) => dns.nameservers.push(address.clone()),
            ("domain", Some(domain)) => dns.domain.clone_from(domain),
            ("search", Some(_)) => dns.search.extend(values),
            ("options", Some(_)) => dns.options.extend(values),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests;
