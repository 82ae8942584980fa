//! The typed client of the runtime plugin: CRI behind, `logic_api::types` in front.
//!
//! The only module (with [`convert`] and [`fetch`]) that sees CRI's types. Every call has a deadline.
//! Calls that only read or that may be repeated are retried transparently while a plugin restarts; calls that
//! create end as `Interrupted`, and the caller lists what exists before it acts again.
//!
//! Deadlines are upstream's: staging/src/k8s.io/cri-client/pkg/remote_runtime.go (1.36).

mod collect;
mod container_metrics;
mod convert;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod features;
mod fetch;
mod live;
mod measured;
mod operations;
mod spans;
mod streaming;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::watch;
use logic_api::types::{ContainerId, ImageRef, PodUid, RuntimePod, SandboxId};
use logic_pods::container::ContainerConfig;
use logic_pods::images::credentials::AuthConfig;
use logic_pods::sandbox::SandboxConfig;
use plugin_host::{MESSAGE_LIMIT, PluginClient};
use proto::cri;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

pub use self::collect::ContainerImage;
pub use self::container_metrics::{MetricDescriptor, MetricSample};
pub use self::error::{RefusalReason, RuntimeError};
use self::features::ReportedFeatures;
pub use self::fetch::RuntimeEvents;
pub use self::live::{ExecOutput, Handlers};
pub use self::measured::FileSystems;
pub use self::streaming::{ContainerLogStatus, StreamOptions};

/// A change of one pod that the runtime reported.
#[derive(Debug)]
pub struct RuntimePodUpdate {
    /// The part of the pod's state that the event has.
    pub pod: RuntimePod,
    /// The id of the sandbox or container that the event reports as removed.
    pub removed: Option<String>,
    /// When the agent received it.
    pub at: Instant,
}

/// Bytes of memory in use, by pod and container.
pub type MemoryUse = BTreeMap<PodUid, BTreeMap<String, u64>>;

/// Upstream's pulls have no deadline; this one ends a pull that has certainly hung.
const PULL_TIMEOUT: Duration = Duration::from_secs(3600);

/// By how much the runtime's own deadline for a call that creates is later than the agent's: an answer in time is never cut off.
const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// The runtime's name and version.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct RuntimeVersion {
    pub name: String,
    pub version: String,
    /// Of CRI: `v1`.
    pub api: String,
}

/// An image that is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeImage {
    pub reference: ImageRef,
    /// On the disk.
    pub bytes: u64,
    /// The image's user, if it sets one: its number here, or its name in `username`.
    pub uid: Option<i64>,
    /// Of the image's user, where it is no number; else empty.
    pub username: String,
}

/// An image in the runtime's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedImage {
    pub reference: ImageRef,
    /// Its digests, then its tags, each with its repository.
    pub names: Vec<String>,
    /// On the disk.
    pub bytes: u64,
}

/// An image to pull, with its credentials and the pod's sandbox.
#[derive(Debug, Clone, Copy)]
pub struct ImagePull<'a> {
    pub image: &'a str,
    /// None for a pull without credentials.
    pub auth: Option<&'a AuthConfig>,
    /// For runtimes that pull within the pod's sandbox.
    pub sandbox: Option<&'a SandboxConfig>,
}

/// The client of the runtime; clones share what is known of it.
#[derive(Debug, Clone)]
pub struct RuntimeClient {
    line: PluginClient,
    within: Duration,
    known: Arc<watch::Sender<RuntimeVersion>>,
    /// The version that has no stats of sandboxes; it is not asked for them again.
    coarse: Arc<watch::Sender<Option<RuntimeVersion>>>,
    features: Arc<ReportedFeatures>,
}

fn runtime(channel: Channel) -> RuntimeServiceClient<Channel> {
    RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT)
}

fn images(channel: Channel) -> ImageServiceClient<Channel> {
    ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT)
}

impl RuntimeClient {
    /// `within` is `runtimeRequestTimeout`.
    pub fn new(line: PluginClient, within: Duration) -> Self {
        let known = Arc::new(watch::Sender::new(RuntimeVersion::default()));
        RuntimeClient {
            line,
            within,
            known,
            coarse: Arc::new(watch::Sender::new(None)),
            features: Arc::default(),
        }
    }

    /// A client of another runtime, with the same deadlines.
    pub fn beside(&self, line: PluginClient) -> Self {
        RuntimeClient::new(line, self.within)
    }

