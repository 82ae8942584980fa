//! Rules of environment variables and of where their values come from.

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, Container, EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, PodSpec,
    ResourceFieldSelector, SecretKeySelector,
};

use super::handlers;
use crate::manifest::validate::{FieldErrors, names, text};
use crate::quantity::Quantity;

type KeyNameRule = fn(&str) -> Vec<String>;

const MORE_THAN_ONE: &str = "may not have more than one field specified at a time";
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const CPU_DIVISORS: &[&str] = &["1m", "1"];
const DIVISORS: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

pub(super) fn check(field: &str, container: &Container, report: &mut FieldErrors) {
    for (index, variable) in container.env.iter().flatten().enumerate() {
        self::variable(&format!("{field}.env[{index}]"), variable, report);
    }
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        all_of(&format!("{field}.envFrom"), index, source, report);
    }
}

fn variable(field: &str, variable: &EnvVar, report: &mut FieldErrors) {
    if variable.name.is_empty() {
        report.required(format!("{field}.name"));
    } else {
        report.name(format!("{field}.name"), &variable.name, names::variable);
    }
    if let Some(source) = &variable.value_from {
        let field = format!("{field}.valueFrom");
        value_from(&field, source, text(variable.value.as_ref()), report);
    }
}

fn value_from(field: &str, source: &EnvVarSource, value: &str, report: &mut FieldErrors) {
    if let Some(reference) = &source.field_ref {
        let known = handlers::ENVIRONMENT_FIELDS;
        handlers::field_reference(&format!("{field}.fieldRef"), reference, known, report);
    }
    if let Some(reference) = &source.resource_field_ref {
        let field = format!("{field}.resourceFieldRef");
        resource(&field, reference, ResourceScope::Variable, report);
    }
    if let Some(ConfigMapKeySelector { name, key, .. }) = &source.config_map_key_ref {
        object_key(&format!("{field}.configMapKeyRef"), name, key, report);
    }
    if let Some(SecretKeySelector { name, key, .. }) = &source.secret_key_ref {
        object_key(&format!("{field}.secretKeyRef"), name, key, report);
    }
    if let Some(reference) = &source.file_key_ref {
        file_key(&format!("{field}.fileKeyRef"), reference, report);
    }
    let sources = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    match sources.into_iter().filter(|used| *used).count() {
        0 => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            report.invalid(field, "", detail);
        }
        _ if !value.is_empty() => {
            report.invalid(field, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => report.invalid(field, "", MORE_THAN_ONE),
    }
}

fn object_key(field: &str, name: &str, key: &str, report: &mut FieldErrors) {
    report.name(format!("{field}.name"), name, names::subdomain);
    if key.is_empty() {
        report.required(format!("{field}.key"));
    } else {
        report.name(format!("{field}.key"), key, names::config_key);
    }
}

fn file_key(field: &str, reference: &FileKeySelector, report: &mut FieldErrors) {
    let rows: [(&str, &str, KeyNameRule); 3] = [
        ("key", &reference.key, names::variable),
        ("volumeName", &reference.volume_name, names::label),
        ("path", &reference.path, names::no_backsteps),
    ];
    for (name, value, rule) in rows {
        let field = format!("{field}.{name}");
        if value.is_empty() {
            report.required(field);
        } else {
            report.name(field, value, rule);
        }
    }
}

/// Upstream names the list, not the entry, where an entry has no source or two.
fn all_of(field: &str, index: usize, source: &EnvFromSource, report: &mut FieldErrors) {
    let entry = format!("{field}[{index}]");
    let prefix = text(source.prefix.as_ref());
    if !prefix.is_empty() {
        report.name(format!("{entry}.prefix"), prefix, names::variable);
    }
    let sources = [
        (
            "configMapRef",
            source
                .config_map_ref
                .as_ref()
                .map(|held| held.name.as_str()),
        ),
        (
            "secretRef",
            source.secret_ref.as_ref().map(|held| held.name.as_str()),
        ),
    ];
    for (kind, name) in sources {
        let field = format!("{entry}.{kind}.name");
        match name {
            None => {}
            Some("") => report.required(field),
            Some(name) => report.name(field, name, names::subdomain_beginning),
        }
    }
    match sources
        .into_iter()
        .filter(|(_, name)| name.is_some())
        .count()
    {
        0 => {
            let detail = "must specify one of: `configMapRef` or `secretRef`";
            report.invalid(field, "", detail);
        }
        1 => {}
        _ => report.invalid(field, "", MORE_THAN_ONE),
    }
}

/// Where an amount is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::manifest::validate) enum ResourceScope {
    Variable,
    /// A file belongs to the pod, so it has to name the container.
    File,
}

pub(in crate::manifest::validate) fn resource(
    field: &str,
    reference: &ResourceFieldSelector,
    place: ResourceScope,
    report: &mut FieldErrors,
) {
    let name = reference.resource.as_str();
    let kind = name.strip_prefix("limits.");
    let kind = kind.or_else(|| name.strip_prefix("requests."));
    let is_huge_pages = kind.is_some_and(|kind| kind.starts_with("hugepages-"));
    let container = text(reference.container_name.as_ref());
    if place == ResourceScope::File && container.is_empty() {
        report.required(format!("{field}.containerName"));
    } else if !is_huge_pages {
        report.one_of(format!("{field}.resource"), Some(name), RESOURCES);
    }
    let divisor = reference.divisor.as_ref().map(|divisor| divisor.0.as_str());
    let Some(divisor) = divisor else {
        return;
    };
    let field = format!("{field}.divisor");
    match Quantity::parse(divisor) {
        Err(error) => report.invalid(field, divisor, error.to_string()),
        Ok(divisor) if divisor.is_zero() => {}
        Ok(divisor) => {
            let (known, detail) = match kind {
                Some("cpu") => (
                    CPU_DIVISORS,
                    "only divisor's values 1m and 1 are supported with the cpu resource".to_owned(),
                ),
                Some("memory") => (DIVISORS, binary("memory")),
                Some("ephemeral-storage") => (DIVISORS, binary("local ephemeral storage")),
                _ if is_huge_pages => (DIVISORS, binary("hugepages")),
                _ => return,
            };
            if !known.contains(&divisor.to_string().as_str()) {
                report.invalid(field, name, detail);
            }
        }
    }
}

fn binary(what: &str) -> String {
    let known = DIVISORS.join(", ");
    format!("only divisor's values {known} are supported with the {what} resource")
}

/// A file that variables come from is in an emptyDir: the containers write it.
pub(in crate::manifest::validate) fn file_volumes(spec: &PodSpec, report: &mut FieldErrors) {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let mut of_container = |field: String, container: &Container| {
        for (index, variable) in container.env.iter().flatten().enumerate() {
            let source = variable.value_from.as_ref();
            let Some(file) = source.and_then(|source| source.file_key_ref.as_ref()) else {
                continue;
            };
            let field = format!("{field}.env[{index}].valueFrom.fileKeyRef.volumeName");
            let name = file.volume_name.as_str();
            let volume = volumes.iter().rfind(|volume| volume.name == name);
            match volume {
                None => report.not_found(field, name),
                Some(volume) if volume.empty_dir.is_none() => {
                    let detail = "referenced volume must be of type emptyDir";
                    report.invalid(field, name, detail);
                }
                Some(_) => {}
            }
        }
    };
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        of_container(format!("spec.initContainers[{index}]"), container);
    }
    for (index, container) in spec.containers.iter().enumerate() {
        of_container(format!("spec.containers[{index}]"), container);
    }
}
