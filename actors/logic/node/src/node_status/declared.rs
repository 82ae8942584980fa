//! Which features the node declares, so that pods that need one come here, and which a pod needs.
//!
//! Upstream: component-helpers nodedeclaredfeatures, kubelet_node_declared_features.go (1.36). Its features for what
//! this node does not do are not declared: the resize of init containers, user namespaces on the host's network.

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{self, PodView};

const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
const USERS_ON_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

const RESIZE_OF_POD: &str = "InPlacePodLevelResourcesVerticalScaling";
const RESIZE_OF_INIT: &str = "InPlacePodVerticalScalingInitContainers";

/// Features that are declared when their gate is on.
const BY_GATE: [&str; 3] = ["ExtendWebSocketsToKubelet", RESIZE_OF_POD, RESTART_ALL];

/// The features by their names, in order; `enabled` tells of feature gates.
pub fn declared_features(enabled: impl Fn(&str) -> bool) -> Vec<String> {
    if !enabled("NodeDeclaredFeatures") {
        return Vec::new();
    }
    BY_GATE
        .into_iter()
        .filter(|gate| enabled(gate))
        .map(str::to_owned)
        .collect()
}

/// The features that a pod needs from its creation on, in order; the others are needed by later changes of it.
pub fn needed_features(pod: &Pod) -> Vec<&'static str> {
    let restarts_all = pod.all_containers().any(|(_, container)| {
        let mut rules = container.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    let has_users = pod
        .spec()
        .is_some_and(|spec| spec.host_users == Some(false));
    let needed = [
        (RESTART_ALL, restarts_all),
        (USERS_ON_HOST_NETWORK, pod.host_network() && has_users),
    ];
    let needed = needed.into_iter().filter(|(_, needed)| *needed);
    needed.map(|(name, _)| name).collect()
}

/// The features that a change of a running pod needs, in order.
pub fn features_of_change(old: &Pod, new: &Pod) -> Vec<&'static str> {
    let of_pod = |pod: &Pod| pod.spec().and_then(|spec| spec.resources.clone());
    let inits = |pod: &Pod| pod.spec().and_then(|spec| spec.init_containers.clone());
    let resized = |(old, new): (&Container, &Container)| {
        !pod::is_sidecar(old) && old.resources != new.resources
    };
    let (before, now) = (
        inits(old).unwrap_or_default(),
        inits(new).unwrap_or_default(),
    );
    let needed = [
        (RESIZE_OF_POD, of_pod(old) != of_pod(new)),
        (RESIZE_OF_INIT, before.iter().zip(&now).any(resized)),
    ];
    let needed = needed.into_iter().filter(|(_, needed)| *needed);
    needed.map(|(name, _)| name).collect()
}
