//! Rules of what only Windows knows. Oxlet runs no such pod; a manifest that is wrong is still refused for what is
//! wrong.

use k8s_openapi::api::core::v1::{Container, PodSpec, WindowsSecurityContextOptions};

use super::{FieldErrors, names};

/// Bytes of a GMSA credential spec: the API's bound.
const MAX_SPEC_BYTES: usize = 64 << 10;
/// A Windows domain's name is shorter than this: the API's bound.
const MAX_DOMAIN: usize = 256;
/// Characters of a Windows user's name: the API's bound.
const MAX_USER: usize = 104;

pub(super) fn options(
    field: &str,
    options: &WindowsSecurityContextOptions,
    report: &mut FieldErrors,
) {
    if let Some(name) = &options.gmsa_credential_spec_name {
        let field = format!("{field}.gmsaCredentialSpecName");
        report.name(field, name, names::subdomain);
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let field = format!("{field}.gmsaCredentialSpec");
        if spec.is_empty() {
            let detail = "gmsaCredentialSpec cannot be an empty string";
            report.invalid(field, spec, detail);
        } else if spec.len() > MAX_SPEC_BYTES {
            let detail = "gmsaCredentialSpec size must be under 64 KiB";
            report.invalid(field, spec, detail);
        }
    }
    if let Some(name) = &options.run_as_user_name {
        report.name(format!("{field}.runAsUserName"), name, user_name);
    }
}

fn user_name(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('\\').collect();
    let whole = if name.is_empty() {
        Some("runAsUserName cannot be an empty string")
    } else if name.contains(|c: char| c.is_ascii_control()) {
        Some("runAsUserName cannot contain control characters")
    } else if parts.len() > 2 {
        Some("runAsUserName cannot contain more than one backslash")
    } else {
        None
    };
    if let Some(wrong) = whole {
        return vec![wrong.to_owned()];
    }
    let (domain, user) = match parts.as_slice() {
        [domain, user] => (Some(*domain), *user),
        _ => (None, name),
    };
    let mut wrong = domain.map(wrong_domain).unwrap_or_default();
    wrong.extend(wrong_user(user));
    wrong.into_iter().map(str::to_owned).collect()
}

fn wrong_domain(domain: &str) -> Vec<&'static str> {
    let is_edge = |b: u8| b.is_ascii_alphanumeric();
    let is_label = |label: &str| {
        let ends = label.bytes().next().is_some_and(is_edge)
            && label.bytes().next_back().is_some_and(is_edge);
        ends && label.bytes().all(|b| is_edge(b) || b == b'-')
    };
    let net_bios = (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(|c| "\\/:*?\"<>|".contains(c));
    let rules = [
        (
            domain.len() >= MAX_DOMAIN,
            "runAsUserName's Domain length must be under 256 characters",
        ),
        (
            !net_bios && !domain.split('.').all(is_label),
            "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
        ),
    ];
    broken(&rules)
}

fn wrong_user(user: &str) -> Vec<&'static str> {
    let rules = [
        (user.is_empty(), "runAsUserName's User cannot be empty"),
        (
            user.len() > MAX_USER,
            "runAsUserName's User length must not be longer than 104 characters",
        ),
        (
            !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')),
            "runAsUserName's User cannot contain only periods or spaces",
        ),
        (
            user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)),
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        ),
    ];
    broken(&rules)
}

fn broken(rules: &[(bool, &'static str)]) -> Vec<&'static str> {
    let broken = rules.iter().filter(|(broken, _)| *broken);
    broken.map(|(_, text)| *text).collect()
}

/// Either every container is a process of the host, or none is.
pub(super) fn host_processes(spec: &PodSpec, report: &mut FieldErrors) {
    let of_pod = spec
        .security_context
        .as_ref()
        .and_then(|security| security.windows_options.as_ref())
        .and_then(|options| options.host_process);
    let (mut all, mut of_host) = (0, 0);
    let mut count = |field: String, container: &Container| {
        all += 1;
        let own = container
            .security_context
            .as_ref()
            .and_then(|security| security.windows_options.as_ref())
            .and_then(|options| options.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let field = format!("{field}.securityContext.windowsOptions.hostProcess");
            let detail = format!(
                "pod hostProcess value must be identical if both are specified, was {of_pod}"
            );
            report.invalid(field, own, detail);
        }
        if own.or(of_pod) == Some(true) {
            of_host += 1;
        }
    };
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        count(format!("spec.initContainers[{index}]"), container);
    }
    for (index, container) in spec.containers.iter().enumerate() {
        count(format!("spec.containers[{index}]"), container);
    }
    if of_host == 0 {
        return;
    }
    if of_host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        report.invalid("spec", "", detail);
    }
    if spec.host_network != Some(true) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        report.invalid("spec.hostNetwork", false, detail);
    }
}
