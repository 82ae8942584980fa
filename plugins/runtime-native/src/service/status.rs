//! Status, and the answers that don't change.

use proto::cri::{
    CgroupDriver as WireDriver, LinuxRuntimeConfiguration, RuntimeCondition, RuntimeConfigResponse,
    RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus, StatusResponse,
    VersionResponse,
};
use serde_json::json;

use crate::node::Node;
use crate::record::convert;
use crate::sandbox::network::NotReady;
use crate::spec::CgroupDriver;

pub(super) fn version() -> VersionResponse {
    VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: "oxlet-native".to_owned(),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        runtime_api_version: "v1".to_owned(),
    }
}

pub(super) async fn status(node: &Node, verbose: bool) -> StatusResponse {
    let network = match &node.parts.network {
        None => Some(NotReady::absent()),
        Some(network) => network.not_ready().await,
    };
    let ready = |name: &str| RuntimeCondition {
        r#type: name.to_owned(),
        status: true,
        ..RuntimeCondition::default()
    };
    let network = match network {
        None => ready("NetworkReady"),
        Some(NotReady { reason, message }) => RuntimeCondition {
            status: false,
            reason,
            message,
            ..ready("NetworkReady")
        },
    };
    let info = json!({
        "root": node.parts.layout.root(),
        "host": format!("{:?}", node.parts.host),
        "handlers": node.parts.programs.handlers().collect::<std::collections::BTreeMap<_, _>>(),
    });
    StatusResponse {
        status: Some(RuntimeStatus {
            conditions: vec![ready("RuntimeReady"), network],
        }),
        info: match verbose {
            true => convert::info(&info),
            false => Default::default(),
        },
        runtime_handlers: handlers(node),
        features: Some(RuntimeFeatures {
            supplemental_groups_policy: true,
            user_namespaces_host_network: false,
            mount_options: true,
        }),
    }
}

fn handlers(node: &Node) -> Vec<RuntimeHandler> {
    let handlers = node.parts.programs.handlers();
    handlers
        .map(|(name, _)| RuntimeHandler {
            name: name.to_owned(),
            features: Some(RuntimeHandlerFeatures {
                recursive_read_only_mounts: node.parts.features(name).recursive_read_only,
                user_namespaces: node.parts.user_namespaces(name).is_ok(),
            }),
        })
        .collect()
}

pub(super) fn config(node: &Node) -> RuntimeConfigResponse {
    let driver = match node.parts.driver {
        CgroupDriver::Cgroupfs => WireDriver::Cgroupfs,
        CgroupDriver::Systemd => WireDriver::Systemd,
    };
    RuntimeConfigResponse {
        linux: Some(LinuxRuntimeConfiguration {
            cgroup_driver: driver.into(),
        }),
    }
}
