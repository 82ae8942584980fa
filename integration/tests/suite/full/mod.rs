//! Everything that a pod can say about its containers, proved on a real agent: where it makes sense on both
//! runtimes, and what only a kernel can show on containerd.

use std::fs;

use integration::wait_until;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use serde_json::{Value, json};

use super::node_rig::*;

mod admission;
mod containers;
mod environment;
mod hooks;
mod logs;
mod probes;
mod resources;
mod sandbox;
mod security;

/// Serves until SIGTERM, after it has printed its output.
const SERVE_ON: &str = "trap 'exit 0' TERM; while true; do sleep 0.2; done";

/// A pod of this name and spec. Its grace period is a second, unless its spec sets another.
fn pod(name: &str, spec: Value) -> Value {
    let least = json!({ "terminationGracePeriodSeconds": 1 });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": with(least, spec) })
}

/// A busybox container that runs a script.
fn container_of(name: &str, script: &str) -> Value {
    json!({ "name": name, "image": "localhost/oxlet/busybox:1", "command": ["sh", "-c", script] })
}

/// The first object with the fields of the second.
fn with(mut object: Value, more: Value) -> Value {
    let (Some(fields), Value::Object(more)) = (object.as_object_mut(), more) else {
        panic!("two objects");
    };
    fields.extend(more);
    object
}

fn exec(words: &[&str]) -> Value {
    json!({ "exec": { "command": words } })
}

fn ended(pod: &Pod, name: &str) -> Option<ContainerStateTerminated> {
    container(pod, name)?.state.as_ref()?.terminated.clone()
}

/// How the instance before this one ended.
fn ended_before(pod: &Pod, name: &str) -> Option<ContainerStateTerminated> {
    container(pod, name)?
        .last_state
        .as_ref()?
        .terminated
        .clone()
}

fn restarts(pod: &Pod, name: &str) -> i32 {
    container(pod, name).map_or(0, |container| container.restart_count)
}

fn container_is_ready(pod: &Pod, name: &str) -> bool {
    container(pod, name).is_some_and(|container| container.ready)
}

impl NodeRig {
    fn drop_pod(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let text = pod.to_string();
        self.node
            .drop_manifest(&format!("{name}.json"), &text)
            .unwrap();
    }

    fn remove_pod(&self, name: &str) {
        self.node.remove_manifest(&format!("{name}.json")).unwrap();
    }

    /// What a container has written, as far as that is in the log, without time and stream.
    fn said(&self, pod: &Pod, name: &str) -> Vec<String> {
        let log = self.logs_of(pod).join(name).join("0.log");
        let text = fs::read_to_string(log).unwrap_or_default();
        let words = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        text.lines().map(words).collect()
    }

    /// Waits until a container has written the line `done`; returns everything before it.
    async fn until_done(&self, pod: &Pod, name: &str) -> Vec<String> {
        let mut said = Vec::new();
        let waited = wait_until(
            CONVERGENCE_TIMEOUT,
            "the container has said all",
            async || {
                said = self.said(pod, name);
                said.last().is_some_and(|line| line == "done")
            },
        );
        let waited = waited.await;
        assert!(waited.is_ok(), "{waited:?}: {name} said {said:#?}");
        said.pop();
        said
    }

    /// Runs a command in a pod's container.
    async fn exec(&self, pod: &Pod, name: &str, command: &[&str]) -> String {
        let id = id_of(container(pod, name).unwrap());
        self.cri().await.exec(&id, command).await.unwrap()
    }
}
