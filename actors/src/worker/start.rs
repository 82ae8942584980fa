//! Starting one container: its image, its configuration, its creation, its start.
//!
//! Upstream: kuberuntime_container.go (startContainer, 1.36), for the reasons and messages.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use k8s_openapi::api::core::v1::Container;
use logic::container::{
    ContainerConfig, ContainerConfigError, ContainerInput, Prepared, container_config, subpaths,
};
use logic::images::volumes;
use logic::pod::PodView;
use logic::runtime_class::HandlerFeatures;
use logic::types::{ContainerId, ContainerKind, ContainerState, SandboxId, Waiting};
use metrics::{pod_starts, volumes as counted_volumes};

use super::carry::{Carrier, Problem, Surroundings};
use super::counted::container_type;
use super::volumes::{Unprepared, asks_for_recursive_read_only};
use super::{LATER, SOON, files, why};
use crate::hooks::{self, Hook, Kind};
use crate::images;
use crate::runtime::RuntimeError;
use cluster::events::Type;

/// Longer than any pull may take.
const IMAGE_WITHIN: Duration = Duration::from_secs(2 * 3600);

/// One container to be started.
pub(super) struct Start<'a> {
    pub(super) carrier: &'a Carrier,
    pub(super) sandbox: &'a SandboxId,
    pub(super) surroundings: &'a Surroundings,
    pub(super) name: String,
    pub(super) restart_count: u32,
}

/// A hook that lasts longer has surely died; upstream waits for ever.
const POST_START_WITHIN: Duration = Duration::from_secs(3600);

/// What a failed start shows in the container's status.
struct Failed {
    reason: &'static str,
    message: String,
    again_after: Duration,
    /// The instance that runs and is to be ended.
    kill: Option<ContainerId>,
}

/// The images that a container needs.
struct Images {
    own: images::Present,
    /// By volume, what the runtime is to be asked for.
    volumes: BTreeMap<String, String>,
}

/// What came of one start.
pub(super) struct Started {
    pub(super) name: String,
    pub(super) result: Result<(), Problem>,
    /// The instance that runs although its start failed: its postStart hook did.
    pub(super) kill: Option<ContainerId>,
}

