//! StopContainer.

use std::sync::Arc;
use std::time::Duration;

use monitor::{ContainerStatus, Monitor, Phase};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::error::CallError;
use crate::node::Node;

/// How long a killed process may take to end: it may be in the kernel, writing its memory out.
const KILL_TIMEOUT: Duration = Duration::from_secs(120);
/// Pauses between two looks at a container that is being made.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(200);

impl Node {
    /// Ends a container: its stop signal, and SIGKILL when the grace is over. May be repeated, by a call with less grace
    /// too; an unknown container, and one that doesn't run, is done.
    pub(crate) async fn stop_container(
        self: &Arc<Node>,
        id: &str,
        grace: Duration,
    ) -> Result<(), CallError> {
        let found = {
            let state = self.state();
            let entry = state.container(id).filter(|entry| entry.record.running());
            entry.map(|entry| (entry.record.clone(), entry.ended.subscribe()))
        };
        let Some((record, mut ended)) = found else {
            return Ok(());
        };
        self.follow(&record.sandbox);
        if !grace.is_zero() {
            self.signal(&record.id, &record.sandbox, record.stop_signal)
                .await?;
            if timeout(grace, ended.wait_for(|ended| *ended)).await.is_ok() {
                return Ok(());
            }
        }
        self.signal(&record.id, &record.sandbox, Signal::KILL.as_raw())
            .await?;
        match timeout(KILL_TIMEOUT, ended.wait_for(|ended| *ended)).await {
            // An error of the channel means that the container was removed meanwhile.
            Ok(Ok(_) | Err(_)) => Ok(()),
            Err(_) => Err(does_not_end(&record.id)),
        }
    }

    async fn signal(&self, id: &str, sandbox: &str, signal: i32) -> Result<(), CallError> {
        let sandbox = self.sandbox(sandbox)?;
        let monitor = self.launch(&sandbox).await?;
        Ok(monitor.kill(id, signal).await?)
    }

    /// Kills a container of a monitor and waits for its end. One that the OCI runtime works on at the moment, as a
    /// predecessor of this process has told it, is waited for first: it can't be signalled.
    pub(crate) async fn kill_at(
        &self,
        monitor: &Monitor,
        id: &str,
    ) -> Result<Option<ContainerStatus>, CallError> {
        let mut pause = FIRST_LOOK;
        let looking = async {
            loop {
                let containers = monitor.status().await?.containers;
                let known = containers.into_iter().find(|status| status.container == id);
                match known {
                    Some(status) if matches!(status.phase, Phase::Creating | Phase::Starting) => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_LOOK);
                    }
                    settled => return Ok::<_, CallError>(settled),
                }
            }
        };
        let settled = timeout(KILL_TIMEOUT, looking).await;
        match settled.map_err(|_| does_not_end(id))?? {
            Some(status) if status.end.is_none() => {
                monitor.kill(id, Signal::KILL.as_raw()).await?;
                Ok(Some(self.end_of(monitor, id).await?))
            }
            settled => Ok(settled),
        }
    }

    /// Waits for the end of a container that was killed.
    async fn end_of(&self, monitor: &Monitor, id: &str) -> Result<ContainerStatus, CallError> {
        let ended = timeout(KILL_TIMEOUT, monitor.wait(id)).await;
        Ok(ended.map_err(|_| does_not_end(id))??)
    }
}

fn does_not_end(id: &str) -> CallError {
    CallError::DoesNotEnd {
        id: id.to_owned(),
        seconds: KILL_TIMEOUT.as_secs(),
    }
}
