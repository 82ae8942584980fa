//! Words with a fixed vocabulary, taints, and what depends on the host's cgroups.

use logic_api::text::sysctls::SysctlAllowlist;

use super::{CgroupVersion, FieldErrors};
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::KubeletConfiguration;
use crate::names;

/// A user namespace gets whole blocks of this many ids.
const ID_BLOCK: i64 = 65536;

pub(super) fn check(
    c: &KubeletConfiguration,
    gates: &FeatureGates,
    cgroup: CgroupVersion,
    checks: &mut FieldErrors,
) {
    // Upstream's NewMainKubelet refuses them when it makes the list.
    let sysctls = c.allowed_unsafe_sysctls.iter().map(String::as_str);
    if let Err(error) = SysctlAllowlist::new(sysctls) {
        checks.refuse("allowedUnsafeSysctls", format!("is wrong: {error}"));
    }
    for (field, value, allowed) in [
        (
            "topologyManagerPolicy",
            &c.topology_manager_policy,
            &["none", "best-effort", "restricted", "single-numa-node"][..],
        ),
        (
            "topologyManagerScope",
            &c.topology_manager_scope,
            &["container", "pod"],
        ),
        (
            "cpuManagerPolicy",
            &c.cpu_manager_policy,
            &["none", "static"],
        ),
        (
            "memoryManagerPolicy",
            &c.memory_manager_policy,
            &["None", "Static"],
        ),
        (
            "hairpinMode",
            &c.hairpin_mode,
            &["none", "hairpin-veth", "promiscuous-bridge"],
        ),
        (
            "configMapAndSecretChangeDetectionStrategy",
            &c.config_map_and_secret_change_detection_strategy,
            &["Get", "Cache", "Watch"],
        ),
    ] {
        checks.one_of(field, value, allowed);
    }
    checks.require(
        !c.run_once,
        "runOnce",
        "must not be set: upstream has removed that mode",
    );
    checks.require(
        c.system_cgroups.is_empty() || !c.cgroup_root.is_empty(),
        "systemCgroups",
        "needs cgroupRoot (--cgroup-root) as well",
    );
    taints(c, checks);
    cgroups(c, cgroup, checks);
    memory(c, gates, checks);
    user_namespaces(c, gates, checks);
}

fn taints(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    let field = "registerWithTaints";
    for taint in &c.register_with_taints {
        for result in [
            names::qualified_name(&taint.key),
            names::label_value(&taint.value),
        ] {
            if let Err(why) = result {
                checks.refuse(field, format!("has an invalid taint: {why}"));
            }
        }
        if !taint.effect.is_empty() && !names::TAINT_EFFECTS.contains(&taint.effect.as_str()) {
            checks.refuse(
                field,
                format!(
                    "has an invalid taint: effect {:?} must be one of {}",
                    taint.effect,
                    names::TAINT_EFFECTS.join(", ")
                ),
            );
        }
        checks.require(
            taint.time_added.is_none(),
            field,
            "has a taint whose timeAdded is set",
        );
    }
}

fn cgroups(c: &KubeletConfiguration, cgroup: CgroupVersion, checks: &mut FieldErrors) {
    if cgroup == CgroupVersion::V1 {
        checks.require(
            !c.fail_cgroup_v1,
            "failCgroupV1",
            "is true and this host uses cgroup v1; set it to false to run here all the same",
        );
        checks.require(
            c.single_process_oom_kill != Some(false),
            "singleProcessOOMKill",
            "must not be false on a host that uses cgroup v1",
        );
    }
}

fn memory(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    let qos = gates.enabled("MemoryQoS");
    match c.memory_throttling_factor {
        None => checks.require(
            !qos,
            "memoryThrottlingFactor",
            "is required by feature gate MemoryQoS",
        ),
        Some(factor) if !(factor > 0.0 && factor <= 1.0) => checks.refuse(
            "memoryThrottlingFactor",
            format!("is {factor}; it must be greater than 0 and at most 1.0"),
        ),
        Some(_) => {}
    }
    let policy = &c.memory_reservation_policy;
    checks.one_of(
        "memoryReservationPolicy",
        policy,
        &["None", "TieredReservation"],
    );
    checks.require(
        qos || policy != "TieredReservation",
        "memoryReservationPolicy",
        "is \"TieredReservation\", which requires feature gate MemoryQoS",
    );
    let swap = &c.memory_swap.swap_behavior;
    if gates.enabled("NodeSwap") {
        checks.one_of(
            "memorySwap.swapBehavior",
            swap,
            &["", "NoSwap", "LimitedSwap"],
        );
    } else {
        checks.require(
            swap.is_empty(),
            "memorySwap.swapBehavior",
            "requires feature gate NodeSwap",
        );
    }
}

fn user_namespaces(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    let field = "userNamespaces.idsPerPod";
    let Some(ids) = c
        .user_namespaces
        .as_ref()
        .and_then(|namespaces| namespaces.ids_per_pod)
    else {
        return;
    };
    checks.require(
        gates.enabled("UserNamespacesSupport"),
        field,
        "requires feature gate UserNamespacesSupport",
    );
    if ids < ID_BLOCK || ids % ID_BLOCK != 0 || ids >= 1 << 32 {
        checks.refuse(
            field,
            format!(
                "is {ids}; it must be a multiple of {ID_BLOCK}, at least that and less than 1<<32"
            ),
        );
    }
}
