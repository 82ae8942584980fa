//! The streaming server with a real client, over real sockets.

mod client;

use std::time::Duration;

use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Request};

use self::client::{Channels, Spdy, ask};
use super::spdy::frames::Frame;
use crate::{Fake, RuntimeCalls, Settings};

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
    let fake = Fake::open(home.path().to_owned(), Settings::default()).unwrap();
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

/// Opens the streams of a command in kubectl's order; returns error, stdin, stdout and stderr.
async fn streams(client: &mut Spdy, wanted: &str) -> [u32; 4] {
    let mut ids = [0; 4];
    for (place, (letter, kind)) in [
        ('x', "error"),
        ('i', "stdin"),
        ('o', "stdout"),
        ('e', "stderr"),
    ]
    .into_iter()
    .enumerate()
    {
        if letter == 'x' || wanted.contains(letter) {
            ids[place] = client.open(&[("streamtype", kind)]).await;
        }
    }
    if wanted.contains('t') {
        let resize = client.open(&[("streamtype", "resize")]).await;
        client.say(resize, r#"{"Width":80,"Height":24}"#).await;
    }
    ids
}

const OVER: fn(&Spdy) -> bool = |client| {
    client
        .others
        .iter()
        .any(|frame| matches!(frame, Frame::GoAway { .. }))
};

#[tokio::test]
async fn a_commands_outputs_and_exit_code_come_over_spdy() {
    let rig = rig("server").await;
    let url = rig
        .exec(&["sh", "-c", "echo out; echo err >&2; exit 3"], "oe")
        .await;
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    let [error, _, stdout, stderr] = streams(&mut client, "oe").await;
    client.until(OVER).await;
    assert_eq!(
        (client.said(stdout), client.said(stderr)),
        ("out\n", "err\n")
    );
    let status: serde_json::Value = serde_json::from_str(client.said(error)).unwrap();
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
        .filter(|frame| matches!(frame, Frame::Reply { .. }))
        .count();
    assert_eq!(replies, 3);
}

#[tokio::test]
async fn success_is_a_status_in_version_4_and_silence_before_it() {
    let rig = rig("server").await;
    for (protocol, said) in [
        ("v4.channel.k8s.io", r#"{"metadata":{},"status":"Success"}"#),
        ("v3.channel.k8s.io", ""),
        ("channel.k8s.io", ""),
    ] {
        let mut client = Spdy::connect(&rig.exec(&["true"], "o").await, protocol).await;
        let [error, ..] = streams(&mut client, "o").await;
        client.until(OVER).await;
        assert_eq!(client.said(error), said, "{protocol}");
    }
}

#[tokio::test]
async fn cat_says_back_what_it_is_told_until_stdin_ends() {
    let rig = rig("server").await;
    let mut client = Spdy::connect(&rig.exec(&["cat"], "io").await, "v4.channel.k8s.io").await;
    let [error, stdin, stdout, _] = streams(&mut client, "io").await;
    client.say(stdin, "one").await;
    client.until(|client| client.said(stdout) == "one").await;
    let long = "x".repeat(200_000);
    client.say(stdin, &long).await;
    client.close(stdin).await;
    client.until(OVER).await;
    assert_eq!(client.said(stdout).len(), 3 + long.len());
    assert!(client.said(error).contains("Success"));
}

#[tokio::test]
async fn a_terminal_has_a_shell_a_size_and_keys() {
    let rig = rig("server").await;
    let mut client = Spdy::connect(&rig.exec(&["sh"], "iot").await, "v4.channel.k8s.io").await;
    let [error, stdin, stdout, _] = streams(&mut client, "iot").await;
    client
        .until(|client| client.said(stdout).ends_with("# "))
        .await;
    client.say(stdin, "stty size\r").await;
    client
        .until(|client| client.said(stdout).matches("# ").count() == 2)
        .await;
    client.say(stdin, "echo hi; false\rexit\r").await;
    client.until(OVER).await;
    assert_eq!(
        client.said(stdout),
        "/ # stty size\r\n24 80\r\n/ # echo hi; false\r\nexit\r\nhi\r\n/ # "
    );
    assert!(client.said(error).contains(r#""message":"1""#));
}

#[tokio::test]
async fn a_ping_is_answered_and_an_even_stream_refused() {
    let rig = rig("server").await;
    let mut client =
        Spdy::connect(&rig.exec(&["sleep", "60"], "o").await, "v4.channel.k8s.io").await;
    client.send(Frame::Ping(7)).await;
    client.send(Frame::Ping(2)).await;
    client
        .send(Frame::Open {
            id: 4,
            last: false,
            headers: Vec::new(),
        })
        .await;
    client.until(|client| client.others.len() == 2).await;
    assert_eq!(
        client.others,
        [Frame::Ping(7), Frame::Reset { id: 4, status: 1 }]
    );
}

#[tokio::test]
async fn a_command_dies_with_its_container() {
    let rig = rig("server").await;
    let mut client =
        Spdy::connect(&rig.exec(&["sleep", "600"], "o").await, "v4.channel.k8s.io").await;
    let [error, ..] = streams(&mut client, "o").await;
    client.until(|client| client.others.len() == 2).await;
    assert!(rig.fake.kill(&rig.container));
    client.until(OVER).await;
    assert!(
        client.said(error).contains(r#""message":"137""#),
        "{}",
        client.said(error)
    );
}

/// Upstream's TestServeExec and its like, and the tests of its request cache.
#[tokio::test]
async fn a_url_is_good_once_and_only_for_what_it_was_made() {
    let rig = rig("server").await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    let status = async |url: &str, headers: &str| ask(url, headers).await.0[9..12].to_owned();

    let url = rig.exec(&["true"], "o").await;
    assert!(url.starts_with("http://127.0.0.1:") && url.contains("/exec/"));
    assert_eq!(status(&url, upgrade).await, "101");
    assert_eq!(status(&url, upgrade).await, "404");
    let other = rig.exec(&["true"], "o").await.replace("/exec/", "/attach/");
    assert_eq!(status(&other, upgrade).await, "404");
    assert_eq!(status(&rig.exec(&["true"], "o").await, "").await, "400");
    let unversioned = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    assert_eq!(
        status(&rig.exec(&["true"], "o").await, unversioned).await,
        "400"
    );
    let unknown = upgrade.replace("v4", "v9");
    let (head, _) = ask(&rig.exec(&["true"], "o").await, &unknown).await;
    assert!(
        head.starts_with("HTTP/1.1 403") && head.contains("v2.channel.k8s.io"),
        "{head}"
    );
}

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

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_streams_is_sent_away_in_half_a_minute() {
    let rig = rig("server").await;
    let start = tokio::time::Instant::now();
    let mut client = Spdy::connect(&rig.exec(&["true"], "o").await, "v4.channel.k8s.io").await;
    client.until(OVER).await;
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_on_which_nothing_is_said_for_four_hours() {
    let rig = rig("server").await;
    let mut client = Spdy::connect(
        &rig.exec(&["sleep", "infinity"], "o").await,
        "v4.channel.k8s.io",
    )
    .await;
    streams(&mut client, "o").await;
    client.until(|client| client.others.len() == 2).await;
    let start = tokio::time::Instant::now();
    client.until(OVER).await;
    assert_eq!(start.elapsed().as_secs(), 4 * 60 * 60);
}

#[tokio::test]
async fn an_attached_client_sees_what_is_written_and_the_end() {
    let script = "trap 'echo bye; exit 0' TERM; while true; do sleep 0.05; echo tick; done";
    let rig = rig(script).await;
    let mut client = Spdy::connect(&rig.attach("oe").await, "v4.channel.k8s.io").await;
    let [error, _, stdout, _] = streams(&mut client, "oe").await;
    client
        .until(|client| client.said(stdout).matches("tick\n").count() > 1)
        .await;
    let request = StopContainerRequest {
        container_id: rig.container.clone(),
        timeout: 5,
    };
    rig.runtime
        .stop_container(Request::new(request))
        .await
        .unwrap();
    client.until(OVER).await;
    assert!(client.said(stdout).ends_with("bye\n"));
    assert!(client.said(error).contains("Success"));
}

#[tokio::test]
async fn a_container_with_stdin_says_back_what_it_is_told_and_ends_with_it() {
    let rig = rig_with("server", &[], |config| {
        (config.stdin, config.stdin_once) = (true, true)
    })
    .await;
    let mut client = Spdy::connect(&rig.attach("io").await, "v4.channel.k8s.io").await;
    let [error, stdin, stdout, _] = streams(&mut client, "io").await;
    client.say(stdin, "hello\n").await;
    client
        .until(|client| client.said(stdout) == "hello\n")
        .await;
    client.close(stdin).await;
    client.until(OVER).await;
    assert!(client.said(error).contains("Success"));
}

#[tokio::test]
async fn connections_to_a_port_are_pairs_of_streams() {
    let rig = rig("server").await;
    let mut client = Spdy::connect(&rig.forward(&[]).await, "portforward.k8s.io").await;
    let mut pairs = Vec::new();
    for request in ["0", "1"] {
        let common = [("port", "80"), ("requestid", request)];
        let error = client
            .open(&[&[("streamtype", "error")][..], &common].concat())
            .await;
        client.close(error).await;
        pairs.push((
            error,
            client
                .open(&[&[("streamtype", "data")][..], &common].concat())
                .await,
        ));
    }
    for (error, data) in pairs.into_iter().rev() {
        let text = format!("hello {data}");
        client.say(data, &text).await;
        client.until(|client| client.said(data) == text).await;
        client.close(data).await;
        client
            .until(|client| client.closed.contains(&data) && client.closed.contains(&error))
            .await;
        assert_eq!(client.said(error), "");
    }
    let wrong = client
        .open(&[("streamtype", "data"), ("port", "0"), ("requestid", "2")])
        .await;
    let refused = Frame::Reset {
        id: wrong,
        status: 5,
    };
    client
        .until(|client| client.others.contains(&refused))
        .await;
}

#[tokio::test]
async fn ports_may_lead_to_real_servers_or_nowhere() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ports = format!("80={},81=refused", server.local_addr().unwrap());
    let rig = rig_with("server", &[("fake.oxlet.dev/ports", &ports)], |_| ()).await;
    let mut client = Spdy::connect(&rig.forward(&[]).await, "portforward.k8s.io").await;
    // An old client numbers nothing.
    let error = client
        .open(&[("streamtype", "error"), ("port", "80")])
        .await;
    let data = client.open(&[("streamtype", "data"), ("port", "80")]).await;
    client.say(data, "question").await;
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
    assert_eq!((client.said(data), client.said(error)), ("answer", ""));

    let error = client
        .open(&[("streamtype", "error"), ("port", "81")])
        .await;
    client.open(&[("streamtype", "data"), ("port", "81")]).await;
    client.until(|client| client.closed.contains(&error)).await;
    assert!(
        client
            .said(error)
            .starts_with("error forwarding port 81 to pod"),
        "{}",
        client.said(error)
    );
}

#[tokio::test]
async fn commands_run_over_websockets_with_and_without_a_close() {
    let rig = rig("server").await;
    let mut client = Channels::connect(&rig.exec(&["cat"], "io").await, "v5.channel.k8s.io").await;
    client.say(b"\0hello").await;
    client.say(&[255, 0]).await;
    let heard = client.rest().await;
    assert_eq!(heard[&1], "hello");
    assert!(heard[&3].contains("Success"));
    assert!(!heard.contains_key(&2));

    let mut client =
        Channels::connect(&rig.exec(&["false"], "oe").await, "v4.channel.k8s.io").await;
    let heard = client.rest().await;
    assert!(heard[&3].contains("NonZeroExitCode"));
}

#[tokio::test]
async fn ports_are_forwarded_over_websockets() {
    let rig = rig("server").await;
    let mut client = Channels::connect(&rig.forward(&[258]).await, "v4.channel.k8s.io").await;
    client.say(b"\0hello").await;
    let mut data = Vec::new();
    while data.len() < 7 {
        use futures_util::StreamExt;
        let message = client.0.next().await.unwrap().unwrap().into_data();
        if message[0] == 0 {
            data.extend_from_slice(&message[1..]);
        }
    }
    assert_eq!(data, b"\x02\x01hello");
}

#[tokio::test]
async fn spdy_may_come_through_a_tunnel() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;

    use super::spdy::frames::{Decoder, Encoder};

    let rig = rig("server").await;
    let mut client =
        Channels::connect(&rig.forward(&[]).await, "SPDY/3.1+portforward.k8s.io").await;
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for (id, kind) in [(1, "error"), (3, "data")] {
        let headers = [("streamtype", kind), ("port", "80"), ("requestid", "0")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        encoder.encode(
            &Frame::Open {
                id,
                last: false,
                headers: headers.to_vec(),
            },
            &mut bytes,
        );
    }
    encoder.encode(
        &Frame::Data {
            id: 3,
            last: false,
            bytes: b"hello".to_vec(),
        },
        &mut bytes,
    );
    client.0.send(Message::binary(bytes)).await.unwrap();
    let mut decoder = Decoder::new();
    let heard = loop {
        match decoder.next().unwrap() {
            Some(Frame::Data { id: 3, bytes, .. }) => break bytes,
            Some(_) => {}
            None => decoder.take(&client.0.next().await.unwrap().unwrap().into_data()),
        }
    };
    assert_eq!(heard, b"hello");
}

#[tokio::test]
async fn files_are_copied_in_and_out() {
    let rig = rig("server").await;
    let packed = super::archive::pack("name", "value\n").unwrap();
    let packed = String::from_utf8(packed).unwrap();
    let url = rig.exec(&["tar", "-xmf", "-", "-C", "/tmp"], "ioe").await;
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    let [error, stdin, _, stderr] = streams(&mut client, "ioe").await;
    client.say(stdin, &packed).await;
    client.close(stdin).await;
    client.until(OVER).await;
    assert!(
        client.said(error).contains("Success"),
        "{}",
        client.said(stderr)
    );

    let url = rig.exec(&["tar", "cf", "-", "/tmp/name"], "oe").await;
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    let [_, _, stdout, _] = streams(&mut client, "oe").await;
    client.until(OVER).await;
    let files = super::archive::unpack("/", client.said(stdout).as_bytes()).unwrap();
    assert_eq!(files, [("/tmp/name".to_owned(), "value\n".to_owned())]);
}
