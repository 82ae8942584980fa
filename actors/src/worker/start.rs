//! Starting one container: its image, its configuration, its creation, its start.
//!
//! Upstream: kuberuntime_container.go (startContainer, 1.36), for the reasons and messages.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use k8s_openapi::api::core::v1::{Container, Pod};
use logic::container::{ContainerConfig, ContainerConfigError, container_config};
use logic::honoured::{failed_mount, unmountable_volumes};
use logic::pod::PodView;
use logic::sandbox::sandbox_config;
use logic::security::verify_non_root;
use logic::types::{ContainerId, ContainerState, SandboxId, Waiting, Weight, Why};

use super::carry::{Carrier, Problem};
use super::{LATER, SOON, files, why};
use crate::directory::Desired;
use crate::events::Type;
use crate::images;
use crate::runtime::RuntimeError;

/// Longer than any pull may take.
const IMAGE_WITHIN: Duration = Duration::from_secs(2 * 3600);

/// One container to be started.
pub(super) struct Start<'a> {
    pub(super) carrier: &'a Carrier,
    pub(super) sandbox: &'a SandboxId,
    pub(super) name: String,
    pub(super) restart_count: u32,
}

/// What a failed start shows in the container's status.
struct Failed {
    reason: &'static str,
    message: String,
    again_after: Duration,
}

impl Start<'_> {
    /// Starts it; answers with its name and, if it does not run, why.
    pub(super) async fn start(self) -> (String, Result<(), Problem>) {
        let Some((_, container)) = self.carrier.pod.container(&self.name) else {
            return (self.name, Ok(()));
        };
        let result = match self.image(container).await {
            Ok(image) => self
                .create_and_start(container, &image)
                .await
                .map_err(|failed| {
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
        (self.name, result)
    }

    /// Has the image made present. The wish to end the pod ends the wait.
    async fn image(&self, container: &Container) -> Result<images::Present, Problem> {
        let (pod, peers) = (&self.carrier.pod, &self.carrier.peers);
        let ensured = peers.images.ask(IMAGE_WITHIN, |reply| images::Msg::Ensure {
            wanted: Box::new(images::Wanted::new(pod, container)),
            reply,
        });
        let mut desired = self.carrier.desired.clone();
        let ended = async {
            let Some(desired) = &mut desired else {
                return pending().await;
            };
            // Nobody who could end the pod is left: it goes on.
            if desired.wait_for(Desired::is_end).await.is_err() {
                pending().await
            }
        };
        match select(pin!(ensured), pin!(ended)).await {
            Either::Left((Ok(Ok(image)), _)) => Ok(image),
            Either::Left((Ok(Err(missing)), _)) => {
                self.event(
                    Type::Warning,
                    "Failed",
                    format!("Error: {}", missing.waiting.reason),
                );
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
        container: &Container,
        image: &images::Present,
    ) -> Result<(), Failed> {
        let (pod, peers) = (&self.carrier.pod, &self.carrier.peers);
        let node = &peers.rules.node;
        let wrong = |message| Failed {
            reason: ContainerConfigError::REASON,
            message,
            again_after: LATER,
        };
        verify_non_root(pod, container, &image.user).map_err(|error| wrong(error.to_string()))?;
        let (count, ips) = (self.restart_count, &self.carrier.ips);
        let config = container_config(pod, container, count, &image.reference, ips, node);
        let config = config.map_err(|error| wrong(error.message()))?;
        files::make_container_files(pod, &config, node).await;

        let id = self
            .create(&config)
            .await
            .map_err(|error| failed("CreateContainerError", &error))?;
        self.event(Type::Normal, "Created", "Container created".to_owned());
        self.run(&id)
            .await
            .map_err(|error| failed("RunContainerError", &error))?;
        self.event(Type::Normal, "Started", "Container started".to_owned());
        files::link_legacy_log(pod, &config, &id, node).await;
        Ok(())
    }

    /// Creates it once: after an interrupted call, what that call made is found and taken.
    async fn create(&self, config: &ContainerConfig) -> Result<ContainerId, RuntimeError> {
        let (peers, attempt) = (&self.carrier.peers, config.attempt);
        let sandbox = sandbox_config(&self.carrier.pod, 0, &peers.rules.node);
        match peers
            .runtime
            .create_container(self.sandbox, config, &sandbox)
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

    /// Whether a container's environment shows the pod's addresses.
    pub(super) fn wants_pod_ips(pod: &Pod) -> bool {
        let mut variables = pod
            .all_containers()
            .flat_map(|(_, container)| container.env.iter().flatten());
        variables.any(|variable| {
            let field = variable
                .value_from
                .as_ref()
                .and_then(|source| source.field_ref.as_ref());
            field.is_some_and(|field| field.field_path.starts_with("status.podIP"))
        })
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

fn failed(reason: &'static str, error: &RuntimeError) -> Failed {
    Failed {
        reason,
        message: error.told(),
        again_after: Problem::of(error).again_after,
    }
}

/// A pod that waits for volumes.
pub(super) struct Blocked {
    pub(super) containers: BTreeMap<String, Waiting>,
    pub(super) why: Vec<Why>,
}

/// No storage plugin serves this node yet: a pod whose containers mount volumes waits, and says so, as
/// it would while upstream's volume manager cannot mount them.
pub(super) fn blocked_by_volumes(pod: &Pod) -> Option<Blocked> {
    let volumes = unmountable_volumes(pod);
    if volumes.is_empty() {
        return None;
    }
    let waiting = Waiting {
        reason: "ContainerCreating".to_owned(),
        message: String::new(),
    };
    let containers = pod
        .app_containers()
        .iter()
        .map(|container| (container.name.clone(), waiting.clone()));
    Some(Blocked {
        containers: containers.collect(),
        why: vec![Why {
            object: None,
            weight: Weight::Warning,
            reason: "FailedMount".to_owned(),
            message: failed_mount(&volumes),
        }],
    })
}
