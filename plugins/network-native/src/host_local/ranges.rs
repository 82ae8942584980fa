//! Ranges of addresses: which there are, and in which order they are given.

use std::net::IpAddr;

use network_cni::{CniError, IpConfig};
use serde::Deserialize;

use super::Holder;
use super::store::Store;
use crate::address::{self, Prefixed, bits, number};
use crate::failure::fail;

/// A range as it is configured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RangeConf {
    pub(crate) subnet: String,
    pub(crate) range_start: Option<String>,
    pub(crate) range_end: Option<String>,
    pub(crate) gateway: Option<String>,
}

/// A range, both ends included. The gateway is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    subnet: Prefixed,
    start: IpAddr,
    end: IpAddr,
    gateway: IpAddr,
}

/// Ranges of one family, of which an address is given.
#[derive(Clone, Debug)]
pub(super) struct RangeSet(Vec<Range>);

impl Range {
    fn read(conf: &RangeConf) -> Result<Self, String> {
        let subnet = Prefixed::parse(&conf.subnet)
            .ok_or_else(|| format!("invalid CIDR address: {}", conf.subnet))?;
        if subnet.length > bits(subnet.address) - 2 {
            return Err(format!("Network {subnet} too small to allocate from"));
        }
        let network = subnet.network().address;
        if network != subnet.address {
            return Err(format!(
                "Network has host bits set. For a subnet mask of length {} the network address is {network}",
                subnet.length
            ));
        }
        let first = address::next(network);
        let host = u128::from(subnet.address.is_ipv4());
        let all = match subnet.address {
            IpAddr::V4(_) => u128::from(u32::MAX),
            IpAddr::V6(_) => u128::MAX,
        };
        // The last one of version 4 is the broadcast address.
        let last = address::from((number(network) | (all & !subnet.mask())) - host, network);
        let of = |text: &Option<String>, default| match text.as_deref() {
            None | Some("") => Ok(default),
            Some(text) => address::parse(text).ok_or(format!("invalid IP address: {text}")),
        };
        let range = Self {
            subnet,
            start: of(&conf.range_start, first)?,
            end: of(&conf.range_end, last)?,
            gateway: of(&conf.gateway, first)?,
        };
        if !subnet.contains(range.start) {
            return Err(format!(
                "RangeStart {} not in network {subnet}",
                range.start
            ));
        }
        if !subnet.contains(range.end) || range.end < range.start {
            return Err(format!("RangeEnd {} not in network {subnet}", range.end));
        }
        Ok(range)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.subnet.contains(address) && (self.start..=self.end).contains(&address)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.start)
            || self.contains(other.end)
            || other.contains(self.start)
            || other.contains(self.end)
    }

    fn config(&self, address: IpAddr) -> IpConfig {
        IpConfig {
            address: format!("{address}/{}", self.subnet.length),
            gateway: self.gateway.to_string(),
            ..IpConfig::default()
        }
    }
}

impl RangeSet {
    pub(super) fn read(confs: &[RangeConf]) -> Result<Self, String> {
        let ranges: Vec<_> = confs.iter().map(Range::read).collect::<Result<_, _>>()?;
        let Some(first) = ranges.first() else {
            return Err("empty range set".to_owned());
        };
        for (index, range) in ranges.iter().enumerate() {
            if range.start.is_ipv4() != first.start.is_ipv4() {
                return Err("mixed address families".to_owned());
            }
            if let Some(other) = ranges[..index].iter().find(|other| other.overlaps(range)) {
                let (one, other) = (text(other), text(range));
                return Err(format!("subnets {one} and {other} overlap"));
            }
        }
        Ok(Self(ranges))
    }

    pub(super) fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }

    /// Gives this address.
    pub(super) fn give(
        &self,
        store: &Store,
        index: usize,
        of: Holder<'_>,
        address: IpAddr,
    ) -> Result<IpConfig, CniError> {
        let range = self
            .range_of(address)
            .ok_or_else(|| fail(format!("{address} not in range set {}", self.text())))?;
        if address == range.gateway {
            return Err(fail(format!("requested ip {address} is subnet's gateway")));
        }
        match store.reserve(of, address, index)? {
            true => Ok(range.config(address)),
            false => Err(fail(format!(
                "requested IP address {address} is not available in range set {}",
                self.text()
            ))),
        }
    }

    /// Gives the next free address after the one that was given last.
    pub(super) fn give_any(
        &self,
        store: &Store,
        index: usize,
        of: Holder<'_>,
    ) -> Result<IpConfig, CniError> {
        let held = store.held(of).into_iter();
        if let Some(address) = held.flatten().find(|one| self.range_of(*one).is_some()) {
            return Err(fail(format!(
                "{address} has been allocated to {}, duplicate allocation is not allowed",
                of.container
            )));
        }
        for (range, address) in self.after(store.last(index)) {
            if store.reserve(of, address, index)? {
                return Ok(range.config(address));
            }
        }
        Err(fail(format!(
            "no IP addresses available in range set: {}",
            self.text()
        )))
    }

    /// Returns every address of the set but the gateways, each once, beginning behind `last`.
    fn after(&self, last: Option<IpAddr>) -> impl Iterator<Item = (&Range, IpAddr)> {
        let within = last.and_then(|last| {
            let at = self.0.iter().position(|range| range.contains(last))?;
            Some((at, last))
        });
        let start = match within {
            Some((at, last)) => self.step(at, last),
            None => (0, self.0[0].start),
        };
        let mut next = Some(start);
        let all = std::iter::from_fn(move || {
            let (at, address) = next?;
            let following = self.step(at, address);
            next = (following != start).then_some(following);
            Some((&self.0[at], address))
        });
        all.filter(|(range, address)| *address != range.gateway)
    }

    fn step(&self, at: usize, address: IpAddr) -> (usize, IpAddr) {
        match address == self.0[at].end {
            true => {
                let at = (at + 1) % self.0.len();
                (at, self.0[at].start)
            }
            false => (at, address::next(address)),
        }
    }

    fn text(&self) -> String {
        let texts: Vec<_> = self.0.iter().map(text).collect();
        texts.join(",")
    }
}

fn text(range: &Range) -> String {
    format!("{}-{}", range.start, range.end)
}

/// Returns two sets that have an address in common.
pub(super) fn overlap(sets: &[RangeSet]) -> Option<(usize, usize)> {
    let pairs =
        (0..sets.len()).flat_map(|one| (one + 1..sets.len()).map(move |other| (one, other)));
    pairs.into_iter().find(|(one, other)| {
        let ranges = sets[*one].0.iter();
        ranges
            .flat_map(|range| sets[*other].0.iter().map(move |other| (range, other)))
            .any(|(range, other)| range.overlaps(other))
    })
}
