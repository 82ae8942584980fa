//! Which protocol the streams of kubectl come in, on containerd, which knows neither of the newer WebSockets: all the
//! same to people.

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use integration::cluster::{Cluster, ServerKind, kubectls};
use integration::tls;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;

use super::on_containerd_of;
use crate::suite::cluster::*;

/// Since this minor version kubectl comes with WebSockets first.
const WEBSOCKETS_SINCE: u64 = 31;

/// The environment of a kubectl that comes with WebSockets first, or with SPDY alone.
fn first(websockets: bool) -> [(&'static str, &'static str); 2] {
    let text = match websockets {
        true => "true",
        false => "false",
    };
    [
        ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", text),
        ("KUBECTL_PORT_FORWARD_WEBSOCKETS", text),
    ]
}

/// How many streams of this kind the agent was asked for in a WebSocket.
async fn seen(cluster: &Cluster, kind: &str) -> u64 {
    let metrics = ["get", "--raw", "/api/v1/nodes/node/proxy/metrics"];
    let metrics = cluster.kubectl_ok(&metrics).await.unwrap();
    let name = format!("kubelet_websocket_streaming_requests_total{{subresource=\"{kind}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().unwrap())
}

async fn minor(cluster: &Cluster, kubectl: &Path) -> u64 {
    let version = ["version", "--client", "-o", "json"];
    let said = cluster.kubectl_of(kubectl, &version).await.unwrap();
    let said: Value = serde_json::from_str(&said.out).unwrap();
    let minor = said["clientVersion"]["minor"].as_str().unwrap();
    let minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    minor.parse().unwrap()
}

/// The newest kubectl of this machine, if it comes with WebSockets.
async fn newest(cluster: &Cluster) -> Option<PathBuf> {
    let mut newest = None;
    for kubectl in kubectls().unwrap() {
        let minor = minor(cluster, &kubectl).await;
        if minor >= WEBSOCKETS_SINCE && newest.as_ref().is_none_or(|(least, _)| minor > *least) {
            newest = Some((minor, kubectl));
        }
    }
    newest.map(|(_, kubectl)| kubectl)
}

/// What is read of a web server over a forwarded port.
async fn forwarded(cluster: &Cluster, environment: &[(&str, &str)], kubectl: &Path) -> String {
    let arguments = ["port-forward", "web", ":8080"];
    let child = cluster.kubectl_child_in(environment, kubectl, &arguments);
    let mut child = child.unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(CONVERGENCE_TIMEOUT, lines.next_line()).await;
    let line = line.unwrap().unwrap().unwrap();
    let (_, rest) = line.split_once("127.0.0.1:").unwrap();
    let port: u16 = rest.split(' ').next().unwrap().parse().unwrap();
    let mut answer = String::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = b"GET /index.html HTTP/1.0\r\n\r\n";
        stream.write_all(request).await.unwrap();
        answer.clear();
        let read = tokio::time::timeout(CONVERGENCE_TIMEOUT, stream.read_to_string(&mut answer));
        read.await.unwrap().unwrap();
    }
    child.kill().await.unwrap();
    answer
}

#[tokio::test]
async fn every_kubectl_is_served_with_websockets_where_it_comes_with_them_and_with_spdy() {
    let Some(node_rig) = on_containerd_of(ServerKind::Double, json!({})).await else {
        return;
    };
    let cluster = &node_rig.cluster;
    for kubectl in kubectls().unwrap() {
        for websockets in [true, false] {
            let before = (
                seen(cluster, "exec").await,
                seen(cluster, "portforward").await,
            );
            let environment = first(websockets);
            let command = "echo out; echo err >&2; exit 7";
            let arguments = ["exec", "web", "--", "sh", "-c", command];
            let said = cluster.kubectl_in(&environment, &kubectl, &arguments).await;
            let said = said.unwrap();
            let what = format!("{}, {websockets}: {said:?}", kubectl.display());
            assert!(!said.ok && said.out == "out\n", "{what}");
            let is_told = said.err.contains("err\n") && said.err.contains("exit code 7");
            assert!(is_told, "{what}");
            let answer = forwarded(cluster, &environment, &kubectl).await;
            assert!(answer.ends_with("hello\n"), "{what}: {answer}");
            let after = (
                seen(cluster, "exec").await,
                seen(cluster, "portforward").await,
            );
            let is_new = minor(cluster, &kubectl).await >= WEBSOCKETS_SINCE;
            match (websockets, is_new) {
                (true, true) => assert_eq!(after, (before.0 + 1, before.1 + 1), "{what}"),
                (false, _) => assert_eq!(after, before, "{what}"),
                // Between their first and their default, an environment variable selects it.
                (true, false) => {}
            }
        }
    }
}

