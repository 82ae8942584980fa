//! Getting to know a plugin, and staying with it: Info, Configure, Health.

use std::time::Duration;

use proto::plugin::plugin_client::PluginClient as BaseClient;
use proto::plugin::{ConfigureRequest, InfoRequest, InfoResponse};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::Channel;

use super::GenerationTask;
use super::update::{GenerationEvent, PluginIdentity};
use crate::declaration::{Declaration, ServiceKind};
use crate::error::{ConnectionLoss, chain};
use crate::health::{HealthMonitor, longest_silence};

/// Between attempts to be answered by a process that has just been started.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Why a plugin that runs is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("plugin {program} speaks contract {theirs}, this agent speaks {ours}")]
    Contract {
        program: String,
        theirs: u32,
        ours: u32,
    },
    #[error("plugin {program} is for {theirs}, but {name} is declared for {ours}")]
    Kind {
        program: String,
        theirs: String,
        name: String,
        ours: ServiceKind,
    },
    #[error("plugin {name} does not accept its configuration: {why}")]
    Configuration { name: String, why: String },
    #[error("plugin {name} did not get ready within {within:?}: {why}")]
    Late {
        name: String,
        within: Duration,
        why: String,
    },
    #[error("plugin {name} has been silent for {silence:?}")]
    Silent { name: String, silence: Duration },
}

impl GenerationTask {
    /// Accompanies a plugin for as long as it is of use.
    pub(super) async fn attend(&self, control: &Channel) -> HandshakeError {
        let Declaration {
            name,
            start_within,
            health_interval,
            ..
        } = &*self.declaration;
        let mut pulse = HealthMonitor::new(control.clone(), *health_interval);
        let mut reason = String::from("no answer");
        let ready = async {
            let info = self.introduced(control, &mut reason).await;
            self.accept(info).await?;
            reason = "it does not answer Configure".to_owned();
            self.configure(control).await?;
            reason = "it reports no health".to_owned();
            Ok(pulse.next().await)
        };
        let mut report = match timeout(*start_within, ready).await {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => return error,
            Err(_) => {
                return HandshakeError::Late {
                    name: name.clone(),
                    within: *start_within,
                    why: reason,
                };
            }
        };
        loop {
            self.tell(GenerationEvent::Reported(report.clone())).await;
            // A report that repeats the last one shows that it lives, but changes nothing.
            loop {
                match pulse.beat().await {
                    Some(next) if next == report => {}
                    Some(next) => break report = next,
                    None => {
                        return HandshakeError::Silent {
                            name: name.clone(),
                            silence: longest_silence(*health_interval),
                        };
                    }
                }
            }
        }
    }

    /// Calls `Info` of a managed process until it answers; `reason` keeps the error of the last try.
    async fn introduced(&self, control: &Channel, reason: &mut String) -> InfoResponse {
        loop {
            match info(control).await {
                Ok(info) => return info,
                Err(status) => *reason = chain(&status),
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn accept(&self, info: InfoResponse) -> Result<(), HandshakeError> {
        let ours = self.declaration.kind;
        if info.contract != proto::PLUGIN_CONTRACT {
            let (program, theirs) = (named(&info), info.contract);
            return Err(HandshakeError::Contract {
                program,
                theirs,
                ours: proto::PLUGIN_CONTRACT,
            });
        }
        if info.kind() != wire(ours) {
            let theirs = kind_words(info.kind());
            return Err(HandshakeError::Kind {
                program: named(&info),
                theirs,
                name: self.declaration.name.clone(),
                ours,
            });
        }
        let program = format!("{} {}", info.name, info.version);
        self.tell(GenerationEvent::Introduced(PluginIdentity {
            program,
            capabilities: info.capabilities,
        }))
        .await;
        Ok(())
    }

    async fn configure(&self, control: &Channel) -> Result<(), HandshakeError> {
        let request = ConfigureRequest {
            configuration_json: self.declaration.configuration_json(),
        };
        loop {
            let answer = BaseClient::new(control.clone())
                .configure(request.clone())
                .await;
            match answer {
                Ok(_) => return Ok(()),
                // A broken connection: the process may live, and its end is seen elsewhere.
                Err(status) if ConnectionLoss::of(&status).is_some() => sleep(RETRY_INTERVAL).await,
                Err(status) => {
                    let (name, why) = (self.declaration.name.clone(), status.message().to_owned());
                    return Err(HandshakeError::Configuration { name, why });
                }
            }
        }
    }
}

pub(super) async fn info(control: &Channel) -> Result<InfoResponse, Status> {
    let request = InfoRequest {
        contract: proto::PLUGIN_CONTRACT,
    };
    Ok(BaseClient::new(control.clone())
        .info(request)
        .await?
        .into_inner())
}

fn named(info: &InfoResponse) -> String {
    if info.name.is_empty() {
        "without a name".to_owned()
    } else {
        info.name.clone()
    }
}

fn wire(kind: ServiceKind) -> proto::plugin::Kind {
    match kind {
        ServiceKind::Runtime => proto::plugin::Kind::Runtime,
        ServiceKind::Network => proto::plugin::Kind::Network,
        ServiceKind::Storage => proto::plugin::Kind::Storage,
    }
}

fn kind_words(kind: proto::plugin::Kind) -> String {
    match kind {
        proto::plugin::Kind::Runtime => "runtime",
        proto::plugin::Kind::Network => "network",
        proto::plugin::Kind::Storage => "storage",
        proto::plugin::Kind::Unspecified => "nothing that this agent knows",
    }
    .to_owned()
}
