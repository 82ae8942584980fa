//! RunPodSandbox.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::cri::{ContainerEventType, NamespaceMode, PodSandboxConfig, RunPodSandboxRequest};

use super::namespaces::{self, OwnNamespaces};
use super::network::{NotReady, port_mappings};
use super::{files, namespace_options, own_namespaces, pause, sysctls, user_ids, user_namespace};
use crate::clock;
use crate::container::staging::{Owners, Stage};
use crate::error::CallError;
use crate::layout::private_dir;
use crate::node::Node;
use crate::record::{SandboxPhase, SandboxRecord, Wire, new_id};
use crate::spec::UserIds;

impl Node {
    /// Makes a sandbox and returns its id. What fails leaves nothing behind.
    pub(crate) async fn run_sandbox(
        self: &Arc<Node>,
        request: RunPodSandboxRequest,
    ) -> Result<String, CallError> {
        let config = request
            .config
            .ok_or(CallError::Missing("the sandbox's config"))?;
        self.handler(&request.runtime_handler)?;
        let own = own_namespaces(&config);
        let sysctls = self.check(&config, own, &request.runtime_handler)?;
        let record = self.reserve_sandbox(config, request.runtime_handler)?;
        let made = async {
            self.note_sandbox(record.clone()).await?;
            self.make_sandbox(record.clone(), own, sysctls).await
        };
        match made.await {
            Ok(()) => {
                if pause::is_needed(&record.config.0) {
                    self.follow(&record.id);
                }
                let id = record.id;
                self.tell(&id, &id, ContainerEventType::ContainerCreatedEvent);
                self.tell(&id, &id, ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(error) => {
                self.undo_sandbox(&record.id).await;
                Err(error)
            }
        }
    }

    /// Refuses what cannot be done before anything is.
    fn check(
        &self,
        config: &PodSandboxConfig,
        own: OwnNamespaces,
        handler: &str,
    ) -> Result<Vec<(String, String)>, CallError> {
        if user_ids(config)?.is_some() {
            self.check_users(config, own, handler)?;
        }
        if own.network && self.parts.network.is_none() {
            let NotReady { reason, message } = NotReady::absent();
            return Err(CallError::NoNetwork { reason, message });
        }
        if !own.network && !port_mappings(config).is_empty() && self.parts.network.is_none() {
            // The containers listen on the node itself; a mapping of a port to itself is what the agent sends.
            let same = |mapping: &proto::cri::PortMapping| {
                mapping.host_port <= 0 || mapping.host_port == mapping.container_port
            };
            if !config.port_mappings.iter().all(same) {
                return Err(CallError::Unsupported(
                    "host ports without a network plugin are",
                ));
            }
        }
        let linux = config.linux.as_ref();
        let asked = linux.map(|linux| linux.sysctls.clone()).unwrap_or_default();
        Ok(sysctls::files(&asked, own)?)
    }

    /// A pod with users of its own has everything of its own.
    fn check_users(
        &self,
        config: &PodSandboxConfig,
        own: OwnNamespaces,
        handler: &str,
    ) -> Result<(), CallError> {
        if let Err(why) = self.parts.user_namespaces(handler) {
            return Err(CallError::NoUserNamespaces { why });
        }
        let pids = namespace_options(config).pid();
        if own.network && own.ipc && pids != NamespaceMode::Node {
            return Ok(());
        }
        Err(CallError::Unsupported(
            "user namespaces of pods with the node's network, IPC or processes are",
        ))
    }

    /// Takes a name and an id for the sandbox.
    fn reserve_sandbox(
        &self,
        config: PodSandboxConfig,
        handler: String,
    ) -> Result<SandboxRecord, CallError> {
        let meta = config
            .metadata
            .clone()
            .ok_or(CallError::Missing("the sandbox's metadata"))?;
        let name = [
            meta.name.as_str(),
            &meta.namespace,
            &meta.uid,
            &meta.attempt.to_string(),
        ]
        .join("_");
        let record = SandboxRecord {
            id: new_id().map_err(CallError::Random)?,
            name: name.clone(),
            phase: SandboxPhase::Making,
            config: Wire(config),
            handler,
            created: clock::now(),
            boot: self.parts.boot.clone(),
            addresses: Vec::new(),
            attached: false,
        };
        let mut state = self.state();
        if let Some(other) = state.sandbox_named(&name) {
            let by = other.id.clone();
            return Err(CallError::NameTaken { name, by });
        }
        state.put_sandbox(record.clone());
        Ok(record)
    }

    async fn make_sandbox(
        &self,
        mut record: SandboxRecord,
        own: OwnNamespaces,
        sysctls: Vec<(String, String)>,
    ) -> Result<(), CallError> {
        let folder = self.parts.layout.sandbox(&record.id);
        let (config, node) = (record.config.0.clone(), self.parts.host.hostname.clone());
        let pins = folder.join("ns");
        let made = pins.clone();
        let users = user_ids(&config)?;
        let (stage, monitor) = (
            self.parts.layout.stage(&record.id),
            self.parts.programs.monitor.clone(),
        );
        self.blocking("making a sandbox", move || {
            private_dir(&made).map_err(CallError::file("make", &made))?;
            if let Some(ids) = &users {
                user_namespace::pin(&monitor, &made, own, (&config.hostname, ids))?;
                stage_namespaces(stage, &made, ids)?;
            } else if own.network || own.ipc || own.uts {
                namespaces::pin(&made, own, &config.hostname)?;
            }
            if own.ipc {
                namespaces::mount_shm(&folder.join("shm"))?;
            }
            fs::create_dir_all(&folder).map_err(CallError::file("make", &folder))?;
            files::write(&folder, &config, &node)
                .and_then(|()| users.map_or(Ok(()), |ids| files::give(&folder, ids.root())))
                .map_err(CallError::file("write files in", folder))
        })
        .await?;
        if let Some(network) = self.parts.network.as_ref().filter(|_| own.network) {
            // On record first: an attachment that was begun is taken away, whatever happens now.
            record.attached = true;
            self.note_sandbox(record.clone()).await?;
            let netns = pins.join("net").display().to_string();
            let attach = network.attach(&record.id, &record.config.0, netns);
            // The monitor starts meanwhile. One that cannot start is reported by the first container, which tries again.
            let (attached, _monitor) = tokio::join!(attach, self.launch(&record));
            record.addresses = attached.map_err(CallError::Other)?;
        }
        let root = user_ids(&record.config.0)?.map(|ids| ids.root().0);
        self.blocking("setting sysctls", move || {
            Ok(namespaces::write_sysctls(&pins, &sysctls, root)?)
        })
        .await?;
        self.start_pause(&record).await?;
        record.phase = SandboxPhase::Ready;
        record.created = clock::now();
        self.note_sandbox(record).await
    }
}

/// Where the pod's own root reaches them.
fn stage_namespaces(stage: PathBuf, pins: &Path, ids: &UserIds) -> Result<(), CallError> {
    let passable = fs::set_permissions(pins, Permissions::from_mode(0o711));
    passable.map_err(CallError::file("change", pins))?;
    let stage = Stage::make(stage, ids)?;
    stage.put("ns", pins, Owners::Disk).map(drop)
}
