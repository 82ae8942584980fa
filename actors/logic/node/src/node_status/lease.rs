//! The node's heartbeat.
//!
//! Upstream: component-helpers apimachinery/lease/controller.go, `SetNodeOwnerFunc` of pkg/kubelet/util/nodelease
//! (1.36).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

pub const NAMESPACE: &str = "kube-node-lease";
/// Attempts in a row before the next beat.
pub const ATTEMPTS: u32 = 5;

/// The node's `Lease`: its holder and duration.
#[derive(Clone, Debug)]
pub struct LeaseHolder {
    pub name: String,
    /// The lease's duration in seconds: `nodeLeaseDurationSeconds`.
    pub seconds: u32,
}

impl LeaseHolder {
    /// Between two renewals: a quarter of the lease, and up to 4 % more; `chance` is from 0 to 1.
    pub fn interval(&self, chance: f64) -> Duration {
        let quarter = Duration::from_millis(u64::from(self.seconds) * 250);
        quarter.mul_f64(1.0 + 0.04 * chance.clamp(0.0, 1.0))
    }

    /// The lease renewed, or a new one; `owner` is the node's UID.
    pub fn lease(&self, base: Option<&Lease>, owner: Option<&str>, now: Timestamp) -> Lease {
        let mut lease = base.cloned().unwrap_or_else(|| self.first());
        let spec = lease.spec.get_or_insert_default();
        spec.lease_duration_seconds = Some(i32::try_from(self.seconds).unwrap_or(i32::MAX));
        spec.renew_time = Some(MicroTime(now));
        let owners = lease.metadata.owner_references.get_or_insert_default();
        if let (Some(uid), true) = (owner, owners.is_empty()) {
            owners.push(self.owner(uid));
        }
        lease
    }

    fn first(&self) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                ..LeaseSpec::default()
            }),
        }
    }

    fn owner(&self, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }
}

/// After so many failures in a row to find or make the lease: doubled from 200 ms, at most 7 s.
pub fn pause(failures: u32) -> Duration {
    let most = Duration::from_secs(7);
    let doubled = Duration::from_millis(100).checked_mul(1 << failures.clamp(1, 16));
    doubled.unwrap_or(most).min(most)
}
