//! Looking things up for a volume, with a note of each: when it changes, the volume may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, SecretReference};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};

use super::Ground;
use super::words::{self, Operation};
use crate::objects::{ServiceAccountToken, TokenWanted};
use crate::pod::PodView;
use crate::volumes::{Mode, Secrets, Step, Unresolved, Until, Uses, VolumeId};

/// One pod's volume being resolved.
#[derive(Debug)]
pub(super) struct Look<'a> {
    pub(super) pod: &'a Pod,
    /// The pod's name of the volume.
    pub(super) name: &'a str,
    pub(super) ground: &'a Ground<'a>,
    pub(super) uses: BTreeSet<Uses>,
    /// The volume, where a controller is to attach it.
    pub(super) attachable: Option<VolumeId>,
}

impl<'a> Look<'a> {
    pub(super) fn new(pod: &'a Pod, name: &'a str, ground: &'a Ground<'a>) -> Self {
        Self {
            pod,
            name,
            ground,
            uses: BTreeSet::new(),
            attachable: None,
        }
    }

    fn note(&mut self, kind: &'static str, namespace: &str, name: &str) {
        self.uses.insert(Uses {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }

    pub(super) fn claim(&mut self, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        let namespace = self.pod.namespace();
        self.note("PersistentVolumeClaim", namespace, name);
        self.ground.objects.claim(namespace, name)
    }

    pub(super) fn persistent_volume(&mut self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.note("PersistentVolume", "", name);
        self.ground.objects.persistent_volume(name)
    }

    pub(super) fn csi_driver(&mut self, name: &str) -> Option<Arc<CSIDriver>> {
        self.note("CSIDriver", "", name);
        self.ground.objects.csi_driver(name)
    }

    pub(super) fn attachment(&mut self, name: &str) -> Option<Arc<VolumeAttachment>> {
        self.note("VolumeAttachment", "", name);
        self.ground.objects.volume_attachment(name)
    }

    pub(super) fn token(&mut self, wanted: &TokenWanted) -> Option<ServiceAccountToken> {
        self.note("TokenRequest", &wanted.namespace, &wanted.service_account);
        self.ground.objects.token(wanted)
    }

    /// What upstream hears of an object that is not there, and why a manifest of that name gives none.
    pub(super) fn missing(
        &self,
        (kind, resource): (&'static str, &'static str),
        namespace: &str,
        name: &str,
    ) -> String {
        let missing = format!("{resource} {name:?} not found");
        match self.ground.objects.refused(kind, namespace, name) {
            Some(why) => format!("{missing}: {why}"),
            None => missing,
        }
    }

    /// A secret's data as CSI takes it; the error is the cause as upstream words it.
    pub(super) fn secret(&mut self, namespace: &str, name: &str) -> Result<Secrets, String> {
        self.note("Secret", namespace, name);
        let Some(secret) = self.ground.objects.secret(namespace, name) else {
            let missing = self.missing(("Secret", "secrets"), namespace, name);
            return Err(format!(
                "kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} with error: {missing}"
            ));
        };
        let mut values = BTreeMap::new();
        for (key, value) in secret.data.iter().flatten() {
            // A protobuf string; Go's client refuses it as well, without a name.
            let text = String::from_utf8(value.0.clone()).map_err(|_| {
                format!(
                    "kubernetes.io/csi: the value of {key} in the secret {name} in the namespace {namespace} is not UTF-8"
                )
            })?;
            values.insert(key.clone(), text);
        }
        Ok(Secrets(values))
    }
}

/// Namespace and name of a secret.
pub(super) fn parts(reference: &SecretReference) -> (&str, &str) {
    (
        reference.namespace.as_deref().unwrap_or_default(),
        reference.name.as_deref().unwrap_or_default(),
    )
}

/// Why a volume is not resolved.
#[derive(Debug)]
pub(super) struct Refusal {
    reason: &'static str,
    message: String,
    step: Step,
    until: Until,
}

impl Refusal {
    /// The volume cannot even be wanted.
    pub(super) fn unprocessed(message: String, until: Until) -> Self {
        Self {
            reason: words::FAILED_MOUNT,
            message,
            step: Step::Processing,
            until,
        }
    }

    /// An operation that cannot be begun.
    pub(super) fn failed(at: At<'_>, cause: &str, until: Until) -> Self {
        let told = words::failed(at.operation, at.mode, at.volume, cause);
        Self {
            reason: told.reason,
            message: told.message,
            step: Step::Mounting,
            until,
        }
    }

    /// The controller is not done.
    pub(super) fn attaching(at: At<'_>, cause: &str) -> Self {
        Self {
            step: Step::Attaching,
            ..Self::failed(at, cause, Until::Changed)
        }
    }

    pub(super) fn with_reason(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    pub(super) fn told(self, look: Look<'_>) -> Unresolved {
        Unresolved {
            reason: self.reason,
            message: self.message,
            step: self.step,
            until: self.until,
            uses: look.uses,
            attachable: look.attachable,
        }
    }
}

/// Which operation on which volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    pub(super) operation: Operation,
    pub(super) mode: Mode,
    pub(super) volume: &'a str,
}
