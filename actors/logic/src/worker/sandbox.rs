//! Whether a pod's sandbox can stay (upstream's `PodSandboxChanged`).

use k8s_openapi::api::core::v1::Pod;

use crate::pod::PodView;
use crate::types::{RuntimePod, Sandbox};

/// The answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    Keep(&'a Sandbox),
    Replace(Change<'a>),
}

/// Why a new sandbox is needed, and its attempt number.
#[derive(Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub attempt: u32,
    /// The sandbox to be replaced; none where the pod never had one.
    pub old: Option<&'a Sandbox>,
    pub reason: &'static str,
}

pub fn judge<'a>(pod: &Pod, runtime: &'a RuntimePod) -> Verdict<'a> {
    let Some(newest) = runtime.newest_sandbox() else {
        return Verdict::Replace(Change {
            attempt: 0,
            old: None,
            reason: "no pod sandbox exists",
        });
    };
    let ready = runtime.sandboxes.iter().filter(|s| s.is_ready()).count();
    let no_address = newest.ips.iter().all(String::is_empty);
    let reason = if ready > 1 {
        "multiple pod sandboxes are ready"
    } else if !newest.is_ready() {
        "pod sandbox is not ready"
    } else if newest.host_network != pod.host_network() {
        "pod sandbox has a different network namespace mode"
    } else if !pod.host_network() && no_address {
        "pod sandbox has no IP address"
    } else {
        return Verdict::Keep(newest);
    };
    Verdict::Replace(Change {
        attempt: newest.attempt.saturating_add(1),
        old: Some(newest),
        reason,
    })
}
