//! What pods have of claims, by upstream's cases.

mod caching;
mod checkpoints;
mod containers;
mod drivers;
mod eligibility;
mod health;
mod locks;
mod preparing;
mod references;
mod statuses;
mod unpreparing;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use logic_api::types::PodUid;
use serde_json::{Value, json};

use super::*;

const GATES: ClaimGates = ClaimGates {
    extended_resources: true,
    pod_groups: false,
    health_messages: true,
};

const GROUPS: ClaimGates = ClaimGates {
    pod_groups: true,
    ..GATES
};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A pod of the namespace `ns` whose one container `app` uses these claims, each an object of the same name.
fn pod_of(name: &str, claims: &[&str]) -> Pod {
    let named: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "resourceClaimName": claim}))
        .collect();
    let used: Vec<Value> = claims.iter().map(|claim| json!({"name": claim})).collect();
    read(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-uid")},
        "spec": {
            "resourceClaims": named,
            "containers": [{"name": "app", "resources": {"claims": used}}],
        },
    }))
}

/// A pod whose container `app` has an extended resource by the claim `claim`.
fn extended_pod() -> Pod {
    read(json!({
        "metadata": {"namespace": "ns", "name": "web", "uid": "web-uid"},
        "spec": {"containers": [
            {"name": "app", "resources": {"requests": {"example.com/gpu": "1"}}},
            {"name": "side"},
        ]},
        "status": {"extendedResourceClaimStatus": {
            "resourceClaimName": "claim",
            "requestMappings": [
                {"containerName": "app", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"},
            ],
        }},
    }))
}

/// A claim with devices of these drivers, reserved for these pods.
fn claim_of(name: &str, drivers: &[&str], pods: &[&str]) -> ResourceClaim {
    let results: Vec<Value> = drivers
        .iter()
        .map(|driver| json!({"request": "gpu", "pool": "pool", "device": "dev", "driver": driver}))
        .collect();
    let reserved: Vec<Value> = pods
        .iter()
        .map(|pod| json!({"resource": "pods", "name": pod, "uid": format!("{pod}-uid")}))
        .collect();
    read(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-uid")},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }))
}

fn device(name: &str, requests: &[&str], cdi_ids: &[&str]) -> ClaimDevice {
    let list = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    ClaimDevice {
        pool: "pool".to_owned(),
        device: name.to_owned(),
        share: None,
        requests: list(requests),
        cdi_ids: list(cdi_ids),
    }
}

/// A prepared claim of the namespace `ns`.
fn entry(name: &str, pods: &[&str], drivers: &[(&str, &[ClaimDevice])]) -> ClaimEntry {
    ClaimEntry {
        uid: format!("{name}-uid").into(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        pods: pods.iter().map(|pod| pod_uid(pod)).collect(),
        drivers: drivers
            .iter()
            .map(|(driver, devices)| ((*driver).into(), devices.to_vec()))
            .collect(),
        preparation: Preparation::Prepared,
    }
}

fn pod_uid(pod: &str) -> PodUid {
    format!("{pod}-uid").into()
}

fn key(name: &str) -> ClaimKey {
    ClaimKey::new("ns", name)
}

/// Drivers that are registered and connected.
fn registered(drivers: &[&str]) -> DriverRegistry {
    let mut registry = DriverRegistry::default();
    for driver in drivers {
        let socket = std::path::Path::new("/dra.sock");
        let driver = DriverName::from(*driver);
        registry.add(&driver, socket, NodeService::V1).unwrap();
        registry.set_connection(&driver, socket, Connection::Connected);
    }
    registry
}

/// Calls in words: `driver: claim claim`.
fn calls(calls: &BTreeMap<DriverName, Vec<ClaimIdentity>>) -> Vec<String> {
    let line = |(driver, claims): (&DriverName, &Vec<ClaimIdentity>)| {
        let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        format!("{driver}: {}", names.join(" "))
    };
    calls.iter().map(line).collect()
}
