//! Rules of a pod that says which system it is for: what the other system has may not be set.

use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, SecurityContext};

use super::{FieldErrorKind, FieldErrors};

const ON_LINUX: &str = "windows options cannot be set for a linux pod";
const ON_WINDOWS: &str = "cannot be set for a windows pod";

pub(super) fn check(spec: &PodSpec, report: &mut FieldErrors) {
    let Some(os) = &spec.os else {
        return;
    };
    match os.name.as_str() {
        "linux" => linux(spec, report),
        "windows" => windows(spec, report),
        "" => report.missing("spec.os.name", "cannot be empty"),
        other => {
            let kind = FieldErrorKind::Unsupported {
                value: format!("{other:?}"),
                supported: &["linux", "windows"],
            };
            report.add("spec.os", kind);
        }
    }
}

fn containers(spec: &PodSpec) -> Vec<(String, &SecurityContext)> {
    let mut found = Vec::new();
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let field = format!("spec.initContainers[{index}].securityContext");
        found.extend(
            container
                .security_context
                .iter()
                .map(|held| (field.clone(), held)),
        );
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let field = format!("spec.containers[{index}].securityContext");
        found.extend(
            container
                .security_context
                .iter()
                .map(|held| (field.clone(), held)),
        );
    }
    found
}

fn linux(spec: &PodSpec, report: &mut FieldErrors) {
    let of_pod = spec.security_context.as_ref();
    if of_pod.is_some_and(|security| security.windows_options.is_some()) {
        report.forbidden("spec.securityContext.windowsOptions", ON_LINUX);
    }
    for (field, security) in containers(spec) {
        if security.windows_options.is_some() {
            report.forbidden(format!("{field}.windowsOptions"), ON_LINUX);
        }
    }
}

fn windows(spec: &PodSpec, report: &mut FieldErrors) {
    let fields = [
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        (
            "shareProcessNamespace",
            spec.share_process_namespace.is_some(),
        ),
        ("resources", spec.resources.is_some()),
    ];
    for (name, _) in fields.into_iter().filter(|(_, set)| *set) {
        let detail = match name {
            "resources" => "may not be set for a windows pod",
            _ => ON_WINDOWS,
        };
        report.forbidden(format!("spec.{name}"), detail);
    }
    if let Some(security) = &spec.security_context {
        of_pod(security, report);
    }
    for (field, security) in containers(spec) {
        of_container(&field, security, report);
    }
}

fn of_pod(security: &PodSecurityContext, report: &mut FieldErrors) {
    let fields = [
        ("appArmorProfile", security.app_armor_profile.is_some()),
        ("seLinuxOptions", security.se_linux_options.is_some()),
        ("seccompProfile", security.seccomp_profile.is_some()),
        ("fsGroup", security.fs_group.is_some()),
        (
            "fsGroupChangePolicy",
            security.fs_group_change_policy.is_some(),
        ),
        (
            "sysctls",
            security
                .sysctls
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
        ),
        ("runAsUser", security.run_as_user.is_some()),
        ("runAsGroup", security.run_as_group.is_some()),
        ("supplementalGroups", security.supplemental_groups.is_some()),
        (
            "supplementalGroupsPolicy",
            security.supplemental_groups_policy.is_some(),
        ),
        (
            "seLinuxChangePolicy",
            security.se_linux_change_policy.is_some(),
        ),
    ];
    for (name, _) in fields.into_iter().filter(|(_, set)| *set) {
        report.forbidden(format!("spec.securityContext.{name}"), ON_WINDOWS);
    }
}

fn of_container(field: &str, security: &SecurityContext, report: &mut FieldErrors) {
    let fields = [
        ("appArmorProfile", security.app_armor_profile.is_some()),
        ("seLinuxOptions", security.se_linux_options.is_some()),
        ("seccompProfile", security.seccomp_profile.is_some()),
        ("capabilities", security.capabilities.is_some()),
        (
            "readOnlyRootFilesystem",
            security.read_only_root_filesystem.is_some(),
        ),
        ("privileged", security.privileged.is_some()),
        (
            "allowPrivilegeEscalation",
            security.allow_privilege_escalation.is_some(),
        ),
        ("procMount", security.proc_mount.is_some()),
        ("runAsUser", security.run_as_user.is_some()),
        ("runAsGroup", security.run_as_group.is_some()),
    ];
    for (name, _) in fields.into_iter().filter(|(_, set)| *set) {
        report.forbidden(format!("{field}.{name}"), ON_WINDOWS);
    }
}
