//! Providers are asked for each container or for a whole pod, and assign by the hint that is merged.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::testing::*;

use super::*;
use crate::devices::{DeviceInventory, DevicePreferences};
use crate::topology::testing::{OneCpuEach, counted};

/// Gives the same hints to all, and each container one CPU. Writes down what it is asked.
#[derive(Debug, Default)]
struct FakeProvider {
    hints: ProviderHints,
    refusal: Option<AssignmentError>,
    calls: Calls,
}

type Calls = Arc<Mutex<Vec<String>>>;

impl FakeProvider {
    fn say(&self, call: &str, of: &str) {
        self.calls.lock().unwrap().push(format!("{call} {of}"));
    }
}

fn show(hint: TopologyHint) -> String {
    let nodes = hint
        .nodes
        .map_or("any".to_owned(), |nodes| nodes.to_string());
    match hint.preferred {
        true => nodes,
        false => format!("{nodes} unpreferred"),
    }
}

impl HintProvider for FakeProvider {
    fn hints(&self, _: &AssignmentRequest<'_>, container: &Container) -> ProviderHints {
        self.say("hints", &container.name);
        self.hints.clone()
    }

    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints {
        self.say("pod hints", request.pod.name());
        self.hints.clone()
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        self.say("assign", &format!("{} {}", container.name, show(hint)));
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        OneCpuEach(4).assign(request, container, hint)
    }

    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let name = request.pod.name();
        self.say("assign pod", &format!("{name} {}", show(hint)));
        Ok(Assignment {
            pod: AssignedResources {
                cpus: [0, 1].into(),
                ..AssignedResources::default()
            },
            ..Assignment::default()
        })
    }
}

fn manager(policy: TopologyPolicy, scope: TopologyScope) -> TopologyManager {
    let settings = TopologySettings {
        policy: policy.as_str(),
        scope: scope.as_str(),
        options: &BTreeMap::new(),
        pod_level: PodLevelManagers::On,
    };
    TopologyManager::new(&settings, two_nodes()).unwrap()
}

/// A manager that asks a provider of these hints; with what the provider is asked.
fn asking(
    policy: TopologyPolicy,
    scope: TopologyScope,
    hints: ProviderHints,
) -> (TopologyManager, Calls) {
    let mut manager = manager(policy, scope);
    let calls = Calls::default();
    manager.add_hint_provider(Box::new(FakeProvider {
        hints,
        calls: calls.clone(),
        ..FakeProvider::default()
    }));
    (manager, calls)
}

const SCOPES: [TopologyScope; 2] = [TopologyScope::Container, TopologyScope::Pod];

fn nobody() -> HeldAssignments {
    HeldAssignments::new()
}

fn two_containers() -> Pod {
    pod("web").init("setup").app("app")
}

/// The CPUs of each container.
fn cpus(assignment: &Assignment) -> Vec<(&str, Vec<u32>)> {
    let containers = assignment.containers.iter();
    containers
        .map(|(name, own)| (name.as_str(), own.cpus.iter().copied().collect()))
        .collect()
}

/// Upstream's TestContainerCalculateAffinity, TestContainerAccumulateProvidersHints, TestPodCalculateAffinity,
/// TestPodAccumulateProvidersHints and TestAddHintProvider.
#[test]
fn the_policy_hears_every_provider_as_it_is_in_its_order() {
    let some = |name: &str| provider(&[(name, &[TopologyHint::default()])]);
    let assorted = || {
        vec![
            provider(&[
                ("resource-1/A", &[on(&[0]), off(&[0, 1])]),
                ("resource-1/B", &[on(&[1]), off(&[1, 2])]),
            ]),
            provider(&[
                ("resource-2/A", &[on(&[2]), off(&[3, 4])]),
                ("resource-2/B", &[on(&[2]), off(&[3, 4])]),
            ]),
            indifferent(),
        ]
    };
    for hints in [
        vec![],
        vec![ProviderHints::new()],
        vec![indifferent()],
        vec![some("resource1"), some("resource2")],
        vec![some("resource1"), indifferent()],
        vec![some("resource1"), ProviderHints::new()],
        vec![
            [some("resource1"), some("resource2")]
                .into_iter()
                .flatten()
                .collect(),
        ],
        assorted(),
    ] {
        let pod = two_containers();
        let (held, assigned) = (nobody(), Assignment::default());
        let request = AssignmentRequest {
            pod: &pod,
            held: &held,
            assigned: &assigned,
            devices: &DeviceInventory::EMPTY,
            preferences: &DevicePreferences::NONE,
        };
        let mut manager = manager(TopologyPolicy::BestEffort, TopologyScope::Container);
        for hints in hints.clone() {
            manager.add_hint_provider(Box::new(FakeProvider {
                hints,
                ..FakeProvider::default()
            }));
        }
        let container = &pod.app_containers()[0];
        assert_eq!(
            manager.provider_hints(|own| own.hints(&request, container)),
            hints
        );
        assert_eq!(manager.provider_hints(|own| own.pod_hints(&request)), hints);
    }
}

