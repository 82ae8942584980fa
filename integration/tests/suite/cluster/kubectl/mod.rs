//! The common kubectl commands, on the fake runtime and on containerd.

mod protocols;
mod streams;

use std::path::Path;

use integration::agent::Node;
use integration::cluster::{Cluster, ServerKind, kubectls};
use integration::containerd::Containerd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::*;

/// A web server and a shell, talkative.
fn talkative(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["command"] = json!([
        "sh",
        "-c",
        "mkdir -p /www; echo hello > /www/index.html; httpd -p 8080 -h /www; \
         n=0; while true; do n=$((n+1)); echo line $n; sleep 0.2; done"
    ]);
    pod
}

/// A node over a real containerd with that pod; the fields are dropped in their order. None where the machine has no
/// containerd, which fails the test in CI.
pub(super) struct OnContainerd {
    pub(super) cluster: Cluster,
    _containerd: Containerd,
    _folder: tempfile::TempDir,
}

/// With this server, and fields of the KubeletConfiguration.
pub(super) async fn on_containerd_of(which: ServerKind, fields: Value) -> Option<OnContainerd> {
    let folder = tempfile::tempdir().unwrap();
    let containerd = Containerd::for_test(folder.path()).await?;
    let root = json!({ "cgroupRoot": containerd.cgroup() });
    let node = Node::builder().runtime(&containerd).config(&root);
    let cluster = start_on(which, node.config(&fields)).await;
    cluster.apply(&talkative("web")).unwrap();
    cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    Some(OnContainerd {
        cluster,
        _containerd: containerd,
        _folder: folder,
    })
}

/// Holds a law there with each server.
pub(super) async fn on_containerd(fields: Value, law: impl AsyncFn(&Cluster)) {
    for which in ServerKind::available() {
        let Some(node_rig) = on_containerd_of(which, fields.clone()).await else {
            return;
        };
        law(&node_rig.cluster).await;
    }
}

