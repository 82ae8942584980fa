//! Pod addresses: one after another through a range, each free again when its sandbox is gone.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// A range of IPv4 addresses, such as `10.88.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: u32,
    last: u32,
}

impl Default for AddressRange {
    fn default() -> Self {
        AddressRange {
            first: u32::from(Ipv4Addr::new(10, 88, 0, 2)),
            last: u32::from(Ipv4Addr::new(10, 88, 255, 254)),
        }
    }
}

/// What was written is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an IPv4 range of at least four addresses such as \"10.88.0.0/16\"")]
pub struct AddressRangeError(String);

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let range = || {
            let (base, length) = text.split_once('/')?;
            let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
            let length = length
                .parse::<u32>()
                .ok()
                .filter(|length| (1..=30).contains(length))?;
            let host = u32::MAX >> length;
            // The network's own address, the gateway's and the broadcast address are not given to pods.
            Some(AddressRange {
                first: (base & !host) + 2,
                last: (base | host) - 1,
            })
        };
        range().ok_or_else(|| AddressRangeError(text.chars().take(64).collect()))
    }
}

impl<'de> Deserialize<'de> for AddressRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// Which addresses are taken. Free ones are handed out round robin, so that a fresh one is seldom an old one.
#[derive(Debug, Default)]
pub(crate) struct AddressPool {
    taken: BTreeSet<u32>,
    latest: u32,
}

impl AddressPool {
    /// Returns the next free address of the range; none when all are taken.
    pub(crate) fn next(&self, range: AddressRange) -> Option<Ipv4Addr> {
        let after = self.latest.saturating_add(1).max(range.first);
        let found = self
            .first_free(after, range.last)
            .or_else(|| self.first_free(range.first, range.last));
        found.map(Ipv4Addr::from)
    }

    fn first_free(&self, from: u32, to: u32) -> Option<u32> {
        if from > to {
            return None;
        }
        let mut candidate = from;
        for &taken in self.taken.range(from..=to) {
            if taken > candidate {
                break;
            }
            candidate = taken.checked_add(1)?;
        }
        (candidate <= to).then_some(candidate)
    }

    pub(crate) fn take(&mut self, address: Ipv4Addr) {
        self.latest = address.into();
        self.taken.insert(self.latest);
    }

    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_and_come_back() {
        let range: AddressRange = "10.1.2.0/29".parse().unwrap();
        let mut addresses = AddressPool::default();
        for last in 2..=6 {
            let next = addresses.next(range).unwrap();
            assert_eq!(next, Ipv4Addr::new(10, 1, 2, last));
            addresses.take(next);
        }
        assert_eq!(addresses.next(range), None);
        addresses.release(Ipv4Addr::new(10, 1, 2, 4));
        assert_eq!(addresses.next(range), Some(Ipv4Addr::new(10, 1, 2, 4)));
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for bad in [
            "10.1.2.0",
            "10.1.2.0/31",
            "10.1.2.0/0",
            "x/8",
            "10.1.2.0/8/8",
            "",
        ] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }
}
