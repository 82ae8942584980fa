//! RemoveContainer, and the end of containers that were never finished.

use std::sync::Arc;
use std::time::Duration;

use proto::cri::ContainerEventType;

use crate::error::CallError;
use crate::node::{Node, record_of};
use crate::record::{ContainerPhase, ContainerRecord};

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
        let record = self.state().any_container(id);
        let Some(record) = record else { return };
        match self.take_apart(&record).await {
            Ok(()) => self.state().remove_container(id),
            Err(error) => {
                let error = sdk::error_chain(&error);
                tracing::warn!(
                    container = id,
                    error,
                    "a container that was not finished stays for now"
                );
            }
        }
    }

    /// Removes everything of a container: at the monitor, its mounts, its image's lease, its folder, its record last.
    async fn take_apart(self: &Arc<Node>, record: &ContainerRecord) -> Result<(), CallError> {
        let id = &record.id;
        let sandbox = self.state().any_sandbox(&record.sandbox);
        let monitored = self.parts.layout.monitor(&record.sandbox).exists();
        // Of another boot nothing runs, and without a folder no monitor knows of it.
        if let Some(sandbox) = sandbox.filter(|_| monitored && record.boot == self.parts.boot) {
            let monitor = self.launch(&sandbox).await?;
            self.kill_at(&monitor, id).await?;
            monitor.delete(id).await?;
        }
        self.usage.forget(id);
        self.release_image(id).await?;
        let _alone = self.lock(&record_of(id)).await?;
        let (store, id) = (self.container_records.clone(), id.clone());
        self.blocking("removing a container", move || Ok(store.remove(&id)?))
            .await
    }
}
