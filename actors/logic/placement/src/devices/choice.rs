//! Which devices a container gets.
//!
//! Mirrors upstream's `devicesToAllocate` and `filterByAffinity` of devicemanager/manager.go at v1.36. Devices are taken
//! in the order of their ids, where upstream takes them in any.

use std::collections::BTreeSet;

use thiserror::Error;

use super::inventory::{DeviceInventory, DeviceResource};
use super::preferences::{DevicePreferences, PreferenceQuestion};
use crate::topology::NumaMask;

/// What one container asks for of one resource, and what is spoken for.
#[derive(Debug)]
pub(super) struct Demand<'a> {
    pub pod: &'a str,
    pub container: &'a str,
    pub resource: &'a str,
    /// Devices.
    pub count: usize,
    /// What the container holds already.
    pub held: Option<&'a BTreeSet<String>>,
    /// What init containers have had before it.
    pub reusable: BTreeSet<String>,
    /// What any container has.
    pub in_use: BTreeSet<String>,
    /// The NUMA nodes that the devices should be close to; none is no constraint.
    pub affinity: Option<NumaMask>,
}

/// Why a container gets no devices.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum ChoiceError {
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {held} to {count}"
    )]
    Changed {
        pod: String,
        container: String,
        resource: String,
        held: usize,
        count: usize,
    },
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    NoLongerHealthy(String),
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        resource: String,
        requested: usize,
        available: usize,
    },
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    PreferenceFailed(String),
    /// The plugin has to be asked first.
    #[error("the plugin of {} has not been asked for its preference yet", .0.resource)]
    Undecided(PreferenceQuestion),
}

/// The ids of the devices that the container gets: those that it holds where it holds any.
pub(super) fn choose(
    demand: &Demand<'_>,
    inventory: &DeviceInventory,
    preferences: &DevicePreferences,
) -> Result<BTreeSet<String>, ChoiceError> {
    let name = || demand.resource.to_owned();
    if let Some(held) = demand.held.filter(|held| held.len() != demand.count) {
        return Err(ChoiceError::Changed {
            pod: demand.pod.to_owned(),
            container: demand.container.to_owned(),
            resource: name(),
            held: held.len(),
            count: demand.count,
        });
    }
    let resource = inventory.resource(demand.resource);
    let resource = resource.ok_or_else(|| ChoiceError::Unregistered(name()))?;
    if resource.healthy().next().is_none() {
        return Err(ChoiceError::NoneHealthy(name()));
    }
    if let Some(held) = demand.held {
        return match held.iter().all(|id| resource.is_healthy(id)) {
            true => Ok(held.clone()),
            false => Err(ChoiceError::NoLongerHealthy(name())),
        };
    }
    let mut taken = Taken::of(demand.count);
    let reusable = demand.reusable.iter();
    if taken.take(reusable.filter(|id| resource.is_healthy(id))) {
        return Ok(taken.ids);
    }
    let options = inventory.options(demand.resource).unwrap_or_default();
    let ask = |available: &BTreeSet<String>, taken: &Taken| match options.preferred_allocation {
        true => ask(demand, available, taken, preferences),
        false => Ok(BTreeSet::new()),
    };
    choose_new(demand, resource, taken, ask)
}

/// Chooses the rest among the devices that nobody has.
fn choose_new(
    demand: &Demand<'_>,
    resource: &DeviceResource,
    mut taken: Taken,
    ask: impl Fn(&BTreeSet<String>, &Taken) -> Result<BTreeSet<String>, ChoiceError>,
) -> Result<BTreeSet<String>, ChoiceError> {
    let ids = resource.healthy().map(|(id, _)| id.to_owned());
    let available: BTreeSet<String> = ids.filter(|id| !demand.in_use.contains(id)).collect();
    if available.len() < taken.needed {
        return Err(ChoiceError::Unavailable {
            resource: demand.resource.to_owned(),
            requested: taken.needed,
            available: available.len(),
        });
    }
    let groups = by_affinity(resource, &available, demand.affinity);
    if taken.needed < groups.aligned.len() {
        let preferred = ask(&groups.aligned, &taken)?;
        let preferred = preferred.intersection(&groups.aligned);
        let done = taken.take(preferred) || taken.take(&groups.aligned);
        debug_assert!(done, "more are aligned than are needed");
        return Ok(taken.ids);
    }
    if taken.take(&groups.aligned) {
        return Ok(taken.ids);
    }
    let preferred = ask(&available, &taken)?;
    let rest = groups.unaligned.iter().chain(&groups.unplaced);
    let done = taken.take(preferred.intersection(&available)) || taken.take(rest);
    debug_assert!(done, "there are as many devices as are needed");
    Ok(taken.ids)
}

/// What the plugin prefers among the available devices and those that are taken already.
fn ask(
    demand: &Demand<'_>,
    available: &BTreeSet<String>,
    taken: &Taken,
    preferences: &DevicePreferences,
) -> Result<BTreeSet<String>, ChoiceError> {
    let question = PreferenceQuestion {
        resource: demand.resource.to_owned(),
        available: available.union(&taken.ids).cloned().collect(),
        must_include: taken.ids.clone(),
        size: demand.count,
    };
    match preferences.get(&question) {
        Some(Ok(preferred)) => Ok(preferred.clone()),
        Some(Err(why)) => Err(ChoiceError::PreferenceFailed(why.clone())),
        None => Err(ChoiceError::Undecided(question)),
    }
}

/// Devices that are taken one by one until there are enough.
#[derive(Debug)]
struct Taken {
    ids: BTreeSet<String>,
    needed: usize,
}

impl Taken {
    fn of(count: usize) -> Self {
        Self {
            ids: BTreeSet::new(),
            needed: count,
        }
    }

    /// Takes as many of these as are still needed; returns whether none is needed any more.
    fn take<'a>(&mut self, ids: impl IntoIterator<Item = &'a String>) -> bool {
        for id in ids {
            if self.needed == 0 {
                break;
            }
            if self.ids.insert(id.clone()) {
                self.needed -= 1;
            }
        }
        self.needed == 0
    }
}

/// Available devices by how they lie to the NUMA nodes that they should be close to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AffinityGroups {
    /// Close to one of the nodes.
    pub aligned: BTreeSet<String>,
    /// Close to other nodes only.
    pub unaligned: BTreeSet<String>,
    /// They do not say, or it does not matter.
    pub unplaced: BTreeSet<String>,
}

pub(super) fn by_affinity(
    resource: &DeviceResource,
    available: &BTreeSet<String>,
    affinity: Option<NumaMask>,
) -> AffinityGroups {
    let mut groups = AffinityGroups::default();
    for id in available {
        let nodes = resource.nodes(id);
        let group = match affinity {
            Some(affinity) if nodes.intersects(affinity) => &mut groups.aligned,
            Some(_) if !nodes.is_empty() => &mut groups.unaligned,
            Some(_) | None => &mut groups.unplaced,
        };
        group.insert(id.clone());
    }
    groups
}
