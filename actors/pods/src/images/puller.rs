//! The slow work of a request, beside the actor: inspecting the image, looking up credentials, pulling.

use std::collections::BTreeSet;
use std::time::Duration;

use clients::runtime::{ImagePull, RuntimeClient, RuntimeError, RuntimeImage};
use jiff::Timestamp;
use kernel::Addr;
use logic_api::text::image_reference::repository;
use logic_pods::images::credentials::Credential;
use logic_pods::images::records::PullCredentials;
use logic_pods::images::verification::{
    self, CredentialMatch, CredentialVerificationPolicy, ImageAccess, PullRecordState,
};
use logic_pods::images::{PullPolicy, messages};
use metrics::runtime::images::{MustPullCheck, checked};

use super::pull_records::PullRecords;
use super::request::{ImageRequest, PullTask};
use crate::images::credentials;

/// A provider has a minute; behind many others its run may have to wait.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(600);

/// Carries out requests.
#[derive(Debug, Clone)]
pub(super) struct ImagePuller {
    pub(super) runtime: RuntimeClient,
    pub(super) credentials: Addr<credentials::Msg>,
    /// None where access to present images is not verified.
    pub(super) verification: Option<Verification>,
}

/// The policy of verification, and the records it reads.
#[derive(Debug, Clone)]
pub(super) struct Verification {
    pub(super) policy: CredentialVerificationPolicy,
    pub(super) pull_records: PullRecords,
}

/// The result of looking up an image for a pod.
#[derive(Debug)]
pub enum ImageCheck {
    /// The image is present, and this pod may use it.
    Present(RuntimeImage),
    Absent,
    /// The image is present, but this pod has not shown that it may use it: as good as absent.
    Closed,
    Failed(RuntimeError),
    /// The pod's pull secrets could not be read.
    NoCredentials(String),
}

impl ImagePuller {
    /// Looks up whether the image is present for this pod; not for one that is pulled in any case.
    pub(super) async fn check(&self, request: &mut PullTask) -> ImageCheck {
        if request.wanted.policy == PullPolicy::Always {
            return ImageCheck::Absent;
        }
        if let Some(image) = request.wanted.seen.take() {
            return self.verified(request, image).await;
        }
        let annotations = request.wanted.annotations();
        match self.runtime.image(&request.image, annotations).await {
            Ok(Some(image)) => self.verified(request, image).await,
            Ok(None) => ImageCheck::Absent,
            Err(error) => ImageCheck::Failed(error),
        }
    }

    async fn verified(&self, request: &mut PullTask, image: RuntimeImage) -> ImageCheck {
        let Some(verification) = &self.verification else {
            return ImageCheck::Present(image);
        };
        let (answer, verified) = self.verify(verification, request, image).await;
        checked(verified);
        answer
    }

    async fn verify(
        &self,
        Verification {
            policy,
            pull_records,
        }: &Verification,
        request: &mut PullTask,
        image: RuntimeImage,
    ) -> (ImageCheck, MustPullCheck) {
        let reference = image.reference.as_str().to_owned();
        let name = request.wanted.image.clone();
        let tracked = match policy {
            // The policy reads no records.
            CredentialVerificationPolicy::NeverVerify => {
                return (ImageCheck::Present(image), MustPullCheck::Allowed);
            }
            CredentialVerificationPolicy::NeverVerifyPreloadedImages
            | CredentialVerificationPolicy::NeverVerifyAllowlistedImages(_)
            | CredentialVerificationPolicy::AlwaysVerify => {
                pull_records.tracked(&name, &reference).await
            }
        };
        let known = match verification::access(policy, &name, &tracked) {
            ImageAccess::Granted => {
                let by_record =
                    matches!(tracked, PullRecordState::Pulled(_)) && policy.requires(&name, true);
                let check = match by_record {
                    true => MustPullCheck::Found,
                    false => MustPullCheck::Allowed,
                };
                return (ImageCheck::Present(image), check);
            }
            ImageAccess::Denied if tracked == PullRecordState::Damaged => {
                return (ImageCheck::Closed, MustPullCheck::InError);
            }
            ImageAccess::Denied => return (ImageCheck::Closed, MustPullCheck::Denied),
            ImageAccess::Depends(known) => known,
        };
        let own = match self.credentials(request).await {
            Ok(own) => own,
            Err(why) => return (ImageCheck::NoCredentials(why), MustPullCheck::InError),
        };
        match verification::with_credentials(&known, &own) {
            CredentialMatch::Granted { learn } => {
                if let Some(secret) = learn {
                    let with = PullCredentials {
                        kubernetes_secrets: vec![secret],
                        ..PullCredentials::default()
                    };
                    pull_records.learn(&name, &reference, with).await;
                }
                (ImageCheck::Present(image), MustPullCheck::Found)
            }
            CredentialMatch::Denied => (ImageCheck::Closed, MustPullCheck::Denied),
        }
    }