/// Upstream's TestAdmit. The QoS class of a pod decides nothing.
#[test]
fn a_pod_is_admitted_as_the_policy_has_it_in_either_scope() {
    use TopologyPolicy::{BestEffort, None as NoPolicy, Restricted, SingleNumaNode};
    let one = |hints: &[TopologyHint]| provider(&[("resource", hints)]);
    let one_place = || one(&[on(&[0]), off(&[0, 1])]);
    let two_places = || one(&[on(&[0]), on(&[1]), off(&[0, 1])]);
    let unpreferred = || one(&[off(&[0, 1])]);
    for (policy, hints, class, admitted) in [
        (NoPolicy, ProviderHints::new(), "BestEffort", true),
        (NoPolicy, ProviderHints::new(), "Guaranteed", true),
        (SingleNumaNode, ProviderHints::new(), "BestEffort", true),
        (Restricted, ProviderHints::new(), "BestEffort", true),
        (BestEffort, one_place(), "Guaranteed", true),
        (BestEffort, two_places(), "Guaranteed", true),
        (BestEffort, two_places(), "Burstable", true),
        (BestEffort, unpreferred(), "Guaranteed", true),
        (Restricted, one_place(), "Guaranteed", true),
        (Restricted, one_place(), "Burstable", true),
        (Restricted, two_places(), "Guaranteed", true),
        (Restricted, two_places(), "Burstable", true),
        (Restricted, unpreferred(), "Guaranteed", false),
        (Restricted, unpreferred(), "Burstable", false),
        (SingleNumaNode, unpreferred(), "Guaranteed", false),
    ] {
        let mut pod = two_containers();
        pod.status.get_or_insert_default().qos_class = Some(class.to_owned());
        for scope in SCOPES {
            let (manager, _) = asking(policy, scope, hints.clone());
            let answer = manager.admit(&pod, &nobody());
            let refused = answer.err().map(|error| error.reason());
            let expected = (!admitted).then_some("TopologyAffinityError");
            assert_eq!(refused, expected, "{policy:?} {scope:?} {class} {hints:?}");
        }
    }
}

#[test]
fn without_providers_every_pod_is_admitted_with_nothing() {
    for policy in ["none", "best-effort", "restricted", "single-numa-node"] {
        let policy = TopologyPolicy::from_name(policy).unwrap();
        for scope in SCOPES {
            let nothing = manager(policy, scope).admit(&two_containers(), &nobody());
            assert_eq!(nothing, Ok(Assignment::default()), "{policy:?} {scope:?}");
        }
    }
}

/// Upstream's TestGetAffinity as well: without a policy the hint is an empty one.
#[test]
fn containers_are_assigned_one_after_the_other_each_by_its_hint() {
    let hints = || provider(&[("cpu", &[on(&[1]), off(&[0, 1])])]);
    let in_turn = [
        "hints setup",
        "assign setup 10",
        "hints app",
        "assign app 10",
    ];
    let at_once = ["pod hints web", "assign setup 10", "assign app 10"];
    let unasked = ["assign setup any unpreferred", "assign app any unpreferred"];
    for (policy, scope, expected) in [
        (
            TopologyPolicy::Restricted,
            TopologyScope::Container,
            &in_turn[..],
        ),
        (TopologyPolicy::Restricted, TopologyScope::Pod, &at_once),
        (TopologyPolicy::None, TopologyScope::Container, &unasked),
    ] {
        let (manager, calls) = asking(policy, scope, hints());
        let assigned = manager.admit(&two_containers(), &nobody()).unwrap();
        assert_eq!(*calls.lock().unwrap(), expected, "{policy:?} {scope:?}");
        // The second container sees what the first one got.
        assert_eq!(cpus(&assigned), [("app", vec![1]), ("setup", vec![0])]);
    }
}

/// Upstream's TestAddContainer and TestRemoveContainer: there is nothing to keep by container id.
#[test]
fn what_other_pods_hold_is_not_assigned_again_until_they_are_gone() {
    let (manager, _) = asking(
        TopologyPolicy::None,
        TopologyScope::Container,
        ProviderHints::new(),
    );
    let admit = |held: &HeldAssignments| manager.admit(&two_containers(), held);
    let first = Arc::new(admit(&nobody()).unwrap());
    let mut held = HeldAssignments::from([("first".into(), first)]);
    let second = admit(&held).unwrap();
    assert_eq!(cpus(&second), [("app", vec![3]), ("setup", vec![2])]);
    assert_eq!(admit(&held), Ok(second.clone()), "asked again, the same");
    held.insert("second".into(), Arc::new(second));
    let refused = admit(&held).unwrap_err();
    assert_eq!(refused.reason(), "UnexpectedAdmissionError");
    held.remove(&"first".into());
    let third = admit(&held).unwrap();
    assert_eq!(cpus(&third), [("app", vec![1]), ("setup", vec![0])]);
}

