//! Requests to the image manager, and their answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::runtime::RuntimeImage;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kernel::Reply;
use logic_api::pod::PodView;
use logic_api::text::image_reference;
use logic_api::types::WaitingReason;
use logic_pods::images as decide;
use logic_pods::images::PullPolicy;
use logic_pods::images::credentials::Credential;
use logic_pods::images::credentials::secrets::PullSecrets;
use logic_pods::images::volumes::ImageVolume;
use logic_pods::sandbox::SandboxConfig;
use logic_pods::security::ImageUser;
use logic_pods::status::pod_start::PullInterval;

/// Whether an image is a container's or a volume's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImagePurpose {
    Container(String),
    Volume(String),
}

impl fmt::Display for ImagePurpose {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImagePurpose::Container(name) => out.write_str(name),
            ImagePurpose::Volume(name) => write!(out, "volume {name}"),
        }
    }
}

/// An image, and the pod that needs it.
#[derive(Debug)]
pub struct ImageRequest {
    pub(super) image: String,
    pub(super) policy: PullPolicy,
    pub(super) pod: Arc<Pod>,
    pub(super) purpose: ImagePurpose,
    pub(super) sandbox: Option<Arc<SandboxConfig>>,
    /// The image as the runtime had it a moment ago; none if it was not looked for or not found.
    pub(super) seen: Option<RuntimeImage>,
}

impl ImageRequest {
    /// A container's image.
    pub fn new(pod: &Arc<Pod>, container: &Container) -> Self {
        let image = container.image.clone().unwrap_or_default();
        ImageRequest {
            policy: decide::pull_policy(container.image_pull_policy.as_deref(), &image),
            image,
            pod: pod.clone(),
            purpose: ImagePurpose::Container(container.name.clone()),
            sandbox: None,
            seen: None,
        }
    }

    /// The image that is a volume.
    pub fn volume(pod: &Arc<Pod>, volume: ImageVolume) -> Self {
        ImageRequest {
            image: volume.image,
            policy: volume.policy,
            pod: pod.clone(),
            purpose: ImagePurpose::Volume(volume.name),
            sandbox: None,
            seen: None,
        }
    }

    /// Adds the sandbox config, which tells the runtime the pod and its runtime class.
    pub fn within(mut self, sandbox: Arc<SandboxConfig>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Adds the image as the runtime has it: it is not looked for again.
    pub fn seen(mut self, image: Option<RuntimeImage>) -> Self {
        self.seen = image;
        self
    }

    /// The image's name where the runtime is asked for it before a pull.
    pub fn inspected(&self) -> Option<String> {
        match self.policy {
            PullPolicy::Always => None,
            PullPolicy::IfNotPresent | PullPolicy::Never => {
                image_reference::with_default_tag(&self.image).ok()
            }
        }
    }

    /// The pod's annotations, by which a runtime may look for an image.
    pub(super) fn annotations(&self) -> &BTreeMap<String, String> {
        const NONE: &BTreeMap<String, String> = &BTreeMap::new();
        self.pod.metadata.annotations.as_ref().unwrap_or(NONE)
    }

    /// Upstream's back-off key: a failed pull of one pod does not hold up another.
    pub(super) fn key(&self) -> String {
        decide::backoff_key(self.pod.uid().as_str(), &self.image)
    }

    /// The container that events are about; none for a volume, whose events are about the pod.
    pub(super) fn container(&self) -> Option<&str> {
        match &self.purpose {
            ImagePurpose::Container(name) => Some(name),
            ImagePurpose::Volume(_) => None,
        }
    }
}

/// An image that is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentImage {
    /// The reference to give the runtime.
    pub reference: String,
    pub user: ImageUser,
    /// When it was pulled; none if it was present already.
    pub pulled: Option<PullInterval>,
}

impl From<RuntimeImage> for PresentImage {
    fn from(image: RuntimeImage) -> Self {
        let user = match (image.uid, image.username) {
            (Some(uid), _) => ImageUser::Uid(uid),
            (None, name) if name.is_empty() => ImageUser::Unset,
            (None, name) => ImageUser::Name(name),
        };
        PresentImage {
            reference: image.reference.as_str().to_owned(),
            user,
            pulled: None,
        }
    }
}

/// Why an image is not present, and when to ask again.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageUnavailable {
    /// What the container's status says.
    pub waiting: WaitingReason,
    /// The wait before the next attempt.
    pub retry_after: Duration,
}

impl ImageUnavailable {
    pub(super) fn new(reason: &str, message: String, retry_after: Duration) -> Self {
        let waiting = WaitingReason {
            reason: reason.to_owned(),
            message,
        };
        ImageUnavailable {
            waiting,
            retry_after,
        }
    }
}

/// A request that is being carried out.
#[derive(Debug)]
pub struct PullTask {
    pub(super) wanted: ImageRequest,
    /// The image's name with its tag, as the runtime expects it.
    pub(super) image: String,
    pub(super) secrets: PullSecrets,
    /// None until they are looked up; that is done once, as late as possible.
    pub(super) credentials: Option<Vec<Credential>>,
    pub(super) asked: Instant,
    /// When it joined the queue.
    pub(super) queued: Timestamp,
    pub(super) reply: Reply<Result<PresentImage, ImageUnavailable>>,
}