impl Start<'_> {
    /// Starts it; answers with its name and, if it does not run, why.
    pub(super) async fn start(self) -> Started {
        let pod = self.carrier.pod.clone();
        let Some((kind, container)) = pod.container(&self.name) else {
            return Started {
                name: self.name,
                result: Ok(()),
                kill: None,
            };
        };
        let container = container.as_ref();
        let container_type = container_type(kind);
        pod_starts::STARTED_CONTAINERS
            .with_label_values(&[container_type])
            .inc();
        let mut kill = None;
        let result = match self.images(container).await {
            Ok(images) => self
                .create_and_start(kind, container, &images)
                .await
                .map_err(|failed| {
                    kill = failed.kill;
                    self.event(
                        Type::Warning,
                        "Failed",
                        format!("Error: {}", failed.message),
                    );
                    Problem {
                        waiting: Some(Waiting {
                            reason: failed.reason.to_owned(),
                            message: failed.message,
                        }),
                        again_after: failed.again_after,
                    }
                }),
            Err(problem) => Err(problem),
        };
        if let Err(Problem {
            waiting: Some(waiting),
            ..
        }) = &result
        {
            pod_starts::STARTED_CONTAINERS_ERRORS
                .with_label_values(&[container_type, &waiting.reason])
                .inc();
        }
        Started {
            name: self.name,
            result,
            kill,
        }
    }

    async fn images(&self, container: &Container) -> Result<Images, Problem> {
        Ok(Images {
            volumes: self.image_volumes(container).await?,
            own: self.image(container).await?,
        })
    }

    /// Has the container's image made present.
    async fn image(&self, container: &Container) -> Result<images::Present, Problem> {
        let wanted = images::Wanted::new(&self.carrier.pod, container);
        self.present(wanted).await
    }

    /// Has the images made present that are volumes of the container.
    async fn image_volumes(
        &self,
        container: &Container,
    ) -> Result<BTreeMap<String, String>, Problem> {
        let volumes = volumes::of(&self.carrier.pod).into_iter();
        let mounted = volumes.filter(|volume| volumes::is_mounted(container, &volume.name));
        let mut images = BTreeMap::new();
        for volume in mounted {
            let name = volume.name.clone();
            let wanted = images::Wanted::volume(&self.carrier.pod, volume);
            counted_volumes::IMAGES_REQUESTED.inc();
            let present = self.present(wanted).await.inspect_err(|_| {
                counted_volumes::IMAGES_MOUNTED_ERRORS.inc();
            })?;
            images.insert(name, present.reference);
        }
        Ok(images)
    }

    /// The wish to end the pod ends the wait.
    async fn present(&self, wanted: images::Wanted) -> Result<images::Present, Problem> {
        let wanted = Box::new(wanted.within(self.surroundings.sandbox.clone()));
        let images = &self.carrier.peers.images;
        let ensured = images.ask(IMAGE_WITHIN, |reply| images::Msg::Ensure { wanted, reply });
        match select(pin!(ensured), pin!(self.carrier.ended())).await {
            Either::Left((Ok(Ok(image)), _)) => {
                self.carrier.pulls.borrow_mut().extend(image.pulled);
                Ok(image)
            }
            Either::Left((Ok(Err(missing)), _)) => {
                let reason = format!("Error: {}", missing.waiting.reason);
                self.event(Type::Warning, "Failed", reason);
                Err(Problem {
                    waiting: Some(missing.waiting),
                    again_after: missing.again_after,
                })
            }
            Either::Left((Err(error), _)) => {
                tracing::warn!(container = %self.name, "the image keeper did not answer: {error}");
                Err(Problem {
                    waiting: None,
                    again_after: SOON,
                })
            }
            Either::Right(((), _)) => Err(Problem {
                waiting: None,
                again_after: Duration::ZERO,
            }),
        }
    }

    async fn create_and_start(
        &self,
        kind: ContainerKind,
        container: &Container,
        images: &Images,
    ) -> Result<(), Failed> {
        let (pod, peers) = (&self.carrier.pod, &self.carrier.peers);
        let node = &peers.rules.node;
        let config = self.config(kind, container, images).await?;
        files::make_container_files(pod, &config, node).await;

        let created = self.create(&config).await;
        let of_images = u64::try_from(images.volumes.len()).unwrap_or(0);
        match &created {
            Ok(_) => counted_volumes::IMAGES_MOUNTED.inc_by(of_images),
            Err(_) => counted_volumes::IMAGES_MOUNTED_ERRORS.inc_by(of_images),
        }
        let id = created.map_err(|error| failed("CreateContainerError", &error))?;
        self.event(Type::Normal, "Created", "Container created".to_owned());
        self.run(&id)
            .await
            .map_err(|error| failed("RunContainerError", &error))?;
        self.event(Type::Normal, "Started", "Container started".to_owned());
        files::link_legacy_log(pod, &config, &id, node).await;
        self.post_start(container, &id).await
    }

    /// What the runtime is asked for, after everything that it names has been made ready.
    async fn config(
        &self,
        kind: ContainerKind,
        container: &Container,
        images: &Images,
    ) -> Result<ContainerConfig, Failed> {
        let (carrier, peers) = (self.carrier, &self.carrier.peers);
        let env_files = carrier.env_files(container).await.map_err(unprepared)?;
        let features = match asks_for_recursive_read_only(&carrier.pod) {
            true => peers.runtime.features(&carrier.pod, &*peers.objects).await,
            false => HandlerFeatures::default(),
        };
        let nothing = Prepared::new();
        let input = ContainerInput {
            pod: &carrier.pod,
            container,
            kind,
            restart_count: self.restart_count,
            image: &images.own.reference,
            image_user: &images.own.user,
            pod_ips: &carrier.ips,
            node: &peers.rules.node,
            objects: &*peers.objects,
            env_files: &env_files,
            image_volumes: &images.volumes,
            volumes: &carrier.volumes,
            subpaths: &nothing,
            features,
            hosts_file: self.surroundings.hosts.as_deref(),
            namespaces: &self.surroundings.sandbox.namespaces,
            target: self.target(),
        };
        let prepared = carrier.subpaths(container, || subpaths(&input)).await;
        let prepared = prepared.map_err(misconfigured)?.map_err(unprepared)?;
        let input = ContainerInput {
            subpaths: &prepared,
            ..input
        };
        container_config(&input).map_err(misconfigured)
    }

    /// The instance whose processes an ephemeral container is to see.
    fn target(&self) -> Option<&ContainerId> {
        let spec = self.carrier.pod.spec()?;
        let mut ephemeral = spec.ephemeral_containers.iter().flatten();
        let own = ephemeral.find(|container| container.name == self.name)?;
        self.carrier
            .running
            .get(own.target_container_name.as_ref()?)
    }

    /// Runs the postStart hook. The wish to end the pod ends the wait: the container is ended with it.
    async fn post_start(&self, container: &Container, id: &ContainerId) -> Result<(), Failed> {
        let handler = container.lifecycle.as_ref();
        let Some(handler) = handler.and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
            return Ok(());
        };
        let peers = &self.carrier.peers;
        let hook = Hook {
            kind: Kind::PostStart,
            handler,
            pod: &self.carrier.pod,
            container,
            id,
            ips: &self.carrier.ips,
        };
        let run = hooks::run(&peers.runtime, &peers.recorder, &hook, POST_START_WITHIN);
        match select(pin!(run), pin!(self.carrier.ended())).await {
            Either::Left((Err(error), _)) => Err(Failed {
                reason: "PostStartHookError",
                message: error.to_string(),
                again_after: Duration::ZERO,
                kill: Some(id.clone()),
            }),
            Either::Left((Ok(()), _)) | Either::Right(((), _)) => Ok(()),
        }
    }

    /// Creates it once: after an interrupted call, what that call made is found and taken.
    async fn create(&self, config: &ContainerConfig) -> Result<ContainerId, RuntimeError> {
        let (peers, attempt) = (&self.carrier.peers, config.attempt);
        let sandbox = &self.surroundings.sandbox;
        match peers
            .runtime
            .create_container(self.sandbox, config, sandbox)
            .await
        {
            Err(error @ RuntimeError::Interrupted { .. }) => {
                let pod = peers.runtime.pod(&self.carrier.uid).await?;
                let made = pod.instances(&self.name).find(|made| {
                    made.attempt == attempt
                        && made.sandbox == *self.sandbox
                        && made.state == ContainerState::Created
                });
                made.map(|made| made.id.clone()).ok_or(error)
            }
            answer => answer,
        }
    }

    /// Starts it once: after an interrupted call, only if it is still not started.
    async fn run(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let peers = &self.carrier.peers;
        match peers.runtime.start_container(id).await {
            Err(error @ RuntimeError::Interrupted { .. }) => {
                let pod = peers.runtime.pod(&self.carrier.uid).await?;
                let state = pod
                    .containers
                    .iter()
                    .find(|made| made.id == *id)
                    .map(|made| made.state);
                match state {
                    Some(ContainerState::Created) => peers.runtime.start_container(id).await,
                    Some(ContainerState::Running | ContainerState::Exited) => Ok(()),
                    Some(ContainerState::Unknown) | None => Err(error),
                }
            }
            answer => answer,
        }
    }

    fn event(&self, r#type: Type, reason: &'static str, message: String) {
        let recorder = &self.carrier.peers.recorder;
        why::event(
            recorder,
            &self.carrier.pod,
            Some(&self.name),
            r#type,
            reason,
            message,
        );
    }
}

fn misconfigured(error: ContainerConfigError) -> Failed {
    Failed {
        reason: ContainerConfigError::REASON,
        message: error.message(),
        again_after: LATER,
        kill: None,
    }
}

fn unprepared(error: Unprepared) -> Failed {
    Failed {
        reason: ContainerConfigError::REASON,
        message: error.message,
        again_after: error.again_after,
        kill: None,
    }
}

fn failed(reason: &'static str, error: &RuntimeError) -> Failed {
    Failed {
        reason,
        message: error.told(),
        again_after: Problem::of(error).again_after,
        kill: None,
    }
}
