//! StartContainer.

use std::sync::Arc;

use monitor::{ContainerStatus, Monitor, MonitorError, Phase, RefusalKind};
use proto::cri::ContainerState;

use crate::clock;
use crate::error::CallError;
use crate::node::Node;
use crate::record::{ContainerRecord, ExitRecord};

/// The code of a container whose command could not be run; containerd's.
const START_ERROR_CODE: i32 = 128;

impl Node {
    /// Starts a created container. One whose start fails has ended with the reason StartError.
    pub(crate) async fn start_container(self: &Arc<Node>, id: &str) -> Result<(), CallError> {
        let id = self.container(id)?.id;
        let _alone = self.lock(&id).await?;
        let record = self.container(&id)?;
        created(&record)?;
        if let Some(why) = record.not_made {
            return Err(self.not_started(&id, why).await);
        }
        let sandbox = self.sandbox(&record.sandbox)?;
        let monitor = self.launch(&sandbox).await?;
        self.follow(&sandbox.id);
        let started = match start(&monitor, &id).await {
            // It died or hung in the middle: its successor knows whether the start was carried out.
            Err(
                MonitorError::Gone(..) | MonitorError::Broken(..) | MonitorError::Deadline { .. },
            ) => {
                let monitor = self.launch(&sandbox).await?;
                start_unless_started(&monitor, &id).await
            }
            // It was started already, and the note of that is lost.
            Err(MonitorError::Refused(refusal)) if refusal.kind == RefusalKind::WrongPhase => {
                start_unless_started(&monitor, &id).await
            }
            started => started,
        };
        match started {
            Ok(status) => {
                self.take_status(&status).await;
                Ok(())
            }
            Err(error) => {
                if let MonitorError::Refused(refusal) = &error
                    && refusal.kind == RefusalKind::Runtime
                {
                    return Err(self.not_started(&id, refusal.message.clone()).await);
                }
                Err(error.into())
            }
        }
    }

    /// Ends a container that its OCI runtime doesn't run.
    async fn not_started(&self, id: &str, why: String) -> CallError {
        let exit = start_error(&why);
        self.end(id, exit.finished, exit).await;
        CallError::NotStarted(why)
    }
}

fn created(record: &ContainerRecord) -> Result<(), CallError> {
    let state = match record.state() {
        Some(ContainerState::ContainerCreated) => return Ok(()),
        Some(ContainerState::ContainerRunning) => "running",
        Some(ContainerState::ContainerExited) => "exited",
        Some(ContainerState::ContainerUnknown) | None => "unknown",
    };
    Err(CallError::WrongState {
        what: "container",
        id: record.id.clone(),
        state,
        expected: "created",
    })
}

async fn start(monitor: &Monitor, id: &str) -> Result<ContainerStatus, MonitorError> {
    monitor.start(id).await
}

async fn start_unless_started(
    monitor: &Monitor,
    id: &str,
) -> Result<ContainerStatus, MonitorError> {
    let status = monitor.status().await?;
    let found = status
        .containers
        .into_iter()
        .find(|container| container.container == id);
    match found {
        Some(container) if container.phase > Phase::Created => Ok(container),
        Some(_) | None => start(monitor, id).await,
    }
}

fn start_error(message: &str) -> ExitRecord {
    ExitRecord {
        code: START_ERROR_CODE,
        reason: "StartError".to_owned(),
        message: message.to_owned(),
        finished: clock::now(),
    }
}
