//! Which features the node declares, so that pods that need one come here.
//!
//! Upstream: component-helpers nodedeclaredfeatures, kubelet_node_declared_features.go (1.36). Its features for what this
//! node does not do are not declared: the resize of init containers, user namespaces on the host's network.

/// Features that are declared when their gate is on.
const BY_GATE: [&str; 3] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "RestartAllContainersOnContainerExits",
];

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
