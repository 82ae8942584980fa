//! The contract's calls: read, carried out, answered.

use std::sync::Arc;

use proto::network::network_server::Network;
use proto::network::{
    AddRequest, AddResponse, CheckRequest, CheckResponse, DeleteRequest, DeleteResponse, GcRequest,
    GcResponse, PrepareGcRequest, PrepareGcResponse, StatusRequest, StatusResponse,
};
use tonic::{Request, Response, Status};

use crate::engine::{Collection, Engine};
use crate::request::{self, Parts, wanted};
use crate::result::to_wire;

#[derive(Debug)]
pub(crate) struct Service {
    engine: Arc<Engine>,
}

impl Service {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl Network for Service {
    async fn add(&self, request: Request<AddRequest>) -> Result<Response<AddResponse>, Status> {
        let request = request.into_inner();
        request::owner(&request.owner)?;
        let version = request::version(&request.result_version)?;
        let wanted = wanted(Parts {
            attachment: request.attachment,
            pod: request.pod,
            netns: request.netns,
            capabilities: request.capabilities,
            cni_args: request.cni_args,
            within_ms: request.within_ms,
        })?;
        let made = self.engine.clone().add(wanted, request.owner).await?;
        let result = made.result.clone().unwrap_or_default();
        Ok(Response::new(AddResponse {
            result: Some(to_wire(&result, version)),
            configuration_json: made.network.to_json(),
            network: made.id.network.clone(),
        }))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let request = request.into_inner();
        let kept = request::configuration(&request.configuration_json)?;
        let wanted = wanted(Parts {
            attachment: request.attachment,
            pod: request.pod,
            netns: request.netns,
            capabilities: request.capabilities,
            cni_args: request.cni_args,
            within_ms: request.within_ms,
        })?;
        self.engine.clone().delete(wanted, kept).await?;
        Ok(Response::new(DeleteResponse {}))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let request = request.into_inner();
        let wanted = wanted(Parts {
            attachment: request.attachment,
            pod: request.pod,
            netns: request.netns,
            capabilities: request.capabilities,
            cni_args: request.cni_args,
            within_ms: request.within_ms,
        })?;
        self.engine.clone().check(wanted).await?;
        Ok(Response::new(CheckResponse {}))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let request = request.into_inner();
        let end = request::end(request.within_ms);
        let networks = self.engine.status(&request.network, end).await;
        Ok(Response::new(StatusResponse { networks }))
    }

    async fn prepare_gc(
        &self,
        _: Request<PrepareGcRequest>,
    ) -> Result<Response<PrepareGcResponse>, Status> {
        let mark = self.engine.mark();
        Ok(Response::new(PrepareGcResponse { mark }))
    }

    async fn gc(&self, request: Request<GcRequest>) -> Result<Response<GcResponse>, Status> {
        let request = request.into_inner();
        request::owner(&request.owner)?;
        let valid = request.valid.into_iter();
        let valid = valid.map(|of| request::identity(Some(of)));
        let collection = Collection {
            networks: request.networks,
            owner: request.owner,
            valid: valid.collect::<Result<_, _>>()?,
            mark: request.mark,
            end: request::end(request.within_ms),
        };
        let collected = self.engine.clone().gc(collection).await?;
        Ok(Response::new(collected))
    }
}
