//! Rules of security contexts.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};

use super::{FieldErrors, names, windows};
use crate::text::sysctls::{self, KernelNamespace, SysctlAllowlist};

const FIELD: &str = "spec.securityContext";
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
/// Bytes of the path of a profile on the node: the API's bound, which is the kernel's `PATH_MAX` without the NUL.
const MAX_PROFILE: usize = 4095;

fn user_id(field: String, id: Option<i64>, report: &mut FieldErrors) {
    if let Some(id) = id {
        report.between(field, id, 0..=i32::MAX.into());
    }
}

pub(super) fn of_pod(spec: &PodSpec, security: &PodSecurityContext, report: &mut FieldErrors) {
    user_id(format!("{FIELD}.fsGroup"), security.fs_group, report);
    user_id(format!("{FIELD}.runAsUser"), security.run_as_user, report);
    user_id(format!("{FIELD}.runAsGroup"), security.run_as_group, report);
    for (index, group) in security.supplemental_groups.iter().flatten().enumerate() {
        let field = format!("{FIELD}.supplementalGroups[{index}]");
        user_id(field, Some(*group), report);
    }
    sysctls(spec, security, report);
    let words: [(&str, &Option<String>, &'static [&'static str]); 3] = [
        (
            "fsGroupChangePolicy",
            &security.fs_group_change_policy,
            &["Always", "OnRootMismatch"],
        ),
        (
            "supplementalGroupsPolicy",
            &security.supplemental_groups_policy,
            &["Merge", "Strict"],
        ),
        (
            "seLinuxChangePolicy",
            &security.se_linux_change_policy,
            &["MountOption", "Recursive"],
        ),
    ];
    for (name, value, known) in words {
        if let Some(value) = value {
            report.known(format!("{FIELD}.{name}"), value, known);
        }
    }
    profiles(
        FIELD,
        security.seccomp_profile.as_ref(),
        security.app_armor_profile.as_ref(),
        report,
    );
    if let Some(options) = &security.windows_options {
        windows::options(&format!("{FIELD}.windowsOptions"), options, report);
    }
}

fn sysctls(spec: &PodSpec, security: &PodSecurityContext, report: &mut FieldErrors) {
    let mut known: Vec<&str> = Vec::new();
    for (index, sysctl) in security.sysctls.iter().flatten().enumerate() {
        let field = format!("{FIELD}.sysctls[{index}].name");
        let wrong = names::sysctl(&sysctl.name);
        if sysctl.name.is_empty() {
            report.required(field);
        } else if !wrong.is_empty() {
            report.name(field, &sysctl.name, names::sysctl);
        } else {
            if known.contains(&sysctl.name.as_str()) {
                report.duplicate(field.clone(), &sysctl.name);
            }
            of_node(field, &sysctl.name, spec, report);
        }
        known.push(&sysctl.name);
    }
}

/// A setting of a namespace that is the node's own is the node's to set.
fn of_node(field: String, name: &str, spec: &PodSpec, report: &mut FieldErrors) {
    let (network, ipc) = (spec.host_network == Some(true), spec.host_ipc == Some(true));
    let Ok(namespaced) = SysctlAllowlist::new([name]) else {
        return;
    };
    let detail = match namespaced.allows(name, network, ipc) {
        Err(sysctls::SysctlForbidden::OnNode { namespace, .. }) => match namespace {
            KernelNamespace::Net => "may not be specified when 'hostNetwork' is true",
            KernelNamespace::Ipc => "may not be specified when 'hostIPC' is true",
            KernelNamespace::Uts | KernelNamespace::User => return,
        },
        Err(sysctls::SysctlForbidden::NotAllowed { .. }) | Ok(()) => return,
    };
    report.invalid(field, name, detail);
}

/// Whether a container's root may be another user to the node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    OfNode,
    OfPod,
}

pub(super) fn of_container(
    field: &str,
    security: &SecurityContext,
    users: Users,
    report: &mut FieldErrors,
) {
    user_id(format!("{field}.runAsUser"), security.run_as_user, report);
    user_id(format!("{field}.runAsGroup"), security.run_as_group, report);
    if let Some(mode) = security.proc_mount.as_deref() {
        let field = format!("{field}.procMount");
        report.known(field.clone(), mode, &["Default", "Unmasked"]);
        if mode == "Unmasked" && users == Users::OfNode {
            report.invalid(field, mode, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    escalation(field, security, report);
    profiles(
        field,
        security.seccomp_profile.as_ref(),
        security.app_armor_profile.as_ref(),
        report,
    );
    if let Some(options) = &security.windows_options {
        windows::options(&format!("{field}.windowsOptions"), options, report);
    }
}

fn escalation(field: &str, security: &SecurityContext, report: &mut FieldErrors) {
    if security.allow_privilege_escalation != Some(false) {
        return;
    }
    if security.privileged == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        report.invalid(field, "", detail);
    }
    let capabilities = security.capabilities.iter();
    let mut added = capabilities.filter_map(|held| held.add.as_ref()).flatten();
    if added.any(|capability| capability == "CAP_SYS_ADMIN") {
        let detail =
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        report.invalid(field, "", detail);
    }
}

fn profiles(
    field: &str,
    seccomp: Option<&SeccompProfile>,
    apparmor: Option<&AppArmorProfile>,
    report: &mut FieldErrors,
) {
    if let Some(profile) = seccomp {
        self::seccomp(&format!("{field}.seccompProfile"), profile, report);
    }
    if let Some(profile) = apparmor {
        self::apparmor(&format!("{field}.appArmorProfile"), profile, report);
    }
}

fn seccomp(field: &str, profile: &SeccompProfile, report: &mut FieldErrors) {
    let kind = profile.type_.as_str();
    if kind.is_empty() {
        let detail = "type is required when seccompProfile is set";
        report.missing(format!("{field}.type"), detail);
    } else {
        report.known(format!("{field}.type"), kind, PROFILES);
    }
    let field = format!("{field}.localhostProfile");
    match (kind, profile.localhost_profile.as_deref()) {
        ("Localhost", None) => {
            report.missing(field, "must be set when seccomp type is Localhost");
        }
        ("Localhost", Some(path)) => report.name(field, path, names::descending),
        (_, Some(path)) => {
            report.invalid(
                field,
                path,
                "can only be set when seccomp type is Localhost",
            );
        }
        (_, None) => {}
    }
}

fn apparmor(field: &str, profile: &AppArmorProfile, report: &mut FieldErrors) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    let file = format!("{field}.localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None) => report.missing(file, MISSING),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                report.invalid(file.clone(), name, "must not be padded with whitespace");
            } else if name.is_empty() {
                report.missing(file.clone(), MISSING);
            }
            report.too_long(file, name.len(), MAX_PROFILE);
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            report.invalid(file, name, detail);
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            report.missing(format!("{field}.type"), detail);
        }
        (other, _) => report.known(format!("{field}.type"), other, PROFILES),
    }
}
