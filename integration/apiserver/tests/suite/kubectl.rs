//! kubectl, in every version that is installed, cannot tell the double from a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use apiserver::{ApiServer, CallerIdentity, Real, Server, ServerOptions, ServerPrograms};
use serde_json::json;

use crate::find;

/// Folders with more of them, separated as in PATH.
const FOLDERS: &str = "OXLET_KUBECTLS";

/// Returns all that are installed, by name: `kubectl` and `kubectl.1.NN` on the PATH, beside the one that is found
/// there, and in the folders of the environment.
fn installed() -> BTreeMap<String, PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os(FOLDERS)
        .iter()
        .flat_map(std::env::split_paths)
        .collect();
    folders.extend(
        std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths),
    );
    let real = find("kubectl").and_then(|file| file.canonicalize().ok());
    folders.extend(
        real.as_deref()
            .and_then(Path::parent)
            .map(Path::to_path_buf),
    );
    let mut found = BTreeMap::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "kubectl"
                || name
                    .strip_prefix("kubectl.1.")
                    .is_some_and(|minor| minor.parse::<u32>().is_ok())
            {
                found.entry(name).or_insert(entry.path());
            }
        }
    }
    assert!(
        !found.is_empty(),
        "no kubectl is on the PATH or in the folders of {FOLDERS}: install one"
    );
    found
}

/// One kubectl at one server, with a home of its own.
struct Kubectl<'a> {
    program: &'a Path,
    home: tempfile::TempDir,
}

impl Kubectl<'_> {
    /// Runs it; the error is its standard error.
    fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let manifest = self.home.path().join("manifest.json");
        std::fs::write(&manifest, input).unwrap();
        let mut command = Command::new(self.program);
        command
            .arg("--kubeconfig")
            .arg(self.home.path().join("kubeconfig"))
            .args([
                "--cache-dir",
                &self.home.path().display().to_string(),
                "--request-timeout",
                "30s",
            ])
            .args(arguments);
        if !input.is_empty() {
            command.args(["-f", &manifest.display().to_string()]);
        }
        let output = command
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Runs a line of words.
    fn say(&self, line: &str) -> String {
        self.ok(&words(line), "")
    }

    /// Runs a line, and finds a part in what it tells.
    fn tells(&self, line: &str, part: &str) {
        let told = self.say(line);
        assert!(told.contains(part), "{line}: {part} is not in {told}");
    }

    fn ok(&self, arguments: &[&str], input: &str) -> String {
        self.run(arguments, input).unwrap_or_else(|complaint| {
            panic!("{} {arguments:?}: {complaint}", self.program.display())
        })
    }
}

/// Starts each server there is: the double, and a real one where `kube-apiserver` and `etcd` are on the PATH.
fn servers() -> Vec<ApiServer> {
    let double = Server::start_now(ServerOptions {
        scheduler: true,
        ..ServerOptions::default()
    });
    let mut servers = vec![ApiServer::Double(double.unwrap())];
    if let Some(programs) = ServerPrograms::find() {
        servers.push(ApiServer::Real(Real::start(programs, "node-1").unwrap()));
    }
    servers
}

/// Runs a test with every kubectl at every server.
fn each(story: impl Fn(&Kubectl<'_>, &ApiServer)) {
    let installed = installed();
    for server in servers() {
        for program in installed.values() {
            let home = tempfile::tempdir().unwrap();
            let config = server.kubeconfig(&CallerIdentity::admin()).unwrap();
            std::fs::write(home.path().join("kubeconfig"), config).unwrap();
            story(&Kubectl { program, home }, &server);
        }
    }
}

fn pod(image: &str) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image, "env": [{"name": "A", "value": "b"}], "readinessProbe": {"httpGet": {"port": 80}}}]}});
    pod.to_string()
}

#[test]
fn a_pod_is_applied_changed_described_and_deleted() {
    each(|kubectl, _| {
        assert_eq!(
            kubectl.ok(&["apply"], &pod("localhost/web:1")),
            "pod/web created\n"
        );
        assert_eq!(
            kubectl.ok(&["apply"], &pod("localhost/web:1")),
            "pod/web unchanged\n"
        );
        assert_eq!(
            kubectl.ok(&["apply"], &pod("localhost/web:2")),
            "pod/web configured\n"
        );
        assert_eq!(
            kubectl.ok(
                &[
                    "get",
                    "pod",
                    "web",
                    "-o",
                    "jsonpath={.spec.containers[0].image}"
                ],
                ""
            ),
            "localhost/web:2"
        );
        kubectl.ok(&["label", "pod", "web", "tier=front"], "");
        kubectl.ok(&["annotate", "po/web", "note=x"], "");
        let described = kubectl.ok(&["describe", "pod", "web"], "");
        for part in [
            "localhost/web:2",
            "tier=front",
            "QoS Class:",
            "http-get http://:80/",
        ] {
            assert!(described.contains(part), "{part} is not in {described}");
        }
        assert!(
            kubectl
                .run(&["create"], &pod("localhost/web:1"))
                .unwrap_err()
                .contains("AlreadyExists")
        );
        kubectl.ok(
            &["apply", "--server-side", "--force-conflicts"],
            &pod("localhost/web:3"),
        );
        assert!(
            kubectl
                .ok(&["delete", "pod", "web", "--wait=true"], "")
                .starts_with("pod \"web\" deleted")
        );
        let complaint = kubectl.run(&["get", "pod", "web"], "").unwrap_err();
        assert_eq!(
            complaint,
            "Error from server (NotFound): pods \"web\" not found\n"
        );
    });
}

