//! The protocols of the streaming server with real clients over real sockets, in front of a backend that echoes.

use std::future::pending;
use std::time::Duration;

use super::*;
use crate::testing::{ChannelClient, SpdyClient, SpdyFrame, request};

/// Runs `cat`, `true` and `sleep`; every port sends back what it receives.
struct EchoBackend;

impl StreamingBackend for EchoBackend {
    async fn exec(&self, request: &ExecRequest, streams: RemoteStreams) -> CommandResult {
        match request.cmd.first().map(String::as_str) {
            Some("true") => {}
            Some("cat") => {
                if let (Some(mut stdin), Some(stdout)) = (streams.stdin, streams.stdout) {
                    while let Some(bytes) = stdin.recv().await {
                        stdout.write(bytes).await.unwrap();
                    }
                }
            }
            _ => pending().await,
        }
        CommandResult::Exited(0)
    }

    async fn attach(&self, _: &AttachRequest, _: RemoteStreams) -> CommandResult {
        CommandResult::Failed("not running".to_owned())
    }

    async fn port_forward(
        &self,
        _: &str,
        _: u16,
        from_client: &mut StreamReader,
        to_client: &StreamWriter,
    ) -> Result<(), String> {
        while let Some(bytes) = from_client.recv().await {
            to_client
                .write(bytes)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A server in front of the backend.
struct Rig(StreamingServer);

async fn rig() -> Rig {
    Rig(StreamingServer::start(EchoBackend).await.unwrap())
}

impl Rig {
    /// Returns the URL of a command with a letter for each of stdin, stdout, stderr and terminal.
    async fn exec(&self, cmd: &[&str], streams: &str) -> String {
        let request = ExecRequest {
            container_id: "c".to_owned(),
            cmd: cmd.iter().map(|word| (*word).to_owned()).collect(),
            tty: streams.contains('t'),
            stdin: streams.contains('i'),
            stdout: streams.contains('o'),
            stderr: streams.contains('e'),
        };
        self.0.url(StreamingRequest::Exec(request)).unwrap()
    }

    async fn forward(&self, port: &[i32]) -> String {
        let request = PortForwardRequest {
            pod_sandbox_id: "p".to_owned(),
            port: port.to_vec(),
        };
        self.0.url(StreamingRequest::PortForward(request)).unwrap()
    }
}

#[tokio::test]
async fn success_is_a_status_in_version_4_and_silence_before_it() {
    let rig = rig().await;
    for (protocol, said) in [
        ("v4.channel.k8s.io", r#"{"metadata":{},"status":"Success"}"#),
        ("v3.channel.k8s.io", ""),
        ("channel.k8s.io", ""),
    ] {
        let mut client = SpdyClient::connect(&rig.exec(&["true"], "o").await, protocol).await;
        let [error, ..] = client.open_streams("o").await;
        client.until(SpdyClient::is_over).await;
        assert_eq!(client.received(error), said, "{protocol}");
    }
}

#[tokio::test]
async fn a_ping_is_answered_and_an_even_stream_refused() {
    let rig = rig().await;
    let mut client =
        SpdyClient::connect(&rig.exec(&["sleep", "60"], "o").await, "v4.channel.k8s.io").await;
    client.send(SpdyFrame::Ping(7)).await;
    client.send(SpdyFrame::Ping(2)).await;
    client
        .send(SpdyFrame::Open {
            id: 4,
            last: false,
            headers: Vec::new(),
        })
        .await;
    client.until(|client| client.others.len() == 2).await;
    assert_eq!(
        client.others,
        [SpdyFrame::Ping(7), SpdyFrame::Reset { id: 4, status: 1 }]
    );
}

#[tokio::test]
async fn a_url_is_good_once_and_only_for_what_it_was_made() {
    let rig = rig().await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    let status = async |url: &str, headers: &str| request(url, headers).await.0[9..12].to_owned();

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
    let (head, _) = request(&rig.exec(&["true"], "o").await, &unknown).await;
    assert!(
        head.starts_with("HTTP/1.1 403") && head.contains("v2.channel.k8s.io"),
        "{head}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_streams_is_sent_away_in_half_a_minute() {
    let rig = rig().await;
    let start = tokio::time::Instant::now();
    let mut client =
        SpdyClient::connect(&rig.exec(&["true"], "o").await, "v4.channel.k8s.io").await;
    client.until(SpdyClient::is_over).await;
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_on_which_nothing_is_said_for_four_hours() {
    let rig = rig().await;
    let mut client = SpdyClient::connect(
        &rig.exec(&["sleep", "infinity"], "o").await,
        "v4.channel.k8s.io",
    )
    .await;
    client.open_streams("o").await;
    client.until(|client| client.others.len() == 2).await;
    let start = tokio::time::Instant::now();
    client.until(SpdyClient::is_over).await;
    assert_eq!(start.elapsed().as_secs(), 4 * 60 * 60);
}

#[tokio::test]
async fn connections_to_a_port_are_pairs_of_streams() {
    let rig = rig().await;
    let mut client = SpdyClient::connect(&rig.forward(&[]).await, "portforward.k8s.io").await;
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
        client.write(data, &text).await;
        client.until(|client| client.received(data) == text).await;
        client.close(data).await;
        client
            .until(|client| client.closed.contains(&data) && client.closed.contains(&error))
            .await;
        assert_eq!(client.received(error), "");
    }
    let wrong = client
        .open(&[("streamtype", "data"), ("port", "0"), ("requestid", "2")])
        .await;
    let refused = SpdyFrame::Reset {
        id: wrong,
        status: 5,
    };
    client
        .until(|client| client.others.contains(&refused))
        .await;
}

#[tokio::test]
async fn ports_are_forwarded_over_websockets() {
    let rig = rig().await;
    let mut client = ChannelClient::connect(&rig.forward(&[258]).await, "v4.channel.k8s.io").await;
    client.write(b"\0hello").await;
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

/// Upstream's TestServeWSMultiplePortForward.
#[tokio::test]
async fn each_of_several_ports_has_its_channels_in_a_websocket() {
    use futures_util::StreamExt;
    let ports: [u16; 3] = [7000, 8000, 9000];
    let rig = rig().await;
    let url = rig.forward(&ports.map(i32::from)).await;
    let mut client = ChannelClient::connect(&url, "v4.channel.k8s.io").await;
    let expected = |at: usize| {
        [
            ports[at].to_le_bytes().to_vec(),
            format!("{at} here").into(),
        ]
    };
    for at in 0..ports.len() {
        let channel = u8::try_from(at * 2).unwrap();
        let message = [&[channel], format!("{at} here").as_bytes()].concat();
        client.write(&message).await;
    }
    let mut told = vec![Vec::new(); 2 * ports.len()];
    while (0..ports.len()).any(|at| told[2 * at].len() < expected(at).concat().len()) {
        let message = client.0.next().await.unwrap().unwrap().into_data();
        if let Some((channel, bytes)) = message.split_first() {
            told[usize::from(*channel)].extend_from_slice(bytes);
        }
    }
    for at in 0..ports.len() {
        assert_eq!(told[2 * at], expected(at).concat());
        assert_eq!(
            told[2 * at + 1],
            ports[at].to_le_bytes(),
            "the channel of errors"
        );
    }
}

#[tokio::test]
async fn spdy_may_come_through_a_tunnel() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;

    use crate::testing::{Decoder, Encoder};

    let rig = rig().await;
    let mut client =
        ChannelClient::connect(&rig.forward(&[]).await, "SPDY/3.1+portforward.k8s.io").await;
    let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
    for (id, kind) in [(1, "error"), (3, "data")] {
        let headers = [("streamtype", kind), ("port", "80"), ("requestid", "0")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        encoder.encode(
            &SpdyFrame::Open {
                id,
                last: false,
                headers: headers.to_vec(),
            },
            &mut bytes,
        );
    }
    encoder.encode(
        &SpdyFrame::Data {
            id: 3,
            last: false,
            bytes: b"hello".to_vec(),
        },
        &mut bytes,
    );
    client.0.send(Message::binary(bytes)).await.unwrap();
    let mut decoder = Decoder::new();
    let heard = loop {
        match decoder.next_frame().unwrap() {
            Some(SpdyFrame::Data { id: 3, bytes, .. }) => break bytes,
            Some(_) => {}
            None => decoder.take(&client.0.next().await.unwrap().unwrap().into_data()),
        }
    };
    assert_eq!(heard, b"hello");
}