/// The hints do not meet in one node; there is nothing of which it could be said that it lies together.
#[test]
fn a_pod_that_keeps_what_it_holds_against_the_hints_counts_as_admitted_and_not_as_aligned() {
    for scope in SCOPES {
        let apart = provider(&[("cpu", &[off(&[0, 1])])]);
        let (manager, _) = asking(TopologyPolicy::SingleNumaNode, scope, apart);
        let (pod, devices) = (two_containers(), DeviceInventory::EMPTY);
        let ask = |held: &HeldAssignments| {
            let answers = &DevicePreferences::NONE;
            manager.admit_with_devices(&pod, held, &devices, answers)
        };
        let failure = format!(
            "1 admission, 1 refusal, 1 {} numa_node failure",
            scope.as_str()
        );
        assert_eq!(counted(&ask(&nobody()).counts), failure);
        let own = OneCpuEach(4).alone().admit(&pod, &nobody()).unwrap();
        let held = HeldAssignments::from([(pod.uid(), Arc::new(own.clone()))]);
        let kept = ask(&held);
        assert_eq!(
            (kept.outcome, &*counted(&kept.counts)),
            (Ok(own), "1 admission")
        );
        let running = manager.running_counts(&pod, &held, &devices);
        assert_eq!(counted(&running), "1 admission");
    }
}

#[test]
fn what_one_provider_refuses_is_refused() {
    let refusal = AssignmentError::Refused {
        reason: "SMTAlignmentError",
        message: "no whole cores".to_owned(),
    };
    for scope in SCOPES {
        let (mut manager, _) = asking(TopologyPolicy::BestEffort, scope, ProviderHints::new());
        manager.add_hint_provider(Box::new(FakeProvider {
            refusal: Some(refusal.clone()),
            ..FakeProvider::default()
        }));
        let refused = manager.admit(&two_containers(), &nobody());
        assert_eq!(refused, Err(refusal.clone()), "{scope:?}");
    }
}

/// Upstream's feature gate `PodLevelResourceManagers`.
#[test]
fn pod_level_resources_are_assigned_to_the_pod_as_a_whole() {
    let level = ResourceRequirements {
        requests: Some(quantities(&[("cpu", "2")])),
        ..ResourceRequirements::default()
    };
    let pod = two_containers().spec_with(|spec| spec.resources = Some(level));
    let place = || provider(&[("cpu", &[on(&[1])])]);
    let (manager, calls) = asking(TopologyPolicy::Restricted, TopologyScope::Pod, place());
    let assigned = manager.admit(&pod, &nobody()).unwrap();
    assert_eq!(
        *calls.lock().unwrap(),
        ["pod hints web", "assign pod web 10"]
    );
    assert_eq!(assigned.pod.cpus, [0, 1].into());

    for (scope, what, hints) in [
        (
            TopologyScope::Container,
            "with a container-level topology manager",
            "container setup: restricted admits no place for NUMA nodes cpu: nowhere",
        ),
        (
            TopologyScope::Pod,
            "under pod-scope topology manager",
            "restricted admits no place for NUMA nodes cpu: nowhere",
        ),
    ] {
        let nowhere = provider(&[("cpu", &[])]);
        let (manager, _) = asking(TopologyPolicy::Restricted, scope, nowhere);
        let refused = manager.admit(&pod, &nobody());
        let hints = hints.to_owned();
        let expected = AssignmentError::PodLevelTopologyAffinity { what, hints };
        assert_eq!(refused, Err(expected));
    }
}

#[test]
fn what_several_providers_assign_is_joined() {
    let devices = |ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        BTreeMap::from([("vendor.com/nic".to_owned(), ids)])
    };
    let block = MemoryBlock {
        resource: "memory".to_owned(),
        nodes: mask(&[0]),
        bytes: 1 << 30,
    };
    let one = AssignedResources {
        cpus: [1].into(),
        memory: vec![block.clone()],
        devices: devices(&["a"]),
    };
    let other = AssignedResources {
        cpus: [2].into(),
        memory: vec![],
        devices: devices(&["b"]),
    };
    let mut joined = Assignment::default();
    joined.assign("idle", AssignedResources::default());
    assert!(joined.is_empty());
    joined.assign("app", one);
    let mut more = Assignment::default();
    more.assign("app", other.clone());
    more.pod = other;
    joined.extend(more);
    let expected = AssignedResources {
        cpus: [1, 2].into(),
        memory: vec![block],
        devices: devices(&["a", "b"]),
    };
    assert_eq!(joined.containers["app"], expected);
    assert_eq!(joined.pod.devices, devices(&["b"]));
}
