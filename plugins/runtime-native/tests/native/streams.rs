//! Exec, Attach and PortForward over the streaming server, into real containers.

use cri_server::testing::SpdyClient;
use proto::cri::*;

use crate::rig::Rig;

const COMMANDS: &str = "v4.channel.k8s.io";

async fn exec(rig: &Rig, container: &str, script: &str, tty: bool) -> SpdyClient {
    let request = ExecRequest {
        container_id: container.to_owned(),
        cmd: ["sh", "-c", script].map(str::to_owned).into(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    };
    let url = rig.runtime().exec(request).await.unwrap().into_inner().url;
    SpdyClient::connect(&url, COMMANDS).await
}

#[tokio::test]
async fn a_commands_streams_and_code_reach_its_client() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let mut client = exec(&rig, &container, "echo err >&2; cat; exit 3", false).await;
    let [error, stdin, stdout, stderr] = client.open_streams("ioe").await;
    // More than any pipe holds, both ways at once.
    let long = "x".repeat(300_000);
    client.write(stdin, &long).await;
    client.close(stdin).await;
    client.until(SpdyClient::is_over).await;
    assert_eq!(client.received(stdout).len(), long.len());
    assert_eq!(client.received(stderr), "err\n");
    assert!(client.received(error).contains(r#""message":"3""#));

    let mut client = exec(
        &rig,
        &container,
        "read go; until stty size; do sleep 0.1; done",
        true,
    )
    .await;
    let [_, stdin, stdout, _] = client.open_streams("iot").await;
    client.write(stdin, "go\r").await;
    client.until(SpdyClient::is_over).await;
    assert!(
        client.received(stdout).contains("24 80"),
        "{:?}",
        client.received(stdout)
    );
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn an_attached_client_talks_to_the_containers_own_process() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", "while read line; do echo got $line; done");
    config.stdin = true;
    config.stdin_once = true;
    let container = rig.run((&id, &pod), config).await;
    let request = AttachRequest {
        container_id: container.clone(),
        stdin: true,
        stdout: true,
        ..Default::default()
    };
    let url = rig
        .runtime()
        .attach(request)
        .await
        .unwrap()
        .into_inner()
        .url;
    let mut client = SpdyClient::connect(&url, COMMANDS).await;
    let [_, stdin, stdout, _] = client.open_streams("io").await;
    client.write(stdin, "hello\n").await;
    client
        .until(|client| client.received(stdout) == "got hello\n")
        .await;
    client.close(stdin).await;
    assert_eq!(rig.ended(&container).await.exit_code, 0);
    assert_eq!(rig.log("a", "main"), ["got hello"]);
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_port_of_a_pod_is_reached_and_a_closed_one_says_why() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = [0; 4];
        stream.read_exact(&mut text).await.unwrap();
        stream.write_all(b"pong").await.unwrap();
    });
    let forward = async |port: u16| {
        let request = PortForwardRequest {
            pod_sandbox_id: id.clone(),
            port: vec![i32::from(port)],
        };
        let url = rig.runtime().port_forward(request).await.unwrap();
        let url = url.into_inner().url;
        let mut client = SpdyClient::connect(&url, "portforward.k8s.io").await;
        let port = port.to_string();
        let error = client
            .open(&[("streamtype", "error"), ("port", &port), ("requestid", "0")])
            .await;
        let data = client
            .open(&[("streamtype", "data"), ("port", &port), ("requestid", "0")])
            .await;
        (client, error, data)
    };
    let (mut client, _, data) = forward(port).await;
    client.write(data, "ping").await;
    client.until(|client| client.received(data) == "pong").await;
    server.await.unwrap();
    let (mut client, error, _) = forward(port).await;
    client
        .until(|client| client.received(error).contains("refused"))
        .await;
    rig.remove_pod(&id).await;
}
