//! The remote command protocol of exec and attach: collects the client's streams and reports a command's end on the
//! error stream (upstream's k8s.io/cri-streaming remotecommand).

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::connection::{NewStream, StreamReader, StreamWriter};
use super::spdy::headers::value;

/// How long a client may take to open its streams; upstream's value.
const STREAM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The streams that the request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamOptions {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

/// The streams of a command that the client asked for.
#[derive(Debug, Default)]
pub struct RemoteStreams {
    /// The command's standard input, sent by the client.
    pub stdin: Option<StreamReader>,
    /// The command's standard output; with a terminal, all of its output.
    pub stdout: Option<StreamWriter>,
    /// The command's standard error; always none with a terminal.
    pub stderr: Option<StreamWriter>,
    /// The sizes of the client's terminal as JSON, which [`TerminalSizeReader`](super::TerminalSizeReader) reads.
    pub resize: Option<StreamReader>,
}

/// The result of a command.
#[derive(Debug)]
pub enum CommandResult {
    /// With this exit code.
    Exited(i32),
    /// It could not be run or attached to, for this reason.
    Failed(String),
}

/// A version of the remote command protocol. The first two do not differ here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProtocolVersion {
    V1,
    V3,
    V4,
}

impl ProtocolVersion {
    /// Returns the version that SPDY clients know by this name.
    pub(super) fn of(name: &str) -> Option<ProtocolVersion> {
        match name {
            "channel.k8s.io" | "v2.channel.k8s.io" => Some(ProtocolVersion::V1),
            "v3.channel.k8s.io" => Some(ProtocolVersion::V3),
            "v4.channel.k8s.io" => Some(ProtocolVersion::V4),
            _ => None,
        }
    }
}

/// Waits for the streams of a command that a client opens over SPDY; none if it does not open them in time.
pub(super) async fn accept_streams(
    opened: &mut mpsc::Receiver<NewStream>,
    options: StreamOptions,
    version: ProtocolVersion,
) -> Option<(RemoteStreams, StreamWriter)> {
    let resizes = options.tty && version >= ProtocolVersion::V3;
    let kinds = [true, options.stdin, options.stdout, options.stderr, resizes];
    let expected = kinds.into_iter().filter(|expected| *expected).count();
    let accepting = async {
        let (mut streams, mut error) = (RemoteStreams::default(), None);
        for _ in 0..expected {
            let NewStream {
                headers,
                reader,
                writer,
            } = opened.recv().await?;
            writer.reply().await;
            match value(&headers, "streamtype").unwrap_or_default() {
                "error" => error = Some(writer),
                "stdin" => streams.stdin = Some(reader),
                "stdout" => streams.stdout = Some(writer),
                "stderr" => streams.stderr = Some(writer),
                "resize" => streams.resize = Some(reader),
                unknown => {
                    tracing::warn!(
                        stream = unknown,
                        "a streaming client opens an unexpected stream"
                    );
                }
            }
        }
        error.map(|error| (streams, error))
    };
    let accepted = tokio::time::timeout(STREAM_CREATION_TIMEOUT, accepting)
        .await
        .ok()
        .flatten();
    if accepted.is_none() {
        tracing::warn!("a streaming client did not create its streams in time");
    }
    accepted
}

/// Takes the streams of a command over WebSocket channels, and sends the empty first message by which clients know that
/// they are connected.
pub(super) async fn accept_channels(
    opened: Vec<NewStream>,
    options: StreamOptions,
) -> Option<(RemoteStreams, StreamWriter)> {
    let [stdin, stdout, stderr, error, resize] = <[NewStream; 5]>::try_from(opened).ok()?;
    let lowest = if options.stdout {
        &stdout
    } else if options.stderr {
        &stderr
    } else {
        &error
    };
    drop(lowest.writer.write([]).await);
    let streams = RemoteStreams {
        stdin: options.stdin.then_some(stdin.reader),
        stdout: options.stdout.then_some(stdout.writer),
        stderr: options.stderr.then_some(stderr.writer),
        resize: Some(resize.reader),
    };
    Some((streams, error.writer))
}

/// Reports the end of a command on the error stream, and closes it.
pub(super) async fn report_result(
    outcome: CommandResult,
    action: &str,
    version: ProtocolVersion,
    error: &StreamWriter,
) {
    let (text, status) = match outcome {
        CommandResult::Exited(0) => (
            String::new(),
            json!({ "metadata": {}, "status": "Success" }),
        ),
        CommandResult::Exited(code) => {
            let text = format!(
                "command terminated with non-zero exit code: command terminated with exit code {code}"
            );
            let cause = json!({ "reason": "ExitCode", "message": code.to_string() });
            let status = json!({
                "metadata": {}, "status": "Failure", "message": text,
                "reason": "NonZeroExitCode", "details": { "causes": [cause] },
            });
            (text, status)
        }
        CommandResult::Failed(why) => {
            let why = format!("error {action} container: {why}");
            let text = format!("Internal error occurred: {why}");
            let status = json!({
                "metadata": {}, "status": "Failure", "message": text, "code": 500,
                "reason": "InternalError", "details": { "causes": [{ "message": why }] },
            });
            (text, status)
        }
    };
    let text = if version >= ProtocolVersion::V4 {
        status.to_string()
    } else {
        text
    };
    if !text.is_empty() {
        drop(error.write(text).await);
    }
    error.close().await;
}
