//! What containers' statuses show of their devices' health.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, ResourceStatus};
use logic_api::testing::at;

use super::super::health::{DeviceHealth, Health, HealthCache, show_health};
use super::*;

/// Every device of these claims, in that health.
fn all(claims: &ClaimCache, health: Health, message: &str) -> HealthCache {
    let mut cache = HealthCache::default();
    for entry in claims.entries() {
        for (driver, devices) in &entry.drivers {
            let devices = devices.iter().map(|device| {
                let key = (device.pool.clone(), device.device.clone());
                (key, DeviceHealth::reported(health, 0, message))
            });
            cache.update(at(0), driver, devices.collect());
        }
    }
    cache
}

/// What a pod's first container shows then: by entry, the devices with health and words.
fn shown(
    pod: &Pod,
    before: Value,
    claims: &ClaimCache,
    health: &HealthCache,
    gates: ClaimGates,
) -> Value {
    let mut status: ContainerStatus =
        read(json!({"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0}));
    status.allocated_resources_status = read(before);
    let mut statuses = [status];
    show_health(&mut statuses, pod, (claims, health), at(0), gates);
    let [status] = statuses;
    let entries: Vec<ResourceStatus> = status.allocated_resources_status.unwrap_or_default();
    serde_json::to_value(entries).unwrap()
}

fn pod_with(spec_claim: Value, statuses: Value, used: Value) -> Pod {
    read(json!({
        "metadata": {"namespace": "ns", "name": "web", "uid": "web-uid"},
        "spec": {
            "resourceClaims": [spec_claim],
            "containers": [{"name": "app", "resources": {"claims": [used]}}],
        },
        "status": {"resourceClaimStatuses": statuses},
    }))
}

#[test]
fn a_container_shows_its_claims_however_they_got_their_names() {
    let shared = ClaimDevice {
        share: Some("share".to_owned()),
        ..device("dev", &[], &[])
    };
    let plain = device("dev", &[], &[]);
    let named = json!({"name": "local", "resourceClaimName": "object"});
    let made = json!({"name": "local", "resourceClaimTemplateName": "template"});
    let status = json!([{"name": "local", "resourceClaimName": "object"}]);
    let cases = [
        (
            "direct",
            json!({"name": "object", "resourceClaimName": "object"}),
            json!([]),
            plain.clone(),
            "object",
        ),
        (
            "renamed",
            named.clone(),
            status.clone(),
            plain.clone(),
            "local",
        ),
        (
            "renamed, not in the status yet",
            named,
            json!([]),
            plain.clone(),
            "local",
        ),
        ("of a template", made, status.clone(), plain, "local"),
        (
            "shared",
            json!({"name": "local", "resourceClaimName": "object"}),
            status,
            shared,
            "local",
        ),
    ];
    for (case, claim, statuses, device, name) in cases {
        let pod = pod_with(claim, statuses, json!({"name": name}));
        let claims = ClaimCache::from_iter([entry("object", &["web"], &[("driver", &[device])])]);
        let health = all(&claims, Health::Healthy, "Device is operating normally");
        let expected = json!([{
            "name": format!("claim:{name}"),
            "resources": [{"resourceID": "driver/pool/dev", "health": "Healthy", "message": "Device is operating normally"}],
        }]);
        assert_eq!(
            shown(&pod, json!(null), &claims, &health, GATES),
            expected,
            "{case}"
        );
    }
}

#[test]
fn a_request_shows_its_own_devices() {
    let pod = |request: &str| {
        let claim = json!({"name": "claim", "resourceClaimName": "claim"});
        pod_with(
            claim,
            json!([]),
            json!({"name": "claim", "request": request}),
        )
    };
    let claims = ClaimCache::from_iter([entry(
        "claim",
        &["web"],
        &[("driver", &[device("dev", &["req-base"], &[])])],
    )]);
    let health = all(&claims, Health::Healthy, "");
    let one = |name: &str| json!([{"name": name, "resources": [{"resourceID": "driver/pool/dev", "health": "Healthy"}]}]);
    let cases = [
        ("req-base/sub", one("claim:claim/req-base/sub")),
        ("req-other/sub", json!([])),
        ("req-base", one("claim:claim/req-base")),
        ("", one("claim:claim")),
    ];
    for (request, expected) in cases {
        assert_eq!(
            shown(&pod(request), json!(null), &claims, &health, GATES),
            expected,
            "{request}"
        );
    }
}

#[test]
fn a_device_shows_its_health_and_words_under_its_first_name() {
    let pod = pod_of("web", &["claim"]);
    let named = device("dev", &[], &["vendor.com/gpu=0", "vendor.com/gpu=all"]);
    let bare = device("dev", &[], &[]);
    let silent = ClaimGates {
        health_messages: false,
        ..GATES
    };
    let cases = [
        (
            &named,
            Health::Healthy,
            "device ok",
            GATES,
            json!({"resourceID": "vendor.com/gpu=0", "health": "Healthy", "message": "device ok"}),
        ),
        (
            &named,
            Health::Healthy,
            "device ok",
            silent,
            json!({"resourceID": "vendor.com/gpu=0", "health": "Healthy"}),
        ),
        (
            &named,
            Health::Healthy,
            "",
            GATES,
            json!({"resourceID": "vendor.com/gpu=0", "health": "Healthy"}),
        ),
        (
            &named,
            Health::Unhealthy,
            "hot",
            GATES,
            json!({"resourceID": "vendor.com/gpu=0", "health": "Unhealthy", "message": "hot"}),
        ),
        (
            &named,
            Health::Unknown,
            "lost",
            GATES,
            json!({"resourceID": "vendor.com/gpu=0", "health": "Unknown", "message": "lost"}),
        ),
        (
            &bare,
            Health::Unhealthy,
            "hot",
            GATES,
            json!({"resourceID": "driver/pool/dev", "health": "Unhealthy", "message": "hot"}),
        ),
    ];
    for (device, health, message, gates, expected) in cases {
        let claims = ClaimCache::from_iter([entry(
            "claim",
            &["web"],
            &[("driver", std::slice::from_ref(device))],
        )]);
        let health = all(&claims, health, message);
        let entries = shown(&pod, json!(null), &claims, &health, gates);
        assert_eq!(
            entries,
            json!([{"name": "claim:claim", "resources": [expected]}])
        );
    }
}

#[test]
fn entries_of_others_stay_and_those_of_claims_are_replaced() {
    let pod = pod_of("web", &["claim", "unknown"]);
    let twice = [
        device("a", &[], &["vendor.com/gpu=0"]),
        device("b", &[], &["vendor.com/gpu=0"]),
    ];
    let claims = ClaimCache::from_iter([entry("claim", &["web"], &[("driver", &twice)])]);
    let before = json!([
        {"name": "example.com/dongle", "resources": [{"resourceID": "dongle-1", "health": "Healthy"}]},
        {"name": "example.com/nothing", "resources": []},
        {"name": "claim:claim", "resources": [{"resourceID": "old", "health": "Healthy"}]},
    ]);
    let expected = json!([
        {"name": "claim:claim", "resources": [{"resourceID": "vendor.com/gpu=0", "health": "Unknown"}]},
        {"name": "example.com/dongle", "resources": [{"resourceID": "dongle-1", "health": "Healthy"}]},
    ]);
    let silence = HealthCache::default();
    assert_eq!(
        shown(&pod, before.clone(), &claims, &silence, GATES),
        expected
    );
    // Without claims of its own a container's status is left as it is.
    let idle = pod_of("web", &[]);
    assert_eq!(
        shown(&idle, before.clone(), &claims, &silence, GATES),
        before
    );
}

#[test]
fn a_stale_report_shows_as_unknown() {
    let pod = pod_of("web", &["claim"]);
    let claims = ClaimCache::from_iter([entry(
        "claim",
        &["web"],
        &[("driver", &[device("dev", &[], &[])])],
    )]);
    let mut health = HealthCache::default();
    let said = DeviceHealth::reported(Health::Healthy, 5, "fine");
    let key = ("pool".to_owned(), "dev".to_owned());
    let before = at(0) - Duration::from_secs(6);
    health.update(before, &"driver".into(), BTreeMap::from([(key, said)]));
    let entries = shown(&pod, json!(null), &claims, &health, GATES);
    let expected = json!([{"resourceID": "driver/pool/dev", "health": "Unknown"}]);
    assert_eq!(entries[0]["resources"], expected);
}
