//! A node opened: what its predecessor, killed at any point, has left is adopted, or taken apart if it was not finished.
//!
//! A record that is damaged costs its own subject: what it was about is ended and taken away, so that nothing runs without
//! an owner, and nothing runs twice when it is made again.

use std::sync::Arc;
use std::time::Duration;

use monitor::Launch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{ContainerEntry, Node, NodeParts};
use crate::error::CallError;
use crate::node::follow::ended_unknown;
use crate::record::{ContainerPhase, ContainerRecord, Records, SandboxPhase, SandboxRecord, Wire};
use crate::sandbox::{namespaces, own_namespaces};

/// How long the plugin's start waits for monitors and the network. What takes longer goes on, and delays its own pod alone.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// What has no record any more.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Ids of containers.
    containers: Vec<String>,
}

impl Node {
    /// Opens the node.
    ///
    /// Nothing is asked of a monitor here: containers show as created or running by what is on record until their
    /// monitors, which are followed from now on, have told; the caller waits for that with [`Node::settle`].
    pub(crate) async fn open(parts: NodeParts) -> Result<(Arc<Node>, Lost), CallError> {
        let node = Node::new(parts);
        let (sandboxes, containers) =
            (node.sandbox_records.clone(), node.container_records.clone());
        let boot = node.parts.boot.clone();
        let (sandboxes, containers) = node
            .blocking("reading the records", move || {
                let mut all: Records<ContainerRecord> = containers.read_all()?;
                for record in &mut all.sound {
                    let noted = containers.noted_start(&record.id);
                    if record.phase == ContainerPhase::Made
                        && record.boot == boot
                        && noted >= record.created
                    {
                        record.started = noted;
                    }
                }
                Ok((sandboxes.read_all()?, all))
            })
            .await?;
        let lost = Lost {
            containers: containers.lost,
        };
        node.adopt(sandboxes, containers.sound);
        Ok((node, lost))
    }

    fn adopt(&self, sandboxes: Records<SandboxRecord>, containers: Vec<ContainerRecord>) {
        let mut state = self.state();
        for record in sandboxes.sound {
            state.put_sandbox(record);
        }
        for record in containers {
            state.put_container(ContainerEntry::new(record));
        }
        for id in sandboxes.lost.into_iter().chain(state.pods_of_orphans()) {
            state.put_sandbox(self.lost_sandbox(id));
        }
    }

    /// What is taken apart of a sandbox of which only the id is known. Nobody is told of it.
    fn lost_sandbox(&self, id: String) -> SandboxRecord {
        let is_begun = self.parts.layout.sandbox(&id).join("ns").exists();
        SandboxRecord {
            name: format!("lost {id}"),
            id,
            phase: SandboxPhase::Making,
            config: Wire::default(),
            handler: String::new(),
            created: 0,
            boot: self.parts.boot.clone(),
            addresses: Vec::new(),
            attached: is_begun && self.parts.network.is_some(),
        }
    }

    /// Finishes what recovery needs the disk, the monitors and the network for, or goes on with it in the background.
    pub(crate) async fn settle(self: &Arc<Node>, lost: Lost) {
        let node = self.clone();
        let settling = tokio::spawn(async move { node.settle_all(lost).await });
        if timeout(SETTLE_TIMEOUT, settling).await.is_err() {
            tracing::warn!("a part of the recovery goes on while the runtime serves");
        }
    }

    /// Sandboxes are independent: one that does not answer holds up no other.
    async fn settle_all(self: &Arc<Node>, lost: Lost) {
        let sandboxes = self.state().all_sandboxes();
        let mut tasks = JoinSet::new();
        for sandbox in sandboxes {
            let node = self.clone();
            tasks.spawn(async move { node.settle_sandbox(sandbox).await });
        }
        tasks.join_all().await;
        // Their monitors, which had them, know nothing of them any more; what no monitor had is killed by its cgroups.
        for id in lost.containers {
            self.take_away_lost(&id).await;
        }
        self.end_unknown_monitors().await;
    }

