//! Who may run, by upstream's cases.

mod counts;
mod laws;

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::{
    AppArmorProfile, ContainerPort, ContainerRestartRule, PodOS, PodSecurityContext,
    ResourceRequirements, SecurityContext, Sysctl, Taint, Toleration,
};
use logic_api::pod::requests::{ResourceAmounts, read};
use logic_api::pod::{CONFIG_SOURCE, SYSTEM_CRITICAL_PRIORITY};
use logic_api::testing::*;
use logic_api::text::sysctls::{SysctlAllowlist, safe_allowlist};
use logic_placement::devices::{DeviceInventory, DevicePreferences};
use logic_placement::topology::testing::OneCpuEach;
use proptest::prelude::*;

use super::*;

fn list(pairs: &[(&str, &str)]) -> ResourceAmounts {
    read(Some(&quantities(pairs)))
}

fn node() -> NodeFacts {
    NodeFacts {
        name: "machine1".into(),
        allocatable: list(&[
            ("cpu", "10m"),
            ("memory", "20"),
            ("pods", "32"),
            ("ephemeral-storage", "0"),
            ("hugepages-2Mi", "0"),
        ]),
        labels: string_map(&[("kubernetes.io/os", "linux")]),
        os: "linux".into(),
        sysctls: SysctlAllowlist::new(safe_allowlist(None)).unwrap(),
        pod_level_resources: Support::Yes,
        ..NodeFacts::default()
    }
}

fn asking(name: &str, pairs: &[(&str, &str)]) -> Pod {
    pod(name).app_with("c", |c| {
        c.resources = Some(ResourceRequirements {
            requests: Some(quantities(pairs)),
            ..ResourceRequirements::default()
        });
    })
}

fn input<'a>(pod: &'a Pod, others: &'a [&'a Pod], node: &'a NodeFacts) -> Admission<'a> {
    static NO_PRESSURE: BTreeSet<Signal> = BTreeSet::new();
    static NO_PROVIDERS: LazyLock<TopologyManager> = LazyLock::new(TopologyManager::default);
    static NONE_HELD: HeldAssignments = HeldAssignments::new();
    static NO_DEVICES: DeviceInventory = DeviceInventory::EMPTY;
    static NO_ANSWERS: DevicePreferences = DevicePreferences::NONE;
    Admission {
        pod,
        others,
        used: None,
        node,
        topology: &NO_PROVIDERS,
        devices: &NO_DEVICES,
        preferences: &NO_ANSWERS,
        held: &NONE_HELD,
        pressures: &NO_PRESSURE,
        shutting_down: NodeShutdown::No,
        standing: PodPresence::New,
    }
}

/// The decision alone.
fn admit(input: &Admission<'_>) -> AdmissionDecision {
    super::admit(input).decision
}

/// With nothing to itself.
fn admitted() -> AdmissionDecision {
    AdmissionDecision::Admit(Assignment::default())
}

/// The reason and the event's text of a rejection.
fn refused(verdict: &AdmissionDecision) -> (&str, &str) {
    match verdict {
        AdmissionDecision::Reject(failure) => {
            assert!(failure.message.starts_with("Pod was rejected: "));
            (&failure.reason, event_message(failure))
        }
        AdmissionDecision::Admit(_)
        | AdmissionDecision::Ask(_)
        | AdmissionDecision::Defer { .. }
        | AdmissionDecision::Preempt { .. } => {
            panic!("not rejected: {verdict:?}")
        }
    }
}

fn with_port(name: &str, port: i32) -> Pod {
    pod(name).app_with("c", |c| {
        c.ports = Some(vec![ContainerPort {
            host_port: Some(port),
            ..ContainerPort::default()
        }]);
    })
}

fn make_static(mut pod: Pod) -> Pod {
    pod.metadata.annotations = Some(string_map(&[(CONFIG_SOURCE, "file")]));
    pod
}

