//! UpdateContainerResources, UpdatePodSandboxResources and ReopenContainerLog.

use std::sync::Arc;

use proto::cri::{ContainerState, LinuxContainerResources, UpdateContainerResourcesRequest};
use serde_json::{Value, json};

use crate::error::CallError;
use crate::node::Node;
use crate::record::Wire;
use crate::spec;

impl Node {
    /// Changes the limits of a container that is created or runs, and its record.
    pub(crate) async fn update_container(
        self: &Arc<Node>,
        request: UpdateContainerResourcesRequest,
    ) -> Result<(), CallError> {
        let asked = request
            .linux
            .ok_or(CallError::Missing("the linux resources"))?;
        let id = self.container(&request.container_id)?.id;
        let _alone = self.lock(&id).await?;
        let mut record = self.container(&id)?;
        if record.state() == Some(ContainerState::ContainerExited) {
            return Err(CallError::WrongState {
                what: "container",
                id,
                state: "exited",
                expected: "created or running",
            });
        }
        let mut linux = record.config.0.linux.clone().unwrap_or_default();
        let before = linux.resources.clone().unwrap_or_default();
        let (merged, mut document) = spec::update_resources(&before, &asked, &self.parts.host)?;
        self.order_limits(&before, &merged, &mut document);
        let sandbox = self.sandbox(&record.sandbox)?;
        let monitor = self.launch(&sandbox).await?;
        monitor.update(&id, document).await?;
        linux.resources = Some(merged);
        let mut config = record.config.0.clone();
        config.linux = Some(linux);
        record.config = Wire(config);
        self.write_container(record.clone()).await?;
        if let Some(entry) = self.state().container_mut(&id) {
            entry.record.config = record.config;
        }
        Ok(())
    }

    /// On cgroup v1 memory alone may never be more than memory and swap: told both, the OCI runtime writes them in the
    /// order that keeps it so. Without a change of memory neither is told.
    fn order_limits(
        &self,
        before: &LinuxContainerResources,
        after: &LinuxContainerResources,
        document: &mut Value,
    ) {
        let limits = |resources: &LinuxContainerResources| {
            (
                resources.memory_limit_in_bytes,
                resources.memory_swap_limit_in_bytes,
            )
        };
        if limits(before) == limits(after) {
            document["memory"] = json!({});
        }
    }

    /// Notes a pod's resources. A sandbox has no process and no cgroup of its own: the pod's is the agent's to change.
    pub(crate) async fn update_sandbox(
        self: &Arc<Node>,
        id: &str,
        overhead: Option<LinuxContainerResources>,
        resources: Option<LinuxContainerResources>,
    ) -> Result<(), CallError> {
        let id = self.sandbox(id)?.id;
        let _alone = self.lock(&id).await?;
        let mut record = self.sandbox(&id)?;
        let mut config = record.config.0;
        let mut linux = config.linux.unwrap_or_default();
        linux.overhead = overhead.or(linux.overhead);
        linux.resources = resources.or(linux.resources);
        config.linux = Some(linux);
        record.config = Wire(config);
        self.keep_sandbox(record).await
    }

    /// Opens a container's log anew, after its file was moved.
    pub(crate) async fn reopen_log(self: &Arc<Node>, id: &str) -> Result<(), CallError> {
        let record = self.running(id)?;
        let sandbox = self.sandbox(&record.sandbox)?;
        let monitor = self.launch(&sandbox).await?;
        Ok(monitor.reopen_log(&record.id).await?)
    }
}
