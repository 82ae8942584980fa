//! Rules of volumes that the node itself makes: directories, and files with the content of objects and fields.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume};

use super::super::{containers, resources};
use super::{FieldErrors, mode, names, text};
use crate::manifest::validate::containers::environment::{self, ResourceScope};
use crate::manifest::validate::containers::handlers;

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

pub(super) fn empty_dir(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let source = volume.empty_dir.as_ref();
    if let Some(limit) = source.and_then(|source| source.size_limit.as_ref()) {
        let field = format!("{field}.emptyDir.sizeLimit");
        let detail = "SizeLimit field must be a valid resource quantity";
        if resources::read(&field, &limit.0, report).is_some_and(|limit| limit.is_negative()) {
            report.forbidden(field, detail);
        }
    }
}

pub(super) fn host_path(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.host_path else {
        return;
    };
    let path = format!("{field}.hostPath.path");
    if source.path.is_empty() {
        return report.required(path);
    }
    report.name(path, &source.path, names::no_backsteps);
    let kind = text(source.type_.as_ref());
    report.known(format!("{field}.hostPath.type"), kind, HOST_PATH_TYPES);
}

pub(super) fn git_repo(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.git_repo else {
        return;
    };
    report.some(format!("{field}.gitRepo.repository"), &source.repository);
    let directory = text(source.directory.as_ref());
    let field = format!("{field}.gitRepo.directory");
    report.name(field, directory, names::descending);
}

pub(super) fn secret(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.secret else {
        return;
    };
    let field = format!("{field}.secret");
    let name = text(source.secret_name.as_ref());
    report.some(format!("{field}.secretName"), name);
    mode(format!("{field}.defaultMode"), source.default_mode, report);
    items(&field, source.items.as_deref(), report);
}

pub(super) fn config_map(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.config_map else {
        return;
    };
    let field = format!("{field}.configMap");
    report.some(format!("{field}.name"), &source.name);
    mode(format!("{field}.defaultMode"), source.default_mode, report);
    items(&field, source.items.as_deref(), report);
}

pub(super) fn items(field: &str, items: Option<&[KeyToPath]>, report: &mut FieldErrors) {
    for (index, item) in items.into_iter().flatten().enumerate() {
        let field = format!("{field}.items[{index}]");
        report.some(format!("{field}.key"), &item.key);
        report.some(format!("{field}.path"), &item.path);
        report.name(format!("{field}.path"), &item.path, names::non_reserved);
        mode(format!("{field}.mode"), item.mode, report);
    }
}

pub(super) fn downward(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.downward_api else {
        return;
    };
    let field = format!("{field}.downwardAPI");
    mode(format!("{field}.defaultMode"), source.default_mode, report);
    for file in source.items.iter().flatten() {
        self::file(&field, file, report);
    }
}

/// Upstream names the source, not the file.
pub(super) fn file(field: &str, file: &DownwardAPIVolumeFile, report: &mut FieldErrors) {
    report.some(format!("{field}.path"), &file.path);
    report.name(format!("{field}.path"), &file.path, names::non_reserved);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(reference), second) => {
            let known = handlers::VOLUME_FIELDS;
            handlers::field_reference(&format!("{field}.fieldRef"), reference, known, report);
            if second.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                report.invalid(field, "resource", detail);
            }
        }
        (None, Some(reference)) => {
            let field = format!("{field}.resourceFieldRef");
            environment::resource(&field, reference, ResourceScope::File, report);
        }
        (None, None) => {
            report.missing(field, "one of fieldRef and resourceFieldRef is required");
        }
    }
    mode(format!("{field}.mode"), file.mode, report);
}

pub(super) fn image(volume: &Volume, field: &str, report: &mut FieldErrors) {
    let Some(source) = &volume.image else {
        return;
    };
    let reference = text(source.reference.as_ref());
    report.some(format!("{field}.image.reference"), reference);
    let policy = source.pull_policy.as_deref();
    let field = format!("{field}.image.pullPolicy");
    report.one_of(field, policy, containers::PULL_POLICIES);
}
