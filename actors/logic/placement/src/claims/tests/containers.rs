//! What a container gets of its pod's claims.

use super::*;

fn app(pod: &Pod) -> &k8s_openapi::api::core::v1::Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

fn devices_of(cache: &ClaimCache, pod: &Pod) -> Result<Vec<String>, String> {
    container_devices(cache, pod, app(pod), GATES).map_err(|error| error.to_string())
}

fn ids(names: &[&str]) -> Result<Vec<String>, String> {
    Ok(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_container_gets_the_devices_of_its_claims_and_requests_each_once() {
    let cache = ClaimCache::from_iter([
        entry(
            "claim",
            &[],
            &[
                (
                    "a",
                    &[
                        device("0", &["gpu", "both"], &["v/gpu=0"]),
                        device("1", &["nic"], &["v/nic=1", "v/nic=2"]),
                    ],
                ),
                (
                    "b",
                    &[device("2", &[], &["v/all=3"]), device("3", &["none"], &[])],
                ),
            ],
        ),
        entry(
            "second",
            &[],
            &[(
                "a",
                &[
                    device("0", &["gpu"], &["v/gpu=0"]),
                    device("9", &[], &["v/gpu=9"]),
                ],
            )],
        ),
    ]);
    let using = |claims: Value| {
        let mut pod = pod_of("web", &["claim", "second"]);
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        container.resources = read(json!({"claims": claims}));
        devices_of(&cache, &pod)
    };
    let all = ["v/gpu=0", "v/nic=1", "v/nic=2", "v/all=3"];
    let cases = [
        (json!([]), ids(&[])),
        (json!([{"name": "claim"}]), ids(&all)),
        (json!([{"name": "claim", "request": ""}]), ids(&all)),
        (
            json!([{"name": "claim", "request": "nic"}]),
            ids(&["v/nic=1", "v/nic=2", "v/all=3"]),
        ),
        // Two requests that lead to one device.
        (
            json!([{"name": "claim", "request": "gpu"}, {"name": "claim", "request": "both"}]),
            ids(&["v/gpu=0", "v/all=3"]),
        ),
        // In the order of the pod's claims, not of the container's.
        (
            json!([{"name": "second"}, {"name": "claim", "request": "nic"}]),
            ids(&["v/nic=1", "v/nic=2", "v/all=3", "v/gpu=0", "v/gpu=9"]),
        ),
        (json!([{"name": "strange"}]), ids(&[])),
    ];
    for (claims, expected) in cases {
        assert_eq!(using(claims.clone()), expected, "{claims}");
    }
}

#[test]
fn a_container_gets_the_devices_of_its_extended_resources() {
    let device = device("0", &["container-0-request-0"], &["v/gpu=0"]);
    let cache = ClaimCache::from_iter([entry("claim", &[], &[("driver", &[device])])]);
    let pod = extended_pod();
    assert_eq!(devices_of(&cache, &pod), ids(&["v/gpu=0"]));
    let side = &pod.spec.as_ref().unwrap().containers[1];
    assert_eq!(container_devices(&cache, &pod, side, GATES), Ok(Vec::new()));
    let off = ClaimGates {
        extended_resources: false,
        ..GATES
    };
    assert_eq!(
        container_devices(&cache, &pod, app(&pod), off),
        Ok(Vec::new())
    );
    let asking = |resource: &str, amount: &str| {
        let mut pod = pod.clone();
        pod.spec.as_mut().unwrap().containers[0].resources =
            read(json!({"requests": {resource: amount}}));
        let status = pod.status.as_mut().unwrap();
        let claim = status.extended_resource_claim_status.as_mut().unwrap();
        claim.request_mappings[0].resource_name = resource.to_owned();
        devices_of(&cache, &pod)
    };
    let class = "deviceclass.resource.kubernetes.io/gpu";
    assert_eq!(asking(class, "1"), ids(&["v/gpu=0"]));
    for (resource, amount) in [
        ("example.com/gpu", "0"),
        ("cpu", "1"),
        ("requests.example.com/gpu", "1"),
    ] {
        assert_eq!(asking(resource, amount), ids(&[]), "{resource}: {amount}");
    }
}

#[test]
fn a_claim_that_is_not_known_is_no_device_but_an_error() {
    let none = ClaimCache::default();
    let expected =
        "internal error: unable to get claim info for ResourceClaim claim in namespace ns";
    assert_eq!(
        devices_of(&none, &pod_of("web", &["claim"])),
        Err(expected.to_owned())
    );
    assert_eq!(devices_of(&none, &extended_pod()), Err(expected.to_owned()));
    let mut pod = pod_of("web", &["claim"]);
    let spec = pod.spec.as_mut().unwrap();
    spec.resource_claims = read(json!([{"name": "claim", "resourceClaimTemplateName": "t"}]));
    let waiting = container_devices(&none, &pod, app(&pod), GATES).unwrap_err();
    assert_eq!(
        waiting.to_string(),
        "pod \"ns/web\": ResourceClaim not created yet"
    );
    assert!(waiting.transient());
    pod.status = read(json!({"resourceClaimStatuses": [{"name": "claim"}]}));
    assert_eq!(devices_of(&none, &pod), ids(&[]));
}

#[test]
fn the_pod_resources_api_shows_a_containers_claims() {
    let shared = ClaimDevice {
        share: Some("share".to_owned()),
        ..device("0", &["gpu"], &["v/gpu=0"])
    };
    let other = device("1", &[], &["v/gpu=1"]);
    let mut cache = ClaimCache::from_iter([entry(
        "claim",
        &["web"],
        &[("a", &[shared.clone(), other.clone()]), ("b", &[])],
    )]);
    let show = |cache: &ClaimCache, pod: &Pod| {
        dynamic_resources(cache, pod, app(pod), GATES).map_err(|error| error.to_string())
    };
    let claimed = |device: &ClaimDevice| ClaimedDevice {
        driver: "a".into(),
        device: device.clone(),
    };
    let expected = DynamicResource {
        claim: key("claim"),
        devices: vec![claimed(&shared), claimed(&other)],
    };
    assert_eq!(
        show(&cache, &pod_of("web", &["claim"])),
        Ok(vec![expected.clone()])
    );
    assert_eq!(show(&cache, &extended_pod()), Ok(vec![expected]));
    let pod = extended_pod();
    let side = &pod.spec.as_ref().unwrap().containers[1];
    assert_eq!(dynamic_resources(&cache, &pod, side, GATES), Ok(Vec::new()));
    let mut idle = pod_of("web", &["claim"]);
    idle.spec.as_mut().unwrap().containers[0].resources = None;
    assert_eq!(show(&cache, &idle), Ok(Vec::new()));
    cache.remove(&key("claim"));
    let unknown = "unable to get information for ResourceClaim claim";
    assert_eq!(
        show(&cache, &pod_of("web", &["claim"])),
        Err(unknown.to_owned())
    );
    let unknown = "unable to get claim info for claim claim in namespace ns";
    assert_eq!(show(&cache, &extended_pod()), Err(unknown.to_owned()));
    let mut bare = pod_of("web", &["claim"]);
    bare.spec.as_mut().unwrap().resource_claims = read(json!([{"name": "claim"}]));
    let unsupported =
        "pod \"ns/web\", spec.resourceClaim \"claim\": none of the supported fields are set";
    assert_eq!(show(&cache, &bare), Err(unsupported.to_owned()));
}
