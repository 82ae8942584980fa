//! Small clients of the streaming server, for tests: they panic on what a test does not expect.

#![allow(clippy::unwrap_used, reason = "the clients of tests")]

use std::collections::{BTreeMap, VecDeque};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

pub use crate::streaming::spdy::frames::{Decoder, Encoder, SpdyError, SpdyFrame};

/// Sends a request with these header lines (each with its CRLF) to a URL; returns the response's head, and the
/// connection.
pub async fn request(url: &str, headers: &str) -> (String, TcpStream) {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

/// A SPDY connection, with what each stream has received so far.
#[derive(Debug)]
pub struct SpdyClient {
    io: TcpStream,
    encoder: Encoder,
    decoder: Decoder,
    next: u32,
    /// The text that the server has sent, by stream id.
    pub received: BTreeMap<u32, String>,
    /// Streams whose half the server has ended, in that order.
    pub closed: Vec<u32>,
    /// All frames that are not data, in the order of their arrival.
    pub others: VecDeque<SpdyFrame>,
}

impl SpdyClient {
    /// Opens a command's streams in kubectl's order; returns error, stdin, stdout and stderr. `wanted` has a letter
    /// for each of `i`, `o`, `e`, and `t` for a terminal; a stream that is not wanted has the id 0.
    pub async fn open_streams(&mut self, wanted: &str) -> [u32; 4] {
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
                ids[place] = self.open(&[("streamtype", kind)]).await;
            }
        }
        if wanted.contains('t') {
            let resize = self.open(&[("streamtype", "resize")]).await;
            self.write(resize, r#"{"Width":80,"Height":24}"#).await;
        }
        ids
    }

    /// Whether the server has ended the connection.
    pub fn is_over(&self) -> bool {
        let mut frames = self.others.iter();
        frames.any(|frame| matches!(frame, SpdyFrame::GoAway { .. }))
    }

    /// Connects to a URL; panics unless the server accepts the protocol.
    pub async fn connect(url: &str, protocol: &str) -> SpdyClient {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n"
        );
        let (head, io) = request(url, &headers).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(
            head.to_lowercase()
                .contains(&format!("x-stream-protocol-version: {protocol}")),
            "{head}"
        );
        let (encoder, decoder) = (Encoder::default(), Decoder::new());
        let (received, closed, others) = Default::default();
        SpdyClient {
            io,
            encoder,
            decoder,
            next: 1,
            received,
            closed,
            others,
        }
    }

    /// Encodes a frame and sends it.
    pub async fn send(&mut self, frame: SpdyFrame) {
        let mut bytes = Vec::new();
        self.encoder.encode(&frame, &mut bytes);
        self.io.write_all(&bytes).await.unwrap();
    }

    /// Opens a stream with these headers and returns its number.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let id = self.next;
        self.next += 2;
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.send(SpdyFrame::Open {
            id,
            last: false,
            headers: headers.collect(),
        })
        .await;
        id
    }

    /// Sends text in a data frame of this stream.
    pub async fn write(&mut self, id: u32, text: &str) {
        self.send(SpdyFrame::Data {
            id,
            last: false,
            bytes: text.into(),
        })
        .await;
    }

    /// Ends the client's half of a stream.
    pub async fn close(&mut self, id: u32) {
        self.send(SpdyFrame::Data {
            id,
            last: true,
            bytes: Vec::new(),
        })
        .await;
    }

    /// Reads frames until the condition holds, or the server has closed the connection.
    pub async fn until(&mut self, so: impl Fn(&SpdyClient) -> bool) {
        while !so(self) {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                self.record(frame);
                continue;
            }
            let mut bytes = [0; 4096];
            match self.io.read(&mut bytes).await.unwrap() {
                0 => return,
                count => self.decoder.take(&bytes[..count]),
            }
        }
    }

    fn record(&mut self, frame: SpdyFrame) {
        if let SpdyFrame::Data { id, last, bytes } = &frame {
            self.received
                .entry(*id)
                .or_default()
                .push_str(str::from_utf8(bytes).unwrap());
            if *last {
                self.closed.push(*id);
            }
        } else {
            self.others.push_back(frame);
        }
    }

    /// Returns all that the server has sent on a stream.
    pub fn received(&self, id: u32) -> &str {
        self.received.get(&id).map_or("", String::as_str)
    }
}

/// A WebSocket with channels: the first byte of a message is the number of its stream.
#[derive(Debug)]
pub struct ChannelClient(pub WebSocketStream<TcpStream>);

impl ChannelClient {
    /// Connects to a URL; panics unless the server accepts the protocol.
    pub async fn connect(url: &str, protocol: &str) -> ChannelClient {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n"
        );
        let (head, io) = request(url, &headers).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        ChannelClient(WebSocketStream::from_raw_socket(io, Role::Client, None).await)
    }

    /// Sends one binary WebSocket message.
    pub async fn write(&mut self, bytes: &[u8]) {
        self.0.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    /// Returns all that each channel receives until the server closes the connection.
    pub async fn rest(&mut self) -> BTreeMap<u8, String> {
        let mut received: BTreeMap<u8, String> = BTreeMap::new();
        while let Some(Ok(message)) = self.0.next().await {
            if let Message::Binary(bytes) = message {
                let text = String::from_utf8_lossy(&bytes[1..]);
                received.entry(bytes[0]).or_default().push_str(&text);
            }
        }
        received
    }
}
