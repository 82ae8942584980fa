//! StopPodSandbox and RemovePodSandbox, and the end of sandboxes that were never finished.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use monitor::Monitor;
use proto::cri::ContainerEventType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{cgroup, namespaces};
use crate::container::staging::Stage;
use crate::error::CallError;
use crate::node::{Node, ended_unknown};
use crate::record::{SandboxPhase, SandboxRecord};

/// How long a monitor without containers may take to end.
const MONITOR_END_SECONDS: i64 = 5;

impl Node {
    /// Ends a sandbox's containers and takes its network and namespaces away. May be repeated; an unknown one is done.
    pub(crate) async fn stop_sandbox(self: &Arc<Node>, id: &str) -> Result<(), CallError> {
        let Ok(record) = self.sandbox(id) else {
            return Ok(());
        };
        let id = record.id;
        let _alone = self.lock(&id).await?;
        let Ok(mut record) = self.sandbox(&id) else {
            return Ok(());
        };
        let was_ready = record.phase == SandboxPhase::Ready;
        if was_ready {
            record.phase = SandboxPhase::NotReady;
            self.keep_sandbox(record.clone()).await?;
        }
        self.dismantle(record).await?;
        if was_ready {
            self.tell(&id, &id, ContainerEventType::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Removes a sandbox with its containers; it is stopped first. An unknown one is done.
    pub(crate) async fn remove_sandbox(self: &Arc<Node>, id: &str) -> Result<(), CallError> {
        let Ok(record) = self.sandbox(id) else {
            return Ok(());
        };
        self.stop_sandbox(&record.id).await?;
        let containers = self.state().records_of(&record.id);
        for container in containers {
            self.discard_container(&container).await?;
        }
        let _alone = self.lock(&record.id).await?;
        self.forget_sandbox(&record).await?;
        let id = record.id;
        self.tell(&id, &id, ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Takes apart what a call made that failed, or was killed. What cannot be taken apart now stays on record, and is
    /// tried again when the plugin starts.
    pub(crate) async fn undo_sandbox(self: &Arc<Node>, id: &str) {
        let record = self.state().any_sandbox(id);
        let Some(record) = record else { return };
        let undone = async {
            self.dismantle(record.clone()).await?;
            self.forget_sandbox(&record).await
        };
        if let Err(error) = undone.await {
            let error = sdk::error_chain(&error);
            tracing::warn!(
                sandbox = id,
                error,
                "a sandbox that was not finished stays for now"
            );
        }
    }

    /// Ends whatever runs in a sandbox, its monitor, its attachment, its namespaces: in this order, each step only when
    /// the one before is done.
    async fn dismantle(self: &Arc<Node>, mut record: SandboxRecord) -> Result<(), CallError> {
        let id = record.id.clone();
        if record.boot == self.parts.boot {
            self.end_containers(&record).await?;
        } else {
            let folder = self.parts.layout.monitor(&id);
            self.discard(folder, format!("{id}-monitor")).await?;
        }
        if let Some(network) = self.parts.network.as_ref().filter(|_| record.attached) {
            let netns = self.parts.layout.sandbox(&id).join("ns/net");
            let netns = netns.display().to_string();
            let detached = network.detach(&id, &record.config.0, netns).await;
            detached.map_err(CallError::Other)?;
            record.attached = false;
            self.keep_sandbox(record).await?;
        } else if record.attached {
            let why = "the sandbox has a network, and no network plugin is configured any more";
            return Err(CallError::Other(tonic::Status::unavailable(why)));
        }
        let folder = self.parts.layout.sandbox(&id);
        let stage = self.parts.layout.stage(&id);
        self.blocking("unmounting a sandbox", move || {
            Stage::remove(&stage)?;
            namespaces::unpin(&folder.join("ns"))?;
            Ok(namespaces::unmount_all(&folder.join("shm"))?)
        })
        .await
    }

    /// Kills a sandbox's containers, has the monitor forget them, and ends it.
    async fn end_containers(self: &Arc<Node>, record: &SandboxRecord) -> Result<(), CallError> {
        let folder = self.parts.layout.monitor(&record.id);
        if !folder.exists() {
            return Ok(());
        }
        let containers = self.state().records_of(&record.id);
        // One that nobody was told of has no follower, which a stop waits for: the monitor is asked for all of it below.
        let is_told = record.state().is_some();
        for container in containers.iter().filter(|one| is_told && one.running()) {
            self.stop_container(&container.id, Duration::ZERO).await?;
        }
        match self.launch(record).await {
            Ok(monitor) => self.end_monitor(record, &monitor).await?,
            Err(CallError::Launch(error)) => {
                for container in &containers {
                    self.end_without_monitor(&container.id, &error).await?;
                    let why = "it was killed without its monitor".to_owned();
                    self.end(&container.id, 0, ended_unknown(why)).await;
                }
                // Its own process, where it has one.
                self.end_processes(&record.id).await?;
            }
            Err(error) => return Err(error),
        }
        self.state().unfollow(&record.id);
        let name = format!("{}-monitor", record.id);
        self.discard(folder, name).await
    }

    async fn end_monitor(
        self: &Arc<Node>,
        record: &SandboxRecord,
        monitor: &Monitor,
    ) -> Result<(), CallError> {
        self.empty(monitor).await?;
        self.state().unfollow(&record.id);
        let ending = ending_process(monitor.status().await?.pid);
        if let Err(error) = monitor.shutdown().await
            && monitor.status().await.is_ok()
        {
            return Err(error.into());
        }
        let (record, driver) = (record.clone(), self.parts.driver);
        self.blocking("removing a monitor's cgroup", move || {
            wait_for_end(ending.as_ref());
            cgroup::remove(&record, driver);
            Ok(())
        })
        .await
    }

    /// Deletes every container of a monitor; the end of each is on record before.
    async fn empty(self: &Arc<Node>, monitor: &Monitor) -> Result<(), CallError> {
        for container in monitor.status().await?.containers {
            let id = &container.container;
            if let Some(status) = self.kill_at(monitor, id).await? {
                self.take_status(&status).await;
            }
            monitor.delete(id).await?;
        }
        Ok(())
    }

    async fn forget_sandbox(self: &Arc<Node>, record: &SandboxRecord) -> Result<(), CallError> {
        let (store, id) = (self.sandbox_records.clone(), record.id.clone());
        let removed = self.blocking(
            "removing a sandbox's record",
            move || Ok(store.remove(&id)?),
        );
        let tree = removed.await?;
        self.state().remove_sandbox(&record.id);
        if let Some(tree) = tree {
            self.remove_tree(tree).await;
        }
        Ok(())
    }
}

/// Opens the process of a monitor that has just answered; none if it has ended meanwhile.
fn ending_process(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits until a monitor that was told to end has: its cgroup cannot be removed before.
fn wait_for_end(process: Option<&OwnedFd>) {
    let Some(process) = process else { return };
    let within = Timespec {
        tv_sec: MONITOR_END_SECONDS,
        tv_nsec: 0,
    };
    let ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&within));
    if ended != Ok(1) {
        tracing::warn!("a monitor does not end after its last container");
    }
}
