//! Rules of mounts and of block devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Volume, VolumeDevice, VolumeMount};

use crate::manifest::validate::{FieldErrors, names, text};

type VolumesByName<'a> = BTreeMap<&'a str, &'a Volume>;

pub(super) fn check(
    field: &str,
    container: &Container,
    volumes: &VolumesByName<'_>,
    report: &mut FieldErrors,
) {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    let places = MountPaths { mounts, devices };
    places.of_mounts(&format!("{field}.volumeMounts"), volumes, report);
    let is_privileged = container
        .security_context
        .as_ref()
        .and_then(|security| security.privileged);
    for mount in mounts {
        let field = format!("{field}.volumeMounts");
        propagation(&field, mount, is_privileged == Some(true), report);
        recursive_read_only(&field, mount, report);
    }
    places.of_devices(&format!("{field}.volumeDevices"), volumes, report);
}

struct MountPaths<'a> {
    mounts: &'a [VolumeMount],
    devices: &'a [VolumeDevice],
}

impl MountPaths<'_> {
    fn of_mounts(&self, field: &str, volumes: &VolumesByName<'_>, report: &mut FieldErrors) {
        let mut paths = BTreeSet::new();
        for (index, mount) in self.mounts.iter().enumerate() {
            let entry = format!("{field}[{index}]");
            let (name, path) = (mount.name.as_str(), mount.mount_path.as_str());
            report.some(format!("{entry}.name"), name);
            if !volumes.contains_key(name) {
                report.not_found(format!("{entry}.name"), name);
            }
            report.some(format!("{entry}.mountPath"), path);
            if !paths.insert(path) {
                report.invalid(format!("{entry}.mountPath"), path, "must be unique");
            }
            if self.devices.iter().any(|device| device.name == name) {
                let detail = "must not already exist in volumeDevices";
                report.invalid(format!("{entry}.name"), name, detail);
            }
            if self.devices.iter().any(|device| device.device_path == path) {
                let detail = "must not already exist as a path in volumeDevices";
                report.invalid(format!("{entry}.mountPath"), path, detail);
            }
            sub_path(field, index, mount, report);
        }
    }

    fn of_devices(&self, field: &str, volumes: &VolumesByName<'_>, report: &mut FieldErrors) {
        let mut known = (BTreeSet::new(), BTreeSet::new());
        for (index, device) in self.devices.iter().enumerate() {
            let field = format!("{field}[{index}].name");
            let name = device.name.as_str();
            report.some(field.clone(), name);
            if !name.is_empty() && !known.0.insert(name) {
                report.invalid(field.clone(), name, "must be unique");
            }
            match volumes.get(name) {
                None => report.not_found(field.clone(), name),
                Some(volume)
                    if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() =>
                {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    report.invalid(field.clone(), name, detail);
                }
                Some(_) => {}
            }
            if self.mounts.iter().any(|mount| mount.name == name) {
                report.invalid(field, name, "must not already exist in volumeMounts");
            }
        }
        for (index, device) in self.devices.iter().enumerate() {
            let field = format!("{field}[{index}].devicePath");
            self.device_path(field, &device.device_path, &mut known.1, report);
        }
    }

    fn device_path<'a>(
        &self,
        field: String,
        path: &'a str,
        known: &mut BTreeSet<&'a str>,
        report: &mut FieldErrors,
    ) {
        report.some(field.clone(), path);
        if known.contains(path) {
            report.invalid(field.clone(), path, "must be unique");
        }
        if names::no_backsteps(path).is_empty() {
            known.insert(path);
        } else {
            report.invalid(field.clone(), path, "can not contain backsteps ('..')");
        }
        if self.mounts.iter().any(|mount| mount.mount_path == path) {
            let detail = "must not already exist as a path in volumeMounts";
            report.invalid(field, path, detail);
        }
    }
}

/// Upstream names the list, not the mount, where a path leads out.
fn sub_path(field: &str, index: usize, mount: &VolumeMount, report: &mut FieldErrors) {
    let path = text(mount.sub_path.as_ref());
    let expression = text(mount.sub_path_expr.as_ref());
    report.name(format!("{field}.subPath"), path, names::descending);
    if !path.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        report.invalid(format!("{field}[{index}].subPathExpr"), expression, detail);
    }
    report.name(
        format!("{field}.subPathExpr"),
        expression,
        names::descending,
    );
}

fn propagation(field: &str, mount: &VolumeMount, is_privileged: bool, report: &mut FieldErrors) {
    let Some(mode) = mount.mount_propagation.as_deref() else {
        return;
    };
    let field = format!("{field}.mountPropagation");
    let known = &["Bidirectional", "HostToContainer", "None"];
    report.known(field.clone(), mode, known);
    if mode == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        report.forbidden(field, detail);
    }
}

fn recursive_read_only(field: &str, mount: &VolumeMount, report: &mut FieldErrors) {
    let Some(wanted) = mount.recursive_read_only.as_deref() else {
        return;
    };
    let field = format!("{field}.recursiveReadOnly");
    report.known(
        field.clone(),
        wanted,
        &["Disabled", "Enabled", "IfPossible"],
    );
    if !matches!(wanted, "Enabled" | "IfPossible") {
        return;
    }
    if mount.read_only != Some(true) {
        report.forbidden(field.clone(), "may only be specified when readOnly is true");
    }
    let mode = mount.mount_propagation.as_deref();
    if mode.is_some_and(|mode| mode != "None") {
        let detail = "may only be specified when mountPropagation is None or not specified";
        report.forbidden(field, detail);
    }
}
