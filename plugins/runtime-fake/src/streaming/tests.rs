//! The streaming server with a real client, over real sockets.

use cri_server::testing::{ChannelClient, SpdyClient, SpdyFrame};
use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Request};

use crate::{Fake, FakeSettings, RuntimeCalls};

struct Rig {
    fake: Fake,
    runtime: RuntimeCalls,
    pod: String,
    container: String,
    _home: tempfile::TempDir,
}

async fn rig(script: &str) -> Rig {
    rig_with(script, &[], |_| ()).await
}

async fn rig_with(
    script: &str,
    annotations: &[(&str, &str)],
    change: impl FnOnce(&mut ContainerConfig),
) -> Rig {
    let home = tempfile::tempdir().unwrap();
    let fake = Fake::open(home.path().to_owned(), FakeSettings::default()).unwrap();
    let runtime = RuntimeCalls::new(fake.shared.clone());
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: "a".into(),
            uid: "uid-a".into(),
            namespace: "default".into(),
            ..Default::default()
        }),
        annotations: annotations.collect(),
        ..Default::default()
    };
    let request = RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: String::new(),
    };
    let pod = runtime
        .run_pod_sandbox(Request::new(request))
        .await
        .unwrap()
        .into_inner()
        .pod_sandbox_id;
    let mut config = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "c".into(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: "localhost/busybox:latest".into(),
            ..Default::default()
        }),
        command: ["sh", "-c", script].map(Into::into).to_vec(),
        ..Default::default()
    };
    change(&mut config);
    let request = CreateContainerRequest {
        pod_sandbox_id: pod.clone(),
        config: Some(config),
        sandbox_config: None,
    };
    let container = runtime
        .create_container(Request::new(request))
        .await
        .unwrap()
        .into_inner()
        .container_id;
    let request = StartContainerRequest {
        container_id: container.clone(),
    };
    runtime
        .start_container(Request::new(request))
        .await
        .unwrap();
    Rig {
        fake,
        runtime,
        pod,
        container,
        _home: home,
    }
}

/// What is asked for: command, and a letter for each of stdin, stdout, stderr and terminal.
fn exec(container: &str, cmd: &[&str], streams: &str) -> ExecRequest {
    ExecRequest {
        container_id: container.to_owned(),
        cmd: cmd.iter().map(|word| (*word).to_owned()).collect(),
        tty: streams.contains('t'),
        stdin: streams.contains('i'),
        stdout: streams.contains('o'),
        stderr: streams.contains('e'),
    }
}

impl Rig {
    async fn exec(&self, cmd: &[&str], streams: &str) -> String {
        let request = Request::new(exec(&self.container, cmd, streams));
        self.runtime.exec(request).await.unwrap().into_inner().url
    }

    async fn attach(&self, streams: &str) -> String {
        let ExecRequest {
            container_id,
            tty,
            stdin,
            stdout,
            stderr,
            ..
        } = exec(&self.container, &[], streams);
        let request = AttachRequest {
            container_id,
            tty,
            stdin,
            stdout,
            stderr,
        };
        self.runtime
            .attach(Request::new(request))
            .await
            .unwrap()
            .into_inner()
            .url
    }

    async fn forward(&self, port: &[i32]) -> String {
        let request = PortForwardRequest {
            pod_sandbox_id: self.pod.clone(),
            port: port.to_vec(),
        };
        self.runtime
            .port_forward(Request::new(request))
            .await
            .unwrap()
            .into_inner()
            .url
    }
}

#[tokio::test]
async fn a_commands_outputs_and_exit_code_come_over_spdy() {
    let rig = rig("server").await;
    let url = rig
        .exec(&["sh", "-c", "echo out; echo err >&2; exit 3"], "oe")
        .await;
    let mut client = SpdyClient::connect(&url, "v4.channel.k8s.io").await;
    let [error, _, stdout, stderr] = client.open_streams("oe").await;
    client.until(SpdyClient::is_over).await;
    assert_eq!(
        (client.received(stdout), client.received(stderr)),
        ("out\n", "err\n")
    );
    let status: serde_json::Value = serde_json::from_str(client.received(error)).unwrap();
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(
        status["details"]["causes"][0],
        serde_json::json!({"reason": "ExitCode", "message": "3"})
    );
    let closed = [stdout, stderr, error];
    assert_eq!(client.closed, closed);
    let replies = client
        .others
        .iter()
        .filter(|frame| matches!(frame, SpdyFrame::Reply { .. }))
        .count();
    assert_eq!(replies, 3);
}

