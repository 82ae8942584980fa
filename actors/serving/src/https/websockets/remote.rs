//! A command's streams: from the messages of a WebSocket into streams of SPDY, and back.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::spdy::{self, Last, Opening, SpdyEvent};
use super::{CallerSocket, REMOTE, command_status, open, opening};
use crate::http::HandlerResponse;
use crate::https::streams::{
    BUFFER, CarryError, REFUSAL_BYTES, SWITCH_TIMEOUT, StreamForward, dial, silent,
};
use crate::node::RemoteCommandOptions;

/// The protocol that every runtime speaks over SPDY.
const RUNTIMES: &str = "v4.channel.k8s.io";
const VERSIONS: &str = "x-stream-protocol-version";
/// The largest status of a command, in bytes.
const STATUS_BYTES: usize = 64 * 1024;
/// How long a caller may go on reading what was written before the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The most unanswered pings of the runtime; further ones get no reply.
const PINGS: usize = 4;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// The v5 protocol's message: the channel that is named next is closed.
const ENDS: u8 = 255;

type ToCaller = SplitSink<CallerSocket, Message>;
type FromCaller = SplitStream<CallerSocket>;

/// Why the translation ended, other than by the command's own end.
enum TranslationEnd {
    /// The caller has gone, or does not answer.
    Gone,
    Trouble(String),
}

impl From<io::Error> for TranslationEnd {
    fn from(error: io::Error) -> TranslationEnd {
        TranslationEnd::Trouble(error.to_string())
    }
}

impl From<CarryError> for TranslationEnd {
    fn from(error: CarryError) -> TranslationEnd {
        TranslationEnd::Trouble(error.to_string())
    }
}

/// Opens the WebSocket, and serves it with what the runtime has.
pub(in crate::https) fn translate(
    carried: StreamForward,
    streams: RemoteCommandOptions,
    mut request: Request<Incoming>,
) -> HandlerResponse {
    let answer = match opening(request.headers(), REMOTE) {
        Ok(answer) => answer,
        Err(refusal) => return *refusal,
    };
    let here = hyper::upgrade::on(&mut request);
    tokio::task::spawn_local(async move {
        match tokio::time::timeout(SWITCH_TIMEOUT, here).await {
            Ok(Ok(here)) => serve(open(here).await, carried, streams).await,
            Ok(Err(error)) => tracing::debug!("a stream did not begin: {error}"),
            Err(_) => tracing::debug!("a stream did not begin in time"),
        }
    });
    answer
}

async fn serve(socket: CallerSocket, carried: StreamForward, streams: RemoteCommandOptions) {
    let (mut to_caller, mut from_caller) = socket.split();
    // An empty message shows the caller at once that the server is there.
    let first = match () {
        () if streams.stdout => STDOUT,
        () if streams.stderr => STDERR,
        () => ERROR,
    };
    let hello = to_caller.send(Message::binary(vec![first])).await;
    if hello.is_err() {
        return;
    }
    let last = Cell::new(kernel::now());
    let talk = StreamTranslation {
        streams,
        last: &last,
    };
    let served = tokio::select! {
        served = talk.hold_open(&carried.url, &mut to_caller, &mut from_caller) => served,
        () = silent(&last, carried.idle) => {
            tracing::info!("a stream was idle for {:?} and is ended", carried.idle);
            Err(TranslationEnd::Gone)
        }
    };
    let status = match served {
        Ok(status) => status,
        Err(TranslationEnd::Trouble(why)) => command_status::failure(&why),
        Err(TranslationEnd::Gone) => return,
    };
    let finished = finish(status, to_caller, from_caller);
    drop(tokio::time::timeout(FINISH_TIMEOUT, finished).await);
    drop(carried.keep);
}

/// Sends the caller the status, and lets it read to the end: closing a connection on which it still
/// sends would discard what it has not read.
async fn finish(status: Value, mut to_caller: ToCaller, mut from_caller: FromCaller) {
    let mut message = vec![ERROR];
    message.extend(status.to_string().into_bytes());
    let close = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    let status = async {
        to_caller.send(Message::binary(message)).await?;
        to_caller.send(Message::Close(Some(close))).await
    };
    if status.await.is_ok() {
        while let Some(Ok(_)) = from_caller.next().await {}
    }
}

/// The SPDY stream ids of the command.
#[derive(Debug, Default, Clone, Copy)]
struct StreamIds {
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

struct StreamTranslation<'a> {
    streams: RemoteCommandOptions,
    last: &'a Cell<Instant>,
}

