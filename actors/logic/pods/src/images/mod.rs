//! Image names, pull policies, and messages about pulls.
//!
//! Mirrors upstream's kubelet/images (image_manager.go, helpers) and util/parsers at v1.36. `verification` decides
//! which pods may use a present image, `records` holds the pull records.

pub mod credentials;
pub mod messages;
pub mod rate;
pub mod records;
pub mod verification;
pub mod volumes;

use logic_api::text::image_reference::ImageReference;
use logic_api::types::WaitingReason;
use serde::{Deserialize, Serialize};

/// Waiting reasons of a container whose image is not there.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";
pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
pub const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";

/// A container's `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// Whether the runtime has the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ImagePresence {
    Present,
    Absent,
}

/// Whether an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PullDecision {
    Needed,
    /// It is there, and that is enough.
    NotNeeded,
    /// It is not there, and must not be pulled.
    Forbidden,
}

/// Decides whether to pull.
pub fn should_pull(policy: PullPolicy, presence: ImagePresence) -> PullDecision {
    match (policy, presence) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, ImagePresence::Absent) => {
            PullDecision::Needed
        }
        (PullPolicy::IfNotPresent | PullPolicy::Never, ImagePresence::Present) => {
            PullDecision::NotNeeded
        }
        (PullPolicy::Never, ImagePresence::Absent) => PullDecision::Forbidden,
    }
}

/// The policy of a container: its own, or by its image's tag.
pub fn pull_policy(given: Option<&str>, image: &str) -> PullPolicy {
    match given {
        Some("Always") => PullPolicy::Always,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        Some("Never") => PullPolicy::Never,
        _ => default_policy(image),
    }
}

/// The tag `latest`, explicit or not, is always pulled; any other tag, and a digest, is taken as fixed.
fn default_policy(image: &str) -> PullPolicy {
    match ImageReference::parse(image) {
        Ok(reference) if reference.tag.as_deref() == Some("latest") => PullPolicy::Always,
        Ok(_) | Err(_) => PullPolicy::IfNotPresent,
    }
}

/// The waiting reason and message after a pull that failed with this error text.
///
/// The runtime's error begins with a name where it means one of two special cases.
pub fn pull_failure(image: &str, error: &str) -> WaitingReason {
    let cases = [
        (REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (
            SIGNATURE_VALIDATION_FAILED,
            "the signature validation failed",
        ),
    ];
    let special = cases.iter().find_map(|(reason, cause)| {
        let details = error.strip_prefix(reason)?;
        Some((
            *reason,
            format!("image pull failed for {image} because {cause}{details}"),
        ))
    });
    let (reason, message) = special.unwrap_or_else(|| (ERR_IMAGE_PULL, error.to_owned()));
    WaitingReason {
        reason: reason.to_owned(),
        message,
    }
}

/// The back-off key of an image, as one pod pulls it.
pub fn backoff_key(pod_uid: &str, image: &str) -> String {
    format!("{pod_uid}_{image}")
}

#[cfg(test)]
mod tests;
