//! Starts one container: image, configuration, creation, start.
//!
//! Upstream: kuberuntime_container.go (startContainer, 1.36), for the reasons and messages.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use clients::runtime::RuntimeError;
use futures_util::future::{Either, select};
use k8s_openapi::api::core::v1::Container;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, ContainerKind, SandboxId, WaitingReason};
use logic_placement::devices::ContainerDevices;
use logic_pods::container::{
    ContainerConfig, ContainerConfigError, ContainerInput, PreparedSubpaths, container_config,
    subpaths, target,
};
use logic_pods::images::volumes;
use logic_pods::runtime::call_limit::RuntimeCall;
use logic_pods::runtime::runtime_class::HandlerFeatures;
use metrics::node::volumes as counted_volumes;
use metrics::pods::pod_starts;
use state::events::EventType;

use super::creation::{self, Found};
use super::files;
use super::present_images::PresentImages;
use super::start_turns::StartTurns;
use crate::hooks::{self, HookKind, LifecycleHook};
use crate::images;
use crate::worker::context::{PlanExecutor, PodContext, SyncProblem};
use crate::worker::metrics::container_type;
use crate::worker::mounts::{PrepareError, asks_for_recursive_read_only};
use crate::worker::{RETRY_BACKOFF, RETRY_PERIOD, history};

/// The timeout for the image manager; longer than any pull may take.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// The start of one container.
pub(super) struct ContainerStart<'a> {
    pub(super) executor: &'a PlanExecutor,
    pub(super) sandbox: &'a SandboxId,
    pub(super) context: &'a PodContext,
    pub(super) turns: &'a StartTurns,
    pub(super) images: &'a PresentImages,
    pub(super) name: String,
    pub(super) restart_count: u32,
}

/// Ends a hook that has certainly hung; upstream waits without a limit.
const POST_START_TIMEOUT: Duration = Duration::from_secs(3600);

/// A failed start, as the container's status shows it.
struct StartFailure {
    /// None for a call that was broken off, which is no failure of the container: the next plan looks what is there.
    reason: Option<&'static str>,
    message: String,
    retry_after: Duration,
    /// The running instance that must be killed; none if none runs.
    kill: Option<ContainerId>,
}

/// Why a container does not run.
enum NotStarted {
    Failed(StartFailure),
    /// The pod is to end.
    Superseded,
}

impl From<StartFailure> for NotStarted {
    fn from(failure: StartFailure) -> Self {
        NotStarted::Failed(failure)
    }
}

/// The images that a container needs.
struct ContainerImages {
    own: images::PresentImage,
    /// By volume, the image reference for the runtime.
    volumes: BTreeMap<String, String>,
}

/// The result of one start.
pub(super) struct StartResult {
    pub(super) name: String,
    pub(super) result: Result<(), SyncProblem>,
    /// The instance that runs although its start failed, because its postStart hook did.
    pub(super) kill: Option<ContainerId>,
}