    /// The credentials for the image in the order to try them in: the pod's, the node's, the providers'.
    pub(super) async fn credentials(
        &self,
        request: &mut PullTask,
    ) -> Result<Vec<Credential>, String> {
        if let Some(found) = &request.credentials {
            return Ok(found.clone());
        }
        let repository = repository(&request.image).map_err(|error| error.to_string())?;
        let secrets = request
            .secrets
            .keyring()
            .map_err(|error| error.to_string())?;
        let mut found = secrets.lookup(&repository);
        let asked = self
            .credentials
            .ask(LOOKUP_TIMEOUT, |reply| credentials::Msg::Lookup {
                repository,
                reply,
            });
        match asked.await {
            Ok(own) => found.extend(own),
            Err(error) => {
                tracing::warn!("the node's credentials are not to be had: {error}");
            }
        }
        request.credentials = Some(found.clone());
        Ok(found)
    }

    /// Pulls with one credential after the other until the registry accepts one.
    pub(super) async fn pull(&self, request: &PullTask) -> Result<RuntimeImage, String> {
        let name = &request.wanted.image;
        if let Some(Verification { pull_records, .. }) = &self.verification
            && let Err(error) = pull_records.intend(name).await
        {
            return Err(messages::intent_not_recorded(name, &error.to_string()));
        }
        let pulled = self.pull_with_each(request).await;
        if let Some(Verification { pull_records, .. }) = &self.verification {
            match &pulled {
                Ok((image, with)) => {
                    let with = PullCredentials::of(with.as_ref());
                    pull_records
                        .pulled(name, image.reference.as_str(), with)
                        .await;
                }
                Err(_) => pull_records.failed(name).await,
            }
        }
        pulled.map(|(image, _)| image)
    }

    async fn pull_with_each(
        &self,
        request: &PullTask,
    ) -> Result<(RuntimeImage, Option<Credential>), String> {
        let credentials = request.credentials.as_deref().unwrap_or_default();
        if credentials.is_empty() {
            let image = self.pull_once(request, None).await?;
            return Ok((image, None));
        }
        let mut errors = Vec::new();
        for credential in credentials {
            match self.pull_once(request, Some(credential)).await {
                Ok(image) => return Ok((image, Some(credential.clone()))),
                Err(error) => errors.push(error),
            }
        }
        Err(messages::aggregate(&errors))
    }

    async fn pull_once(
        &self,
        request: &PullTask,
        credential: Option<&Credential>,
    ) -> Result<RuntimeImage, String> {
        let ImageRequest { sandbox, .. } = &request.wanted;
        let pull = ImagePull {
            image: &request.image,
            auth: credential.map(|credential| &credential.auth),
            sandbox: sandbox.as_deref(),
        };
        let reference = self
            .runtime
            .pull(pull)
            .await
            .map_err(|error| error.as_grpc())?;
        let looked_up = self
            .runtime
            .image(reference.as_str(), request.wanted.annotations());
        let looked_up = looked_up.await;
        let image = looked_up.map_err(|error| error.as_grpc())?;
        Ok(image.unwrap_or(RuntimeImage {
            reference,
            bytes: 0,
            uid: None,
            username: String::new(),
        }))
    }

    /// Records what earlier lives began to pull: a present image counts as pulled without a known pod.
    pub(super) async fn adopt_existing(&self) {
        let Some(Verification { pull_records, .. }) = &self.verification else {
            return;
        };
        let intents = pull_records.open().await;
        if intents.is_empty() {
            return;
        }
        let listed = match self.runtime.images().await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::error!("cannot list images: {error}");
                return;
            }
        };
        for image in listed {
            for name in image.names.iter().filter(|name| intents.contains(name)) {
                pull_records
                    .adopt_existing(name, image.reference.as_str())
                    .await;
            }
        }
    }

    /// Removes the records of images that are gone, unless they were updated since `until`.
    pub(super) async fn prune(&self, present: BTreeSet<String>, until: Timestamp) {
        if let Some(Verification { pull_records, .. }) = &self.verification {
            pull_records.prune(present, until).await;
        }
    }
}
