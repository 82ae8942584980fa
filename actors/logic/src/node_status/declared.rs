//! Which features the node declares, so that pods that need one come here.
//!
//! Upstream: component-helpers nodedeclaredfeatures, kubelet_node_declared_features.go (1.36).

/// Features that are declared when their gate is on.
const BY_GATE: [&str; 3] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "RestartAllContainersOnContainerExits",
];
const EXCLUSIVE_CPUS: &str = "InPlacePodVerticalScalingExclusiveCPUs";

/// The features by their names, in order; `enabled` tells of feature gates, `cpu_policy` is the CPU manager's.
pub fn declared_features(enabled: impl Fn(&str) -> bool, cpu_policy: &str) -> Vec<String> {
    if !enabled("NodeDeclaredFeatures") {
        return Vec::new();
    }
    let mut features: Vec<String> = BY_GATE
        .into_iter()
        .filter(|gate| enabled(gate))
        .map(str::to_owned)
        .collect();
    // Without a static policy there are no exclusive CPUs that a resize could touch.
    if cpu_policy != "static" || enabled(EXCLUSIVE_CPUS) {
        features.push("GuaranteedQoSPodCPUResize".to_owned());
    }
    features.sort();
    features
}