#[test]
fn objects_of_all_sorts_are_listed_by_their_short_names() {
    each(|kubectl, _| {
        kubectl.ok(
            &["create", "configmap", "settings", "--from-literal=a=b"],
            "",
        );
        kubectl.ok(
            &[
                "create",
                "secret",
                "generic",
                "hidden",
                "--from-literal=a=b",
            ],
            "",
        );
        assert!(kubectl.ok(&["get", "ns"], "").contains("kube-system"));
        assert!(
            kubectl
                .ok(&["get", "cm", "settings", "--no-headers"], "")
                .starts_with("settings   1 ")
        );
        assert!(
            kubectl
                .ok(&["get", "secret", "hidden", "--no-headers"], "")
                .contains("Opaque")
        );
        assert_eq!(
            kubectl.ok(&["get", "secret", "hidden", "-o", "jsonpath={.data.a}"], ""),
            "Yg=="
        );
        assert!(
            kubectl
                .ok(&["describe", "cm", "settings"], "")
                .contains("a:\n----\nb")
        );
        kubectl.ok(&["delete", "cm/settings", "secret/hidden"], "");
        // A real server alone never finishes a namespace: each kubectl has its own.
        let space = kubectl
            .program
            .file_name()
            .unwrap()
            .to_string_lossy()
            .replace('.', "-");
        kubectl.ok(&["create", "namespace", &space], "");
        kubectl.ok(&["create", "serviceaccount", "robot", "-n", &space], "");
        assert_eq!(
            kubectl
                .ok(&["create", "token", "robot", "-n", &space], "")
                .split('.')
                .count(),
            3
        );
        kubectl.ok(&["delete", "namespace", &space, "--wait=false"], "");
        for kind in [
            "csr",
            "leases",
            "csinodes",
            "csidrivers",
            "runtimeclasses",
            "pv",
            "pvc",
            "sc",
            "volumeattachments",
            "endpoints",
            "svc",
            "sa",
            "events.events.k8s.io",
        ] {
            kubectl.ok(&["get", kind, "--ignore-not-found"], "");
        }
        assert!(kubectl.ok(&["version"], "").contains("Server Version: "));
    });
}

/// Runs a test of one pod on one node at the double only: a real server's nodes are not written by hand.
fn on_a_node(story: impl Fn(&Kubectl<'_>, &Server)) {
    each(|kubectl, server| {
        let ApiServer::Double(server) = server else {
            return;
        };
        let node = json!({"metadata": {"name": "node-1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux", "kernelVersion": "6.1", "containerRuntimeVersion": "containerd://2"}}});
        server.put("/api/v1/nodes/node-1", &node).unwrap();
        kubectl.ok(&["apply"], &pod("localhost/web:1"));
        kubectl.say("wait --for=condition=PodScheduled pod/web --timeout=20s");
        story(kubectl, server);
        server.delete("/api/v1/nodes/node-1").unwrap();
        for event in server.list("/api/v1/events").unwrap() {
            let name = event["metadata"]["name"].as_str().unwrap();
            let path = format!("/api/v1/namespaces/default/events/{name}");
            server.delete(&path).unwrap();
        }
    });
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn a_pod_is_shown_with_what_its_status_says() {
    on_a_node(|kubectl, server| {
        let status = json!({"status": {"phase": "Running", "podIP": "10.2.2.2", "podIPs": [{"ip": "10.2.2.2"}],
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 3, "image": "x", "imageID": "y", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
        server
            .patch("/api/v1/namespaces/default/pods/web/status", &status)
            .unwrap();
        let wide = kubectl.say("get pods -o wide --no-headers");
        assert_eq!(words(&wide)[..4], ["web", "1/1", "Running", "3"], "{wide}");
        let place = ["10.2.2.2", "node-1", "<none>", "<none>"];
        assert_eq!(words(&wide)[5..], place, "{wide}");
        let headers = kubectl.say("get pods -o wide");
        let wanted = ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"];
        assert_eq!(words(&headers)[..7], wanted);
        kubectl.tells(
            "describe pod web",
            "Successfully assigned default/web to node-1",
        );
        kubectl.tells("get events", "pod/web");
        kubectl.tells("get events", "Scheduled");
        kubectl.tells("events", "Pod/web");
        kubectl.say("delete pod web --wait=false");
        kubectl.tells("get pod web", "Terminating");
        kubectl.say("delete pod web --force --grace-period=0");
        assert!(server.list("/api/v1/pods").unwrap().is_empty());
    });
}

#[test]
fn a_node_is_shown_cordoned_and_drained() {
    on_a_node(|kubectl, server| {
        let nodes = kubectl.say("get nodes -o wide --no-headers");
        assert_eq!(words(&nodes)[..3], ["node-1", "Ready", "<none>"]);
        assert_eq!(words(&nodes)[4..6], ["v1.36.0", "10.1.1.1"]);
        kubectl.tells("describe node node-1", "web");
        kubectl.say("cordon node-1");
        kubectl.tells("get node node-1", "Ready,SchedulingDisabled");
        kubectl.say("uncordon node-1");
        kubectl.say("drain node-1 --force --grace-period=0 --timeout=20s");
        assert!(server.list("/api/v1/pods").unwrap().is_empty());
    });
}