#[tokio::test]
async fn streams_in_websockets_are_whole_in_both_directions() {
    let Some(node_rig) = on_containerd_of(ServerKind::Double, json!({})).await else {
        return;
    };
    let cluster = &node_rig.cluster;
    let Some(kubectl) = newest(cluster).await else {
        return;
    };
    let environment = first(true);
    let before = seen(cluster, "exec").await;
    let arguments = ["exec", "-i", "web", "--", "cat"];
    let cat = cluster.kubectl_child_in(&environment, &kubectl, &arguments);
    let mut cat = cat.unwrap();
    let mut input = cat.stdin.take().unwrap();
    let text = "0123456789abcdef\n".repeat(100_000);
    let (sent, output) = (text.clone(), cat.wait_with_output());
    let sending = async move {
        input.write_all(sent.as_bytes()).await.unwrap();
        drop(input);
    };
    let both = async { tokio::join!(output, sending).0.unwrap() };
    let output = tokio::time::timeout(CONVERGENCE_TIMEOUT, both)
        .await
        .unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap() == text);

    let sent = cluster.folder().join("sent.pem");
    let back = cluster.folder().join("back.pem");
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&sent, &bytes).unwrap();
    for (from, to) in [
        (sent.to_str().unwrap(), "web:/tmp-copied"),
        ("web:/tmp-copied", back.to_str().unwrap()),
    ] {
        let copy = ["cp", from, to];
        let said = cluster.kubectl_in(&environment, &kubectl, &copy);
        let said = said.await.unwrap();
        assert!(said.ok, "{said:?}");
    }
    assert!(std::fs::read(back).unwrap() == bytes);

    let nothing = ["exec", "web", "--", "/no/such/program"];
    let said = cluster.kubectl_in(&environment, &kubectl, &nothing).await;
    let said = said.unwrap();
    assert!(
        !said.ok && said.err.contains("/no/such/program"),
        "{said:?}"
    );
    let attaches = seen(cluster, "attach").await;
    let arguments = ["attach", "web"];
    let attached = cluster.kubectl_child_in(&environment, &kubectl, &arguments);
    let mut attached = attached.unwrap();
    let mut lines = BufReader::new(attached.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(CONVERGENCE_TIMEOUT, lines.next_line()).await;
    assert!(line.unwrap().unwrap().unwrap().starts_with("line "));
    attached.kill().await.unwrap();
    assert_eq!(seen(cluster, "attach").await, attaches + 1);
    assert!(seen(cluster, "exec").await >= before + 4);
}

#[tokio::test]
async fn older_websockets_are_carried_to_the_runtime_as_they_are() {
    let Some(node_rig) = on_containerd_of(ServerKind::Double, json!({})).await else {
        return;
    };
    let cluster = &node_rig.cluster;
    let may = cluster
        .server
        .client_certificate("kubernetes-admin", "system:masters", 600)
        .unwrap();
    let port = cluster.node.https_port();
    let stream = tls::connect(port, Some(&may)).await.unwrap();
    let url = "wss://node/exec/default/web/app?command=sh&command=-c&command=echo+hello%3Bexit+7&output=1";
    let protocol = "v4.channel.k8s.io";
    let request = ClientRequestBuilder::new(url.parse().unwrap()).with_sub_protocol(protocol);
    let opened = tokio_tungstenite::client_async(request, stream).await;
    let (mut socket, answer) = opened.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], protocol);
    let mut output = Vec::new();
    let heard = async {
        loop {
            let message = socket.next().await.unwrap().unwrap();
            match message.into_data().as_ref() {
                [1, text @ ..] => output.extend_from_slice(text),
                [3, status @ ..] if !status.is_empty() => {
                    return serde_json::from_slice::<Value>(status).unwrap();
                }
                _ => {}
            }
        }
    };
    let status = tokio::time::timeout(CONVERGENCE_TIMEOUT, heard)
        .await
        .unwrap();
    assert_eq!(output, b"hello\n");
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["message"], "7");
}
