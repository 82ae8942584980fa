//! Between the wire and the claims' own types. The two versions differ in the share of a device alone.

use std::collections::{BTreeMap, HashMap};

use logic_placement::claims::health::{DeviceHealth, DeviceKey, Health};
use logic_placement::claims::{ClaimAnswer, ClaimDevice, ClaimIdentity, ClaimUid, DriverAnswer};
use proto::{dra, dra_health, dra_v1beta1};

pub(super) fn prepare_request(claims: &[ClaimIdentity]) -> dra::NodePrepareResourcesRequest {
    dra::NodePrepareResourcesRequest {
        claims: claims.iter().map(claim).collect(),
    }
}

pub(super) fn unprepare_request(claims: &[ClaimIdentity]) -> dra::NodeUnprepareResourcesRequest {
    dra::NodeUnprepareResourcesRequest {
        claims: claims.iter().map(claim).collect(),
    }
}

pub(super) fn older_prepare_request(
    claims: &[ClaimIdentity],
) -> dra_v1beta1::NodePrepareResourcesRequest {
    dra_v1beta1::NodePrepareResourcesRequest {
        claims: claims.iter().map(older_claim).collect(),
    }
}

pub(super) fn older_unprepare_request(
    claims: &[ClaimIdentity],
) -> dra_v1beta1::NodeUnprepareResourcesRequest {
    dra_v1beta1::NodeUnprepareResourcesRequest {
        claims: claims.iter().map(older_claim).collect(),
    }
}

pub(super) fn prepare_answer(
    answer: dra::NodePrepareResourcesResponse,
) -> DriverAnswer<Vec<ClaimDevice>> {
    by_claim(answer.claims, |prepared| {
        let devices = prepared.devices.into_iter().map(|device| ClaimDevice {
            pool: device.pool_name,
            device: device.device_name,
            share: device.share_id,
            requests: device.request_names,
            cdi_ids: device.cdi_device_ids,
        });
        said(devices.collect(), prepared.error)
    })
}

pub(super) fn older_prepare_answer(
    answer: dra_v1beta1::NodePrepareResourcesResponse,
) -> DriverAnswer<Vec<ClaimDevice>> {
    by_claim(answer.claims, |prepared| {
        let devices = prepared.devices.into_iter().map(|device| ClaimDevice {
            pool: device.pool_name,
            device: device.device_name,
            share: None,
            requests: device.request_names,
            cdi_ids: device.cdi_device_ids,
        });
        said(devices.collect(), prepared.error)
    })
}

pub(super) fn unprepare_answer(answer: dra::NodeUnprepareResourcesResponse) -> DriverAnswer<()> {
    by_claim(answer.claims, |undone| said((), undone.error))
}

pub(super) fn older_unprepare_answer(
    answer: dra_v1beta1::NodeUnprepareResourcesResponse,
) -> DriverAnswer<()> {
    by_claim(answer.claims, |undone| said((), undone.error))
}

/// The last report of a device counts.
pub(super) fn health_report(
    report: dra_health::NodeWatchResourcesResponse,
) -> BTreeMap<DeviceKey, DeviceHealth> {
    let devices = report.devices.into_iter().map(|device| {
        let health = health(device.health);
        let known =
            DeviceHealth::reported(health, device.health_check_timeout_seconds, &device.message);
        let id = device.device.unwrap_or_default();
        ((id.pool_name, id.device_name), known)
    });
    devices.collect()
}

/// Numbers that are not known mean that the health is not.
pub(super) fn health(number: i32) -> Health {
    match dra_health::HealthStatus::try_from(number) {
        Ok(dra_health::HealthStatus::Healthy) => Health::Healthy,
        Ok(dra_health::HealthStatus::Unhealthy) => Health::Unhealthy,
        Ok(dra_health::HealthStatus::Unknown) | Err(_) => Health::Unknown,
    }
}

fn claim(identity: &ClaimIdentity) -> dra::Claim {
    dra::Claim {
        namespace: identity.namespace.clone(),
        uid: identity.uid.to_string(),
        name: identity.name.clone(),
    }
}

fn older_claim(identity: &ClaimIdentity) -> dra_v1beta1::Claim {
    dra_v1beta1::Claim {
        namespace: identity.namespace.clone(),
        uid: identity.uid.to_string(),
        name: identity.name.clone(),
    }
}

fn by_claim<W, T>(
    claims: HashMap<String, W>,
    read: impl Fn(W) -> ClaimAnswer<T>,
) -> BTreeMap<ClaimUid, ClaimAnswer<T>> {
    let claims = claims.into_iter();
    claims
        .map(|(uid, answer)| (uid.into(), read(answer)))
        .collect()
}

fn said<T>(answer: T, error: String) -> ClaimAnswer<T> {
    match error.is_empty() {
        true => Ok(answer),
        false => Err(error),
    }
}
