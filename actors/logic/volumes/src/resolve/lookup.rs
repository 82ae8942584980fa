//! Looking things up for a volume, with a note of each: when it changes, the volume may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, SecretReference};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use logic_api::objects::{ServiceAccountToken, TokenSpec};
use logic_api::pod::PodView;

use super::ResolveContext;
use super::event_reasons::{self, Operation};
use crate::{Dependency, ResolveStep, RetryWhen, Secrets, UnresolvedVolume, VolumeId, VolumeMode};

/// One pod's volume being resolved.
#[derive(Debug)]
pub(super) struct ObjectLookup<'a> {
    pub(super) pod: &'a Pod,
    /// The pod's name of the volume.
    pub(super) name: &'a str,
    pub(super) context: &'a ResolveContext<'a>,
    pub(super) uses: BTreeSet<Dependency>,
    /// The volume, where a controller is to attach it.
    pub(super) attachable: Option<VolumeId>,
}

impl<'a> ObjectLookup<'a> {
    pub(super) fn new(pod: &'a Pod, name: &'a str, context: &'a ResolveContext<'a>) -> Self {
        Self {
            pod,
            name,
            context,
            uses: BTreeSet::new(),
            attachable: None,
        }
    }

    fn note(&mut self, kind: &'static str, namespace: &str, name: &str) {
        self.uses.insert(Dependency::new(kind, namespace, name));
    }

    pub(super) fn claim(&mut self, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        let namespace = self.pod.namespace();
        self.note("PersistentVolumeClaim", namespace, name);
        self.context.objects.claim(namespace, name)
    }

    pub(super) fn persistent_volume(&mut self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.note("PersistentVolume", "", name);
        self.context.objects.persistent_volume(name)
    }

    pub(super) fn csi_driver(&mut self, name: &str) -> Option<Arc<CSIDriver>> {
        self.note("CSIDriver", "", name);
        self.context.objects.csi_driver(name)
    }

    pub(super) fn attachment(&mut self, name: &str) -> Option<Arc<VolumeAttachment>> {
        self.note("VolumeAttachment", "", name);
        self.context.objects.volume_attachment(name)
    }

    pub(super) fn token(&mut self, wanted: &TokenSpec) -> Option<ServiceAccountToken> {
        self.uses.insert(Dependency::token(wanted));
        self.context.objects.token(wanted)
    }

    /// The error for a missing object, as upstream words it, and why a manifest of that name gives none.
    pub(super) fn missing(
        &self,
        (kind, resource): (&'static str, &'static str),
        namespace: &str,
        name: &str,
    ) -> String {
        let missing = format!("{resource} {name:?} not found");
        match self.context.objects.refused(kind, namespace, name) {
            Some(why) => format!("{missing}: {why}"),
            None => missing,
        }
    }

    /// A secret's data as CSI takes it; the error is the cause as upstream words it.
    pub(super) fn secret(&mut self, namespace: &str, name: &str) -> Result<Secrets, String> {
        self.note("Secret", namespace, name);
        let Some(secret) = self.context.objects.secret(namespace, name) else {
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
pub(super) struct ResolveFailure {
    reason: &'static str,
    message: String,
    step: ResolveStep,
    until: RetryWhen,
}

impl ResolveFailure {
    /// The volume cannot even be wanted.
    pub(super) fn unprocessed(message: String, until: RetryWhen) -> Self {
        Self {
            reason: event_reasons::FAILED_MOUNT,
            message,
            step: ResolveStep::Processing,
            until,
        }
    }

    /// The error of an operation that cannot be started.
    pub(super) fn failed(at: FailureSite<'_>, cause: &str, until: RetryWhen) -> Self {
        let event = event_reasons::failed(at.operation, at.mode, at.volume, cause);
        Self {
            reason: event.reason,
            message: event.message,
            step: ResolveStep::Mounting,
            until,
        }
    }

    /// The controller is not done.
    pub(super) fn attaching(at: FailureSite<'_>, cause: &str) -> Self {
        Self {
            step: ResolveStep::Attaching,
            ..Self::failed(at, cause, RetryWhen::Changed)
        }
    }

    pub(super) fn with_reason(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    pub(super) fn into_unresolved(self, lookup: ObjectLookup<'_>) -> UnresolvedVolume {
        UnresolvedVolume {
            reason: self.reason,
            message: self.message,
            step: self.step,
            until: self.until,
            uses: lookup.uses,
            attachable: lookup.attachable,
        }
    }
}

/// Which operation on which volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailureSite<'a> {
    pub(super) operation: Operation,
    pub(super) mode: VolumeMode,
    pub(super) volume: &'a str,
}
