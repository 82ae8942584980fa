//! The services on the wire: each call goes to the dispatcher.

use std::sync::Arc;

use proto::csi::controller_server::Controller;
use proto::csi::identity_server::Identity;
use proto::csi::node_server::Node;
use proto::csi::{self, node_service_capability, plugin_capability};
use proto::registration::registration_server::Registration as Registers;
use proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tonic::{Request, Response, Status};

use super::dispatcher::{CallContext, Dispatcher};
use super::{controller, usage, volumes};
use crate::doubles::csi_driver::{DriverCapability, DriverOptions, RegistrationMode};

/// All services of one driver.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) dispatcher: Arc<Dispatcher>,
}

type GrpcResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Registers for Services {
    async fn get_info(&self, request: Request<InfoRequest>) -> GrpcResult<PluginInfo> {
        if self.dispatcher.options.registration == RegistrationMode::Silent {
            return std::future::pending().await;
        }
        let introduce = |context: &CallContext, _| Ok(introduction(&context.options));
        self.dispatcher.read(request, introduce).await
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> GrpcResult<RegistrationStatusResponse> {
        let hear = |_: &CallContext, _| Ok(RegistrationStatusResponse {});
        self.dispatcher.read(request, hear).await
    }
}

fn introduction(options: &DriverOptions) -> PluginInfo {
    let how = options.registration;
    let unless = |fault: RegistrationMode, lie: &str, truth: &str| match how == fault {
        true => lie.to_owned(),
        false => truth.to_owned(),
    };
    let wrong = how == RegistrationMode::WrongVersion;
    PluginInfo {
        r#type: unless(RegistrationMode::OtherType, "TeaPlugin", "CSIPlugin"),
        name: unless(
            RegistrationMode::OtherName,
            "other.example.com",
            &options.name,
        ),
        endpoint: options.endpoint().display().to_string(),
        supported_versions: match wrong {
            true => vec!["9.9.9".to_owned()],
            false => options.offers.clone(),
        },
    }
}

#[tonic::async_trait]
impl Identity for Services {
    async fn get_plugin_info(
        &self,
        request: Request<csi::GetPluginInfoRequest>,
    ) -> GrpcResult<csi::GetPluginInfoResponse> {
        let answer = |context: &CallContext, _| {
            Ok(csi::GetPluginInfoResponse {
                name: context.options.name.clone(),
                vendor_version: context.options.vendor_version.clone(),
                ..Default::default()
            })
        };
        self.dispatcher.read(request, answer).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> GrpcResult<csi::GetPluginCapabilitiesResponse> {
        let answer = |context: &CallContext, _| {
            Ok(csi::GetPluginCapabilitiesResponse {
                capabilities: plugin_capabilities(&context.options),
            })
        };
        self.dispatcher.read(request, answer).await
    }

    async fn probe(&self, request: Request<csi::ProbeRequest>) -> GrpcResult<csi::ProbeResponse> {
        let answer = |_: &CallContext, _| Ok(csi::ProbeResponse { ready: Some(true) });
        self.dispatcher.read(request, answer).await
    }
}

fn plugin_capabilities(options: &DriverOptions) -> Vec<csi::PluginCapability> {
    use plugin_capability::service::Type as Serves;
    use plugin_capability::volume_expansion::Type as Grows;
    use plugin_capability::{Service, Type, VolumeExpansion};
    let grows = match options.offline_expansion {
        true => Grows::Offline,
        false => Grows::Online,
    };
    let service = |serves: Serves| {
        Type::Service(Service {
            r#type: serves.into(),
        })
    };
    let mut all = vec![service(Serves::ControllerService)];
    if !options.topology.is_empty() {
        all.push(service(Serves::VolumeAccessibilityConstraints));
    }
    if options.can(DriverCapability::Expand) {
        all.push(Type::VolumeExpansion(VolumeExpansion {
            r#type: grows.into(),
        }));
    }
    let all = all.into_iter();
    all.map(|one| csi::PluginCapability { r#type: Some(one) })
        .collect()
}

#[tonic::async_trait]
impl Node for Services {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> GrpcResult<csi::NodeStageVolumeResponse> {
        self.dispatcher.write(request, volumes::stage).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> GrpcResult<csi::NodeUnstageVolumeResponse> {
        self.dispatcher.write(request, volumes::unstage).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> GrpcResult<csi::NodePublishVolumeResponse> {
        self.dispatcher.write(request, volumes::publish).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> GrpcResult<csi::NodeUnpublishVolumeResponse> {
        self.dispatcher.write(request, volumes::unpublish).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> GrpcResult<csi::NodeGetVolumeStatsResponse> {
        self.dispatcher.read(request, usage::stats).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> GrpcResult<csi::NodeExpandVolumeResponse> {
        self.dispatcher.write(request, usage::expand).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> GrpcResult<csi::NodeGetCapabilitiesResponse> {
        let answer = |context: &CallContext, _| {
            Ok(csi::NodeGetCapabilitiesResponse {
                capabilities: node_capabilities(&context.options),
            })
        };
        self.dispatcher.read(request, answer).await
    }

    async fn node_get_info(
        &self,
        request: Request<csi::NodeGetInfoRequest>,
    ) -> GrpcResult<csi::NodeGetInfoResponse> {
        let answer = |context: &CallContext, _| {
            let segments = context.options.topology();
            let topology = (!segments.is_empty()).then_some(csi::Topology { segments });
            Ok(csi::NodeGetInfoResponse {
                node_id: context.options.node_id.clone(),
                max_volumes_per_node: context.options.max_volumes(),
                accessible_topology: topology,
            })
        };
        self.dispatcher.read(request, answer).await
    }
}

fn node_capabilities(options: &DriverOptions) -> Vec<csi::NodeServiceCapability> {
    use node_service_capability::rpc::Type as Word;
    use node_service_capability::{Rpc, Type};
    let words = options
        .abilities
        .iter()
        .filter_map(|ability| match ability {
            DriverCapability::Stage => Some(Word::StageUnstageVolume),
            DriverCapability::Stats => Some(Word::GetVolumeStats),
            DriverCapability::Expand => Some(Word::ExpandVolume),
            DriverCapability::Condition => Some(Word::VolumeCondition),
            DriverCapability::MultiWriter => Some(Word::SingleNodeMultiWriter),
            DriverCapability::MountGroup => Some(Word::VolumeMountGroup),
            DriverCapability::Nothing => None,
        });
    let capability = |word: Word| csi::NodeServiceCapability {
        r#type: Some(Type::Rpc(Rpc {
            r#type: word.into(),
        })),
    };
    words.map(capability).collect()
}

#[tonic::async_trait]
impl Controller for Services {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> GrpcResult<csi::CreateVolumeResponse> {
        self.dispatcher.write(request, controller::create).await
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> GrpcResult<csi::DeleteVolumeResponse> {
        self.dispatcher.write(request, controller::delete).await
    }

    async fn controller_publish_volume(
        &self,
        _: Request<csi::ControllerPublishVolumeRequest>,
    ) -> GrpcResult<csi::ControllerPublishVolumeResponse> {
        Err(Status::unimplemented("nothing is attached"))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> GrpcResult<csi::ControllerUnpublishVolumeResponse> {
        Err(Status::unimplemented("nothing is attached"))
    }

    async fn validate_volume_capabilities(
        &self,
        _: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> GrpcResult<csi::ValidateVolumeCapabilitiesResponse> {
        Err(Status::unimplemented("everything goes"))
    }

    async fn controller_get_capabilities(
        &self,
        request: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> GrpcResult<csi::ControllerGetCapabilitiesResponse> {
        self.dispatcher
            .read(request, controller::capabilities)
            .await
    }

    async fn controller_expand_volume(
        &self,
        _: Request<csi::ControllerExpandVolumeRequest>,
    ) -> GrpcResult<csi::ControllerExpandVolumeResponse> {
        Err(Status::unimplemented("the node does it"))
    }
}
