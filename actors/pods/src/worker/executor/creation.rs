//! Makes a sandbox or container exactly once, whatever becomes of the calls that ask for it.
//!
//! Decisions: `logic_pods::runtime::creation`.

use clients::runtime::RuntimeError;
use logic_api::types::{
    ContainerId, ContainerState, RuntimePod, RuntimeSandbox, SandboxId, SandboxState,
};
use logic_pods::runtime::creation::{CreationFinding, CreationSetback, CreationStep, next_step};

use crate::worker::context::PlanExecutor;

/// What a look at the runtime has found.
#[derive(Debug)]
pub(super) enum Found<T> {
    Absent,
    Usable(T),
    Unusable,
}

impl<T> Found<T> {
    fn kind(&self) -> CreationFinding {
        match self {
            Found::Absent => CreationFinding::Absent,
            Found::Usable(_) => CreationFinding::Usable,
            Found::Unusable => CreationFinding::Unusable,
        }
    }
}

/// Makes a call that creates until its outcome is known. `look` finds what it made, if the runtime says so by the id
/// that the call's name is reserved for.
pub(super) async fn once<T>(
    call: impl AsyncFn() -> Result<T, RuntimeError>,
    look: impl AsyncFn(Option<&str>) -> Result<Found<T>, RuntimeError>,
) -> Result<T, RuntimeError> {
    let began = kernel::now();
    let mut asked = 0;
    loop {
        asked += 1;
        let error = match call().await {
            Ok(made) => return Ok(made),
            Err(error) => error,
        };
        let unsent = error.never_left().then_some(CreationSetback::Interrupted);
        let Some(setback) = error.setback().or(unsent) else {
            return Err(error);
        };
        let found = look(error.name_holder()).await?;
        let since = kernel::now().saturating_duration_since(began);
        match (next_step(setback, found.kind(), asked, since), found) {
            (CreationStep::Use, Found::Usable(made)) => return Ok(made),
            (CreationStep::AskAfter(pause), _) => tokio::time::sleep(pause).await,
            (CreationStep::Use | CreationStep::GiveUp, _) => return Err(error),
        }
    }
}

impl PlanExecutor {
    /// The sandbox of this attempt that an earlier call has left.
    pub(super) async fn find_sandbox(
        &self,
        attempt: u32,
        holder: Option<&str>,
    ) -> Result<Found<SandboxId>, RuntimeError> {
        let runtime = &self.peers.runtime;
        if let Some(holder) = holder {
            let sandbox = runtime.sandbox(&holder.into()).await?;
            return Ok(sandbox.as_ref().map_or(Found::Absent, found_sandbox));
        }
        let pod = runtime.pod(&self.uid).await?;
        let mut sandboxes = pod.sandboxes.iter();
        let made = sandboxes.find(|sandbox| sandbox.attempt == attempt);
        Ok(made.map_or(Found::Absent, found_sandbox))
    }

    /// The instance of this attempt that an earlier call has made in this sandbox.
    pub(super) async fn find_created(
        &self,
        (name, attempt): (&str, u32),
        sandbox: &SandboxId,
    ) -> Result<Found<ContainerId>, RuntimeError> {
        let pod = self.peers.runtime.pod(&self.uid).await?;
        Ok(found_created(&pod, (name, attempt), sandbox))
    }

    /// Whether a container whose start was asked for has been started.
    pub(super) async fn find_started(&self, id: &ContainerId) -> Result<Found<()>, RuntimeError> {
        let container = self.peers.runtime.container(id).await?;
        Ok(match container {
            Some(container) if container.start_was_cancelled() => Found::Unusable,
            Some(container) => match container.state {
                ContainerState::Created => Found::Absent,
                ContainerState::Running | ContainerState::Exited => Found::Usable(()),
                ContainerState::Unknown => Found::Unusable,
            },
            None => Found::Unusable,
        })
    }
}

fn found_sandbox(sandbox: &RuntimeSandbox) -> Found<SandboxId> {
    match sandbox.state {
        SandboxState::Ready => Found::Usable(sandbox.id.clone()),
        SandboxState::NotReady => Found::Unusable,
    }
}

fn found_created(
    pod: &RuntimePod,
    (name, attempt): (&str, u32),
    sandbox: &SandboxId,
) -> Found<ContainerId> {
    let mut instances = pod.instances(name);
    match instances.find(|made| made.attempt == attempt) {
        Some(made) if made.state == ContainerState::Created && made.sandbox == *sandbox => {
            Found::Usable(made.id.clone())
        }
        Some(_) => Found::Unusable,
        None => Found::Absent,
    }
}
