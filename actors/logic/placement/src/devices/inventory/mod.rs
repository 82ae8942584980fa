//! What device plugins have told: the devices of each resource, and whether its plugin is there.
//!
//! Mirrors upstream's devicemanager/manager.go and endpoint.go at v1.36 (`allDevices`, `healthyDevices`,
//! `unhealthyDevices` and `endpoints` in one).

mod listing;
mod node_capacity;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::listing::{Device, DeviceHealth, ListedDevice, ListingError};
pub use self::node_capacity::{NodeDevices, cover_held};
use crate::topology::NumaMask;

/// How long the resource of a plugin that has gone stays in the node's capacity.
const GONE_GRACE: Duration = Duration::from_secs(5 * 60);

/// The devices of each resource. A clone shares them until they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInventory {
    resources: BTreeMap<String, Arc<DeviceResource>>,
}

/// One resource: the devices of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceResource {
    /// By id, as listed last.
    devices: BTreeMap<String, Device>,
    presence: PluginPresence,
    listing: ListingState,
}

/// Whether a resource's plugin is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginPresence {
    Connected(PluginOptions),
    Gone { since: Instant },
}

/// What a plugin wants to be asked beside Allocate (`DevicePluginOptions`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// Before each start of a container with its devices.
    pub pre_start_required: bool,
    /// Which devices it would rather give.
    pub preferred_allocation: bool,
}

/// Whether the devices are those of the plugin that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingState {
    /// It has listed none yet, nor has one before it.
    Awaited,
    /// They are.
    Current,
    /// They are its predecessor's, or its own from before it went.
    Lapsed,
}

impl DeviceInventory {
    /// An inventory without resources.
    pub const EMPTY: Self = Self {
        resources: BTreeMap::new(),
    };

    /// A plugin has registered. The devices of a predecessor that was there until now stay as they are until it lists
    /// its own; those of one that had gone stay unusable.
    pub fn registered(&mut self, resource: &str, options: PluginOptions) {
        let presence = PluginPresence::Connected(options);
        match self.resources.get_mut(resource) {
            Some(known) => Arc::make_mut(known).presence = presence,
            None => {
                let new = DeviceResource {
                    devices: BTreeMap::new(),
                    presence,
                    listing: ListingState::Awaited,
                };
                self.resources.insert(resource.to_owned(), Arc::new(new));
            }
        }
    }

    /// A plugin has listed its devices; returns the ids of those that are new, or whose health has changed. The list
    /// of one that never registered is passed over.
    ///
    /// # Errors
    ///
    /// The list is not one; the devices stay as they were.
    pub fn listed(
        &mut self,
        resource: &str,
        listed: Vec<ListedDevice>,
    ) -> Result<BTreeSet<String>, ListingError> {
        let devices = listing::read(resource, listed)?;
        let Some(known) = self.resources.get_mut(resource) else {
            return Ok(BTreeSet::new());
        };
        let before = |id: &String| known.devices.get(id).map(|device| device.health);
        let changed = devices.iter();
        let changed = changed.filter(|(id, device)| before(id) != Some(device.health));
        let changed = changed.map(|(id, _)| id.clone()).collect();
        let listing = match known.presence {
            PluginPresence::Connected(_) => ListingState::Current,
            PluginPresence::Gone { .. } => ListingState::Lapsed,
        };
        *known = Arc::new(DeviceResource {
            devices,
            presence: known.presence,
            listing,
        });
        Ok(changed)
    }

    /// A plugin has gone, be it before its first list: no device of it can be used, and its resource is removed after a grace.
    pub fn disconnected(&mut self, resource: &str, now: Instant) {
        if let Some(known) = self.resources.get_mut(resource) {
            let known = Arc::make_mut(known);
            known.presence = PluginPresence::Gone { since: now };
            known.listing = ListingState::Lapsed;
        }
    }

    /// A resource was there before the agent restarted: there are none of it until its plugin is back.
    pub fn restored(&mut self, resource: &str, now: Instant) {
        let gone = DeviceResource {
            devices: BTreeMap::new(),
            presence: PluginPresence::Gone { since: now },
            listing: ListingState::Lapsed,
        };
        let entry = self.resources.entry(resource.to_owned());
        entry.or_insert_with(|| Arc::new(gone));
    }

    /// Removes the resources whose plugins have been gone for longer than the grace, and returns their names.
    pub fn expire(&mut self, now: Instant) -> BTreeSet<String> {
        let expired = |resource: &DeviceResource| resource.expiry().is_some_and(|at| at < now);
        let gone = self
            .resources
            .extract_if(.., |_, resource| expired(resource));
        gone.map(|(name, _)| name).collect()
    }

    /// When the next resource's grace ends, if a plugin is gone.
    pub fn next_expiry(&self) -> Option<Instant> {
        let resources = self.resources.values();
        resources.filter_map(|resource| resource.expiry()).min()
    }

    /// The resources by name; those whose plugin has listed nothing yet are none.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &DeviceResource)> {
        let resources = self.resources.iter();
        let known = resources.filter(|(_, resource)| resource.listing != ListingState::Awaited);
        known.map(|(name, resource)| (name.as_str(), &**resource))
    }

    /// A resource that a plugin has listed devices of, or had before the agent restarted.
    pub fn resource(&self, name: &str) -> Option<&DeviceResource> {
        let resource = self.resources.get(name)?;
        (resource.listing != ListingState::Awaited).then_some(&**resource)
    }

    /// What a resource's plugin wants to be asked, if it is there.
    pub fn options(&self, resource: &str) -> Option<PluginOptions> {
        match self.resources.get(resource)?.presence {
            PluginPresence::Connected(options) => Some(options),
            PluginPresence::Gone { .. } => None,
        }
    }
}

impl DeviceResource {
    pub fn presence(&self) -> PluginPresence {
        self.presence
    }

    /// All devices by id, as listed last.
    pub fn devices(&self) -> &BTreeMap<String, Device> {
        &self.devices
    }

    /// The devices that can be used now, by id.
    pub fn healthy(&self) -> impl Iterator<Item = (&str, &Device)> {
        let listed = (self.listing == ListingState::Current).then_some(&self.devices);
        let devices = listed.into_iter().flatten();
        let healthy = devices.filter(|(_, device)| device.health == DeviceHealth::Healthy);
        healthy.map(|(id, device)| (id.as_str(), device))
    }

    /// Whether a device can be used now.
    pub fn is_healthy(&self, id: &str) -> bool {
        let device = self.devices.get(id);
        self.listing == ListingState::Current
            && device.is_some_and(|device| device.health == DeviceHealth::Healthy)
    }

    /// The NUMA nodes that a device is close to; empty where it names none or is unknown.
    pub(super) fn nodes(&self, id: &str) -> NumaMask {
        self.devices
            .get(id)
            .map_or(NumaMask::EMPTY, |device| device.nodes)
    }

    /// Whether it matters where the devices lie: at least one says where it does.
    pub(super) fn has_alignment(&self) -> bool {
        self.devices.values().any(|device| !device.nodes.is_empty())
    }

    fn expiry(&self) -> Option<Instant> {
        match self.presence {
            PluginPresence::Connected(_) => None,
            PluginPresence::Gone { since } => Some(since + GONE_GRACE),
        }
    }
}
