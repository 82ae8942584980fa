//! The base service: `oxlet.plugin.v1.Plugin`, the same for every plugin.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use proto::plugin::plugin_server::Plugin;
use proto::plugin::{
    ConfigureRequest, ConfigureResponse, DrainRequest, DrainResponse, HealthReport, HealthRequest,
    InfoRequest, InfoResponse,
};
use serde_json::Value;
use tokio::sync::{Mutex, watch};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::health::Health;
use crate::plugin::{Info, Refusal, Setup};

type Build = Box<dyn Fn(Setup) -> BoxFuture<'static, Result<Routes, Refusal>> + Send + Sync>;

/// Under which name, and where, this process serves.
#[derive(Clone, Debug)]
pub(crate) struct ProcessIdentity {
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) dir: PathBuf,
}

/// One plugin: shared by its base service, the gate before its kind's service, and its end.
#[derive(Clone)]
pub(crate) struct Base {
    info: Arc<Info>,
    identity: Arc<ProcessIdentity>,
    build: Arc<Build>,
    health: Health,

    /// The bytes that the plugin was configured with.
    configured: Arc<Mutex<Option<Vec<u8>>>>,
    routes: watch::Sender<Option<Routes>>,
    in_flight: watch::Sender<u32>,
    draining: watch::Sender<bool>,
}

impl Base {
    pub(crate) fn new<F, Fut>(info: Info, identity: ProcessIdentity, build: F) -> Self
    where
        F: Fn(Setup) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Routes, Refusal>> + Send + 'static,
    {
        Self {
            info: Arc::new(info),
            identity: Arc::new(identity),
            build: Arc::new(Box::new(move |setup| Box::pin(build(setup)))),
            health: Health::unconfigured(),
            configured: Arc::new(Mutex::new(None)),
            routes: watch::Sender::new(None),
            in_flight: watch::Sender::new(0),
            draining: watch::Sender::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// Follows the kind's service: `None` until the plugin is configured.
    pub(crate) fn routes(&self) -> watch::Receiver<Option<Routes>> {
        self.routes.subscribe()
    }

    /// Counts one call of the kind's service for as long as the guard lives.
    pub(crate) fn begin(&self) -> InFlight {
        self.in_flight.send_modify(|count| *count += 1);
        InFlight(self.in_flight.clone())
    }

    /// Resolves when the plugin has been asked to end.
    pub(crate) async fn ending(&self) {
        // The sender lives in `self`: waiting cannot fail.
        drop(
            self.draining
                .subscribe()
                .wait_for(|draining| *draining)
                .await,
        );
    }

    /// Accepts nothing new and waits for the calls begun; returns how many were left at the deadline.
    pub(crate) async fn finish(&self, within: Duration) -> u32 {
        self.draining.send_replace(true);
        let mut in_flight = self.in_flight.subscribe();
        drop(tokio::time::timeout(within, in_flight.wait_for(|count| *count == 0)).await);
        *in_flight.borrow()
    }

    /// Builds the service of the plugin's kind from its configuration.
    pub(crate) async fn set_up(&self, bytes: Vec<u8>) -> Result<(), Status> {
        let name = &self.identity.name;
        let mut configured = self.configured.lock().await;
        if let Some(before) = configured.as_ref() {
            return if bytes.is_empty() || *before == bytes {
                Ok(())
            } else {
                Err(Status::failed_precondition(format!(
                    "plugin {name} is already configured otherwise; restart it to change that"
                )))
            };
        }
        let configuration = parse(&bytes).map_err(|error| {
            Status::invalid_argument(format!(
                "configuration of plugin {name} is not JSON: {error}"
            ))
        })?;
        let setup = Setup {
            name: name.clone(),
            generation: self.identity.generation,
            dir: self.identity.dir.clone(),
            configuration,
            health: self.health.clone(),
        };
        let routes = (self.build)(setup)
            .await
            .map_err(|refusal| Status::invalid_argument(refusal.to_string()))?;
        self.routes.send_replace(Some(routes.prepare()));
        self.health.built();
        *configured = Some(bytes);
        tracing::info!(generation = self.identity.generation, "configured");
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    if bytes.is_empty() {
        Ok(Value::Null)
    } else {
        serde_json::from_slice(bytes)
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base")
            .field("info", &self.info)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// One call of the kind's service.
pub(crate) struct InFlight(watch::Sender<u32>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[tonic::async_trait]
impl Plugin for Base {
    type HealthStream = Pin<Box<dyn Stream<Item = Result<HealthReport, Status>> + Send>>;

    async fn info(&self, request: Request<InfoRequest>) -> Result<Response<InfoResponse>, Status> {
        tracing::debug!(
            contract = request.into_inner().contract,
            "the agent asks who this is"
        );
        Ok(Response::new(InfoResponse {
            contract: proto::PLUGIN_CONTRACT,
            kind: proto::plugin::Kind::from(self.info.kind).into(),
            name: self.info.name.to_owned(),
            version: self.info.version.to_owned(),
            capabilities: self
                .info
                .capabilities
                .iter()
                .map(|&ability| ability.to_owned())
                .collect(),
        }))
    }

    async fn configure(
        &self,
        request: Request<ConfigureRequest>,
    ) -> Result<Response<ConfigureResponse>, Status> {
        self.set_up(request.into_inner().configuration_json).await?;
        Ok(Response::new(ConfigureResponse {}))
    }

    async fn health(
        &self,
        request: Request<HealthRequest>,
    ) -> Result<Response<Self::HealthStream>, Status> {
        let interval = request.into_inner().interval_ms;
        if interval == 0 {
            return Err(Status::invalid_argument(
                "interval_ms is 0, expected at least 1",
            ));
        }
        let interval = Duration::from_millis(interval.into());
        Ok(Response::new(Box::pin(
            self.health.stream(interval, self.draining.subscribe()),
        )))
    }

    async fn drain(
        &self,
        request: Request<DrainRequest>,
    ) -> Result<Response<DrainResponse>, Status> {
        let within = Duration::from_millis(request.into_inner().deadline_ms.into());
        let abandoned = self.finish(within).await;
        tracing::info!(abandoned, "drained");
        Ok(Response::new(DrainResponse { abandoned }))
    }
}
