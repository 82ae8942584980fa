//! Rules of volumes, for the sources that a static pod may have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, HostPathVolumeSource, Volume};
use serde_json::Value;

use super::{ProblemKind, Report, handlers, names, resources, text};

const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Returns the volumes that may be mounted: those without a problem, by name.
pub(super) fn check<'a>(
    volumes: &'a [Volume],
    report: &mut Report,
) -> BTreeMap<&'a str, &'a Volume> {
    let mut good = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let before = report.problems.len();
        let field = format!("spec.volumes[{index}]");
        source(&field, volume, report);
        let name = format!("{field}.name");
        if volume.name.is_empty() {
            report.required(name.clone());
        } else {
            report.name(name.clone(), &volume.name, names::label);
        }
        if good.contains_key(volume.name.as_str()) {
            report.duplicate(name, &volume.name);
        }
        if report.problems.len() == before {
            good.insert(volume.name.as_str(), volume);
        }
    }
    good
}

fn source(field: &str, volume: &Volume, report: &mut Report) {
    more_than_one(field, volume, report);
    if let Some(limit) = volume
        .empty_dir
        .as_ref()
        .and_then(|source| source.size_limit.as_ref())
    {
        resources::not_negative(&format!("{field}.emptyDir.sizeLimit"), &limit.0, report);
    }
    if let Some(source) = &volume.host_path {
        host_path(&format!("{field}.hostPath"), source, report);
    }
    if let Some(source) = &volume.nfs {
        if source.server.is_empty() {
            report.required(format!("{field}.nfs.server"));
        }
        if source.path.is_empty() {
            report.required(format!("{field}.nfs.path"));
        } else if !source.path.starts_with('/') {
            report.invalid(
                format!("{field}.nfs.path"),
                &source.path,
                "must be an absolute path",
            );
        }
    }
    if let Some(source) = &volume.image {
        if text(source.reference.as_ref()).is_empty() {
            report.required(format!("{field}.image.reference"));
        }
        let policy = source.pull_policy.as_deref();
        report.one_of(
            format!("{field}.image.pullPolicy"),
            policy,
            super::containers::PULL_POLICIES,
        );
    }
    if let Some(source) = &volume.downward_api {
        let field = format!("{field}.downwardAPI");
        mode(format!("{field}.defaultMode"), source.default_mode, report);
        files(&field, source.items.as_deref(), report);
    }
    if let Some(source) = &volume.projected {
        let field = format!("{field}.projected");
        mode(format!("{field}.defaultMode"), source.default_mode, report);
        for (index, projection) in source.sources.iter().flatten().enumerate() {
            let items = projection
                .downward_api
                .as_ref()
                .and_then(|source| source.items.as_deref());
            files(
                &format!("{field}.sources[{index}].downwardAPI"),
                items,
                report,
            );
        }
    }
}

/// All sources are fields of one object; whichever stands there besides the name is one.
fn more_than_one(field: &str, volume: &Volume, report: &mut Report) {
    let Ok(Value::Object(sources)) = serde_json::to_value(volume) else {
        return;
    };
    for second in sources.keys().filter(|key| *key != "name").skip(1) {
        report.forbidden(
            format!("{field}.{second}"),
            "may not specify more than 1 volume type",
        );
    }
}

fn host_path(field: &str, source: &HostPathVolumeSource, report: &mut Report) {
    let path = format!("{field}.path");
    if source.path.is_empty() {
        return report.required(path);
    }
    report.name(path, &source.path, names::no_backsteps);
    report.one_of(
        format!("{field}.type"),
        source.type_.as_deref(),
        HOST_PATH_TYPES,
    );
}

fn mode(field: String, mode: Option<i32>, report: &mut Report) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        report.invalid(field, mode, MODE);
    }
}

fn files(field: &str, files: Option<&[DownwardAPIVolumeFile]>, report: &mut Report) {
    for (index, file) in files.unwrap_or_default().iter().enumerate() {
        let field = format!("{field}.items[{index}]");
        let path = format!("{field}.path");
        if file.path.is_empty() {
            report.required(path.clone());
        }
        report.name(path, &file.path, names::descending);
        mode(format!("{field}.mode"), file.mode, report);
        match (&file.field_ref, &file.resource_field_ref) {
            (Some(_), Some(_)) => {
                report.invalid(
                    field,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
            (Some(reference), None) => {
                handlers::field_reference(
                    &format!("{field}.fieldRef"),
                    reference,
                    handlers::VOLUME_FIELDS,
                    report,
                );
            }
            (None, Some(reference)) => {
                if text(reference.container_name.as_ref()).is_empty() {
                    report.required(format!("{field}.resourceFieldRef.containerName"));
                }
            }
            (None, None) => {
                report.add(
                    field,
                    ProblemKind::Required {
                        detail: "one of fieldRef and resourceFieldRef is required",
                    },
                );
            }
        }
    }
}
