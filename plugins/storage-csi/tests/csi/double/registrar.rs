//! The driver's registrar.

use proto::registration::registration_server::Registration;
use proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tonic::{Request, Response, Status};

use super::Double;

#[derive(Debug)]
pub(super) struct Registrar {
    pub(super) double: Double,
    pub(super) endpoint: String,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let manner = &self.double.manner;
        if !manner.greets {
            return std::future::pending().await;
        }
        Ok(Response::new(PluginInfo {
            r#type: manner.kind.to_owned(),
            name: manner.name.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: manner
                .versions
                .iter()
                .map(|&text| text.to_owned())
                .collect(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.double
            .inner()
            .told
            .push((status.plugin_registered, status.error));
        self.double.changes.send_modify(|change| *change += 1);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
