//! Rules of claims: storage that is provided outside of the pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::{metadata, resources, selectors};
use super::{FieldErrors, names, text};

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(super) fn reference(volume: &Volume, field: &str, report: &mut FieldErrors) {
    if let Some(source) = &volume.persistent_volume_claim {
        let field = format!("{field}.persistentVolumeClaim.claimName");
        report.some(field, &source.claim_name);
    }
}

fn created(pod: &Pod, volume: &str) -> Option<String> {
    let pod = text(pod.metadata.name.as_ref());
    (!pod.is_empty()).then(|| format!("{pod}-{volume}"))
}

/// The claim that is made for a volume is named after the pod and the volume.
pub(super) fn name(pod: &Pod, field: &str, volume: &str, report: &mut FieldErrors) {
    let Some(claim) = created(pod, volume).filter(|_| !volume.is_empty()) else {
        return;
    };
    for wrong in names::subdomain(&claim) {
        let detail = format!("PVC name {claim:?}: {wrong}");
        report.invalid(format!("{field}.name"), volume, detail);
    }
}

/// A claim that is made for one volume is not another's.
pub(super) fn shared(pod: &Pod, volumes: &[Volume], report: &mut FieldErrors) {
    let own: BTreeSet<String> = volumes
        .iter()
        .filter(|volume| volume.ephemeral.is_some())
        .filter_map(|volume| created(pod, &volume.name))
        .collect();
    for (index, volume) in volumes.iter().enumerate() {
        let claim = volume.persistent_volume_claim.as_ref();
        let Some(claim) = claim.filter(|claim| own.contains(&claim.claim_name)) else {
            continue;
        };
        let field = format!("spec.volumes[{index}].persistentVolumeClaim.claimName");
        let detail = "must not reference a PVC that gets created for an ephemeral volume";
        report.invalid(field, &claim.claim_name, detail);
    }
}

pub(super) fn ephemeral(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.ephemeral else {
        return;
    };
    let field = format!("{field}.ephemeral.volumeClaimTemplate");
    let Some(template) = &source.volume_claim_template else {
        return report.required(field);
    };
    if let Some(metadata) = &template.metadata {
        template_metadata(&format!("{field}.metadata"), metadata, report);
    }
    claim(&format!("{field}.spec"), &template.spec, report);
}

/// A template lends labels and annotations, nothing else.
fn template_metadata(field: &str, metadata: &ObjectMeta, report: &mut FieldErrors) {
    for key in metadata.annotations.iter().flatten().map(|(key, _)| key) {
        report.name(format!("{field}.annotations"), key, names::annotation);
    }
    if let Some(labels) = &metadata.labels {
        metadata::labels(&format!("{field}.labels"), labels, report);
    }
    let others = [
        ("name", metadata.name.is_some()),
        ("generateName", metadata.generate_name.is_some()),
        ("namespace", metadata.namespace.is_some()),
        ("selfLink", metadata.self_link.is_some()),
        ("uID", metadata.uid.is_some()),
        ("resourceVersion", metadata.resource_version.is_some()),
        ("generation", metadata.generation.is_some()),
        ("creationTimestamp", metadata.creation_timestamp.is_some()),
        ("deletionTimestamp", metadata.deletion_timestamp.is_some()),
        (
            "deletionGracePeriodSeconds",
            metadata.deletion_grace_period_seconds.is_some(),
        ),
        ("ownerReferences", metadata.owner_references.is_some()),
        ("finalizers", metadata.finalizers.is_some()),
        ("managedFields", metadata.managed_fields.is_some()),
    ];
    for (name, _) in others.into_iter().filter(|(_, set)| *set) {
        report.forbidden(format!("{field}.{name}"), "cannot be set");
    }
}

fn claim(field: &str, spec: &PersistentVolumeClaimSpec, report: &mut FieldErrors) {
    access_modes(format!("{field}.accessModes"), spec, report);
    selectors::labels(&format!("{field}.selector"), spec.selector.as_ref(), report);
    size(format!("{field}.resources[storage]"), spec, report);
    let classes = [
        ("storageClassName", &spec.storage_class_name),
        (
            "volumeAttributesClassName",
            &spec.volume_attributes_class_name,
        ),
    ];
    for (name, class) in classes {
        let class = text(class.as_ref());
        if !class.is_empty() {
            report.name(format!("{field}.{name}"), class, names::subdomain);
        }
    }
    if let Some(mode) = &spec.volume_mode {
        let known = &["Block", "Filesystem"];
        report.known(format!("{field}.volumeMode"), mode, known);
    }
    contents(field, spec, report);
}

fn access_modes(field: String, spec: &PersistentVolumeClaimSpec, report: &mut FieldErrors) {
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        report.missing(field.clone(), "at least 1 access mode is required");
    }
    for mode in modes {
        report.known(field.clone(), mode, ACCESS_MODES);
    }
    let alone = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    let others = modes
        .iter()
        .any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode.as_str()));
    if alone && others {
        let detail = "may not use ReadWriteOncePod with other access modes";
        report.forbidden(field, detail);
    }
}

fn size(field: String, spec: &PersistentVolumeClaimSpec, report: &mut FieldErrors) {
    let requests = spec
        .resources
        .as_ref()
        .and_then(|held| held.requests.as_ref());
    let Some(size) = requests.and_then(|requests| requests.get("storage")) else {
        return report.required(field);
    };
    let size = resources::read(&field, &size.0, report);
    if let Some(size) = size.filter(|size| size.is_negative() || size.is_zero()) {
        report.invalid(field, size.to_string(), "must be greater than zero");
    }
}

/// The initial content of the storage: `dataSource` and `dataSourceRef` must agree.
fn contents(field: &str, spec: &PersistentVolumeClaimSpec, report: &mut FieldErrors) {
    let first = spec.data_source.as_ref().map(|source| ClaimDataSource {
        group: text(source.api_group.as_ref()),
        kind: &source.kind,
        name: &source.name,
    });
    let second = spec.data_source_ref.as_ref().map(|source| ClaimDataSource {
        group: text(source.api_group.as_ref()),
        kind: &source.kind,
        name: &source.name,
    });
    for (name, origin) in [("dataSource", &first), ("dataSourceRef", &second)] {
        if let Some(origin) = origin {
            origin.check(&format!("{field}.{name}"), report);
        }
    }
    let reference = spec.data_source_ref.as_ref();
    let namespace = text(reference.and_then(|source| source.namespace.as_ref()));
    if !namespace.is_empty() {
        let field = format!("{field}.dataSourceRef.namespace");
        report.name(field, namespace, names::label);
    }
    let value = format!("{field}.dataSource");
    match (first, second) {
        (Some(_), Some(_)) if !namespace.is_empty() => {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            report.invalid(field, value, detail);
        }
        (Some(first), Some(second)) if first != second => {
            report.invalid(field, value, "must match dataSourceRef");
        }
        (Some(_) | None, Some(_) | None) => {}
    }
}

#[derive(PartialEq, Eq)]
struct ClaimDataSource<'a> {
    group: &'a str,
    kind: &'a str,
    name: &'a str,
}

impl ClaimDataSource<'_> {
    fn check(&self, field: &str, report: &mut FieldErrors) {
        report.some(format!("{field}.name"), self.name);
        report.some(format!("{field}.kind"), self.kind);
        if !self.group.is_empty() {
            report.name(format!("{field}.apiGroup"), self.group, names::subdomain);
        } else if self.kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            report.invalid(field, self.kind, detail);
        }
    }
}
