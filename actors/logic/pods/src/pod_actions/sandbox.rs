//! Whether a pod's sandbox can stay (upstream's `PodSandboxChanged`).

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::{RuntimePod, RuntimeSandbox};

/// Whether the pod's sandbox is kept.
#[derive(Debug, PartialEq, Eq)]
pub enum SandboxDecision<'a> {
    Keep(&'a RuntimeSandbox),
    Replace(SandboxReplacement<'a>),
}

/// Why a new sandbox is needed, and its attempt number.
#[derive(Debug, PartialEq, Eq)]
pub struct SandboxReplacement<'a> {
    /// Of the sandbox that is to be made.
    pub attempt: u32,
    /// The sandbox to be replaced; none where the pod never had one.
    pub old: Option<&'a RuntimeSandbox>,
    /// For the log.
    pub reason: &'static str,
}

pub fn sandbox_decision<'a>(pod: &Pod, runtime: &'a RuntimePod) -> SandboxDecision<'a> {
    let Some(newest) = runtime.newest_sandbox() else {
        return SandboxDecision::Replace(SandboxReplacement {
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
        return SandboxDecision::Keep(newest);
    };
    SandboxDecision::Replace(SandboxReplacement {
        attempt: newest.attempt.saturating_add(1),
        old: Some(newest),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;
    use logic_api::types::SandboxState::{NotReady, Ready};

    use super::*;

    /// Upstream's TestPodSandboxChanged.
    #[test]
    fn a_sandbox_stays_while_it_is_the_only_ready_one_and_fits_its_pod() {
        let on_node = || pod("p").spec_with(|spec| spec.host_network = Some(true));
        let without_address = || RuntimeSandbox {
            ips: vec![String::new()],
            ..sandbox(0, Ready)
        };
        let both = |state| vec![sandbox(1, state), sandbox(0, state)];
        let cases = [
            (pod("p"), vec![], Some((0, None))),
            (pod("p"), both(Ready), Some((2, Some("s1")))),
            (pod("p"), both(NotReady), Some((2, Some("s1")))),
            (on_node(), vec![sandbox(0, Ready)], Some((1, Some("s0")))),
            (pod("p"), vec![without_address()], Some((1, Some("s0")))),
            (pod("p"), vec![sandbox(0, Ready)], None),
        ];
        for (pod, sandboxes, expected) in cases {
            let runtime = RuntimePod {
                sandboxes,
                ..RuntimePod::default()
            };
            let found = match sandbox_decision(&pod, &runtime) {
                SandboxDecision::Keep(kept) => {
                    assert_eq!(kept.id.as_str(), "s0");
                    None
                }
                SandboxDecision::Replace(change) => {
                    Some((change.attempt, change.old.map(|old| old.id.as_str())))
                }
            };
            assert_eq!(found, expected, "{runtime:?}");
        }
    }
}