impl ContainerStart<'_> {
    /// Starts the container; returns its name and, if it does not run, why.
    pub(super) async fn start(self) -> StartResult {
        let pod = self.executor.pod.clone();
        let Some((kind, container)) = pod.container(&self.name) else {
            return StartResult {
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
        let (result, kill) = match self.image_volumes(container).await {
            Ok(volumes) => self.start_with(kind, container, volumes).await,
            Err(problem) => (Err(problem), None),
        };
        if let Err(SyncProblem {
            waiting: Some(waiting),
            ..
        }) = &result
        {
            pod_starts::STARTED_CONTAINERS_ERRORS
                .with_label_values(&[container_type, &waiting.reason])
                .inc();
        }
        StartResult {
            name: self.name,
            result,
            kill,
        }
    }

    /// Starts the container with its image volumes, which are counted; returns the instance that must be killed, too.
    async fn start_with(
        &self,
        kind: ContainerKind,
        container: &Container,
        volumes: BTreeMap<String, String>,
    ) -> (Result<(), SyncProblem>, Option<ContainerId>) {
        let mut kill = None;
        let result = match self.ready(container).await {
            Ok(own) => {
                let images = ContainerImages {
                    own,
                    volumes: volumes.clone(),
                };
                let started = self.create_and_start(kind, container, &images).await;
                started.map_err(|why| match why {
                    NotStarted::Failed(failed) => {
                        kill.clone_from(&failed.kill);
                        self.report(failed)
                    }
                    NotStarted::Superseded => SyncProblem::superseded(),
                })
            }
            Err(problem) => Err(problem),
        };
        let problem = result.as_ref().err();
        let waiting = problem.and_then(|problem| problem.waiting.as_ref());
        let counts = volumes::count(container, &volumes, waiting);
        counted_volumes::IMAGES_REQUESTED.inc_by(counts.requested);
        counted_volumes::IMAGES_MOUNTED.inc_by(counts.mounted);
        counted_volumes::IMAGES_MOUNTED_ERRORS.inc_by(counts.failed);
        (result, kill)
    }

    /// Makes the container's image present, and waits for its turn; ends early when the pod is to end.
    async fn ready(&self, container: &Container) -> Result<images::PresentImage, SyncProblem> {
        let image = self.image(container).await?;
        let turn = pin!(self.turns.wait(&self.name));
        match select(turn, pin!(self.executor.wait_for_end())).await {
            Either::Left(((), _)) => Ok(image),
            Either::Right(((), _)) => Err(SyncProblem::superseded()),
        }
    }

    /// Records the event of a failed start.
    fn report(&self, failed: StartFailure) -> SyncProblem {
        let Some(reason) = failed.reason else {
            tracing::info!(container = %self.name, "its start was broken off: {}", failed.message);
            return SyncProblem {
                waiting: None,
                retry_after: failed.retry_after,
            };
        };
        let message = format!("Error: {}", failed.message);
        self.event(EventType::Warning, "Failed", message);
        SyncProblem {
            waiting: Some(WaitingReason {
                reason: reason.to_owned(),
                message: failed.message,
            }),
            retry_after: failed.retry_after,
        }
    }

    /// Has the image manager make the container's image present.
    async fn image(&self, container: &Container) -> Result<images::PresentImage, SyncProblem> {
        let wanted = images::ImageRequest::new(&self.executor.pod, container);
        let seen = wanted
            .inspected()
            .and_then(|name| self.images.get(&name).cloned());
        self.present(wanted.seen(seen)).await
    }

    /// Has the image manager make the images present that are volumes of the container.
    async fn image_volumes(
        &self,
        container: &Container,
    ) -> Result<BTreeMap<String, String>, SyncProblem> {
        let volumes = volumes::of(&self.executor.pod).into_iter();
        let mounted = volumes.filter(|volume| volumes::is_mounted(container, &volume.name));
        let mut images = BTreeMap::new();
        for volume in mounted {
            let name = volume.name.clone();
            let wanted = images::ImageRequest::volume(&self.executor.pod, volume);
            images.insert(name, self.present(wanted).await?.reference);
        }
        Ok(images)
    }

    /// Waits for an image; ends early when the pod is to end.
    async fn present(
        &self,
        wanted: images::ImageRequest,
    ) -> Result<images::PresentImage, SyncProblem> {
        let wanted = Box::new(wanted.within(self.context.sandbox.clone()));
        let images = &self.executor.peers.images;
        let ensured = images.ask(IMAGE_TIMEOUT, |reply| images::Msg::Ensure { wanted, reply });
        match select(pin!(ensured), pin!(self.executor.wait_for_end())).await {
            Either::Left((Ok(Ok(image)), _)) => {
                self.executor.pulls.borrow_mut().extend(image.pulled);
                Ok(image)
            }
            Either::Left((Ok(Err(missing)), _)) => {
                let reason = format!("Error: {}", missing.waiting.reason);
                self.event(EventType::Warning, "Failed", reason);
                Err(SyncProblem {
                    waiting: Some(missing.waiting),
                    retry_after: missing.retry_after,
                })
            }
            Either::Left((Err(error), _)) => {
                tracing::warn!(container = %self.name, "the image manager did not answer: {error}");
                Err(SyncProblem {
                    waiting: None,
                    retry_after: RETRY_PERIOD,
                })
            }
            Either::Right(((), _)) => Err(SyncProblem::superseded()),
        }
    }

    async fn create_and_start(
        &self,
        kind: ContainerKind,
        container: &Container,
        images: &ContainerImages,
    ) -> Result<(), NotStarted> {
        let (pod, peers) = (&self.executor.pod, &self.executor.peers);
        let node = &peers.rules.node;
        let mut config = self.config(kind, container, images).await?;
        files::make_container_files(pod, &config, node).await;

        let turn = self.executor.turn(RuntimeCall::Container).await;
        let turn = turn.ok_or(NotStarted::Superseded)?;
        let id = match self.executor.created.get(&self.name) {
            Some(made) => made.clone(),
            None => {
                // They may be others since: the turn can take long.
                config.resources.cpus = self.executor.placement(&self.name).cpus.to_string();
                let created = self.create(&config).await;
                let id = created.map_err(|error| failed("CreateContainerError", &error))?;
                self.event(EventType::Normal, "Created", "Container created".to_owned());
                let placed = (id.clone(), config.resources.cpus.clone());
                self.executor.placed.borrow_mut().push(placed);
                id
            }
        };
        self.run(&id)
            .await
            .map_err(|error| failed("RunContainerError", &error))?;
        turn.end();
        self.event(EventType::Normal, "Started", "Container started".to_owned());
        files::link_legacy_log(pod, &config, &id, node).await;
        Ok(self.post_start(container, &id).await?)
    }

    /// The container's configuration, after all that it refers to has been made ready.
    async fn config(
        &self,
        kind: ContainerKind,
        container: &Container,
        images: &ContainerImages,
    ) -> Result<ContainerConfig, StartFailure> {
        let (executor, peers) = (self.executor, &self.executor.peers);
        let target = target(&executor.pod, &self.name, &executor.newest).map_err(misconfigured)?;
        let env_files = executor.env_files(container).await.map_err(unprepared)?;
        let features = match asks_for_recursive_read_only(&executor.pod) {
            true => peers.runtime.features(&executor.pod, &*peers.objects).await,
            false => HandlerFeatures::default(),
        };
        let claim_devices = self.claim_devices().await?;
        let plugin_devices = self.plugin_devices().await?;
        let nothing = PreparedSubpaths::new();
        let input = ContainerInput {
            pod: &executor.pod,
            container,
            kind,
            restart_count: self.restart_count,
            image: &images.own.reference,
            image_user: &images.own.user,
            pod_ips: &executor.ips,
            node: &peers.rules.node,
            objects: &*peers.objects,
            env_files: &env_files,
            image_volumes: &images.volumes,
            volumes: &executor.volumes,
            subpaths: &nothing,
            features,
            hosts_file: self.context.hosts.as_deref(),
            namespaces: &self.context.sandbox.namespaces,
            target,
            placement: &executor.placement(&self.name),
            claim_devices: &claim_devices,
            plugin_devices: plugin_devices.as_ref(),
        };
        let prepared = executor.subpaths(container, || subpaths(&input)).await;
        let prepared = prepared.map_err(misconfigured)?.map_err(unprepared)?;
        let input = ContainerInput {
            subpaths: &prepared,
            ..input
        };
        container_config(&input).map_err(misconfigured)
    }

    /// The CDI names of the devices that the container gets of its pod's claims.
    async fn claim_devices(&self) -> Result<Vec<String>, StartFailure> {
        let claims = &self.executor.peers.claims;
        let devices = claims.devices(&self.executor.pod, &self.name).await;
        devices.map_err(|error| StartFailure {
            reason: Some(ContainerConfigError::REASON),
            message: error.to_string(),
            retry_after: RETRY_BACKOFF,
            kill: None,
        })
    }

    /// What the container gets with its devices, which their plugins have prepared.
    async fn plugin_devices(&self) -> Result<Option<ContainerDevices>, StartFailure> {
        let executor = self.executor;
        if !executor.has_devices(Some(&self.name)) {
            return Ok(None);
        }
        let devices = executor.peers.devices.pre_start(&executor.uid, &self.name);
        let devices = match select(pin!(devices), pin!(executor.wait_for_end())).await {
            Either::Left((devices, _)) => devices,
            Either::Right(((), _)) => return Ok(None),
        };
        let devices = devices.map_err(|error| StartFailure {
            reason: Some(ContainerConfigError::REASON),
            message: error.before_start().to_string(),
            retry_after: RETRY_BACKOFF,
            kill: None,
        })?;
        for conflict in devices.iter().flat_map(|devices| &devices.conflicts) {
            tracing::warn!(container = %self.name, "device plugins contradict each other: {conflict}");
        }
        Ok(devices)
    }

    /// Runs the postStart hook. Ends early when the pod is to end: the container is killed with it.
    async fn post_start(
        &self,
        container: &Container,
        id: &ContainerId,
    ) -> Result<(), StartFailure> {
        let handler = container.lifecycle.as_ref();
        let Some(handler) = handler.and_then(|lifecycle| lifecycle.post_start.as_ref()) else {
            return Ok(());
        };
        let peers = &self.executor.peers;
        let hook = LifecycleHook {
            kind: HookKind::PostStart,
            handler,
            pod: &self.executor.pod,
            container,
            id,
            ips: &self.executor.ips,
        };
        let run = hooks::run(&peers.runtime, &peers.recorder, &hook, POST_START_TIMEOUT);
        match select(pin!(run), pin!(self.executor.wait_for_end())).await {
            Either::Left((Err(error), _)) => Err(StartFailure {
                reason: Some("PostStartHookError"),
                message: error.to_string(),
                retry_after: Duration::ZERO,
                kill: Some(id.clone()),
            }),
            Either::Left((Ok(()), _)) | Either::Right(((), _)) => Ok(()),
        }
    }

    /// Creates the container once: after an interrupted call, its instance is looked up and used.
    async fn create(&self, config: &ContainerConfig) -> Result<ContainerId, RuntimeError> {
        let (runtime, made) = (&self.executor.peers.runtime, (&*self.name, config.attempt));
        let pod = &self.context.sandbox;
        creation::once(
            async || runtime.create_container(self.sandbox, config, pod).await,
            async |_| self.executor.find_created(made, self.sandbox).await,
        )
        .await
    }

    /// Starts the container once. One that the runtime does not start is removed if it was made earlier: the next plan makes
    /// another one.
    async fn run(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let runtime = &self.executor.peers.runtime;
        let started = creation::once(
            async || runtime.start_container(id).await,
            async |_| self.executor.find_started(id).await,
        )
        .await;
        let refused = started.as_ref().is_err_and(|error| error.code().is_some());
        if refused
            && self.executor.created.contains_key(&self.name)
            && matches!(self.executor.find_started(id).await, Ok(Found::Absent))
        {
            // What stays is looked at by the next plan.
            runtime.remove_container(id).await.ok();
        }
        started
    }

    fn event(&self, r#type: EventType, reason: &'static str, message: String) {
        let recorder = &self.executor.peers.recorder;
        history::event(
            recorder,
            &self.executor.pod,
            Some(&self.name),
            r#type,
            reason,
            message,
        );
    }
}

fn misconfigured(error: ContainerConfigError) -> StartFailure {
    StartFailure {
        reason: Some(ContainerConfigError::REASON),
        message: error.message(),
        retry_after: RETRY_BACKOFF,
        kill: None,
    }
}

fn unprepared(error: PrepareError) -> StartFailure {
    StartFailure {
        reason: Some(ContainerConfigError::REASON),
        message: error.message,
        retry_after: error.retry_after,
        kill: None,
    }
}

/// With the runtime's own message, as upstream shows it.
fn failed(reason: &'static str, error: &RuntimeError) -> StartFailure {
    StartFailure {
        reason: error.setback().is_none().then_some(reason),
        message: error.message(),
        retry_after: SyncProblem::of(error).retry_after,
        kill: None,
    }
}
