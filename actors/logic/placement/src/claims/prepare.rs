//! Preparing a pod's claims: which drivers are called with which claims, and what their answers change.
//!
//! Mirrors upstream's Manager.prepareResources of cm/dra/manager.go at v1.36. Unlike there an answer replaces what a
//! driver answered before, so that one asked twice gives no device twice, and a claim whose drivers have all answered
//! well is prepared also when the pod's next one is not.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use logic_api::pod::PodView;
use thiserror::Error;

use super::cache::ClaimCache;
use super::drivers::{DriverError, DriverRegistry};
use super::eligibility::{ClaimRefusal, check_claim};
use super::entry::{ClaimDevice, ClaimEntry, Preparation};
use super::names::{ClaimIdentity, ClaimKey, ClaimUid, DriverName};
use super::references::ClaimReference;
use super::{ClaimGates, ClaimNameError};

/// Why a pod's claims are not prepared, before any driver is called. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrepareRefusal {
    #[error(transparent)]
    Name(#[from] ClaimNameError),
    #[error(transparent)]
    Claim(#[from] ClaimRefusal),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(
        "old ResourceClaim with same name {claim} and different UID {old} still exists (previous pod force-deleted?!)"
    )]
    OldClaim { claim: String, old: ClaimUid },
}

/// The calls that prepare a pod's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparePlan {
    /// Claims that are not prepared yet, also those that no driver has a part in.
    pub claims: BTreeSet<ClaimKey>,
    /// What each driver is to prepare.
    pub calls: BTreeMap<DriverName, Vec<ClaimIdentity>>,
}

/// A driver's answer about one claim: what it made of it, or its words why it did not.
pub type ClaimAnswer<T> = Result<T, String>;

/// A driver's answer to one call, by claim; `T` is what it says of a claim.
pub type DriverAnswer<T> = BTreeMap<ClaimUid, ClaimAnswer<T>>;

/// Why a driver's call came to nothing. `rpc` is `NodePrepareResources` or `NodeUnprepareResources`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallFailure {
    /// The call as a whole: `why` as gRPC words it.
    #[error("{rpc}: {why}")]
    Call { rpc: &'static str, why: String },
    #[error("{rpc} returned result for unknown claim UID {uid}")]
    UnknownClaim { rpc: &'static str, uid: ClaimUid },
    #[error("{rpc} failed for ResourceClaim {claim}: {why}")]
    Claim {
        rpc: &'static str,
        claim: String,
        why: String,
    },
    #[error("{rpc} skipped {count} ResourceClaims")]
    Skipped { rpc: &'static str, count: usize },
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl PrepareRefusal {
    /// Returns whether the same pod may be prepared later: all but a pod that says nothing of its claim.
    pub fn transient(&self) -> bool {
        match self {
            Self::Name(error) => error.transient(),
            Self::Claim(_) | Self::Driver(_) | Self::OldClaim { .. } => true,
        }
    }
}

impl ClaimCache {
    /// Checks the pod's claims and, if it may use all of them, remembers that it does. `needed` has the objects that
    /// the pod refers to. Drivers must be there also for what is prepared already: something is wrong without them.
    ///
    /// # Errors
    ///
    /// The first claim that the pod may not use, the first driver that is not registered, or a claim of the same name
    /// that a driver still holds for an older object. The cache is as before.
    pub fn plan_prepare(
        &mut self,
        pod: &Pod,
        needed: &[(ClaimReference, ResourceClaim)],
        drivers: &DriverRegistry,
        gates: ClaimGates,
    ) -> Result<PreparePlan, PrepareRefusal> {
        let mut entries = BTreeMap::new();
        for (reference, claim) in needed {
            let entry = check_claim(pod, reference.origin, claim, gates)?;
            for driver in entry.drivers.keys() {
                drivers.get(driver)?;
            }
            self.check_identity(&entry)?;
            entries.insert(entry.key(), entry);
        }
        let mut plan = PreparePlan::default();
        for (key, entry) in entries {
            if self.get(&key).is_none() {
                self.insert(entry);
            }
            let Some(entry) = self.get_mut(&key) else {
                continue;
            };
            entry.pods.insert(pod.uid());
            if entry.preparation == Preparation::Unprepared {
                for driver in entry.drivers.keys() {
                    let claims = plan.calls.entry(driver.clone()).or_default();
                    claims.push(entry.identity());
                }
                plan.claims.insert(key);
            }
        }
        Ok(plan)
    }

    fn check_identity(&self, entry: &ClaimEntry) -> Result<(), PrepareRefusal> {
        match self.get(&entry.key()) {
            Some(known) if known.uid != entry.uid => Err(PrepareRefusal::OldClaim {
                claim: entry.name.clone(),
                old: known.uid.clone(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes in what came of the plan's calls: claims whose drivers have all prepared them are prepared from now on,
    /// with the devices that the drivers named.
    pub fn take_prepared(
        &mut self,
        plan: &PreparePlan,
        prepared: &BTreeMap<DriverName, BTreeMap<ClaimUid, Vec<ClaimDevice>>>,
    ) {
        for key in &plan.claims {
            let Some(entry) = self.get_mut(key) else {
                continue;
            };
            let mut complete = true;
            for (driver, devices) in &mut entry.drivers {
                let answer = prepared
                    .get(driver)
                    .and_then(|claims| claims.get(&entry.uid));
                match answer {
                    Some(answer) => devices.clone_from(answer),
                    None => complete = false,
                }
            }
            if complete {
                entry.preparation = Preparation::Prepared;
            }
        }
    }
}

/// Checks that a driver answered about the claims that it was called with, all of them, and well.
///
/// # Errors
///
/// The first claim that it was not called with, or could not do; else the number of those that it left out.
pub fn check_answer<T>(
    rpc: &'static str,
    claims: &[ClaimIdentity],
    answer: DriverAnswer<T>,
) -> Result<BTreeMap<ClaimUid, T>, CallFailure> {
    let mut done = BTreeMap::new();
    for (uid, answer) in answer {
        let Some(claim) = claims.iter().find(|claim| claim.uid == uid) else {
            return Err(CallFailure::UnknownClaim { rpc, uid });
        };
        let answer = answer.map_err(|why| CallFailure::Claim {
            rpc,
            claim: claim.name.clone(),
            why,
        })?;
        done.insert(uid, answer);
    }
    match claims.len().saturating_sub(done.len()) {
        0 => Ok(done),
        count => Err(CallFailure::Skipped { rpc, count }),
    }
}