    /// The runtime's name when it was last asked: the scheme of container ids.
    pub fn name(&self) -> String {
        self.known.borrow().name.clone()
    }

    /// The runtime's version when it was last asked.
    fn known(&self) -> RuntimeVersion {
        self.known.borrow().clone()
    }

    /// A call that may be repeated: retried transparently while the plugin restarts.
    async fn idempotent<Q: Clone, T>(
        &self,
        call: &'static str,
        within: Duration,
        request: Q,
        method: impl AsyncFn(Channel, Request<Q>) -> Result<Response<T>, Status>,
    ) -> Result<T, RuntimeError> {
        let (began, span) = (kernel::now(), spans::begin(call));
        // Boxed: a call's future is some 13 KiB, and would be part of every future around it, twice.
        let answer = self
            .line
            .idempotent(within, |channel| {
                Box::pin(method(channel, spans::request(&span, request.clone())))
            })
            .await;
        operations::count(call, began, &answer);
        spans::end(&span, &answer);
        answer.map_err(|error| RuntimeError::new(call, error))
    }

    /// A call that must not be repeated transparently: its outcome may end up unknown.
    ///
    /// The runtime is told its deadline, which it keeps by itself: the call may outlive this agent and its plugin.
    async fn creating<Q, T>(
        &self,
        call: &'static str,
        within: Duration,
        request: Q,
        method: impl AsyncFnOnce(Channel, Request<Q>) -> Result<Response<T>, Status>,
    ) -> Result<T, RuntimeError> {
        let (began, span) = (kernel::now(), spans::begin(call));
        let mut request = spans::request(&span, request);
        request.set_timeout(within + DEADLINE_MARGIN);
        // Boxed as above: a thousand pods that start at once have a thousand of these futures.
        let answer = self
            .line
            .creating(within, |channel| Box::pin(method(channel, request)))
            .await;
        operations::count(call, began, &answer);
        spans::end(&span, &answer);
        // An adapter that lost its runtime during a call reports unavailable.
        answer.map_err(|error| {
            match error.outcome_unknown() || error.code() == Some(Code::Unavailable) {
                true => RuntimeError::Interrupted { call },
                false => RuntimeError::new(call, error),
            }
        })
    }

