//! Every kind of volume that lies on the node itself, in real containers on either real runtime.

use std::fs;
use std::path::{Path, PathBuf};

use integration::agent::Builder;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::suite::node_rig::*;

mod claims;
mod files;
mod folders;
mod mounts;
mod subpaths;
mod updates;

/// Serves until SIGTERM, after it has printed its output.
const SERVE_ON: &str = "trap 'exit 0' TERM; while true; do sleep 0.2; done";

/// Shell words for the looks at files: mode, owner and group, what is in it.
const LOOK: &str = "look() { for f; do echo \"$f $(stat -L -c '%a %u:%g' $f) $(cat $f)\"; done; }; \
                    at() { for f; do echo \"$f $(stat -L -c '%a %u:%g' $f)\"; done; };";

/// A pod of this name and spec. Its grace period is a second.
fn pod(name: &str, spec: &Value) -> Value {
    let mut least = json!({ "terminationGracePeriodSeconds": 1 });
    let fields = least.as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "side": "front" } }, "spec": least })
}

/// A busybox container that says something and then serves, with mounts of volumes: name and path.
fn container_of(name: &str, says: &str, mounts: &[(&str, &str)]) -> Value {
    let mounts = mounts.iter();
    let mounts: Vec<_> = mounts
        .map(|(name, path)| json!({ "name": name, "mountPath": path }))
        .collect();
    json!({
        "name": name, "image": "localhost/oxlet/busybox:1", "volumeMounts": mounts,
        // A script's standard error would come in between, at changing places.
        "command": ["sh", "-c", format!("exec 2> /dev/null; {LOOK} {says}; echo done; {SERVE_ON}")],
    })
}

/// As [`container_of`], with these fields in the mount of each volume.
fn with_mount(mut container: Value, index: usize, fields: Value) -> Value {
    let mount = container["volumeMounts"][index].as_object_mut().unwrap();
    mount.extend(fields.as_object().unwrap().clone());
    container
}

fn config_map(name: &str, fields: Value) -> String {
    object("ConfigMap", name, fields)
}

fn object(kind: &str, name: &str, fields: Value) -> String {
    let metadata = json!({ "name": name, "namespace": "default" });
    let mut object = json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata });
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    object.to_string()
}

/// A node fed with objects; none where there is no containerd and it is to be on one.
async fn node(on: TestRuntime, more: impl FnOnce(Builder) -> Builder) -> Option<NodeRig> {
    on.start_with(|builder| more(builder.with_objects())).await
}

impl NodeRig {
    fn begin(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        self.node
            .drop_manifest(&format!("{name}.json"), &pod.to_string())
            .unwrap();
    }

    /// What a container has written before the line `done`.
    async fn heard(&self, pod: &Pod, name: &str) -> Vec<String> {
        let log = self.logs_of(pod).join(name).join("0.log");
        let mut lines = Vec::new();
        let waited = wait_until(
            CONVERGENCE_TIMEOUT,
            "the container has said all",
            async || {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let word = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
                lines = text.lines().map(word).collect();
                lines.last().is_some_and(|line| line == "done")
            },
        );
        let waited = waited.await;
        assert!(waited.is_ok(), "{waited:?}: {name} said {lines:#?}");
        lines.pop();
        lines
    }

    /// Runs a script in a container of a pod; returns what it wrote.
    async fn in_container(&self, pod: &Pod, name: &str, script: &str) -> String {
        let id = id_of(container(pod, name).unwrap());
        self.cri()
            .await
            .exec(&id, &["sh", "-c", script])
            .await
            .unwrap()
    }

    /// Waits until a script in a container writes this.
    async fn until_says(&self, pod: &Pod, name: &str, script: &str, expected: &str) {
        let mut last = String::new();
        let waited = wait_until(CONVERGENCE_TIMEOUT, "the container sees it", async || {
            last = self.in_container(pod, name, script).await;
            last == expected
        });
        let waited = waited.await;
        assert!(
            waited.is_ok(),
            "{waited:?}: {script:?} says {last:?}, expected {expected:?}"
        );
    }

    fn folder_of(&self, pod: &Pod) -> PathBuf {
        self.node.root().join("pods").join(uid(pod))
    }

    /// Takes the pod away and waits until nothing of it is left on the node.
    async fn end(&self, pod: &Pod, name: &str) {
        let folder = self.folder_of(pod);
        self.node.remove_manifest(&format!("{name}.json")).unwrap();
        self.until_gone(name).await;
        let gone = wait_until(
            CONVERGENCE_TIMEOUT,
            "the pod's folder is gone",
            async || !folder.exists(),
        );
        gone.await
            .unwrap_or_else(|error| panic!("{error}: {}", tree(&folder)));
        assert_eq!(mounted(&folder), Vec::<String>::new());
    }
}

/// What is mounted at a path or below it.
fn mounted(path: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(path))
        .map(str::to_owned)
        .collect()
}

fn tree(path: &Path) -> String {
    let listed = std::process::Command::new("find")
        .arg(path)
        .arg("-ls")
        .output();
    String::from_utf8_lossy(&listed.unwrap().stdout).into_owned()
}
