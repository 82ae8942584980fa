//! What is asked of the image keeper, for whom, and what is answered.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kernel::Reply;
use logic::credentials::Credential;
use logic::credentials::secrets::PullSecrets;
use logic::images::volumes::ImageVolume;
use logic::images::{self as decide, PullPolicy};
use logic::pod::PodView;
use logic::pod_start::Pulled;
use logic::sandbox::SandboxConfig;
use logic::security::ImageUser;
use logic::types::Waiting;

use crate::runtime::Image;

/// What an image is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Container(String),
    Volume(String),
}

impl fmt::Display for Purpose {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::Container(name) => out.write_str(name),
            Purpose::Volume(name) => write!(out, "volume {name}"),
        }
    }
}

/// Which image, for whom.
#[derive(Debug)]
pub struct Wanted {
    pub(super) image: String,
    pub(super) policy: PullPolicy,
    pub(super) pod: Arc<Pod>,
    pub(super) purpose: Purpose,
    pub(super) sandbox: Option<Arc<SandboxConfig>>,
}

impl Wanted {
    /// A container's image.
    pub fn new(pod: &Arc<Pod>, container: &Container) -> Self {
        let image = container.image.clone().unwrap_or_default();
        Wanted {
            policy: decide::pull_policy(container.image_pull_policy.as_deref(), &image),
            image,
            pod: pod.clone(),
            purpose: Purpose::Container(container.name.clone()),
            sandbox: None,
        }
    }

    /// The image that is a volume.
    pub fn volume(pod: &Arc<Pod>, volume: ImageVolume) -> Self {
        Wanted {
            image: volume.image,
            policy: volume.policy,
            pod: pod.clone(),
            purpose: Purpose::Volume(volume.name),
            sandbox: None,
        }
    }

    /// With the sandbox that it is for: the runtime learns of the pod and of its runtime class.
    pub fn within(mut self, sandbox: Arc<SandboxConfig>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Upstream's key: a failed pull of one pod does not hold up another.
    pub(super) fn key(&self) -> String {
        decide::backoff_key(self.pod.uid().as_str(), &self.image)
    }

    /// The container that events are about; a volume's are about the pod.
    pub(super) fn container(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Container(name) => Some(name),
            Purpose::Volume(_) => None,
        }
    }
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// What the runtime is to be asked for.
    pub reference: String,
    pub user: ImageUser,
    /// When it was pulled, if it had to be.
    pub pulled: Option<Pulled>,
}

impl From<Image> for Present {
    fn from(image: Image) -> Self {
        let user = match (image.uid, image.username) {
            (Some(uid), _) => ImageUser::Uid(uid),
            (None, name) if name.is_empty() => ImageUser::Unset,
            (None, name) => ImageUser::Name(name),
        };
        Present {
            reference: image.reference.as_str().to_owned(),
            user,
            pulled: None,
        }
    }
}

/// Why an image is not there, and when to ask again.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    pub waiting: Waiting,
    pub again_after: Duration,
}

impl Missing {
    pub(super) fn new(reason: &str, message: String, again_after: Duration) -> Self {
        let waiting = Waiting {
            reason: reason.to_owned(),
            message,
        };
        Missing {
            waiting,
            again_after,
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Request {
    pub(super) wanted: Wanted,
    /// With its tag, as the runtime wants it.
    pub(super) image: String,
    pub(super) secrets: PullSecrets,
    /// Looked up once, and no earlier than needed.
    pub(super) credentials: Option<Vec<Credential>>,
    pub(super) asked: Instant,
    /// When it came to wait for a place.
    pub(super) queued: Timestamp,
    pub(super) reply: Reply<Result<Present, Missing>>,
}