#[tokio::test]
async fn cat_says_back_what_it_is_told_until_stdin_ends() {
    let rig = rig("server").await;
    let mut client =
        SpdyClient::connect(&rig.exec(&["cat"], "io").await, "v4.channel.k8s.io").await;
    let [error, stdin, stdout, _] = client.open_streams("io").await;
    client.write(stdin, "one").await;
    client
        .until(|client| client.received(stdout) == "one")
        .await;
    let long = "x".repeat(200_000);
    client.write(stdin, &long).await;
    client.close(stdin).await;
    client.until(SpdyClient::is_over).await;
    assert_eq!(client.received(stdout).len(), 3 + long.len());
    assert!(client.received(error).contains("Success"));
}

#[tokio::test]
async fn a_terminal_has_a_shell_a_size_and_keys() {
    let rig = rig("server").await;
    let mut client =
        SpdyClient::connect(&rig.exec(&["sh"], "iot").await, "v4.channel.k8s.io").await;
    let [error, stdin, stdout, _] = client.open_streams("iot").await;
    client
        .until(|client| client.received(stdout).ends_with("# "))
        .await;
    client.write(stdin, "stty size\r").await;
    client
        .until(|client| client.received(stdout).matches("# ").count() == 2)
        .await;
    client.write(stdin, "echo hi; false\rexit\r").await;
    client.until(SpdyClient::is_over).await;
    assert_eq!(
        client.received(stdout),
        "/ # stty size\r\n24 80\r\n/ # echo hi; false\r\nexit\r\nhi\r\n/ # "
    );
    assert!(client.received(error).contains(r#""message":"1""#));
}

#[tokio::test]
async fn a_command_dies_with_its_container() {
    let rig = rig("server").await;
    let mut client =
        SpdyClient::connect(&rig.exec(&["sleep", "600"], "o").await, "v4.channel.k8s.io").await;
    let [error, ..] = client.open_streams("o").await;
    client.until(|client| client.others.len() == 2).await;
    assert!(rig.fake.kill(&rig.container));
    client.until(SpdyClient::is_over).await;
    assert!(
        client.received(error).contains(r#""message":"137""#),
        "{}",
        client.received(error)
    );
}

/// Upstream's TestServeExec and its like, and the tests of its request cache.
/// Upstream's TestGetExec and TestGetAttach.
#[tokio::test]
async fn a_request_that_makes_no_sense_gets_no_url() {
    let rig = rig("server").await;
    let code = async |request| {
        rig.runtime
            .exec(Request::new(request))
            .await
            .unwrap_err()
            .code()
    };
    assert_eq!(
        code(exec(&rig.container, &["true"], "")).await,
        Code::InvalidArgument
    );
    assert_eq!(
        code(exec(&rig.container, &["true"], "oet")).await,
        Code::InvalidArgument
    );
    assert_eq!(
        code(exec(&rig.container, &[], "o")).await,
        Code::InvalidArgument
    );
    assert_eq!(code(exec("absent", &["true"], "o")).await, Code::NotFound);
    rig.fake.kill(&rig.container);
    assert_eq!(
        code(exec(&rig.container, &["true"], "o")).await,
        Code::FailedPrecondition
    );
}

#[tokio::test]
async fn an_attached_client_sees_what_is_written_and_the_end() {
    let script = "trap 'echo bye; exit 0' TERM; while true; do sleep 0.05; echo tick; done";
    let rig = rig(script).await;
    let mut client = SpdyClient::connect(&rig.attach("oe").await, "v4.channel.k8s.io").await;
    let [error, _, stdout, _] = client.open_streams("oe").await;
    client
        .until(|client| client.received(stdout).matches("tick\n").count() > 1)
        .await;
    let request = StopContainerRequest {
        container_id: rig.container.clone(),
        timeout: 5,
    };
    rig.runtime
        .stop_container(Request::new(request))
        .await
        .unwrap();
    client.until(SpdyClient::is_over).await;
    assert!(client.received(stdout).ends_with("bye\n"));
    assert!(client.received(error).contains("Success"));
}

#[tokio::test]
async fn a_container_with_stdin_says_back_what_it_is_told_and_ends_with_it() {
    let rig = rig_with("server", &[], |config| {
        (config.stdin, config.stdin_once) = (true, true)
    })
    .await;
    let mut client = SpdyClient::connect(&rig.attach("io").await, "v4.channel.k8s.io").await;
    let [error, stdin, stdout, _] = client.open_streams("io").await;
    client.write(stdin, "hello\n").await;
    client
        .until(|client| client.received(stdout) == "hello\n")
        .await;
    client.close(stdin).await;
    client.until(SpdyClient::is_over).await;
    assert!(client.received(error).contains("Success"));
}

#[tokio::test]
async fn ports_may_lead_to_real_servers_or_nowhere() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ports = format!("80={},81=refused", server.local_addr().unwrap());
    let rig = rig_with("server", &[("fake.oxlet.dev/ports", &ports)], |_| ()).await;
    let mut client = SpdyClient::connect(&rig.forward(&[]).await, "portforward.k8s.io").await;
    // An old client numbers nothing.
    let error = client
        .open(&[("streamtype", "error"), ("port", "80")])
        .await;
    let data = client.open(&[("streamtype", "data"), ("port", "80")]).await;
    client.write(data, "question").await;
    client.close(data).await;
    let (mut stream, _) = server.accept().await.unwrap();
    let mut question = String::new();
    stream.read_to_string(&mut question).await.unwrap();
    assert_eq!(question, "question");
    stream.write_all(b"answer").await.unwrap();
    drop(stream);
    client
        .until(|client| client.closed.contains(&data) && client.closed.contains(&error))
        .await;
    assert_eq!(
        (client.received(data), client.received(error)),
        ("answer", "")
    );

    let error = client
        .open(&[("streamtype", "error"), ("port", "81")])
        .await;
    client.open(&[("streamtype", "data"), ("port", "81")]).await;
    client.until(|client| client.closed.contains(&error)).await;
    assert!(
        client
            .received(error)
            .starts_with("error forwarding port 81 to pod"),
        "{}",
        client.received(error)
    );
}

#[tokio::test]
async fn commands_run_over_websockets_with_and_without_a_close() {
    let rig = rig("server").await;
    let mut client =
        ChannelClient::connect(&rig.exec(&["cat"], "io").await, "v5.channel.k8s.io").await;
    client.write(b"\0hello").await;
    client.write(&[255, 0]).await;
    let heard = client.rest().await;
    assert_eq!(heard[&1], "hello");
    assert!(heard[&3].contains("Success"));
    assert!(!heard.contains_key(&2));

    let mut client =
        ChannelClient::connect(&rig.exec(&["false"], "oe").await, "v4.channel.k8s.io").await;
    let heard = client.rest().await;
    assert!(heard[&3].contains("NonZeroExitCode"));
}

#[tokio::test]
async fn files_are_copied_in_and_out() {
    let rig = rig("server").await;
    let packed = super::archive::pack("name", "value\n").unwrap();
    let packed = String::from_utf8(packed).unwrap();
    let url = rig.exec(&["tar", "-xmf", "-", "-C", "/tmp"], "ioe").await;
    let mut client = SpdyClient::connect(&url, "v4.channel.k8s.io").await;
    let [error, stdin, _, stderr] = client.open_streams("ioe").await;
    client.write(stdin, &packed).await;
    client.close(stdin).await;
    client.until(SpdyClient::is_over).await;
    assert!(
        client.received(error).contains("Success"),
        "{}",
        client.received(stderr)
    );

    let url = rig.exec(&["tar", "cf", "-", "/tmp/name"], "oe").await;
    let mut client = SpdyClient::connect(&url, "v4.channel.k8s.io").await;
    let [_, _, stdout, _] = client.open_streams("oe").await;
    client.until(SpdyClient::is_over).await;
    let files = super::archive::unpack("/", client.received(stdout).as_bytes()).unwrap();
    assert_eq!(files, [("/tmp/name".to_owned(), "value\n".to_owned())]);
}