/// Upstream's TestGeneralPredicates.
#[test]
fn a_pod_is_refused_with_the_first_thing_that_is_missing() {
    let beside = asking("o", &[("cpu", "5m"), ("memory", "19")]);
    let node = node();
    assert_eq!(admit(&input(&pod("p"), &[&beside], &node)), admitted());

    let large = asking("p", &[("cpu", "8m"), ("memory", "10")]);
    let others = [&beside];
    let verdict = admit(&input(&large, &others, &node));
    let message = "Node didn't have enough resource: cpu, requested: 8, used: 5, capacity: 10";
    assert_eq!(refused(&verdict), ("OutOfcpu", message));

    let memory = asking("p", &[("cpu", "1m"), ("memory", "10")]);
    let verdict = admit(&input(&memory, &others, &node));
    let message = "Node didn't have enough resource: memory, requested: 10, used: 19, capacity: 20";
    assert_eq!(refused(&verdict), ("OutOfmemory", message));

    let elsewhere = pod("p").spec_with(|spec| spec.node_name = Some("machine2".into()));
    let verdict = admit(&input(&elsewhere, &[], &node));
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    assert_eq!(refused(&verdict), ("NodeName", message));

    let (port, taken) = (with_port("p", 123), with_port("o", 123));
    let verdict = admit(&input(&port, std::slice::from_ref(&&taken), &node));
    let message =
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(refused(&verdict), ("NodePorts", message));

    let choosy =
        pod("p").spec_with(|spec| spec.node_selector = Some(string_map(&[("foo", "bar")])));
    let verdict = admit(&input(&choosy, &[], &node));
    let message =
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(refused(&verdict), ("NodeAffinity", message));
}

/// Upstream's TestGeneralPredicates, the cases of taints.
#[test]
fn a_taint_that_evicts_keeps_all_but_static_and_tolerant_pods_out() {
    let taint = Taint {
        key: "bar".into(),
        effect: "NoExecute".into(),
        ..Taint::default()
    };
    let node = NodeFacts {
        taints: vec![taint],
        ..node()
    };
    let plain = pod("p");
    let verdict = admit(&input(&plain, &[], &node));
    let message =
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    assert_eq!(refused(&verdict), ("TaintToleration", message));
    assert_eq!(
        admit(&input(&make_static(plain.clone()), &[], &node)),
        admitted()
    );
    let tolerant = plain.spec_with(|spec| {
        spec.tolerations = Some(vec![Toleration {
            key: Some("bar".into()),
            ..Toleration::default()
        }]);
    });
    assert_eq!(admit(&input(&tolerant, &[], &node)), admitted());
}

/// Upstream's TestRemoveMissingExtendedResources and TestFitsRequest.
#[test]
fn extended_resources_count_where_the_node_has_them() {
    let mut node = node();
    node.allocatable.extend(list(&[("example.com/here", "2")]));
    let wants = |name: &str, amount: &str| asking("p", &[(name, amount)]);
    let beside = wants("example.com/here", "1");
    let mut beside = beside;
    beside.metadata.uid = Some("other".into());
    let cases = [
        (wants("example.com/here", "1"), None),
        (
            wants("example.com/here", "2"),
            Some("OutOfexample.com/here"),
        ),
        (wants("example.com/elsewhere", "9"), None),
        (wants("hugepages-2Mi", "2Mi"), Some("OutOfhugepages-2Mi")),
        (wants("hugepages-1Gi", "1Gi"), Some("OutOfhugepages-1Gi")),
        (
            wants("ephemeral-storage", "1"),
            Some("OutOfephemeral-storage"),
        ),
        (wants("storage", "1"), None),
    ];
    for (pod, expected) in cases {
        let others = [&beside];
        let verdict = admit(&input(&pod, &others, &node));
        match expected {
            None => assert_eq!(verdict, admitted(), "{pod:?}"),
            Some(reason) => assert_eq!(refused(&verdict).0, reason),
        }
    }
}

#[test]
fn one_pod_too_many_is_out_of_pods_and_the_pod_itself_does_not_count() {
    let mut node = node();
    node.allocatable.extend(list(&[("pods", "1")]));
    let (first, second) = (pod("a"), pod("b"));
    let others = [&first];
    let verdict = admit(&input(&second, &others, &node));
    let message = "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1";
    assert_eq!(refused(&verdict), ("OutOfpods", message));
    assert_eq!(admit(&input(&first, &others, &node)), admitted());
}

