//! One claim that pods of this node use, and what drivers made of it.
//!
//! Mirrors upstream's ClaimInfo of cm/dra/claiminfo.go and cm/dra/state/state.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};

use logic_api::types::PodUid;
use serde::Serialize;

use super::names::{ClaimIdentity, ClaimKey, ClaimUid, DriverName};

/// Whether the drivers of a claim have all prepared it. After a restart none is taken for prepared: drivers are asked
/// again, which changes nothing where it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Preparation {
    #[default]
    Unprepared,
    Prepared,
}

/// A device of a claim, as its driver described it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClaimDevice {
    pub pool: String,
    pub device: String,
    /// Set where several claims share the device.
    pub share: Option<String>,
    /// The claim's requests that it was allocated for; none: for all of them.
    pub requests: Vec<String>,
    /// The names under which the runtime finds it (CDI).
    pub cdi_ids: Vec<String>,
}

/// A claim of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimEntry {
    pub uid: ClaimUid,
    pub namespace: String,
    pub name: String,
    /// The pods that use it, or for which it is being prepared.
    pub pods: BTreeSet<PodUid>,
    /// All drivers that have a part in the claim, also those that gave no device.
    pub drivers: BTreeMap<DriverName, Vec<ClaimDevice>>,
    pub preparation: Preparation,
}

impl ClaimDevice {
    /// Whether it was allocated for this request; each is for all requests together.
    pub(super) fn serves(&self, request: Option<&str>) -> bool {
        match request {
            Some(request) if !self.requests.is_empty() => {
                self.requests.iter().any(|own| own == request)
            }
            Some(_) | None => true,
        }
    }
}

impl ClaimEntry {
    /// A claim that no driver has heard of and no pod uses.
    pub(super) fn unprepared(
        identity: ClaimIdentity,
        drivers: impl Iterator<Item = DriverName>,
    ) -> Self {
        Self {
            uid: identity.uid,
            namespace: identity.namespace,
            name: identity.name,
            pods: BTreeSet::new(),
            drivers: drivers.map(|driver| (driver, Vec::new())).collect(),
            preparation: Preparation::Unprepared,
        }
    }

    pub fn key(&self) -> ClaimKey {
        ClaimKey::new(&self.namespace, &self.name)
    }

    /// The claim as drivers are told of it.
    pub fn identity(&self) -> ClaimIdentity {
        ClaimIdentity {
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            name: self.name.clone(),
        }
    }

    /// The CDI names of its devices for this request, or for all; by driver, in the driver's order.
    pub(super) fn cdi_ids(&self, request: Option<&str>) -> impl Iterator<Item = &String> {
        let devices = self.drivers.values().flatten();
        devices
            .filter(move |device| device.serves(request))
            .flat_map(|device| &device.cdi_ids)
    }
}
