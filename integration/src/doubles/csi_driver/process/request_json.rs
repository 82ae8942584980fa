//! The requests of CSI as JSON: what tests assert on.

use std::collections::BTreeMap;

use proto::csi::volume_capability::AccessType;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::{self, VolumeCapability};
use serde_json::{Map, Value, json};

/// A request that the journal can show as JSON.
pub(super) trait CsiRequest {
    /// The call's name on the wire.
    const NAME: &'static str;
    /// Which volume it is about; empty is none.
    fn volume(&self) -> &str {
        ""
    }
    /// Its fields without those that are empty.
    fn json(&self) -> Value;
}

fn fields(all: Value) -> Value {
    let Value::Object(fields) = all else {
        return all;
    };
    let says = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(true) => true,
    };
    let said: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| says(value))
        .collect();
    Value::Object(said)
}

fn context(pairs: &BTreeMap<String, String>) -> Value {
    json!(pairs)
}

/// `{"mount": {"fs_type", "mount_flags", "volume_mount_group"} | null, "block": true, "access_mode"}`
pub(super) fn capability(capability: Option<&VolumeCapability>) -> Value {
    let Some(capability) = capability else {
        return Value::Null;
    };
    let mode = capability.access_mode.as_ref().map(|mode| mode.mode());
    let mode = mode.unwrap_or(Mode::Unknown).as_str_name();
    match &capability.access_type {
        None => json!({ "access_mode": mode }),
        Some(AccessType::Block(_)) => json!({ "block": true, "access_mode": mode }),
        Some(AccessType::Mount(mount)) => json!({
            "mount": fields(json!({
                "fs_type": mount.fs_type,
                "mount_flags": mount.mount_flags,
                "volume_mount_group": mount.volume_mount_group,
            })),
            "access_mode": mode,
        }),
    }
}

impl CsiRequest for csi::NodeStageVolumeRequest {
    const NAME: &'static str = "NodeStageVolume";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        fields(json!({
            "volume_id": self.volume_id,
            "publish_context": context(&self.publish_context),
            "staging_target_path": self.staging_target_path,
            "volume_capability": capability(self.volume_capability.as_ref()),
            "secrets": context(&self.secrets),
            "volume_context": context(&self.volume_context),
        }))
    }
}

impl CsiRequest for csi::NodeUnstageVolumeRequest {
    const NAME: &'static str = "NodeUnstageVolume";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        fields(json!({
            "volume_id": self.volume_id,
            "staging_target_path": self.staging_target_path,
        }))
    }
}

impl CsiRequest for csi::NodePublishVolumeRequest {
    const NAME: &'static str = "NodePublishVolume";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        fields(json!({
            "volume_id": self.volume_id,
            "publish_context": context(&self.publish_context),
            "staging_target_path": self.staging_target_path,
            "target_path": self.target_path,
            "volume_capability": capability(self.volume_capability.as_ref()),
            "readonly": self.readonly,
            "secrets": context(&self.secrets),
            "volume_context": context(&self.volume_context),
        }))
    }
}

impl CsiRequest for csi::NodeUnpublishVolumeRequest {
    const NAME: &'static str = "NodeUnpublishVolume";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        fields(json!({ "volume_id": self.volume_id, "target_path": self.target_path }))
    }
}

impl CsiRequest for csi::NodeGetVolumeStatsRequest {
    const NAME: &'static str = "NodeGetVolumeStats";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        fields(json!({
            "volume_id": self.volume_id,
            "volume_path": self.volume_path,
            "staging_target_path": self.staging_target_path,
        }))
    }
}

impl CsiRequest for csi::NodeExpandVolumeRequest {
    const NAME: &'static str = "NodeExpandVolume";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        let range = self.capacity_range.unwrap_or_default();
        fields(json!({
            "volume_id": self.volume_id,
            "volume_path": self.volume_path,
            "required_bytes": range.required_bytes,
            "limit_bytes": range.limit_bytes,
            "staging_target_path": self.staging_target_path,
            "volume_capability": capability(self.volume_capability.as_ref()),
            "secrets": context(&self.secrets),
        }))
    }
}

impl CsiRequest for csi::CreateVolumeRequest {
    const NAME: &'static str = "CreateVolume";
    fn volume(&self) -> &str {
        &self.name
    }
    fn json(&self) -> Value {
        let capabilities = self.volume_capabilities.iter();
        let capabilities: Vec<Value> = capabilities.map(|one| capability(Some(one))).collect();
        let range = self.capacity_range.unwrap_or_default();
        fields(json!({
            "name": self.name,
            "required_bytes": range.required_bytes,
            "volume_capabilities": capabilities,
            "parameters": context(&self.parameters),
        }))
    }
}

impl CsiRequest for csi::DeleteVolumeRequest {
    const NAME: &'static str = "DeleteVolume";
    fn volume(&self) -> &str {
        &self.volume_id
    }
    fn json(&self) -> Value {
        fields(json!({ "volume_id": self.volume_id }))
    }
}

impl CsiRequest for proto::registration::RegistrationStatus {
    const NAME: &'static str = "NotifyRegistrationStatus";
    fn json(&self) -> Value {
        json!({ "plugin_registered": self.plugin_registered, "error": self.error })
    }
}

/// Calls without fields.
macro_rules! silent {
    ($($request:ty => $name:literal,)*) => {
        $(impl CsiRequest for $request {
            const NAME: &'static str = $name;
            fn json(&self) -> Value {
                json!({})
            }
        })*
    };
}

silent! {
    proto::registration::InfoRequest => "GetInfo",
    csi::GetPluginInfoRequest => "GetPluginInfo",
    csi::GetPluginCapabilitiesRequest => "GetPluginCapabilities",
    csi::ProbeRequest => "Probe",
    csi::NodeGetInfoRequest => "NodeGetInfo",
    csi::NodeGetCapabilitiesRequest => "NodeGetCapabilities",
    csi::ControllerGetCapabilitiesRequest => "ControllerGetCapabilities",
}
