//! The services on the wire: each call goes to the desk.

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

use super::desk::{Bench, Desk};
use super::{controller, figures, volumes};
use crate::csi_driver::{Ability, Options, Registration};

/// All services of one driver.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) desk: Arc<Desk>,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Registers for Services {
    async fn get_info(&self, request: Request<InfoRequest>) -> Answer<PluginInfo> {
        if self.desk.options.registration == Registration::Silent {
            return std::future::pending().await;
        }
        let introduce = |bench: &Bench, _| Ok(introduction(&bench.options));
        self.desk.read(request, introduce).await
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Answer<RegistrationStatusResponse> {
        let hear = |_: &Bench, _| Ok(RegistrationStatusResponse {});
        self.desk.read(request, hear).await
    }
}

fn introduction(options: &Options) -> PluginInfo {
    let how = options.registration;
    let unless = |fault: Registration, lie: &str, truth: &str| match how == fault {
        true => lie.to_owned(),
        false => truth.to_owned(),
    };
    let wrong = how == Registration::WrongVersion;
    PluginInfo {
        r#type: unless(Registration::OtherType, "TeaPlugin", "CSIPlugin"),
        name: unless(Registration::OtherName, "other.example.com", &options.name),
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
    ) -> Answer<csi::GetPluginInfoResponse> {
        let answer = |bench: &Bench, _| {
            Ok(csi::GetPluginInfoResponse {
                name: bench.options.name.clone(),
                vendor_version: bench.options.vendor_version.clone(),
                ..Default::default()
            })
        };
        self.desk.read(request, answer).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Answer<csi::GetPluginCapabilitiesResponse> {
        let answer = |bench: &Bench, _| {
            Ok(csi::GetPluginCapabilitiesResponse {
                capabilities: plugin_capabilities(&bench.options),
            })
        };
        self.desk.read(request, answer).await
    }

    async fn probe(&self, request: Request<csi::ProbeRequest>) -> Answer<csi::ProbeResponse> {
        let answer = |_: &Bench, _| Ok(csi::ProbeResponse { ready: Some(true) });
        self.desk.read(request, answer).await
    }
}

fn plugin_capabilities(options: &Options) -> Vec<csi::PluginCapability> {
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
    if options.can(Ability::Expand) {
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
    ) -> Answer<csi::NodeStageVolumeResponse> {
        self.desk.write(request, volumes::stage).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Answer<csi::NodeUnstageVolumeResponse> {
        self.desk.write(request, volumes::unstage).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Answer<csi::NodePublishVolumeResponse> {
        self.desk.write(request, volumes::publish).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Answer<csi::NodeUnpublishVolumeResponse> {
        self.desk.write(request, volumes::unpublish).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Answer<csi::NodeGetVolumeStatsResponse> {
        self.desk.read(request, figures::stats).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Answer<csi::NodeExpandVolumeResponse> {
        self.desk.write(request, figures::expand).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Answer<csi::NodeGetCapabilitiesResponse> {
        let answer = |bench: &Bench, _| {
            Ok(csi::NodeGetCapabilitiesResponse {
                capabilities: node_capabilities(&bench.options),
            })
        };
        self.desk.read(request, answer).await
    }

    async fn node_get_info(
        &self,
        request: Request<csi::NodeGetInfoRequest>,
    ) -> Answer<csi::NodeGetInfoResponse> {
        let answer = |bench: &Bench, _| {
            let segments = bench.options.topology();
            let topology = (!segments.is_empty()).then_some(csi::Topology { segments });
            Ok(csi::NodeGetInfoResponse {
                node_id: bench.options.node_id.clone(),
                max_volumes_per_node: bench.options.max_volumes(),
                accessible_topology: topology,
            })
        };
        self.desk.read(request, answer).await
    }
}

fn node_capabilities(options: &Options) -> Vec<csi::NodeServiceCapability> {
    use node_service_capability::rpc::Type as Word;
    use node_service_capability::{Rpc, Type};
    let words = options
        .abilities
        .iter()
        .filter_map(|ability| match ability {
            Ability::Stage => Some(Word::StageUnstageVolume),
            Ability::Stats => Some(Word::GetVolumeStats),
            Ability::Expand => Some(Word::ExpandVolume),
            Ability::Condition => Some(Word::VolumeCondition),
            Ability::MultiWriter => Some(Word::SingleNodeMultiWriter),
            Ability::MountGroup => Some(Word::VolumeMountGroup),
            Ability::Nothing => None,
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
    ) -> Answer<csi::CreateVolumeResponse> {
        self.desk.write(request, controller::create).await
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Answer<csi::DeleteVolumeResponse> {
        self.desk.write(request, controller::delete).await
    }

    async fn controller_publish_volume(
        &self,
        _: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Answer<csi::ControllerPublishVolumeResponse> {
        Err(Status::unimplemented("nothing is attached"))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Answer<csi::ControllerUnpublishVolumeResponse> {
        Err(Status::unimplemented("nothing is attached"))
    }

    async fn validate_volume_capabilities(
        &self,
        _: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<csi::ValidateVolumeCapabilitiesResponse> {
        Err(Status::unimplemented("everything goes"))
    }

    async fn controller_get_capabilities(
        &self,
        request: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Answer<csi::ControllerGetCapabilitiesResponse> {
        self.desk.read(request, controller::capabilities).await
    }

    async fn controller_expand_volume(
        &self,
        _: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Answer<csi::ControllerExpandVolumeResponse> {
        Err(Status::unimplemented("the node does it"))
    }
}
