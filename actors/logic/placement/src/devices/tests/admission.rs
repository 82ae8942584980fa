//! Devices through the topology manager: questions to plugins, claims in their place, pods as a whole.

use k8s_openapi::api::core::v1::{
    ContainerExtendedResourceRequest, PodExtendedResourceClaimStatus, PodStatus,
};

use super::*;
use crate::topology::TopologyManager;
use crate::topology::testing::counted;

fn manager(dra: DraResources) -> TopologyManager {
    let mut manager = TopologyManager::default();
    manager.add_hint_provider(Box::new(DeviceProvider::new(mask(&[0, 1]), dra)));
    manager
}

/// Asks until it is decided; each plugin prefers the last of its devices. With the questions of each round.
fn decide(pod: &Pod, inventory: &DeviceInventory) -> (Assignment, Vec<Vec<PreferenceQuestion>>) {
    let (manager, mut preferences) = (manager(DraResources::Off), DevicePreferences::default());
    let mut rounds = Vec::new();
    loop {
        let held = HeldAssignments::new();
        match manager
            .admit_with_devices(pod, &held, inventory, &preferences)
            .outcome
        {
            Err(AssignmentError::Undecided(questions)) => {
                for question in &questions {
                    let available = question.available.iter().rev();
                    let last = available.take(question.size).cloned().collect();
                    preferences.insert(question.clone(), Ok(last));
                }
                rounds.push(questions);
            }
            decided => return (decided.unwrap(), rounds),
        }
    }
}

#[test]
fn plugins_are_asked_container_by_container_with_what_those_before_have_got() {
    let both = [(RESOURCE, "1"), (OTHER_RESOURCE, "1")];
    let web = asks(
        asks(pod("web"), "first", &both),
        "second",
        &[(RESOURCE, "2")],
    );
    let four: Listed<'_> = &[("dev1", &[]), ("dev2", &[]), ("dev3", &[]), ("dev4", &[])];
    let mut there = asking(four);
    let options = there.options(RESOURCE).unwrap();
    there.registered(OTHER_RESOURCE, options);
    there.listed(OTHER_RESOURCE, healthy(four)).unwrap();
    let (assigned, rounds) = decide(&web, &there);
    let of = |name: &str, resource: &str| assigned.containers[name].devices[resource].clone();
    assert_eq!(of("first", RESOURCE), ids(&["dev4"]));
    assert_eq!(of("first", OTHER_RESOURCE), ids(&["dev4"]));
    assert_eq!(of("second", RESOURCE), ids(&["dev2", "dev3"]));
    let counts: Vec<usize> = rounds.iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 1]);
    assert_eq!(rounds[1][0].available, ids(&["dev1", "dev2", "dev3"]));
    let undecided = AssignmentError::Undecided(rounds[1].clone());
    assert_eq!(undecided.reason(), "UnexpectedAdmissionError");
}

#[test]
fn a_node_without_devices_admits_as_ever() {
    let web = asks(pod("web"), "app", &[(RESOURCE, "1")]);
    let admitted = manager(DraResources::Off).admit(&web, &HeldAssignments::new());
    assert_eq!(admitted, Ok(Assignment::default()));
}

#[test]
fn a_pod_with_pod_level_resources_gets_its_devices_container_by_container() {
    let web = init_asks(pod("web"), "setup", &[(RESOURCE, "2")]);
    let web = asks(
        asks(web, "first", &[(RESOURCE, "1")]),
        "second",
        &[(RESOURCE, "1")],
    );
    let rig = Rig::new(
        web,
        inventory(&[(RESOURCE, &[("dev1", &[]), ("dev2", &[])])]),
    );
    let hint = TopologyHint::default();
    let assigned = rig.provider.assign_pod(&rig.request(), hint).unwrap();
    let of = |name: &str| assigned.containers[name].devices[RESOURCE].clone();
    assert_eq!(of("setup"), ids(&["dev1", "dev2"]));
    assert_eq!(
        (of("first"), of("second")),
        (ids(&["dev1"]), ids(&["dev2"]))
    );
    assert!(assigned.pod.is_empty());
}

/// Upstream's TestAdmitPodWithDRAResources. The resource is a plugin's only because a pod has had devices of it.
#[test]
fn an_extended_resource_that_a_claim_stands_for_needs_no_device() {
    let mut web = asks(pod("web"), "app", &[(RESOURCE, "1")]);
    web.status = Some(PodStatus {
        extended_resource_claim_status: Some(PodExtendedResourceClaimStatus {
            request_mappings: vec![ContainerExtendedResourceRequest {
                container_name: "app".to_owned(),
                resource_name: RESOURCE.to_owned(),
                ..ContainerExtendedResourceRequest::default()
            }],
            ..PodExtendedResourceClaimStatus::default()
        }),
        ..PodStatus::default()
    });
    let held = held(&[("other", "app", RESOURCE, &["Dev"])]);
    let unregistered = "cannot allocate unregistered device domain1.com/resource1".to_owned();
    for (dra, admitted) in [
        (DraResources::On, Ok(Assignment::default())),
        (
            DraResources::Off,
            Err(AssignmentError::Unexpected(unregistered)),
        ),
    ] {
        assert_eq!(manager(dra).admit(&web, &held), admitted, "{dra:?}");
    }
    web.status = None;
    assert!(manager(DraResources::On).admit(&web, &held).is_err());
}

/// Upstream's order of providers, and its `Allocate`.
#[test]
fn a_container_without_its_devices_is_not_counted_by_the_cpu_manager() {
    const ONE: Listed<'_> = &[("dev1", &[])];
    let topology = crate::testing::static_cpus(4).topology;
    let counts = |devices: &str, there: &DeviceInventory| {
        let amounts = [("cpu", "2"), ("memory", "1Gi"), (RESOURCE, devices)];
        let web = pod("web").app_with("c", |container| {
            limits(container, &amounts);
            let own = container.resources.as_mut().unwrap();
            own.requests.clone_from(&own.limits);
        });
        let (held, answers) = (HeldAssignments::new(), &DevicePreferences::NONE);
        let decided = topology.admit_with_devices(&web, &held, there, answers);
        counted(&decided.counts)
    };
    let there = inventory(&[(RESOURCE, ONE)]);
    assert_eq!(
        counts("1", &there),
        "1 admission, 1 cpu request, 1 container uncore_cache alignment"
    );
    assert_eq!(counts("2", &there), "1 admission");
    assert_eq!(counts("1", &asking(ONE)), "", "it is asked for again");
}
