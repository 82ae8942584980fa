//! Which pods may use a present image: those with the credentials that it was pulled with.
//!
//! Mirrors pkg/kubelet/images/pullmanager (v1.36): image_pull_policies.go and MustAttemptImagePull.

use logic_api::text::image_reference::without_tag;

use super::records::{PullSecret, PulledRecord};
use crate::images::credentials::Credential;

/// Secrets known of one image beyond which a further one is accepted but not written down.
const MAX_RECORDED_CREDENTIALS: usize = 100;

/// The configuration's `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialVerificationPolicy {
    NeverVerify,
    /// Images that were present before the agent pulled any may be used by every pod.
    NeverVerifyPreloadedImages,
    /// The images that this list names may be used by every pod.
    NeverVerifyAllowlistedImages(ImageAllowlist),
    AlwaysVerify,
}

impl CredentialVerificationPolicy {
    /// By its name in the configuration, which validation has checked; an unknown one is the strictest.
    pub fn from_name(name: &str, allowlist: &[String]) -> Self {
        match name {
            "NeverVerify" => Self::NeverVerify,
            "NeverVerifyPreloadedImages" => Self::NeverVerifyPreloadedImages,
            "NeverVerifyAllowlistedImages" => {
                Self::NeverVerifyAllowlistedImages(ImageAllowlist::new(allowlist))
            }
            _ => Self::AlwaysVerify,
        }
    }

    /// Whether a pod that uses this image must present valid credentials; `tracked` where the agent has pulled it.
    pub fn requires(&self, image: &str, tracked: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => tracked,
            Self::NeverVerifyAllowlistedImages(list) => !list.names(image),
            Self::AlwaysVerify => true,
        }
    }
}

/// `preloadedImagesVerificationAllowlist`: images as pods write them, without tag, or what they begin with
/// (`example.com/*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageAllowlist {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl ImageAllowlist {
    pub fn new(patterns: &[String]) -> Self {
        let mut list = Self::default();
        for pattern in patterns {
            match pattern.strip_suffix('*') {
                Some(prefix) => list.prefixes.push(prefix.to_owned()),
                None => list.names.push(pattern.clone()),
            }
        }
        list
    }

    fn names(&self, image: &str) -> bool {
        let Ok(name) = without_tag(image) else {
            return false;
        };
        let begins = |prefix: &String| name.starts_with(prefix.as_str());
        self.names.contains(&name) || self.prefixes.iter().any(begins)
    }
}

/// The pull records of a present image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullRecordState {
    /// Nothing: it was not pulled by this agent.
    Unknown,
    /// A pull of it was begun, by this process or an earlier one.
    Begun,
    Pulled(Box<PulledRecord>),
    /// A record is there and does not read.
    Damaged,
}

/// Whether a pod may use an image, as far as the records alone say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageAccess {
    Granted,
    /// It must be pulled, with the pod's own credentials.
    Denied,
    /// It depends on these: [`with_credentials`].
    Depends(Vec<PullSecret>),
}

/// Decides by policy and records.
pub fn access(
    policy: &CredentialVerificationPolicy,
    image: &str,
    tracked: &PullRecordState,
) -> ImageAccess {
    if *tracked == PullRecordState::Damaged {
        return ImageAccess::Denied;
    }
    if !policy.requires(image, *tracked != PullRecordState::Unknown) {
        return ImageAccess::Granted;
    }
    let PullRecordState::Pulled(record) = tracked else {
        return ImageAccess::Denied;
    };
    let known = without_tag(image)
        .ok()
        .and_then(|name| record.credential_mapping.get(&name));
    match known {
        Some(known) if known.node_pods_accessible => ImageAccess::Granted,
        Some(known) if !known.kubernetes_secrets.is_empty() => {
            ImageAccess::Depends(known.kubernetes_secrets.clone())
        }
        // Service accounts would be asked here; their tokens need the API server.
        Some(_) | None => ImageAccess::Denied,
    }
}

/// Whether a pod's credentials give access to an image, and which record is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialMatch {
    /// A secret whose current hash is not recorded is to be written down.
    Granted {
        learn: Option<PullSecret>,
    },
    Denied,
}

/// Compares: the same content under any name will do, and so will the same secret with a new content.
pub fn with_credentials(known: &[PullSecret], credentials: &[Credential]) -> CredentialMatch {
    for own in credentials.iter().filter_map(PullSecret::of) {
        for known_one in known {
            let same_content = !known_one.credential_hash.is_empty()
                && own.credential_hash == known_one.credential_hash;
            let same_secret = own.is_same_secret(known_one);
            let room = known.len() < MAX_RECORDED_CREDENTIALS;
            if same_content || (same_secret && room) {
                let learn = (room && !(same_content && same_secret)).then_some(own);
                return CredentialMatch::Granted { learn };
            }
        }
    }
    CredentialMatch::Denied
}

#[cfg(test)]
mod tests;