#[tokio::test]
async fn every_kubectl_gets_describes_and_deletes() {
    everywhere(Node::builder, async |cluster| {
        for (n, kubectl) in kubectls().unwrap().iter().enumerate() {
            let name = format!("web-{n}");
            cluster.apply(&pod(&name)).unwrap();
            cluster
                .until_pod(&name, CONVERGENCE_TIMEOUT, is_running)
                .await
                .unwrap();
            let run = async |arguments: &[&str]| {
                let said = cluster.kubectl_of(kubectl, arguments).await.unwrap();
                assert!(said.ok, "{}: {}{}", kubectl.display(), said.out, said.err);
                said.out
            };
            let listed = run(&["get", "pods", "-o", "wide"]).await;
            assert!(
                listed.contains("1/1") && listed.contains("Running"),
                "{listed}"
            );
            let nodes = run(&["get", "nodes"]).await;
            assert!(
                nodes.contains("Ready") && nodes.contains("v1.36"),
                "{nodes}"
            );
            let told = run(&["describe", "pod", &name]).await;
            assert!(told.contains("Started") && told.contains("Ready"), "{told}");
            run(&["delete", "pod", &name]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn logs_are_read_and_followed() {
    on_containerd(json!({}), async |cluster| {
        let tail = cluster
            .kubectl_ok(&["logs", "web", "--tail=1"])
            .await
            .unwrap();
        assert!(tail.starts_with("line "), "{tail}");
        let mut following = cluster.kubectl_child(&["logs", "-f", "web"]).unwrap();
        let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
        for n in 1..15 {
            let line = lines.next_line().await.unwrap().unwrap();
            assert_eq!(line, format!("line {n}"));
        }
        following.kill().await.unwrap();
        let wrong = cluster
            .kubectl(&["logs", "web", "-c", "nobody"])
            .await
            .unwrap();
        assert!(!wrong.ok && wrong.err.contains("nobody"), "{wrong:?}");
    })
    .await;
}

#[tokio::test]
async fn commands_run_with_input_output_and_exit_code_by_every_kubectl() {
    on_containerd(json!({}), async |cluster| {
        for kubectl in kubectls().unwrap() {
            let run =
                async |arguments: &[&str]| cluster.kubectl_of(&kubectl, arguments).await.unwrap();
            let said = run(&[
                "exec",
                "web",
                "--",
                "sh",
                "-c",
                "echo out; echo err >&2; exit 7",
            ])
            .await;
            assert!(
                !said.ok && said.out == "out\n",
                "{}: {said:?}",
                kubectl.display()
            );
            assert!(
                said.err.contains("err\n") && said.err.contains("exit code 7"),
                "{said:?}"
            );
        }
        let mut cat = cluster
            .kubectl_child(&["exec", "-i", "web", "--", "cat"])
            .unwrap();
        let mut input = cat.stdin.take().unwrap();
        let text = "0123456789abcdef\n".repeat(20_000);
        let (sent, output) = (text.clone(), cat.wait_with_output());
        let sending = async move {
            input.write_all(sent.as_bytes()).await.unwrap();
            drop(input);
        };
        let (output, ()) = tokio::join!(output, sending);
        assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), text);
    })
    .await;
}

#[tokio::test]
async fn files_are_copied_in_and_out() {
    on_containerd(json!({}), async |cluster| {
        let file = cluster.folder().join("sent.pem");
        std::fs::write(&file, "precious").unwrap();
        let to = "web:/tmp-sent";
        cluster
            .kubectl_ok(&["cp", file.to_str().unwrap(), to])
            .await
            .unwrap();
        let back = cluster.folder().join("back.pem");
        cluster
            .kubectl_ok(&["cp", to, back.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(
            std::fs::read_to_string(Path::new(&back)).unwrap(),
            "precious"
        );
    })
    .await;
}

#[tokio::test]
async fn ports_are_forwarded() {
    on_containerd(json!({}), async |cluster| {
        let mut forwarding = cluster
            .kubectl_child(&["port-forward", "web", ":8080"])
            .unwrap();
        let mut lines = BufReader::new(forwarding.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let port = line
            .split("127.0.0.1:")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        for _ in 0..3 {
            let address = format!("127.0.0.1:{port}");
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = "GET /index.html HTTP/1.0\r\n\r\n";
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let read =
                tokio::time::timeout(CONVERGENCE_TIMEOUT, stream.read_to_string(&mut answer));
            read.await.unwrap().unwrap();
            assert!(answer.ends_with("hello\n"), "{answer}");
        }
        forwarding.kill().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn top_shows_what_nodes_and_pods_take() {
    // The double answers for the metrics server, which a real one would need.
    let Some(node_rig) = on_containerd_of(ServerKind::Double, json!({})).await else {
        return;
    };
    let cluster = &node_rig.cluster;
    cluster
        .wait("pods have figures", async || {
            let said = cluster.kubectl(&["top", "pods"]).await.unwrap();
            said.ok && said.out.contains("web")
        })
        .await
        .unwrap();
    let nodes = cluster.kubectl_ok(&["top", "nodes"]).await.unwrap();
    assert!(nodes.contains("node"), "{nodes}");
}

#[tokio::test]
async fn the_fake_runtime_runs_commands_and_forwards_ports_too() {
    everywhere(Node::builder, async |cluster| {
        cluster.apply(&pod("web")).unwrap();
        cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let said = cluster
            .kubectl(&["exec", "web", "--", "echo", "hello"])
            .await
            .unwrap();
        assert!(said.ok && said.out == "hello\n", "{said:?}");
    })
    .await;
}

#[tokio::test]
async fn figures_are_had_through_the_nodes_proxy() {
    // A real server's proxy refuses nodes on loopback.
    let cluster = started().await;
    cluster.apply(&pod("web")).unwrap();
    cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let raw = async |path: &str| {
        let path = format!("/api/v1/nodes/node/proxy/{path}");
        cluster.kubectl_ok(&["get", "--raw", &path]).await.unwrap()
    };
    let summary: Value = serde_json::from_str(&raw("stats/summary").await).unwrap();
    assert_eq!(summary["node"]["nodeName"], "node");
    let pods = summary["pods"].as_array().unwrap();
    assert!(
        pods.iter().any(|pod| pod["podRef"]["name"] == "web"),
        "{summary:#}"
    );
    let figures = raw("metrics/resource").await;
    for name in [
        "node_cpu_usage_seconds_total",
        "node_memory_working_set_bytes",
        "pod=\"web\"",
    ] {
        assert!(figures.contains(name), "{figures}");
    }
    let pods: Value = serde_json::from_str(&raw("pods").await).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    let configured: Value = serde_json::from_str(&raw("configz").await).unwrap();
    assert_eq!(configured["kubeletconfig"]["syncFrequency"], "1m0s");
}
