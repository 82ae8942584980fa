//! The pods that are measured with.

use super::targets::ProbePorts;
use crate::images::BUSYBOX_IMAGE;

/// Containers of a pod with three probes: one container has but two that go on for ever.
pub(super) const PROBED_CONTAINERS: usize = 2;

/// A manifest of one pod with so many containers that run until they are stopped, and end when asked.
pub(super) fn manifest(name: &str, containers: usize) -> String {
    whole(name, "", &vec![String::new(); containers])
}

/// A manifest of one pod whose containers take so many milliseconds each to start, on runtime-fake.
pub(super) fn slow(name: &str, delays: &[u32]) -> String {
    let annotations: String = delays
        .iter()
        .enumerate()
        .map(|(nth, delay)| format!("    c{nth}.fake.oxlet.dev/start-delay: {delay}ms\n"))
        .collect();
    let containers = vec![String::new(); delays.len()];
    whole(name, &format!("  annotations:\n{annotations}"), &containers)
}

/// A manifest of one pod with three probes a second: a command, an HTTP request, a connection.
pub(super) fn probed(name: &str, ports: ProbePorts) -> String {
    let ProbePorts { http, tcp } = ports;
    let first = format!(
        "    livenessProbe: {{exec: {{command: ['true']}}, periodSeconds: 1}}\n    \
         readinessProbe: {{httpGet: {{host: 127.0.0.1, port: {http}}}, periodSeconds: 1}}\n"
    );
    let second = format!(
        "    livenessProbe: {{tcpSocket: {{host: 127.0.0.1, port: {tcp}}}, periodSeconds: 1}}\n"
    );
    let containers: [_; PROBED_CONTAINERS] = [first, second];
    whole(name, "", &containers)
}

/// A manifest of one pod with a configMap, a secret, an emptyDir and a projected token.
pub(super) fn with_volumes(name: &str) -> String {
    let names = ["config", "secret", "scratch", "token"];
    let mounts = names.map(|name| format!("{{name: {name}, mountPath: /{name}}}"));
    let container = format!("    volumeMounts: [{}]\n", mounts.join(", "));
    let volumes = "  volumes:\n  - {name: config, configMap: {name: config}}\n  \
        - {name: secret, secret: {secretName: secret}}\n  - {name: scratch, emptyDir: {}}\n  \
        - {name: token, projected: {sources: [{serviceAccountToken: {audience: bench, path: token}}]}}\n  \
        serviceAccountName: default\n";
    whole(name, "", &[container]) + volumes
}

/// A pod with these further lines in its metadata, and a container for each further lines of one.
fn whole(name: &str, metadata: &str, containers: &[String]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n{metadata}spec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n"
    );
    for (nth, more) in containers.iter().enumerate() {
        text.push_str(&format!(
            "  - name: c{nth}\n    image: {BUSYBOX_IMAGE}\n    imagePullPolicy: IfNotPresent\n    \
             command: [sh, -c, \"{SCRIPT}\"]\n{more}"
        ));
    }
    text
}

/// The containers' script: simulated or real, it sleeps, and ends at once on SIGTERM.
pub(super) const SCRIPT: &str = "trap 'exit 0' TERM; while true; do sleep 3600 & wait; done";
