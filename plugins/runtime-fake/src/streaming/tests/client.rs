//! A client of the streaming server, as small as can be.

use std::collections::{BTreeMap, VecDeque};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::super::spdy::frames::{Decoder, Encoder, Frame};

/// Sends a request to a URL and returns the head of the answer, and the connection.
pub(super) async fn ask(url: &str, headers: &str) -> (String, TcpStream) {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

/// A SPDY connection: what each stream has said so far.
pub(super) struct Spdy {
    io: TcpStream,
    encoder: Encoder,
    decoder: Decoder,
    next: u32,
    pub(super) heard: BTreeMap<u32, String>,
    pub(super) closed: Vec<u32>,
    pub(super) others: VecDeque<Frame>,
}

impl Spdy {
    pub(super) async fn connect(url: &str, protocol: &str) -> Spdy {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n"
        );
        let (head, io) = ask(url, &headers).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(
            head.to_lowercase()
                .contains(&format!("x-stream-protocol-version: {protocol}")),
            "{head}"
        );
        let (encoder, decoder) = (Encoder::default(), Decoder::new());
        let (heard, closed, others) = Default::default();
        Spdy {
            io,
            encoder,
            decoder,
            next: 1,
            heard,
            closed,
            others,
        }
    }

    pub(super) async fn send(&mut self, frame: Frame) {
        let mut bytes = Vec::new();
        self.encoder.encode(&frame, &mut bytes);
        self.io.write_all(&bytes).await.unwrap();
    }

    /// Opens a stream.
    pub(super) async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let id = self.next;
        self.next += 2;
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.send(Frame::Open {
            id,
            last: false,
            headers: headers.collect(),
        })
        .await;
        id
    }

    pub(super) async fn say(&mut self, id: u32, text: &str) {
        self.send(Frame::Data {
            id,
            last: false,
            bytes: text.into(),
        })
        .await;
    }

    pub(super) async fn close(&mut self, id: u32) {
        self.send(Frame::Data {
            id,
            last: true,
            bytes: Vec::new(),
        })
        .await;
    }

    /// Listens until this is so, or the server has closed the connection.
    pub(super) async fn until(&mut self, so: impl Fn(&Spdy) -> bool) {
        while !so(self) {
            if let Some(frame) = self.decoder.next().unwrap() {
                self.hear(frame);
                continue;
            }
            let mut bytes = [0; 4096];
            match self.io.read(&mut bytes).await.unwrap() {
                0 => return,
                count => self.decoder.take(&bytes[..count]),
            }
        }
    }

    fn hear(&mut self, frame: Frame) {
        if let Frame::Data { id, last, bytes } = &frame {
            self.heard
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

    pub(super) fn said(&self, id: u32) -> &str {
        self.heard.get(&id).map_or("", String::as_str)
    }
}

/// A WebSocket with channels.
pub(super) struct Channels(pub(super) WebSocketStream<TcpStream>);

impl Channels {
    pub(super) async fn connect(url: &str, protocol: &str) -> Channels {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n"
        );
        let (head, io) = ask(url, &headers).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Channels(WebSocketStream::from_raw_socket(io, Role::Client, None).await)
    }

    pub(super) async fn say(&mut self, bytes: &[u8]) {
        self.0.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    /// Returns what each channel has said until the server closed the connection.
    pub(super) async fn rest(&mut self) -> BTreeMap<u8, String> {
        let mut heard: BTreeMap<u8, String> = BTreeMap::new();
        while let Some(Ok(message)) = self.0.next().await {
            if let Message::Binary(bytes) = message {
                let text = String::from_utf8_lossy(&bytes[1..]);
                heard.entry(bytes[0]).or_default().push_str(&text);
            }
        }
        heard
    }
}
