//! RemoveContainer, and the end of containers that were never finished.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use monitor::LaunchError;
use proto::cri::ContainerEventType;
use tokio::process::Command;
use tokio::time::timeout;

use crate::cgroups;
use crate::error::CallError;
use crate::layout::Layout;
use crate::node::{Node, record_of};
use crate::record::{ContainerPhase, ContainerRecord, SandboxRecord};

/// How long processes that are killed without a monitor may take to end.
const PROCESSES_TIMEOUT: Duration = Duration::from_secs(20);
/// How long `oxlet-oci delete` may take for a container that has no processes.
const DELETE_TIMEOUT: Duration = Duration::from_secs(20);
/// The folder among the states of `oxlet-oci` that holds its copies of the bundles.
const OWN_BUNDLES: &str = ".bundles";

impl Node {
    /// Removes a container; one that runs is killed first. An unknown one is done.
    pub(crate) async fn remove_container(self: &Arc<Node>, id: &str) -> Result<(), CallError> {
        let Ok(record) = self.container(id) else {
            return Ok(());
        };
        self.discard_container(&record).await
    }

    /// Kills a container if it runs, removes everything of it, and tells.
    pub(crate) async fn discard_container(
        self: &Arc<Node>,
        record: &ContainerRecord,
    ) -> Result<(), CallError> {
        self.stop_container(&record.id, Duration::ZERO).await?;
        let _alone = self.lock(&record.id).await?;
        let Some(record) = self.state().any_container(&record.id) else {
            return Ok(());
        };
        self.mark_removal(&record.id, true);
        if let Err(error) = self.take_apart(&record).await {
            self.mark_removal(&record.id, false);
            return Err(error);
        }
        let told = record.phase != ContainerPhase::Making;
        self.state().remove_container(&record.id);
        if told {
            let kind = ContainerEventType::ContainerDeletedEvent;
            self.tell(&record.sandbox, &record.id, kind);
        }
        Ok(())
    }

    fn mark_removal(&self, id: &str, in_removal: bool) {
        if let Some(entry) = self.state().container_mut(id) {
            entry.in_removal = in_removal;
        }
    }

    /// Takes apart what a call made that failed, or was killed. What cannot be taken apart now stays on record: the next
    /// call of this name, the removal of its sandbox and the next start of the plugin try again.
    pub(crate) async fn undo_container(self: &Arc<Node>, id: &str) {
        let undone = async {
            // What the plugin's start has not come to yet may be called for again.
            let _alone = self.lock(id).await?;
            let record = self.state().any_container(id);
            let Some(record) = record else { return Ok(()) };
            self.take_apart(&record).await?;
            self.state().remove_container(id);
            Ok::<_, CallError>(())
        };
        if let Err(error) = undone.await {
            let error = sdk::error_chain(&error);
            tracing::warn!(
                container = id,
                error,
                "a container that was not finished stays for now"
            );
        }
    }

    /// Removes everything of a container: at the monitor, its mounts, its image's lease, its record with its folder last.
    async fn take_apart(self: &Arc<Node>, record: &ContainerRecord) -> Result<(), CallError> {
        let id = &record.id;
        let sandbox = self.state().any_sandbox(&record.sandbox);
        let monitored = self.parts.layout.monitor(&record.sandbox).exists();
        if record.boot != self.parts.boot {
            // Nothing of it runs, and no monitor has its OCI runtime delete it.
            self.remove_oci_states(id).await?;
        } else if let Some(sandbox) = sandbox.filter(|_| monitored) {
            self.end_at_monitor(&sandbox, id).await?;
        }
        self.forget_files(id).await
    }

    /// Kills a container at its monitor, and has it forgotten there. Where there is no monitor, its processes are killed.
    async fn end_at_monitor(&self, sandbox: &SandboxRecord, id: &str) -> Result<(), CallError> {
        let monitor = match self.launch(sandbox).await {
            Err(CallError::Launch(error)) => return self.end_without_monitor(id, &error).await,
            launched => launched?,
        };
        self.kill_at(&monitor, id).await?;
        Ok(monitor.delete(id).await?)
    }

    /// Kills the processes of a container by its cgroups: nobody else is there to do it.
    pub(crate) async fn end_without_monitor(
        &self,
        id: &str,
        why: &LaunchError,
    ) -> Result<(), CallError> {
        let why = sdk::error_chain(why);
        tracing::error!(
            container = id,
            why,
            "its processes are killed without its monitor"
        );
        self.end_processes(id).await
    }

    /// Kills the processes in the cgroups of a container, and removes these and what its OCI runtime keeps: nobody
    /// deletes it any more.
    pub(crate) async fn end_processes(&self, id: &str) -> Result<(), CallError> {
        self.kill_processes(id).await?;
        self.remove_oci_states(id).await
    }

    /// Removes the state that OCI runtimes keep of a container that has no processes. Its poststop hooks don't run.
    async fn remove_oci_states(&self, id: &str) -> Result<(), CallError> {
        let (layout, container) = (self.parts.layout.clone(), id.to_owned());
        let with_bundle = self
            .blocking("removing the state of a container", move || {
                remove_oci_states(&layout, &container)
            })
            .await?;
        for states in with_bundle {
            self.delete_bundle(&states, id).await?;
        }
        Ok(())
    }

    /// Runs `oxlet-oci delete` for a container whose state folder is gone. It removes its copy of the bundle and, after
    /// the last container, the base mount namespace (decision 0052). Without a state it kills no process, so a reused
    /// process id is safe.
    async fn delete_bundle(&self, states: &Path, id: &str) -> Result<(), CallError> {
        let program = self.parts.programs.own_runtime();
        let deletion = Command::new(&program)
            .arg("--root")
            .arg(states)
            .args(["delete", "--force", id])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let why = match timeout(DELETE_TIMEOUT, deletion).await {
            Ok(Ok(output)) if output.status.success() => return Ok(()),
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("timed out after {} s", DELETE_TIMEOUT.as_secs()),
        };
        let id = id.to_owned();
        Err(CallError::NotDeleted { id, program, why })
    }

    /// Kills the processes in the cgroups of a container, and removes these.
    pub(crate) async fn kill_processes(&self, id: &str) -> Result<(), CallError> {
        let id = id.to_owned();
        self.blocking("ending the processes of a container", move || {
            cgroups::end(std::slice::from_ref(&id), PROCESSES_TIMEOUT)
                .map(drop)
                .map_err(|source| CallError::Processes { id, source })
        })
        .await
    }

    /// Takes away what a container is made of: its mounts, its image's lease, its record with its folder.
    pub(crate) async fn forget_files(self: &Arc<Node>, id: &str) -> Result<(), CallError> {
        self.usage.forget(id);
        self.release_image(id).await?;
        let tree = {
            let _alone = self.lock(&record_of(id)).await?;
            let (store, id) = (self.container_records.clone(), id.to_owned());
            self.blocking("removing a container", move || Ok(store.remove(&id)?))
                .await?
        };
        if let Some(tree) = tree {
            self.remove_tree(tree).await;
        }
        Ok(())
    }
}

/// Removes a container's state folder of each handler. Returns the parents of those where `oxlet-oci` still has a bundle.
fn remove_oci_states(layout: &Layout, container: &str) -> Result<Vec<PathBuf>, CallError> {
    let mut all_states = layout.oci_states();
    for states in &all_states {
        let state = states.join(container);
        files::remove_tree(&state).map_err(CallError::file("remove", state))?;
    }
    all_states.retain(|states| states.join(OWN_BUNDLES).join(container).exists());
    Ok(all_states)
}