/// Upstream's TestRejectPodAdmissionBasedOnOSSelector, TestRejectPodAdmissionBasedOnOSField and
/// TestPodAdmissionBasedOnSupplementalGroupsPolicy.
#[test]
fn a_pod_for_another_system_is_refused_before_room_is_looked_for() {
    let node = node();
    let mut labelled = pod("p");
    labelled.metadata.labels = Some(string_map(&[("kubernetes.io/os", "windows")]));
    let verdict = admit(&input(&labelled, &[], &node));
    let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    assert_eq!(
        refused(&verdict),
        ("PodOSSelectorNodeLabelDoesNotMatch", message)
    );

    let os = |name: &str| pod("p").spec_with(|spec| spec.os = Some(PodOS { name: name.into() }));
    assert_eq!(admit(&input(&os("linux"), &[], &node)), admitted());
    let verdict = admit(&input(&os("windows"), &[], &node));
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    assert_eq!(refused(&verdict), ("PodOSNotSupported", message));

    let groups = |policy: &str| secure(|s| s.supplemental_groups_policy = Some(policy.into()));
    assert_eq!(admit(&input(&groups("Merge"), &[], &node)), admitted());
    let verdict = admit(&input(&groups("Strict"), &[], &node));
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    assert_eq!(
        refused(&verdict),
        ("SupplementalGroupsPolicyNotSupported", message)
    );
    let able = NodeFacts {
        supplemental_groups_policy: Support::Yes,
        ..node
    };
    assert_eq!(admit(&input(&groups("Strict"), &[], &able)), admitted());
}

fn secure(change: impl FnOnce(&mut PodSecurityContext)) -> Pod {
    pod("p").spec_with(|spec| change(spec.security_context.get_or_insert_default()))
}

/// Upstream's TestAllowlist (`Admit`).
#[test]
fn a_setting_of_the_kernel_that_is_not_allowed_is_forbidden() {
    let pod = secure(|s| {
        s.sysctls = Some(vec![Sysctl {
            name: "kernel.sem".into(),
            value: "1".into(),
        }]);
    });
    let node = node();
    let verdict = admit(&input(&pod, &[], &node));
    let message = "forbidden sysctl: \"kernel.sem\" not allowlisted";
    assert_eq!(refused(&verdict), ("SysctlForbidden", message));
}

/// Upstream's TestAdmitUnderNodeConditions and TestMemoryPressure (`Admit`).
#[test]
fn under_pressure_only_the_important_come() {
    let node = node();
    let memory = BTreeSet::from([Signal::MemoryAvailable]);
    let both = BTreeSet::from([Signal::MemoryAvailable, Signal::PidAvailable]);
    let best_effort = pod("p").app("c");
    let burstable = asking("p", &[("memory", "1")]);
    let tolerant = pod("p").app("c").spec_with(|spec| {
        spec.tolerations = Some(vec![Toleration {
            key: Some("node.kubernetes.io/memory-pressure".into()),
            operator: Some("Exists".into()),
            effect: Some("NoSchedule".into()),
            ..Toleration::default()
        }]);
    });
    let critical = make_static(best_effort.clone());
    let ask = |pod: &Pod, pressures: &BTreeSet<Signal>| {
        admit(&Admission {
            pressures,
            ..input(pod, &[], &node)
        })
    };
    for pod in [&burstable, &tolerant, &critical] {
        assert_eq!(ask(pod, &memory), admitted());
    }
    assert_eq!(ask(&critical, &both), admitted());
    let verdict = ask(&best_effort, &memory);
    assert_eq!(
        refused(&verdict),
        ("Evicted", "The node had condition: [MemoryPressure]. ")
    );
    let verdict = ask(&burstable, &both);
    let message = "The node had condition: [MemoryPressure PIDPressure]. ";
    assert_eq!(refused(&verdict), ("Evicted", message));
}

