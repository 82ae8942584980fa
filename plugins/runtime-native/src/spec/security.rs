//! AppArmor profiles and SELinux labels: set where the node has them, refused by name where it hasn't.

use proto::cri::security_profile::ProfileType;
use proto::cri::{ContainerConfig, SecurityProfile};
use serde_json::Value;

use super::{HostFacts, SpecError, SpecInput};

pub(super) fn label(input: SpecInput<'_>, process: &mut Value) -> Result<(), SpecError> {
    if let Some(profile) = apparmor(input)? {
        process["apparmorProfile"] = profile.into();
    }
    if let Some(label) = selinux(input)? {
        process["selinuxLabel"] = label.into();
    }
    Ok(())
}

/// As containerd: who names no profile gets the runtime's, and without AppArmor on the node there is none.
fn apparmor(input: SpecInput<'_>) -> Result<Option<String>, SpecError> {
    if input.privileged() {
        return Ok(None);
    }
    let asked = input
        .security()
        .and_then(|context| context.apparmor.as_ref());
    let kind = asked.map_or(ProfileType::RuntimeDefault, SecurityProfile::profile_type);
    let named = asked.map_or("", |asked| &asked.localhost_ref);
    match kind {
        ProfileType::Unconfined => Ok(None),
        ProfileType::RuntimeDefault => Ok(input.host.apparmor_default.map(str::to_owned)),
        ProfileType::Localhost if input.host.apparmor => Ok(Some(named.to_owned())),
        ProfileType::Localhost => Err(SpecError::Unenforceable {
            field: "AppArmor profile",
            value: named.to_owned(),
            why: "this node has no AppArmor",
        }),
    }
}

/// Where the node has no SELinux a label means nothing, as with containerd. Where it has, a whole label is passed on.
fn selinux(input: SpecInput<'_>) -> Result<Option<String>, SpecError> {
    let asked = input
        .security()
        .and_then(|context| context.selinux_options.as_ref());
    let Some(asked) = asked.filter(|_| input.host.selinux) else {
        return Ok(None);
    };
    let parts = [&asked.user, &asked.role, &asked.r#type, &asked.level];
    let label = parts.map(String::as_str).join(":");
    if parts.iter().any(|part| part.is_empty()) {
        return Err(SpecError::Unenforceable {
            field: "SELinux label",
            value: label,
            why: "this runtime passes on whole labels only: user, role, type and level",
        });
    }
    Ok(Some(label))
}

/// Returns the label of a container's files: the node's own one for them, with the user and the level of the container's.
/// None where the node has no SELinux, or the container no label.
pub(crate) fn mount_label(config: &ContainerConfig, host: &HostFacts) -> Option<String> {
    let context = config.linux.as_ref()?.security_context.as_ref()?;
    let asked = context.selinux_options.as_ref().filter(|_| host.selinux)?;
    let mut parts = host.selinux_file.splitn(4, ':');
    let (_, role, kind) = (parts.next()?, parts.next()?, parts.next()?);
    Some([&asked.user, role, kind, &asked.level].join(":"))
}
