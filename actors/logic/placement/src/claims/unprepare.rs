//! Undoing what was prepared: which drivers are called once the last pod of a claim is gone.
//!
//! Mirrors upstream's Manager.unprepareResources and reconcileLoop of cm/dra/manager.go at v1.36. Unlike there a claim
//! that other pods use is left alone also when it never was prepared for the pod that goes.

use std::collections::{BTreeMap, BTreeSet};

use logic_api::types::PodUid;

use super::cache::ClaimCache;
use super::names::{ClaimIdentity, ClaimKey, ClaimUid, DriverName};

/// The calls that undo a pod's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpreparePlan {
    /// Claims that no other pod uses; also those that no driver has a part in.
    pub claims: BTreeSet<ClaimKey>,
    /// What each driver is to undo.
    pub calls: BTreeMap<DriverName, Vec<ClaimIdentity>>,
}

/// A pod that is gone, and still has claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactivePod {
    pub pod: PodUid,
    /// Its claims.
    pub claims: BTreeSet<ClaimKey>,
}

impl ClaimCache {
    /// Takes the pod off those of its claims that others use, and plans the calls for the rest. The pod stays on
    /// these until they are undone, so that a failure is made good later. Claims that are not known are done.
    pub fn plan_unprepare<'a>(
        &mut self,
        pod: &PodUid,
        claims: impl IntoIterator<Item = &'a ClaimKey>,
    ) -> UnpreparePlan {
        let mut plan = UnpreparePlan::default();
        for key in claims {
            let Some(entry) = self.get_mut(key) else {
                continue;
            };
            if entry.pods.iter().any(|user| user != pod) {
                entry.pods.remove(pod);
                continue;
            }
            if !plan.claims.insert(key.clone()) {
                continue;
            }
            for driver in entry.drivers.keys() {
                let claims = plan.calls.entry(driver.clone()).or_default();
                claims.push(entry.identity());
            }
        }
        plan
    }

    /// Takes in what came of the plan's calls: claims that all their drivers have undone are forgotten.
    pub fn take_unprepared(
        &mut self,
        plan: &UnpreparePlan,
        undone: &BTreeMap<DriverName, BTreeMap<ClaimUid, ()>>,
    ) {
        for key in &plan.claims {
            let complete = self.get(key).is_some_and(|entry| {
                let is_undone = |driver| {
                    undone
                        .get(driver)
                        .is_some_and(|claims: &BTreeMap<_, ()>| claims.contains_key(&entry.uid))
                };
                entry.drivers.keys().all(is_undone)
            });
            if complete {
                self.remove(key);
            }
        }
    }

    /// The pods that have claims and are none of these.
    pub fn inactive(&self, active: &BTreeSet<PodUid>) -> Vec<InactivePod> {
        let mut inactive: BTreeMap<&PodUid, BTreeSet<ClaimKey>> = BTreeMap::new();
        for entry in self.entries() {
            for pod in entry.pods.difference(active) {
                inactive.entry(pod).or_default().insert(entry.key());
            }
        }
        let pods = inactive.into_iter();
        pods.map(|(pod, claims)| InactivePod {
            pod: pod.clone(),
            claims,
        })
        .collect()
    }
}
