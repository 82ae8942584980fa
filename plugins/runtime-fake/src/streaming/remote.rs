//! Commands run, and containers attached to, over the streams of a client: gathers the streams, runs the
//! command and reports its end on the error stream.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::session::{Inlet, Opened, Outlet};
use super::spdy::headers::value;

/// How long a client may take to open its streams; upstream's value.
const CREATION: Duration = Duration::from_secs(30);

/// Which streams are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

/// The streams of a command.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) stdin: Option<Inlet>,
    pub(super) stdout: Option<Outlet>,
    pub(super) stderr: Option<Outlet>,
    pub(super) resize: Option<Inlet>,
}

/// How a command came to its end.
#[derive(Debug)]
pub(super) enum Outcome {
    Exited(i32),
    /// It could not be run, for this reason.
    Failed(String),
}

/// A version of the remote command protocol. The first two do not differ here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V1,
    V3,
    V4,
}

impl Version {
    /// Returns the first of the client's protocols that is spoken here, over SPDY.
    pub(super) fn of(name: &str) -> Option<Version> {
        match name {
            "channel.k8s.io" | "v2.channel.k8s.io" => Some(Version::V1),
            "v3.channel.k8s.io" => Some(Version::V3),
            "v4.channel.k8s.io" => Some(Version::V4),
            _ => None,
        }
    }
}

/// Waits for the streams of a command that a client opens over SPDY; none if it does not in time.
pub(super) async fn gather(
    opened: &mut mpsc::Receiver<Opened>,
    wanted: Wanted,
    version: Version,
) -> Option<(Streams, Outlet)> {
    let resizes = wanted.tty && version >= Version::V3;
    let kinds = [true, wanted.stdin, wanted.stdout, wanted.stderr, resizes];
    let expected = kinds.into_iter().filter(|wanted| *wanted).count();
    let gathering = async {
        let (mut streams, mut error) = (Streams::default(), None);
        for _ in 0..expected {
            let Opened {
                headers,
                inlet,
                outlet,
            } = opened.recv().await?;
            outlet.reply().await;
            match value(&headers, "streamtype").unwrap_or_default() {
                "error" => error = Some(outlet),
                "stdin" => streams.stdin = Some(inlet),
                "stdout" => streams.stdout = Some(outlet),
                "stderr" => streams.stderr = Some(outlet),
                "resize" => streams.resize = Some(inlet),
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
    let gathered = tokio::time::timeout(CREATION, gathering)
        .await
        .ok()
        .flatten();
    if gathered.is_none() {
        tracing::warn!("a streaming client did not create its streams in time");
    }
    gathered
}

/// Takes the streams of a command that are there from the beginning, and says that it is connected.
pub(super) async fn channels(opened: Vec<Opened>, wanted: Wanted) -> Option<(Streams, Outlet)> {
    let [stdin, stdout, stderr, error, resize] = <[Opened; 5]>::try_from(opened).ok()?;
    let lowest = if wanted.stdout {
        &stdout
    } else if wanted.stderr {
        &stderr
    } else {
        &error
    };
    drop(lowest.outlet.write([]).await);
    let streams = Streams {
        stdin: wanted.stdin.then_some(stdin.inlet),
        stdout: wanted.stdout.then_some(stdout.outlet),
        stderr: wanted.stderr.then_some(stderr.outlet),
        resize: Some(resize.inlet),
    };
    Some((streams, error.outlet))
}

/// Reports the end of a command, and that no stream says more.
pub(super) async fn report(outcome: Outcome, what: &str, version: Version, error: &Outlet) {
    let (text, status) = match outcome {
        Outcome::Exited(0) => (
            String::new(),
            json!({ "metadata": {}, "status": "Success" }),
        ),
        Outcome::Exited(code) => {
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
        Outcome::Failed(why) => {
            let why = format!("error {what} container: {why}");
            let text = format!("Internal error occurred: {why}");
            let status = json!({
                "metadata": {}, "status": "Failure", "message": text, "code": 500,
                "reason": "InternalError", "details": { "causes": [{ "message": why }] },
            });
            (text, status)
        }
    };
    let text = if version >= Version::V4 {
        status.to_string()
    } else {
        text
    };
    if !text.is_empty() {
        drop(error.write(text).await);
    }
    error.close().await;
}
