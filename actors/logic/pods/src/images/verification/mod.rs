//! Who may use an image that is already here: the pod that can show what it was pulled with.
//!
//! Mirrors pkg/kubelet/images/pullmanager (v1.36): image_pull_policies.go and MustAttemptImagePull.

use logic_api::image_reference::repository;

use super::records::{PullSecret, PulledRecord};
use crate::credentials::Credential;

/// Secrets known of one image beyond which a further one is accepted but not written down.
const MAX_RECORDED_CREDENTIALS: usize = 100;

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialVerificationPolicy {
    NeverVerify,
    /// Images that were here before the agent pulled anything are for everybody.
    NeverVerifyPreloadedImages,
    /// The images that these name are for everybody.
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

    /// Whether whoever uses this image must show that it may; `tracked` where the agent has pulled it.
    pub fn requires(&self, image: &str, tracked: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => tracked,
            Self::NeverVerifyAllowlistedImages(list) => !list.names(image),
            Self::AlwaysVerify => true,
        }
    }
}

/// `preloadedImagesVerificationAllowlist`: repositories in full, or what they begin with (`example.com/*`).
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
        let Ok(name) = repository(image) else {
            return false;
        };
        let begins = |prefix: &String| name.starts_with(prefix.as_str());
        self.names.contains(&name) || self.prefixes.iter().any(begins)
    }
}

/// What the records say of an image that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullRecordState {
    /// Nothing: it was not pulled by this agent.
    Unknown,
    /// A pull of it was begun, now or in an earlier life.
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
    let known = repository(image)
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

/// Whether a pod's credentials open an image, and what is to be remembered of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialMatch {
    /// A secret that is not known as it is now is to be written down, lest it be forgotten.
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
