//! The slow work of a request, beside the actor: looking, asking for credentials, pulling.

use std::time::Duration;

use kernel::Addr;
use logic::credentials::Credential;
use logic::image_reference::repository;
use logic::images::records::PullCredentials;
use logic::images::verification::{self, Access, Policy, Tracked, Verdict};
use logic::images::{PullPolicy, text};
use metrics::images::{Check, checked};

use super::ledger::Ledger;
use super::request::{Request, Wanted};
use crate::credentials;
use crate::runtime::{Image, Pull, Runtime, RuntimeError};

/// A provider has a minute; behind many others it may have to wait for its turn.
const LOOKUP_WITHIN: Duration = Duration::from_secs(600);

/// What requests are carried out with.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    pub(super) runtime: Runtime,
    pub(super) credentials: Addr<credentials::Msg>,
    /// None where access to images that are here is not verified.
    pub(super) verification: Option<Verification>,
}

/// By which rule access is verified, and by which records.
#[derive(Debug, Clone)]
pub(super) struct Verification {
    pub(super) policy: Policy,
    pub(super) ledger: Ledger,
}

/// What a look at an image found.
#[derive(Debug)]
pub enum Look {
    /// It is here, and this pod may use it.
    Present(Image),
    Absent,
    /// It is here, but this pod has not shown that it may use it: as good as absent.
    Closed,
    Failed(RuntimeError),
    /// The pod's credentials do not read.
    NoCredentials(String),
}

impl Tools {
    /// Looks whether the image is here for this pod. Where it is pulled in any case, nobody looks.
    pub(super) async fn look(&self, request: &mut Request) -> Look {
        if request.wanted.policy == PullPolicy::Always {
            return Look::Absent;
        }
        match self.runtime.image(&request.image).await {
            Ok(Some(image)) => self.verified(request, image).await,
            Ok(None) => Look::Absent,
            Err(error) => Look::Failed(error),
        }
    }

    async fn verified(&self, request: &mut Request, image: Image) -> Look {
        let Some(verification) = &self.verification else {
            return Look::Present(image);
        };
        let (look, check) = self.verify(verification, request, image).await;
        checked(check);
        look
    }

    async fn verify(
        &self,
        Verification { policy, ledger }: &Verification,
        request: &mut Request,
        image: Image,
    ) -> (Look, Check) {
        let reference = image.reference.as_str().to_owned();
        let name = request.wanted.image.clone();
        let tracked = match policy {
            // Nobody's records matter.
            Policy::NeverVerify => return (Look::Present(image), Check::Allowed),
            Policy::NeverVerifyPreloadedImages
            | Policy::NeverVerifyAllowlistedImages(_)
            | Policy::AlwaysVerify => ledger.tracked(&name, &reference).await,
        };
        let known = match verification::access(policy, &name, &tracked) {
            Access::Granted => {
                let by_record =
                    matches!(tracked, Tracked::Pulled(_)) && policy.requires(&name, true);
                let check = match by_record {
                    true => Check::Found,
                    false => Check::Allowed,
                };
                return (Look::Present(image), check);
            }
            Access::Denied if tracked == Tracked::Damaged => return (Look::Closed, Check::InError),
            Access::Denied => return (Look::Closed, Check::Denied),
            Access::Depends(known) => known,
        };
        let own = match self.credentials(request).await {
            Ok(own) => own,
            Err(why) => return (Look::NoCredentials(why), Check::InError),
        };
        match verification::with_credentials(&known, &own) {
            Verdict::Granted { learn } => {
                if let Some(secret) = learn {
                    let with = PullCredentials {
                        kubernetes_secrets: vec![secret],
                        ..PullCredentials::default()
                    };
                    ledger.learn(&name, &reference, with).await;
                }
                (Look::Present(image), Check::Found)
            }
            Verdict::Denied => (Look::Closed, Check::Denied),
        }
    }

    /// The credentials for the image, in the order to try them in: the pod's, the node's, the providers'.
    pub(super) async fn credentials(
        &self,
        request: &mut Request,
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
            .ask(LOOKUP_WITHIN, |reply| credentials::Msg::Lookup {
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

    /// Pulls with one credential after the other, until one opens the registry.
    pub(super) async fn pull(&self, request: &Request) -> Result<Image, String> {
        let name = &request.wanted.image;
        if let Some(Verification { ledger, .. }) = &self.verification
            && let Err(error) = ledger.intend(name).await
        {
            return Err(text::intent_not_recorded(name, &error.to_string()));
        }
        let pulled = self.pull_with_each(request).await;
        if let Some(Verification { ledger, .. }) = &self.verification {
            match &pulled {
                Ok((image, with)) => {
                    let with = PullCredentials::of(with.as_ref());
                    ledger.pulled(name, image.reference.as_str(), with).await;
                }
                Err(_) => ledger.failed(name).await,
            }
        }
        pulled.map(|(image, _)| image)
    }

    async fn pull_with_each(
        &self,
        request: &Request,
    ) -> Result<(Image, Option<Credential>), String> {
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
        Err(text::aggregate(&errors))
    }

    async fn pull_once(
        &self,
        request: &Request,
        credential: Option<&Credential>,
    ) -> Result<Image, String> {
        let Wanted { sandbox, .. } = &request.wanted;
        let pull = Pull {
            image: &request.image,
            auth: credential.map(|credential| &credential.auth),
            sandbox: sandbox.as_deref(),
        };
        let reference = self
            .runtime
            .pull(pull)
            .await
            .map_err(|error| error.as_grpc())?;
        let looked_up = self.runtime.image(reference.as_str()).await;
        let image = looked_up.map_err(|error| error.as_grpc())?;
        Ok(image.unwrap_or(Image {
            reference,
            bytes: 0,
            uid: None,
            username: String::new(),
        }))
    }

    /// Takes over what an earlier life began to pull: what is here now was pulled, by nobody known.
    pub(super) async fn adopt(&self) {
        let Some(Verification { ledger, .. }) = &self.verification else {
            return;
        };
        let intents = ledger.open().await;
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
                ledger.adopt(name, image.reference.as_str()).await;
            }
        }
    }
}