    async fn settle_sandbox(self: &Arc<Node>, sandbox: SandboxRecord) {
        let containers = self.state().records_of(&sandbox.id);
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
            SandboxPhase::Making => {
                self.undo_sandbox(&sandbox.id).await;
                // Of a lost one: a sandbox in the making has none.
                for record in &containers {
                    self.undo_container(&record.id).await;
                }
            }
            SandboxPhase::Ready | SandboxPhase::NotReady => {
                let live = |record: &ContainerRecord| record.phase == ContainerPhase::Made;
                let has_live = containers.iter().any(live);
                self.settle_made(sandbox, has_live).await;
            }
        }
    }

    /// A sandbox whose namespaces are gone is ready no more; of any other the monitor is asked, once, and then followed.
    async fn settle_made(self: &Arc<Node>, mut sandbox: SandboxRecord, has_live: bool) {
        let own = own_namespaces(&sandbox.config.0);
        let pins = self.parts.layout.sandbox(&sandbox.id).join("ns");
        let monitor = self.parts.layout.monitor(&sandbox.id);
        let looked = self.blocking("looking for a sandbox's namespaces", move || {
            Ok((namespaces::pinned(&pins, own), monitor.exists()))
        });
        let (is_pinned, is_monitored) = looked.await.unwrap_or((true, true));
        let is_alive = is_pinned && sandbox.boot == self.parts.boot;
        // What is stopped may have a monitor yet: the stop did not come to its end. And what should have one may have lost
        // its folder: a new one reports that it knows of nothing.
        if (is_monitored || has_live) && sandbox.boot == self.parts.boot {
            self.look(&sandbox).await;
            self.follow(&sandbox.id);
        }
        if is_alive || sandbox.phase == SandboxPhase::NotReady {
            return;
        }
        sandbox.phase = SandboxPhase::NotReady;
        let id = sandbox.id.clone();
        if let Err(error) = self.keep_sandbox(sandbox).await {
            let error = sdk::error_chain(&error);
            tracing::error!(sandbox = id, error, "a lost sandbox cannot be recorded");
        }
    }

    async fn look(&self, sandbox: &SandboxRecord) {
        let looked = async {
            let monitor = self.launch(sandbox).await?;
            let status = monitor.status().await?;
            self.end_strangers(&monitor, &status).await;
            Ok::<_, CallError>(status)
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

    /// Takes away what is left of a container without a record.
    async fn take_away_lost(self: &Arc<Node>, id: &str) {
        let taken = async {
            self.end_processes(id).await?;
            self.forget_files(id).await
        };
        if let Err(error) = taken.await {
            let error = sdk::error_chain(&error);
            tracing::error!(
                container = id,
                error,
                "a container without a record stays for now"
            );
        }
    }

    /// Ends monitors of sandboxes that are not known, with whatever they run.
    async fn end_unknown_monitors(self: &Arc<Node>) {
        let monitors = self.parts.layout.monitors();
        let listed = self.blocking("looking for monitors", move || {
            let entries = std::fs::read_dir(&monitors);
            let entries = entries.map_err(CallError::file("read", &monitors))?;
            Ok(entries
                .flatten()
                .map(|entry| entry.path())
                .collect::<Vec<_>>())
        });
        for folder in listed.await.unwrap_or_default() {
            let name = folder.file_name().and_then(|name| name.to_str());
            let Some(name) = name.map(str::to_owned) else {
                continue;
            };
            if self.state().has_sandbox_of_monitor(&name) {
                continue;
            }
            let launch = Launch {
                program: self.parts.programs.monitor.clone(),
                folder: folder.clone(),
                cgroup: None,
            };
            let ended: Result<(), CallError> = async {
                let monitor = launch.start().await?;
                let status = monitor.status().await?;
                self.end_strangers(&monitor, &status).await;
                monitor.shutdown().await?;
                self.discard(folder, format!("{name}-monitor")).await
            }
            .await;
            match ended {
                Ok(()) => tracing::error!(name, "a monitor without a sandbox is ended"),
                Err(error) => {
                    let error = sdk::error_chain(&error);
                    tracing::error!(name, error, "a monitor without a sandbox stays for now");
                }
            }
        }
    }
}
