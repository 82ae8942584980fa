//! The `linux.seccomp` section: the runtime's own profile, or one of the node's files.

use std::collections::{BTreeMap, BTreeSet};

use proto::cri::SecurityProfile;
use proto::cri::security_profile::ProfileType;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SpecError, SpecInput};

/// Which calls are allowed always, by architecture, and with a capability.
const DEFAULT: &str = include_str!("seccomp_default.json");
/// The flags of clone that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
const ENOSYS: u32 = 38;
/// personality(2): Linux, 32-bit addresses, compatible uname, both, and a question.
const PERSONALITIES: [u64; 5] = [0x0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];
/// Address families of socket(2) that reach past the container: the kernel's crypto, and the hypervisor.
const AF_ALG: u64 = 38;
const AF_VSOCK: u64 = 40;

#[derive(Deserialize)]
struct AllowedCalls {
    always: Vec<String>,
    architecture: BTreeMap<String, Vec<String>>,
    capability: BTreeMap<String, Vec<String>>,
}

/// Returns the section; none means unconfined.
pub(super) fn section(
    input: SpecInput<'_>,
    capabilities: &BTreeSet<&'static str>,
) -> Result<Option<Value>, SpecError> {
    let asked = input
        .security()
        .and_then(|context| context.seccomp.as_ref())
        .filter(|_| !input.privileged());
    let Some(asked) = asked else { return Ok(None) };
    let profile = match asked.profile_type() {
        ProfileType::Unconfined => return Ok(None),
        ProfileType::RuntimeDefault => default_profile(input.host.architecture, capabilities),
        ProfileType::Localhost => localhost(asked, input.seccomp_profile)?,
    };
    if !input.host.seccomp {
        return Err(SpecError::Unenforceable {
            field: "seccomp profile",
            value: asked.profile_type().as_str_name().to_owned(),
            why: "this node's kernel has no seccomp filters",
        });
    }
    Ok(Some(profile))
}

fn localhost(asked: &SecurityProfile, text: Option<&str>) -> Result<Value, SpecError> {
    let wrong = || SpecError::Invalid {
        field: "seccomp profile",
        found: asked.localhost_ref.clone(),
        expected: "a file with a JSON object that has a defaultAction",
    };
    let profile: Value = serde_json::from_str(text.ok_or_else(wrong)?).map_err(|_| wrong())?;
    profile.get("defaultAction").ok_or_else(wrong)?;
    Ok(profile)
}

/// The runtime's own profile: everything not allowed answers EPERM.
fn default_profile(architecture: &str, capabilities: &BTreeSet<&'static str>) -> Value {
    let mut data: AllowedCalls =
        serde_json::from_str(DEFAULT).expect("a test reads the profile that is compiled in");
    let mut names = data.always;
    names.extend(data.architecture.remove(architecture).unwrap_or_default());
    for held in capabilities {
        names.extend(data.capability.remove(*held).unwrap_or_default());
    }
    let mut calls = vec![allow(&names)];
    // One condition a rule: several conditions on one argument would be taken as alternatives.
    for (op, value) in [
        ("SCMP_CMP_LT", AF_ALG),
        ("SCMP_CMP_EQ", AF_ALG + 1),
        ("SCMP_CMP_GT", AF_VSOCK),
    ] {
        calls.push(allow_when("socket", op, value, 0));
    }
    for persona in PERSONALITIES {
        calls.push(allow_when("personality", "SCMP_CMP_EQ", persona, 0));
    }
    if !capabilities.contains("CAP_SYS_ADMIN") {
        calls.push(allow_when(
            "clone",
            "SCMP_CMP_MASKED_EQ",
            NAMESPACE_FLAGS,
            0,
        ));
        // C libraries fall back to clone, whose flags can be looked at.
        calls.push(json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": architectures(architecture),
        "syscalls": calls,
    })
}

fn allow(names: &[String]) -> Value {
    json!({ "names": names, "action": "SCMP_ACT_ALLOW" })
}

fn allow_when(name: &str, op: &str, value: u64, value_two: u64) -> Value {
    let argument = json!({ "index": 0, "value": value, "valueTwo": value_two, "op": op });
    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": [argument] })
}

/// The calling conventions of a machine's kernel; a foreign one would get past the filter.
fn architectures(machine: &str) -> &'static [&'static str] {
    match machine {
        "x86_64" => &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "aarch64" => &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
        "riscv64" => &["SCMP_ARCH_RISCV64"],
        "s390x" => &["SCMP_ARCH_S390", "SCMP_ARCH_S390X"],
        // Empty means the native one.
        _ => &[],
    }
}
