//! The claims that pods of this node use.
//!
//! Mirrors upstream's claimInfoCache of cm/dra/claiminfo.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};

use logic_api::types::PodUid;

use super::entry::{ClaimEntry, Preparation};
use super::names::{ClaimKey, DriverName};

/// The label of all drivers together, in the numbers of claims in use.
const ANY_DRIVER: &str = "<any>";

/// Claims by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimCache {
    claims: BTreeMap<ClaimKey, ClaimEntry>,
}

impl ClaimCache {
    pub fn get(&self, key: &ClaimKey) -> Option<&ClaimEntry> {
        self.claims.get(key)
    }

    /// All claims, by namespace and name.
    pub fn entries(&self) -> impl Iterator<Item = &ClaimEntry> {
        self.claims.values()
    }

    pub(super) fn get_mut(&mut self, key: &ClaimKey) -> Option<&mut ClaimEntry> {
        self.claims.get_mut(key)
    }

    pub(super) fn insert(&mut self, entry: ClaimEntry) {
        self.claims.insert(entry.key(), entry);
    }

    pub(super) fn remove(&mut self, key: &ClaimKey) {
        self.claims.remove(key);
    }

    /// Whether a claim may still have to be unprepared for this pod: it is not over before that.
    pub fn is_referenced(&self, pod: &PodUid) -> bool {
        self.entries().any(|entry| entry.pods.contains(pod))
    }

    /// The number of prepared claims by driver, and under `<any>` that of all: a claim may have several drivers.
    pub fn claims_in_use(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::from([(ANY_DRIVER.to_owned(), 0)]);
        let prepared = |entry: &&ClaimEntry| entry.preparation == Preparation::Prepared;
        for entry in self.entries().filter(prepared) {
            let drivers = entry.drivers.keys().map(DriverName::as_str);
            for name in drivers.chain([ANY_DRIVER]) {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
        counts
    }

    /// The pods that use one of these devices (pool and name) of a driver.
    pub fn pods_with(
        &self,
        driver: &DriverName,
        devices: &BTreeSet<(String, String)>,
    ) -> BTreeSet<PodUid> {
        let is_one = |entry: &&ClaimEntry| {
            let mut own = entry.drivers.get(driver).into_iter().flatten();
            own.any(|own| devices.contains(&(own.pool.clone(), own.device.clone())))
        };
        let users = self.entries().filter(is_one);
        users.flat_map(|entry| entry.pods.iter().cloned()).collect()
    }
}

impl FromIterator<ClaimEntry> for ClaimCache {
    fn from_iter<T: IntoIterator<Item = ClaimEntry>>(entries: T) -> Self {
        let keyed = entries.into_iter().map(|entry| (entry.key(), entry));
        Self {
            claims: keyed.collect(),
        }
    }
}
