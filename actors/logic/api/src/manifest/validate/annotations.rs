//! Rules of the annotations that say something about the pod's spec.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, PodSpec, SeccompProfile, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{FieldErrors, names, scheduling};

const FIELD: &str = "metadata.annotations";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const POD_SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const CONTAINER_APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

type Annotations = BTreeMap<String, String>;

pub(super) fn check(metadata: &ObjectMeta, spec: &PodSpec, report: &mut FieldErrors) {
    let Some(annotations) = &metadata.annotations else {
        return;
    };
    tolerations(annotations, report);
    if let Some(cost) = annotations.get(DELETION_COST)
        && !is_cost(cost)
    {
        let detail = "must be a 32bit integer";
        report.invalid(format!("{FIELD}[{DELETION_COST}]"), cost, detail);
    }
    for (key, profile) in annotations {
        if key == POD_SECCOMP || key.starts_with(CONTAINER_SECCOMP) {
            seccomp(format!("{FIELD}.{key}"), profile, report);
        }
        if let Some(container) = key.strip_prefix(CONTAINER_APPARMOR) {
            apparmor(key, container, profile, spec, report);
        }
    }
    if spec.os.as_ref().is_none_or(|os| os.name != "windows") {
        agreement(annotations, spec, report);
    }
}

fn tolerations(annotations: &Annotations, report: &mut FieldErrors) {
    let Some(text) = annotations.get(TOLERATIONS).filter(|text| !text.is_empty()) else {
        return;
    };
    match serde_json::from_str::<Vec<Toleration>>(text) {
        Ok(tolerations) => {
            for (index, toleration) in tolerations.iter().enumerate() {
                let field = format!("{FIELD}.{TOLERATIONS}[{index}]");
                scheduling::toleration(&field, toleration, report);
            }
        }
        Err(error) => report.invalid(FIELD, TOLERATIONS, error.to_string()),
    }
}

/// A number of 32 bits, without a plus and without zeros before it.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    !text.starts_with('+') && !is_padded && text.parse::<i32>().is_ok()
}

fn seccomp(field: String, profile: &str, report: &mut FieldErrors) {
    match (profile, profile.strip_prefix("localhost/")) {
        ("runtime/default" | "docker/default" | "unconfined", _) => {}
        (_, Some(path)) => report.name(field, path, names::descending),
        (other, None) => report.invalid(field, other, "must be a valid seccomp profile"),
    }
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    let named =
        |list: &'static str| move |(index, container)| (format!("spec.{list}[{index}]"), container);
    let init = spec.init_containers.iter().flatten().enumerate();
    init.map(named("initContainers"))
        .chain(spec.containers.iter().enumerate().map(named("containers")))
}

fn apparmor(key: &str, container: &str, profile: &str, spec: &PodSpec, report: &mut FieldErrors) {
    let field = format!("{FIELD}[{key}]");
    if !containers(spec).any(|(_, held)| held.name == container) {
        report.invalid(field.clone(), container, "container not found");
    }
    let known = matches!(profile, "" | "runtime/default" | "unconfined");
    if !known && !profile.starts_with("localhost/") {
        let detail = format!("invalid AppArmor profile name: {profile:?}");
        report.invalid(field, profile, detail);
    }
}

/// What an annotation and a field say of the same profile must be the same.
fn agreement(annotations: &Annotations, spec: &PodSpec, report: &mut FieldErrors) {
    let pod = spec.security_context.as_ref();
    let pod_seccomp = pod.and_then(|pod| pod.seccomp_profile.as_ref());
    if let (Some(profile), Some(text)) = (pod_seccomp, annotations.get(POD_SECCOMP)) {
        let profile = SecurityProfile::of_seccomp(profile);
        let field = "spec.securityContext.seccompProfile";
        same(ProfileKind::Seccomp, field, (&profile, text), report);
    }
    let pod_apparmor = pod.and_then(|pod| pod.app_armor_profile.as_ref());
    for (field, container) in containers(spec) {
        let security = container.security_context.as_ref();
        let seccomp = security.and_then(|held| held.seccomp_profile.as_ref());
        let text = annotations.get(&format!("{CONTAINER_SECCOMP}{}", container.name));
        if let (Some(profile), Some(text)) = (seccomp, text) {
            let field = format!("{field}.securityContext.seccompProfile");
            let profile = SecurityProfile::of_seccomp(profile);
            same(ProfileKind::Seccomp, &field, (&profile, text), report);
        }
        let apparmor = security.and_then(|held| held.app_armor_profile.as_ref());
        let text = annotations.get(&format!("{CONTAINER_APPARMOR}{}", container.name));
        if let (Some(profile), Some(text)) = (apparmor.or(pod_apparmor), text) {
            let field = format!("{field}.securityContext.appArmorProfile");
            let profile = SecurityProfile::of_apparmor(profile);
            same(ProfileKind::AppArmor, &field, (&profile, text), report);
        }
    }
}

#[derive(Clone, Copy)]
enum ProfileKind {
    Seccomp,
    AppArmor,
}

impl ProfileKind {
    fn type_differs(self) -> &'static str {
        match self {
            Self::Seccomp => "seccomp type in annotation and field must match",
            Self::AppArmor => "apparmor type in annotation and field must match",
        }
    }

    fn profile_differs(self) -> &'static str {
        match self {
            Self::Seccomp => "seccomp profile in annotation and field must match",
            Self::AppArmor => "apparmor profile in annotation and field must match",
        }
    }
}

struct SecurityProfile<'a> {
    kind: &'a str,
    file: Option<&'a str>,
}

impl<'a> SecurityProfile<'a> {
    fn of_seccomp(profile: &'a SeccompProfile) -> Self {
        Self {
            kind: &profile.type_,
            file: profile.localhost_profile.as_deref(),
        }
    }

    fn of_apparmor(profile: &'a AppArmorProfile) -> Self {
        Self {
            kind: &profile.type_,
            file: profile.localhost_profile.as_deref(),
        }
    }
}

fn same(
    kind: ProfileKind,
    field: &str,
    (profile, text): (&SecurityProfile<'_>, &str),
    report: &mut FieldErrors,
) {
    let expected = match (kind, profile.kind) {
        (_, "Unconfined") => text == "unconfined",
        (ProfileKind::Seccomp, "RuntimeDefault") => {
            matches!(text, "runtime/default" | "docker/default")
        }
        (ProfileKind::AppArmor, "RuntimeDefault") => text == "runtime/default",
        (_, "Localhost") => text.starts_with("localhost/"),
        // Another type is refused for itself.
        _ => true,
    };
    if !expected {
        return report.forbidden(format!("{field}.type"), kind.type_differs());
    }
    let file = text.strip_prefix("localhost/");
    if profile.kind == "Localhost" && profile.file != file {
        report.forbidden(format!("{field}.localhostProfile"), kind.profile_differs());
    }
}