    /// Asks for the runtime's version, and stores it.
    pub async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        let request = cri::VersionRequest::default();
        let answer = self
            .idempotent("Version", self.within, request, async |channel, request| {
                runtime(channel).version(request).await
            })
            .await?;
        let version = RuntimeVersion {
            name: answer.runtime_name,
            version: answer.runtime_version,
            api: answer.runtime_api_version,
        };
        self.known.send_replace(version.clone());
        Ok(version)
    }

    /// Creates and starts a sandbox; with twice the usual timeout, as upstream.
    ///
    /// # Errors
    /// [`RuntimeError::Interrupted`] where the call may have been carried out: list before repeating it; else
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn run_sandbox(&self, config: &SandboxConfig) -> Result<SandboxId, RuntimeError> {
        let request = cri::RunPodSandboxRequest {
            runtime_handler: config.runtime_handler.clone(),
            config: Some(convert::sandbox_config(config)),
        };
        let began = kernel::now();
        let answer = self
            .creating(
                "RunPodSandbox",
                self.within * 2,
                request,
                async |channel, request| runtime(channel).run_pod_sandbox(request).await,
            )
            .await;
        operations::count_sandbox(&config.runtime_handler, began, &answer);
        let answer = answer?;
        if answer.pod_sandbox_id.is_empty() {
            return Err(malformed("RunPodSandbox", "pod_sandbox_id", "an id"));
        }
        Ok(answer.pod_sandbox_id.into())
    }

    /// Stops a sandbox and what runs in it; one that is stopped or gone is no error.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let request = cri::StopPodSandboxRequest {
            pod_sandbox_id: id.as_str().to_owned(),
        };
        done(
            self.idempotent(
                "StopPodSandbox",
                self.within,
                request,
                async |channel, request| runtime(channel).stop_pod_sandbox(request).await,
            )
            .await,
        )
    }

    /// Removes a sandbox and its containers; one that is gone is no error.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let request = cri::RemovePodSandboxRequest {
            pod_sandbox_id: id.as_str().to_owned(),
        };
        done(
            self.idempotent(
                "RemovePodSandbox",
                self.within,
                request,
                async |channel, request| runtime(channel).remove_pod_sandbox(request).await,
            )
            .await,
        )
    }

    /// Creates a container in a sandbox.
    ///
    /// # Errors
    /// [`RuntimeError::Interrupted`] where the call may have been carried out: list before repeating it; else
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn create_container(
        &self,
        sandbox: &SandboxId,
        container: &ContainerConfig,
        pod: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.as_str().to_owned(),
            config: Some(convert::container_config(container, pod)),
            sandbox_config: Some(convert::sandbox_config(pod)),
        };
        let answer = self
            .creating(
                "CreateContainer",
                self.within,
                request,
                async |channel, request| runtime(channel).create_container(request).await,
            )
            .await?;
        if answer.container_id.is_empty() {
            return Err(malformed("CreateContainer", "container_id", "an id"));
        }
        Ok(answer.container_id.into())
    }

    /// Starts a created container.
    ///
    /// # Errors
    /// [`RuntimeError::Interrupted`] where the call may have been carried out: list before repeating it; else
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = cri::StartContainerRequest {
            container_id: id.as_str().to_owned(),
        };
        self.creating(
            "StartContainer",
            self.within,
            request,
            async |channel, request| runtime(channel).start_container(request).await,
        )
        .await
        .map(drop)
    }

    /// Stops a container: SIGTERM, and SIGKILL after `grace`.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        let request = cri::StopContainerRequest {
            container_id: id.as_str().to_owned(),
            // CRI counts whole seconds; a started second counts as one, as upstream.
            timeout: i64::try_from(grace.as_millis().div_ceil(1000)).unwrap_or(i64::MAX),
        };
        let within = self.within + grace;
        done(
            self.idempotent(
                "StopContainer",
                within,
                request,
                async |channel, request| runtime(channel).stop_container(request).await,
            )
            .await,
        )
    }

    /// Removes a container; one that is gone is no error.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = cri::RemoveContainerRequest {
            container_id: id.as_str().to_owned(),
        };
        done(
            self.idempotent(
                "RemoveContainer",
                self.within,
                request,
                async |channel, request| runtime(channel).remove_container(request).await,
            )
            .await,
        )
    }

    /// The image; none if it is not present. It is asked for with the annotations of the pod that needs it.
    pub async fn image(
        &self,
        name: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<RuntimeImage>, RuntimeError> {
        let request = cri::ImageStatusRequest {
            image: Some(convert::annotated_image(name, annotations)),
            verbose: false,
        };
        let answer = self
            .idempotent(
                "ImageStatus",
                self.within,
                request,
                async |channel, request| images(channel).image_status(request).await,
            )
            .await?;
        match answer.image {
            None => Ok(None),
            Some(image) if image.id.is_empty() => {
                Err(malformed("ImageStatus", "image.id", "an id"))
            }
            Some(image) => Ok(Some(convert::image(image))),
        }
    }

    /// Every image that is present.
    pub async fn images(&self) -> Result<Vec<ListedImage>, RuntimeError> {
        let request = cri::ListImagesRequest::default();
        let answer = self
            .idempotent(
                "ListImages",
                self.within,
                request,
                async |channel, request| images(channel).list_images(request).await,
            )
            .await?;
        Ok(answer
            .images
            .into_iter()
            .map(convert::listed_image)
            .collect())
    }

    /// Pulls an image. Idempotent, so it is repeated after the plugin's crash.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn pull(&self, pull: ImagePull<'_>) -> Result<ImageRef, RuntimeError> {
        let request = convert::pull_request(pull);
        let answer = self
            .idempotent(
                "PullImage",
                PULL_TIMEOUT,
                request,
                async |channel, request| images(channel).pull_image(request).await,
            )
            .await?;
        if answer.image_ref.is_empty() {
            return Err(malformed("PullImage", "image_ref", "a reference"));
        }
        Ok(answer.image_ref.into())
    }
}

fn malformed(call: &'static str, field: &'static str, expected: &'static str) -> RuntimeError {
    RuntimeError::Malformed {
        call,
        field,
        expected,
    }
}

/// A refusal because the object is gone already counts as success.
fn done<T>(answer: Result<T, RuntimeError>) -> Result<(), RuntimeError> {
    match answer {
        Err(error) if !error.is_not_found() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
