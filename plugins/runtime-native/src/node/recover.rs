//! A node opened: what its predecessor, killed at any point, has left is adopted, or taken apart if it was not finished.

use std::sync::Arc;

use super::{ContainerEntry, Node, NodeParts};
use crate::error::CallError;
use crate::node::follow::ended_unknown;
use crate::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use crate::sandbox::{namespaces, own_namespaces, pause};

impl Node {
    /// Opens the node.
    ///
    /// Nothing is asked of a monitor here: containers show as created or running by what is on record until their
    /// monitors, which are followed from now on, have told; the caller waits for that with [`Node::settle`].
    pub(crate) async fn open(parts: NodeParts) -> Result<Arc<Node>, CallError> {
        let node = Node::new(parts);
        let (sandboxes, containers) =
            (node.sandbox_records.clone(), node.container_records.clone());
        let (sandboxes, containers) = node
            .blocking("reading the records", move || {
                Ok((sandboxes.read_all()?, containers.read_all()?))
            })
            .await?;
        node.adopt(sandboxes, containers);
        Ok(node)
    }

    fn adopt(&self, sandboxes: Vec<SandboxRecord>, containers: Vec<ContainerRecord>) {
        let mut state = self.state();
        for record in sandboxes {
            state.put_sandbox(record);
        }
        for record in containers {
            state.put_container(ContainerEntry::new(record));
        }
    }

    /// Finishes what recovery needs the disk, the monitors and the network for. Sandboxes are independent: one that does
    /// not answer holds up no other.
    pub(crate) async fn settle(self: &Arc<Node>) {
        let (sandboxes, containers) = self.state().all_records();
        let mut tasks = tokio::task::JoinSet::new();
        for sandbox in sandboxes {
            let (node, containers) = (self.clone(), containers.clone());
            tasks.spawn(async move {
                let own = containers
                    .into_iter()
                    .filter(|record| record.sandbox == sandbox.id);
                node.settle_sandbox(sandbox.clone(), own.collect()).await;
            });
        }
        let known: Vec<_> = self.state().sandbox_ids();
        for orphan in containers
            .iter()
            .filter(|record| !known.contains(&record.sandbox))
        {
            self.undo_container(&orphan.id).await;
        }
        tasks.join_all().await;
    }

    async fn settle_sandbox(
        self: &Arc<Node>,
        sandbox: SandboxRecord,
        containers: Vec<ContainerRecord>,
    ) {
        for record in &containers {
            match record.phase {
                ContainerPhase::Making => self.undo_container(&record.id).await,
                ContainerPhase::Made if record.boot != self.parts.boot => {
                    let why = "the machine was started anew".to_owned();
                    self.end(&record.id, 0, ended_unknown(why)).await;
                }
                ContainerPhase::Made | ContainerPhase::Exited(_) => {}
            }
        }
        match sandbox.phase {
            SandboxPhase::Making => self.undo_sandbox(&sandbox.id).await,
            SandboxPhase::Ready => self.settle_ready(sandbox, &containers).await,
            SandboxPhase::NotReady => {}
        }
    }

    /// A sandbox whose namespaces are gone is ready no more; of any other the monitor is asked, once, and then followed.
    async fn settle_ready(
        self: &Arc<Node>,
        mut sandbox: SandboxRecord,
        containers: &[ContainerRecord],
    ) {
        let own = own_namespaces(&sandbox.config.0);
        let pins = self.parts.layout.sandbox(&sandbox.id).join("ns");
        let pinned = self.blocking("looking for a sandbox's namespaces", move || {
            Ok(namespaces::pinned(&pins, own))
        });
        if !(sandbox.boot == self.parts.boot && pinned.await.unwrap_or(true)) {
            sandbox.phase = SandboxPhase::NotReady;
            let id = sandbox.id.clone();
            if let Err(error) = self.keep_sandbox(sandbox).await {
                let error = sdk::error_chain(&error);
                tracing::error!(sandbox = id, error, "a lost sandbox cannot be recorded");
            }
            return;
        }
        let live = |record: &&ContainerRecord| record.phase == ContainerPhase::Made;
        if pause::is_needed(&sandbox.config.0) || containers.iter().any(|record| live(&record)) {
            self.look(&sandbox).await;
            self.follow(&sandbox.id);
        }
    }

    async fn look(&self, sandbox: &SandboxRecord) {
        let looked = async {
            let monitor = self.launch(sandbox).await?;
            Ok::<_, CallError>(monitor.status().await?)
        };
        match looked.await {
            Ok(status) => {
                for container in &status.containers {
                    self.take_status(container).await;
                }
            }
            Err(error) => {
                let (sandbox, error) = (&sandbox.id, sdk::error_chain(&error));
                tracing::warn!(sandbox, error, "a sandbox's monitor does not answer yet");
            }
        }
    }
}