impl StreamTranslation<'_> {
    /// Copies everything until the command has ended, and returns its status.
    async fn hold_open(
        &self,
        url: &str,
        to_caller: &mut ToCaller,
        from_caller: &mut FromCaller,
    ) -> Result<Value, TranslationEnd> {
        let there = called(url).await?;
        let (from_runtime, mut to_runtime) = tokio::io::split(TokioIo::new(there));
        let numbers = self.opened(&mut to_runtime).await?;
        let (pinged, pings) = mpsc::channel(PINGS);
        let up = self.up(numbers, from_caller, to_runtime, pings);
        let from_runtime = BufReader::with_capacity(BUFFER, from_runtime);
        let down = self.down(numbers, from_runtime, to_caller, pinged);
        tokio::select! {
            ended = down => ended,
            stop = up => Err(stop),
        }
    }

    async fn opened(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<StreamIds> {
        let (mut opening, mut frames) = (Opening::default(), Vec::new());
        let mut next = |kind: &str| {
            let (id, frame) = opening.next("streamtype", kind);
            frames.extend(frame);
            id
        };
        let RemoteCommandOptions {
            stdin,
            stdout,
            stderr,
            tty,
        } = self.streams;
        let numbers = StreamIds {
            error: next("error"),
            stdin: stdin.then(|| next("stdin")),
            stdout: stdout.then(|| next("stdout")),
            stderr: stderr.then(|| next("stderr")),
            resize: tty.then(|| next("resize")),
        };
        to.write_all(&frames).await?;
        to.flush().await?;
        Ok(numbers)
    }

    /// From the caller to the runtime, until the caller leaves. A runtime that reads no more may still send
    /// output, above all the end of the command: that it does not read is no error.
    async fn up(
        &self,
        mut numbers: StreamIds,
        from: &mut FromCaller,
        mut to: impl AsyncWrite + Unpin,
        mut pings: mpsc::Receiver<u32>,
    ) -> TranslationEnd {
        let mut hears = true;
        loop {
            // Both arms are cancel-safe.
            let message = tokio::select! {
                message = from.next() => message,
                Some(id) = pings.recv() => {
                    hears = hears && write(&mut to, &spdy::ping(id), &[]).await.is_ok();
                    continue;
                }
            };
            let bytes: Bytes = match message {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return TranslationEnd::Gone,
            };
            self.last.set(kernel::now());
            let (meant, data, last) = match &bytes[..] {
                [ENDS, channel] => (*channel, &[][..], Last::Yes),
                [ENDS, ..] => return TranslationEnd::Gone,
                [] => continue,
                [channel, data @ ..] => (*channel, data, Last::No),
            };
            let number = match meant {
                STDIN => &mut numbers.stdin,
                RESIZE => &mut numbers.resize,
                // Other channels are not read by the server.
                _ => continue,
            };
            let Some(stream) = *number else { continue };
            if last == Last::Yes {
                *number = None;
            }
            let head = spdy::data(stream, data.len(), last);
            hears = hears && write(&mut to, &head, data).await.is_ok();
        }
    }

    /// From the runtime to the caller, until the command has ended.
    async fn down(
        &self,
        mut numbers: StreamIds,
        mut from: impl AsyncRead + Unpin,
        to: &mut ToCaller,
        pinged: mpsc::Sender<u32>,
    ) -> Result<Value, TranslationEnd> {
        let (mut status, mut is_told) = (Vec::new(), false);
        while !is_told || numbers.stdout.is_some() || numbers.stderr.is_some() {
            let Some(heard) = spdy::read_event(&mut from).await? else {
                match is_told {
                    true => break,
                    false => {
                        let why = "error reading from error stream: unexpected EOF";
                        return Err(TranslationEnd::Trouble(why.to_owned()));
                    }
                }
            };
            self.last.set(kernel::now());
            let ended = match heard {
                SpdyEvent::Data {
                    stream,
                    length,
                    last,
                } => {
                    let channel = match Some(stream) {
                        out if out == numbers.stdout => Some(STDOUT),
                        err if err == numbers.stderr => Some(STDERR),
                        _ => None,
                    };
                    let mut pieces = from.take(length.into());
                    match channel {
                        Some(channel) => self.pass(channel, &mut pieces, to).await?,
                        None if stream == numbers.error => {
                            pieces.read_to_end(&mut status).await?;
                        }
                        None => drop(tokio::io::copy(&mut pieces, &mut tokio::io::sink()).await?),
                    }
                    from = pieces.into_inner();
                    if status.len() > STATUS_BYTES {
                        let why = "error reading from error stream: it is too long";
                        return Err(TranslationEnd::Trouble(why.to_owned()));
                    }
                    (last == Last::Yes).then_some(stream)
                }
                SpdyEvent::Ended(stream) => Some(stream),
                SpdyEvent::Ping(id) => {
                    pinged.try_send(id).unwrap_or_default();
                    None
                }
                SpdyEvent::Nothing => None,
            };
            is_told |= ended == Some(numbers.error);
            for number in [&mut numbers.stdout, &mut numbers.stderr] {
                number.take_if(|number| Some(*number) == ended);
            }
        }
        Ok(command_status::command_status(&status))
    }

    async fn pass(
        &self,
        channel: u8,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut ToCaller,
    ) -> Result<(), TranslationEnd> {
        loop {
            let mut message = vec![0; BUFFER];
            message[0] = channel;
            let read = from.read(&mut message[1..]).await?;
            if read == 0 {
                return Ok(());
            }
            message.truncate(1 + read);
            let sent = to.send(Message::binary(message)).await;
            sent.map_err(|_| TranslationEnd::Gone)?;
            self.last.set(kernel::now());
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), head: &[u8], data: &[u8]) -> io::Result<()> {
    to.write_all(head).await?;
    to.write_all(data).await?;
    to.flush().await
}

/// Calls the runtime, and switches the connection to SPDY.
async fn called(url: &str) -> Result<Upgraded, TranslationEnd> {
    let onward = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(HOST, authority(url))
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header(VERSIONS, RUNTIMES)
        .body(Empty::new());
    let onward = onward.map_err(|_| CarryError::Url(url.to_owned()))?;
    let mut answer = dial(onward).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(answer.into_body(), REFUSAL_BYTES).collect();
        let body = tokio::time::timeout(SWITCH_TIMEOUT, body).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => hyper::body::Bytes::new(),
        };
        let why = String::from_utf8_lossy(&body);
        let why = format!("unable to upgrade connection: {}", why.trim());
        return Err(TranslationEnd::Trouble(why));
    }
    let chosen = answer.headers().get(VERSIONS);
    if chosen.is_none_or(|chosen| chosen != RUNTIMES) {
        let why = format!("unable to negotiate protocol: the runtime speaks no {RUNTIMES}");
        return Err(TranslationEnd::Trouble(why));
    }
    let switched = hyper::upgrade::on(&mut answer).await;
    switched.map_err(|error| TranslationEnd::Trouble(error.to_string()))
}

fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}
