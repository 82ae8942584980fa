//! Device plugins that are found in `plugins_registry`, as CSI and DRA drivers are.
//!
//! Upstream: pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go (1.36). One that registers on `kubelet.sock` as well is
//! the same plugin: who has registered last is called.

use std::path::PathBuf;

use kernel::Addr;
use logic_placement::devices::{API_VERSION, Registration};
use proto::registration::PluginInfo;
use registration::{Plugin, PluginHandler, RegistrationEvent};
use tokio::sync::oneshot;

use super::registrar::REGISTER_TIMEOUT;
use super::{Msg, PluginEndpoint, RegistrationCall};

/// A device plugin by its resource.
#[derive(Debug, Clone)]
pub struct NodeDevicePlugin {
    resource: String,
}

impl Plugin for NodeDevicePlugin {
    /// Nothing decides between two sockets: the last one that registers is called.
    type Version = ();

    const REPLACED: &'static str = "another registration socket stands for this resource";

    fn name(&self) -> &str {
        &self.resource
    }

    fn version(&self) -> &() {
        &()
    }

    fn yield_to(&self, (): &()) -> Result<(), String> {
        Ok(())
    }
}

/// Registers device plugins with the device manager.
#[derive(Debug, Clone)]
pub struct DevicePluginHandler {
    manager: Addr<Msg>,
}

impl DevicePluginHandler {
    pub fn new(manager: Addr<Msg>) -> Self {
        DevicePluginHandler { manager }
    }
}

impl PluginHandler for DevicePluginHandler {
    type Plugin = NodeDevicePlugin;

    const TYPE: &'static str = "DevicePlugin";
    const NOUN: &'static str = "device plugins";

    fn validate(
        &self,
        info: &PluginInfo,
        may_register: impl FnOnce(&str, &()) -> Result<(), String>,
    ) -> Result<(), String> {
        let versions = &info.supported_versions;
        if !versions.iter().any(|version| version == API_VERSION) {
            let versions = versions.join(" ");
            return Err(format!(
                "manager version, {API_VERSION}, is not among plugin supported versions [{versions}]"
            ));
        }
        may_register(&info.name, &())
    }

    async fn register(&self, info: &PluginInfo, (): ()) -> Result<NodeDevicePlugin, String> {
        let (reply, answer) = oneshot::channel();
        let call = RegistrationCall {
            registration: Registration {
                version: API_VERSION.to_owned(),
                endpoint: info.endpoint.clone(),
                resource: info.name.clone(),
            },
            endpoint: PluginEndpoint::At(PathBuf::from(&info.endpoint)),
            reply,
        };
        let sent = self.manager.tell(Msg::Register(call));
        sent.map_err(|full| full.to_string())?;
        match tokio::time::timeout(REGISTER_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => return Err("the device manager restarts".to_owned()),
            Err(_) => return Err("the device manager does not answer".to_owned()),
        }
        let resource = info.name.clone();
        Ok(NodeDevicePlugin { resource })
    }

    fn deregister(&self, name: &str) {
        let resource = name.to_owned();
        if let Err(full) = self.manager.tell(Msg::Deregister { resource }) {
            tracing::warn!(
                "the device plugin of {name} is gone, and the manager has not heard: {full}"
            );
        }
    }

    fn names_changed(&self, _: &[&str]) {}

    fn log(&self, event: &RegistrationEvent<NodeDevicePlugin>) {
        match event {
            RegistrationEvent::Refused { socket, name, why } if !name.is_empty() => {
                tracing::warn!(resource = name, "{socket}: {why}");
            }
            // Sockets of which nothing is known are told by the watcher of DRA drivers, and the manager tells the rest.
            RegistrationEvent::Refused { .. }
            | RegistrationEvent::Registered(_)
            | RegistrationEvent::Gone(_)
            | RegistrationEvent::Synced => {}
        }
    }
}
