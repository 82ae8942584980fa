//! StopContainer.

use std::sync::Arc;
use std::time::Duration;

use monitor::{ContainerStatus, Monitor, MonitorError, Phase, RefusalKind};
use rustix::process::Signal;
use tokio::time::{Instant, timeout};

use crate::error::CallError;
use crate::node::{Node, ended_unknown};
use crate::record::ContainerRecord;

/// How long a killed process may take to end: it may be in the kernel, writing its memory out.
const KILL_TIMEOUT: Duration = Duration::from_secs(120);
/// Pauses between two looks at a container that is being made.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The longest pause between two looks at a container that is being made.
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
            let asked = Instant::now();
            match self.signal(&record, record.stop_signal).await {
                // A pod that has used up its process ids refuses it for ever: its grace runs, and SIGKILL needs none.
                Err(error) if is_fault_of_monitor(&error) => {
                    let error = sdk::error_chain(&error);
                    tracing::warn!(container = id, error, "the stop signal was not sent");
                }
                sent => sent?,
            }
            // The grace is the container's: what a monitor that hangs took of it is not given again.
            let left = grace.saturating_sub(asked.elapsed());
            if timeout(left, ended.wait_for(|ended| *ended)).await.is_ok() {
                return Ok(());
            }
        }
        self.signal(&record, Signal::KILL.as_raw()).await?;
        match timeout(KILL_TIMEOUT, ended.wait_for(|ended| *ended)).await {
            // An error of the channel means that the container was removed meanwhile.
            Ok(Ok(_) | Err(_)) => Ok(()),
            Err(_) => Err(does_not_end(&record.id)),
        }
    }

    /// Sends a signal through the monitor. A second one where the first monitor died or hung over it; where none can be
    /// had, the container's processes are killed.
    async fn signal(&self, record: &ContainerRecord, signal: i32) -> Result<(), CallError> {
        let (id, sandbox) = (&record.id, self.sandbox(&record.sandbox)?);
        let sent = async {
            let monitor = self.launch(&sandbox).await?;
            match monitor.kill(id, signal).await {
                Err(
                    MonitorError::Gone(..)
                    | MonitorError::Broken(..)
                    | MonitorError::Deadline { .. },
                ) => {
                    let monitor = self.launch(&sandbox).await?;
                    Ok(monitor.kill(id, signal).await?)
                }
                sent => Ok(sent?),
            }
        };
        match sent.await {
            Err(CallError::Launch(error)) => {
                self.end_without_monitor(id, &error).await?;
                let why = "it was killed without its monitor".to_owned();
                self.end(id, 0, ended_unknown(why)).await;
                Ok(())
            }
            // The monitor lives, and reports the end.
            Err(error) if signal == Signal::KILL.as_raw() && is_fault_of_monitor(&error) => {
                let error = sdk::error_chain(&error);
                tracing::warn!(
                    container = id,
                    error,
                    "its processes are killed by its cgroups"
                );
                self.kill_processes(id).await
            }
            sent => sent,
        }
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

/// Whether a monitor could not do what it was asked for; what it refuses by a container's phase is not among it.
fn is_fault_of_monitor(error: &CallError) -> bool {
    let CallError::Monitor(MonitorError::Refused(refusal)) = error else {
        return false;
    };
    matches!(
        refusal.kind,
        RefusalKind::System | RefusalKind::Runtime | RefusalKind::Deadline | RefusalKind::Full
    )
}

fn does_not_end(id: &str) -> CallError {
    CallError::DoesNotEnd {
        id: id.to_owned(),
        seconds: KILL_TIMEOUT.as_secs(),
    }
}
