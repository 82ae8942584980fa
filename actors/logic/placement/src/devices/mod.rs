//! Devices of device plugins: which there are, which of them a container gets, and what it gets with them.
//!
//! Plugins tell their devices by resource name ([`DeviceInventory`]); [`DeviceProvider`] assigns them to containers by
//! what it is told alone. Where a plugin wants a say in the choice, the provider answers with a [`PreferenceQuestion`],
//! and is asked again once its answer is among the [`DevicePreferences`]. What plugins have answered for a container's
//! devices is kept as [`DeviceAllocations`], over restarts in the [`checkpoint`].
//! Mirrors upstream's pkg/kubelet/cm/devicemanager at v1.36.

mod allocations;
mod calls;
pub mod checkpoint;
mod choice;
mod container_devices;
mod demand;
mod hints;
mod inventory;
mod preferences;
mod provider;
mod registration;
mod status;
#[cfg(test)]
mod tests;

pub use self::allocations::{DeviceAllocation, DeviceAllocations, DevicesByNode};
pub use self::calls::DeviceCallError;
pub use self::container_devices::{AllocateAnswer, ContainerDevices, DeviceMount, DeviceNode};
pub use self::inventory::{
    Device, DeviceHealth, DeviceInventory, DeviceResource, ListedDevice, ListingError, NodeDevices,
    PluginOptions, PluginPresence, cover_held,
};
pub use self::preferences::{DevicePreferences, PreferenceQuestion};
pub use self::provider::{DeviceProvider, DraResources};
pub use self::registration::{API_VERSION, Registration, RegistrationError};
pub use self::status::{resource_health, update_health};