/// Upstream's TestValidateValidHost and TestPodFeaturesAdmitHandler.
#[test]
fn what_the_node_cannot_do_is_refused() {
    let node = node();
    let profile = |kind: &str, name: Option<&str>| AppArmorProfile {
        type_: kind.into(),
        localhost_profile: name.map(str::to_owned),
    };
    let of_pod = |kind, name| secure(|s| s.app_armor_profile = Some(profile(kind, name)));
    let of_container = pod("p").app_with("c", |c| {
        c.security_context = Some(SecurityContext {
            app_armor_profile: Some(profile("RuntimeDefault", None)),
            ..SecurityContext::default()
        });
    });
    let mut annotated = pod("p");
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    annotated.metadata.annotations = Some(string_map(&[(key, "runtime/default")]));
    let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    for pod in [&of_pod("RuntimeDefault", None), &of_container, &annotated] {
        let verdict = admit(&input(pod, &[], &node));
        assert_eq!(refused(&verdict), ("AppArmor", message));
    }
    assert_eq!(
        admit(&input(&of_pod("Unconfined", None), &[], &node)),
        admitted()
    );
    let able = NodeFacts {
        app_armor: Support::Yes,
        pod_level_resources: Support::No,
        ..node
    };
    assert_eq!(admit(&input(&of_container, &[], &able)), admitted());
    let verdict = admit(&input(&of_pod("Localhost", Some(" ")), &[], &able));
    assert_eq!(refused(&verdict).0, "AppArmor");

    let pod_level = pod("p").spec_with(|spec| {
        spec.resources = Some(ResourceRequirements {
            limits: Some(quantities(&[("cpu", "1m")])),
            ..ResourceRequirements::default()
        });
    });
    let verdict = admit(&input(&pod_level, &[], &able));
    let message = "PodLevelResources feature gate is disabled";
    assert_eq!(
        refused(&verdict),
        ("PodLevelResourcesNotSupported", message)
    );
}

/// Upstream's TestDeclaredFeaturesAdmitHandler and the `InferForScheduling` of its features.
#[test]
fn what_a_pod_needs_the_node_must_have_declared() {
    const RESTARTS_ALL: &str = "RestartAllContainersOnContainerExits";
    const USERS: &str = "UserNamespacesHostNetworkSupport";
    let ruled = |action: &str| ContainerRestartRule {
        action: action.to_owned(),
        ..ContainerRestartRule::default()
    };
    let restarting = |action: &'static str| {
        pod("p").app_with("c", |c| c.restart_policy_rules = Some(vec![ruled(action)]))
    };
    let with_users = |host_network: bool| {
        restarting("RestartAllContainers").spec_with(|spec| {
            (spec.host_network, spec.host_users) = (Some(host_network), Some(false));
        })
    };
    let [none, one]: [&[&str]; 2] = [&[], &[RESTARTS_ALL]];
    let rows = [
        (pod("p"), Some(none), ""),
        (restarting("Restart"), Some(none), ""),
        (restarting("RestartAllContainers"), None, ""),
        (restarting("RestartAllContainers"), Some(one), ""),
        (restarting("RestartAllContainers"), Some(none), RESTARTS_ALL),
        (with_users(false), Some(one), ""),
        (with_users(true), Some(one), USERS),
        (
            with_users(true),
            Some(none),
            "RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport",
        ),
    ];
    for (pod, declared, missing) in rows {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let node = NodeFacts {
            declared_features: declared.map(all),
            ..node()
        };
        let verdict = admit(&input(&pod, &[], &node));
        let message = format!("Pod requires node features that are not available: {missing}");
        match missing.is_empty() {
            true => assert_eq!(verdict, admitted(), "{declared:?}"),
            false => assert_eq!(
                refused(&verdict),
                ("PodFeatureUnsupported", message.as_str())
            ),
        }
    }
}

/// Upstream's TestManager of pkg/kubelet/nodeshutdown (`Admit`).
#[test]
fn a_node_that_goes_down_takes_nobody_and_keeps_who_is_there() {
    let (pod, node) = (pod("p"), node());
    let going = Admission {
        shutting_down: NodeShutdown::Yes,
        ..input(&pod, &[], &node)
    };
    let verdict = admit(&going);
    let message = "Pod was rejected as the node is shutting down.";
    assert_eq!(refused(&verdict), ("NodeShutdown", message));
    let there = Admission {
        standing: PodPresence::Running,
        ..going
    };
    assert_eq!(admit(&there), admitted());
}

