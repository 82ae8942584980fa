//! Laws of streams: the URL of a streaming server, where a client that has one speaks SPDY or WebSocket.

use futures_util::FutureExt;
use proto::cri::{AttachRequest, ExecRequest, PortForwardRequest};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::super::{CheckResult, CheckStop, holds, refused};
use super::RuntimeCheck;
use super::case::{ECHO, RuntimeCase, SLEEP};

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    ("Exec answers a URL that lets one client in, once", |case| {
        executed(case).boxed()
    }),
    ("Attach and PortForward answer URLs of their own", |case| {
        attached(case).boxed()
    }),
    (
        "Exec without a stream, or in a container that does not run, is refused",
        |case| refused_streams(case).boxed(),
    ),
];

const COMMANDS: &str = "v4.channel.k8s.io";
const FORWARD: &str = "portforward.k8s.io";

async fn executed(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    let url = case.runtime.exec(exec(&id)).await?.into_inner().url;
    upgraded(&url, COMMANDS, "HTTP/1.1 101").await?;
    upgraded(&url, COMMANDS, "HTTP/1.1 404").await
}

async fn attached(case: &mut RuntimeCase) -> CheckResult {
    let (sandbox, id) = case.run_container(SLEEP).await?;
    let request = AttachRequest {
        container_id: id,
        stdout: true,
        ..AttachRequest::default()
    };
    let url = case.runtime.attach(request).await?.into_inner().url;
    upgraded(&url, COMMANDS, "HTTP/1.1 101").await?;
    let request = PortForwardRequest {
        pod_sandbox_id: sandbox.id,
        port: vec![80],
    };
    let url = case.runtime.port_forward(request).await?.into_inner().url;
    upgraded(&url, FORWARD, "HTTP/1.1 101").await
}

async fn refused_streams(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let id = case.create(&sandbox, SLEEP).await?;
    refused(
        "a command in a container that does not run",
        case.runtime.exec(exec(&id)).await,
    )?;
    case.start(&id).await?;
    let silent = ExecRequest {
        stdout: false,
        ..exec(&id)
    };
    refused("a command without streams", case.runtime.exec(silent).await)?;
    Ok(())
}

fn exec(id: &str) -> ExecRequest {
    ExecRequest {
        container_id: id.to_owned(),
        cmd: ECHO.iter().map(|&word| word.to_owned()).collect(),
        stdout: true,
        ..ExecRequest::default()
    }
}

/// Asks a URL for SPDY, and checks how the answer begins.
async fn upgraded(url: &str, protocol: &str, expected: &str) -> CheckResult {
    let parts = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'));
    let Some((host, path)) = parts else {
        return Err(CheckStop::Broken(format!(
            "{url:?} is no URL of plain HTTP"
        )));
    };
    let mut stream = BufReader::new(TcpStream::connect(host).await?);
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    holds(line.starts_with(expected), || {
        format!("{url} was answered {line:?}, expected {expected:?}")
    })
}
