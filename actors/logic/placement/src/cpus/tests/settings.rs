//! The CPU manager by its settings.

use super::*;

fn made(settings: &CpuSettings<'_>, machine: CpuMachine) -> Result<CpuManager, String> {
    CpuManager::new(settings, machine).map_err(|error| error.to_string())
}

/// Upstream's TestCPUManagerGenerate, TestCPUManagerHandlePolicyOptions, TestStaticPolicyName, TestNonePolicyName and
/// TestNonePolicyOptions.
#[test]
fn a_manager_has_the_policy_of_its_setting() {
    for policy in ["none", "static"] {
        let manager = made(
            &CpuSettings {
                policy,
                ..defaults()
            },
            laptop(),
        )
        .unwrap();
        assert_eq!(manager.policy().as_str(), policy);
    }
}

/// Upstream's TestCPUManagerGenerate, TestCPUManagerHandlePolicyOptions and TestNonePolicyOptions: the refusals.
#[test]
fn a_manager_is_refused_whose_settings_say_too_little_or_too_much() {
    let full = string_map(&[("full-pcpus-only", "true")]);
    let strange = string_map(&[("strange", "true")]);
    let none = || CpuMachine::new(BTreeMap::new());
    let given = defaults();
    let invalid = CpuSettings {
        policy: "invalid",
        ..given
    };
    let unknown = CpuSettings {
        reserved_milli: None,
        ..given
    };
    let nothing = CpuSettings {
        reserved_milli: Some(0),
        ..given
    };
    let without = CpuSettings {
        policy: "none",
        ..given
    };
    let idle = CpuSettings {
        options: &full,
        ..without
    };
    let odd = CpuSettings {
        options: &strange,
        ..given
    };
    for (settings, machine, refusal) in [
        (invalid, laptop(), "unknown policy: \"invalid\""),
        (given, none(), "could not detect number of cpus"),
        (
            unknown,
            laptop(),
            "[cpumanager] unable to determine reserved CPU resources for static policy",
        ),
        (
            nothing,
            laptop(),
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be \
             greater than zero",
        ),
        (
            idle,
            laptop(),
            "new none policy error: None policy: received unsupported \
             options=map[full-pcpus-only:true]",
        ),
        (
            odd,
            laptop(),
            "new static policy error: unknown CPU Manager Policy option: \"strange\"",
        ),
    ] {
        assert_eq!(made(&settings, machine).unwrap_err(), refusal);
    }
    assert!(made(&without, none()).is_ok());
}

/// Upstream's NewStaticPolicy.
#[test]
fn what_is_reserved_has_to_be_on_the_machine() {
    let beyond = CpuSet::from_numbers([1, 12]);
    let none = CpuSet::default();
    for (milli, reserved, refusal) in [
        (
            2000,
            &beyond,
            "unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 12",
        ),
        (
            9000,
            &none,
            "unable to reserve the required amount of CPUs (size of  did not equal 9)",
        ),
    ] {
        let settings = CpuSettings {
            reserved_milli: Some(milli),
            reserved,
            ..defaults()
        };
        let refusal = format!("new static policy error: [cpumanager] {refusal}");
        assert_eq!(made(&settings, laptop()).unwrap_err(), refusal);
    }
}

/// Upstream's TestStaticPolicyStartWithResvList, and NewStaticPolicy.
#[test]
fn what_is_reserved_is_rounded_up_and_comes_from_the_lowest_cores() {
    for (milli, allocatable) in [
        (1, "1-11"),
        (1000, "1-11"),
        (1001, "1-5,7-11"),
        (2500, "1,3-5,7-11"),
    ] {
        let settings = CpuSettings {
            reserved_milli: Some(milli),
            ..defaults()
        };
        let manager = made(&settings, two_sockets()).unwrap();
        assert_eq!(manager.allocatable(), set(allocatable), "{milli}");
    }
    let named = set("0-1");
    let settings = CpuSettings {
        reserved: &named,
        ..defaults()
    };
    let refusal = "new static policy error: [cpumanager] unable to reserve the required amount of \
                   CPUs (size of 0-1 did not equal 1)";
    assert_eq!(made(&settings, two_sockets()).unwrap_err(), refusal);
    let settings = CpuSettings {
        reserved_milli: Some(2000),
        ..settings
    };
    assert_eq!(
        made(&settings, two_sockets()).unwrap().allocatable(),
        set("2-11")
    );
}

/// Upstream's TestCPUManagerGetAllocatableCPUs and TestNonePolicyGetAllocatableCPUs.
#[test]
fn what_may_be_given_is_all_that_is_not_reserved() {
    for (policy, allocatable) in [("none", ""), ("static", "1-7")] {
        let manager = made(
            &CpuSettings {
                policy,
                ..defaults()
            },
            laptop(),
        )
        .unwrap();
        assert_eq!(manager.allocatable(), set(allocatable));
    }
}

/// Upstream's TestNonePolicyAllocate and TestNonePolicyRemove.
#[test]
fn without_a_policy_nobody_has_cpus_of_its_own() {
    let manager = made(
        &CpuSettings {
            policy: "none",
            ..defaults()
        },
        laptop(),
    )
    .unwrap();
    let pod = pod_of("new", "pod 2, app 1");
    let (held, assigned) = (HeldAssignments::new(), Assignment::default());
    let request = AssignmentRequest {
        devices: &crate::devices::DeviceInventory::EMPTY,
        preferences: &crate::devices::DevicePreferences::NONE,
        pod: &pod,
        held: &held,
        assigned: &assigned,
    };
    assert_eq!(
        admit(&manager, &pod, &held, anywhere()),
        Ok(Assignment::default())
    );
    assert_eq!(
        manager.assign_pod(&request, anywhere()),
        Ok(Assignment::default())
    );
    assert!(manager.hints(&request, &pod.app_containers()[0]).is_empty());
    assert!(manager.pod_hints(&request).is_empty());
    // No set of CPUs is no constraint.
    assert_eq!(manager.affinity(&pod, "app-0", &held), CpuSet::default());
    assert_eq!(manager.shared(&held), CpuSet::default());
}