/// Upstream's TestHandleAdmissionFailure.
#[test]
fn a_critical_pod_takes_room_from_others_and_from_nobody_in_vain() {
    let node = node();
    let beside = asking("o", &[("cpu", "8m")]);
    let others = [&beside];
    let critical = asking("p", &[("cpu", "5m")])
        .spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
    let AdmissionDecision::Preempt { victims, failure } = admit(&input(&critical, &others, &node))
    else {
        panic!("nobody is pre-empted");
    };
    assert_eq!(victims, [beside.uid()]);
    assert_eq!(failure.reason, "Preempting");
    assert_eq!(failure.message, "Preempted in order to admit critical pod");
    assert!(failure.disruption.is_some());

    let plain = asking("p", &[("cpu", "5m")]);
    assert_eq!(
        refused(&admit(&input(&plain, &others, &node))).0,
        "OutOfcpu"
    );
    let elsewhere = critical
        .clone()
        .spec_with(|spec| spec.node_name = Some("x".into()));
    assert_eq!(
        refused(&admit(&input(&elsewhere, &others, &node))).0,
        "NodeName"
    );
    let going = Admission {
        shutting_down: NodeShutdown::Yes,
        ..input(&critical, &others, &node)
    };
    assert_eq!(refused(&admit(&going)).0, "NodeShutdown");
    let huge = asking("p", &[("cpu", "1")])
        .spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
    assert_eq!(
        refused(&admit(&input(&huge, &others, &node))).0,
        "UnexpectedAdmissionError"
    );
}

/// Upstream's TestSyncPodNodeDeclaredFeaturesUpdate, and its features that a change may need.
#[test]
fn a_change_that_needs_what_the_node_has_not_declared_is_told() {
    const OF_POD: &str = "InPlacePodLevelResourcesVerticalScaling";
    const OF_INIT: &str = "InPlacePodVerticalScalingInitContainers";
    let amounts = |cpu: &str| ResourceRequirements {
        requests: Some(quantities(&[("cpu", cpu)])),
        ..ResourceRequirements::default()
    };
    let sized = |cpu: &str| pod("p").app_with("c", |c| c.resources = Some(amounts(cpu)));
    let whole = |cpu: &str| {
        pod("p")
            .app("c")
            .spec_with(|s| s.resources = Some(amounts(cpu)))
    };
    let init = |cpu: &str, policy: Option<&str>| {
        pod("p").app("c").spec_with(|spec| {
            let mut container = spec_container("i");
            container.resources = Some(amounts(cpu));
            container.restart_policy = policy.map(str::to_owned);
            spec.init_containers = Some(vec![container]);
        })
    };
    let (none, one): (&[&str], &[&str]) = (&[], &[OF_POD]);
    let sidecar = Some("Always");
    let rows = [
        (sized("1"), sized("2"), Some(none), None),
        (whole("1"), whole("1"), Some(none), None),
        (whole("1"), whole("2"), Some(none), Some(OF_POD)),
        (whole("1"), whole("2"), Some(one), None),
        (whole("1"), whole("2"), None, None),
        (init("1", None), init("2", None), Some(one), Some(OF_INIT)),
        (init("1", sidecar), init("2", sidecar), Some(one), None),
    ];
    for (old, new, declared, missing) in rows {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let node = NodeFacts {
            declared_features: declared.map(all),
            ..node()
        };
        let told = change_not_supported(&old, &new, &node).map(|event| event.message);
        let message =
            |missing| format!("Pod requires node features that are not available: {missing}");
        assert_eq!(told, missing.map(message));
    }
}

/// Upstream's TestRecordAdmissionRejection.
#[test]
fn each_refusal_is_counted_by_a_reason_of_the_list() {
    for reason in [
        "AppArmor",
        "VolumeAttachmentLimitExceeded",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "UnexpectedAdmissionError",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
        "node(s) had taints that the pod didn't tolerate",
        "Evicted",
        "SysctlForbidden",
        "TopologyAffinityError",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "PodLevelResourcesNotSupported",
    ] {
        assert_eq!(counted_reason(reason), reason);
    }
    assert_eq!(counted_reason("OutOfgpu"), "OutOfExtendedResources");
    assert_eq!(counted_reason("OtherReason"), "Other");
}

#[test]
fn a_pod_waits_for_devices_that_were_here_before() {
    let mut node = node();
    node.awaited.insert("example.com/gpu".into());
    node.allocatable.extend(list(&[("example.com/gpu", "0")]));
    let pod = asking("p", &[("example.com/gpu", "1")]);
    let why = "the devices of example.com/gpu have not come back yet".to_owned();
    assert_eq!(
        admit(&input(&pod, &[], &node)),
        AdmissionDecision::Defer { why }
    );
    let critical = pod
        .clone()
        .spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
    let verdict = admit(&input(&critical, &[&asking("o", &[])], &node));
    assert!(
        matches!(verdict, AdmissionDecision::Defer { .. }),
        "{verdict:?}"
    );
    let elsewhere = pod
        .clone()
        .spec_with(|spec| spec.node_name = Some("x".into()));
    assert_eq!(
        refused(&admit(&input(&elsewhere, &[], &node))).0,
        "NodeName"
    );
    node.awaited.clear();
    assert_eq!(
        refused(&admit(&input(&pod, &[], &node))).0,
        "OutOfexample.com/gpu"
    );
}

/// The CPUs that an admitted pod has to itself.
fn own_cpus(verdict: &AdmissionDecision) -> Vec<u32> {
    let AdmissionDecision::Admit(assigned) = verdict else {
        panic!("not admitted: {verdict:?}");
    };
    let containers = assigned.containers.values();
    containers.flat_map(|own| own.cpus.clone()).collect()
}

fn holding(name: &str, verdict: AdmissionDecision) -> HeldAssignments {
    let AdmissionDecision::Admit(assigned) = verdict else {
        panic!("not admitted: {verdict:?}");
    };
    [(pod(name).uid(), Arc::new(assigned))].into()
}

#[test]
fn an_admitted_pod_gets_what_nobody_holds_and_one_that_cannot_is_refused() {
    let (node, topology) = (node(), OneCpuEach(2).alone());
    let ask = |pod: &Pod, held: &HeldAssignments| {
        admit(&Admission {
            topology: &topology,
            held,
            ..input(pod, &[], &node)
        })
    };
    let (first, second) = (pod("a").app("c"), pod("b").app("c"));
    let mut held = holding("a", ask(&first, &HeldAssignments::new()));
    let verdict = ask(&second, &held);
    assert_eq!(own_cpus(&verdict), [1]);
    held.extend(holding("b", verdict));
    let verdict = ask(&pod("d").app("c"), &held);
    let message = "Allocate failed due to no CPU left, which is unexpected";
    assert_eq!(refused(&verdict), ("UnexpectedAdmissionError", message));
    // Who asks for nothing is not refused anything.
    assert_eq!(ask(&pod("e"), &held), admitted());
    held.remove(&first.uid());
    assert_eq!(own_cpus(&ask(&pod("d").app("c"), &held)), [0]);
}

#[test]
fn a_running_pod_keeps_what_it_holds_and_is_given_nothing() {
    let (node, topology) = (node(), OneCpuEach(1).alone());
    let pod = pod("a").app("c");
    let ask = |held: &HeldAssignments, standing| {
        admit(&Admission {
            topology: &topology,
            held,
            standing,
            ..input(&pod, &[], &node)
        })
    };
    let none = HeldAssignments::new();
    assert_eq!(ask(&none, PodPresence::Running), admitted());
    let first = ask(&none, PodPresence::New);
    let held = holding("a", first.clone());
    assert_eq!(ask(&held, PodPresence::Running), first);
}

#[test]
fn nothing_is_assigned_to_a_pod_that_waits() {
    let topology = OneCpuEach(0).alone();
    let mut node = node();
    node.awaited.insert("example.com/gpu".into());
    let pod = asking("p", &[("example.com/gpu", "1")]);
    let waiting = Admission {
        topology: &topology,
        ..input(&pod, &[], &node)
    };
    let verdict = admit(&waiting);
    assert!(
        matches!(verdict, AdmissionDecision::Defer { .. }),
        "{verdict:?}"
    );
    // Nobody is preempted for one that could be assigned nothing.
    let beside = asking("o", &[("cpu", "8m")]);
    let critical = asking("p", &[("cpu", "5m")])
        .spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
    let others = [&beside];
    let refusal = admit(&Admission {
        topology: &topology,
        ..input(&critical, &others, &node)
    });
    assert_eq!(refused(&refusal).0, "UnexpectedAdmissionError");
}
