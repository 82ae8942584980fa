//! Connections to ports of a pod. Each is a pair of streams with one request number: data, and errors.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use proto::cri::PortForwardRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::session::{Inlet, Opened, Outlet};
use super::spdy::headers::value;
use crate::shared::Shared;

/// How long a client may take to open the second stream of a pair; upstream's value.
const CREATION: Duration = Duration::from_secs(30);
/// Pairs of which one stream is missing.
const WAITING: usize = 256;

/// What is behind a port of a simulated pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Says back what it is told.
    Echo,
    Tcp(SocketAddr),
    Refused,
}

#[derive(Default)]
struct Pair {
    data: Option<(Inlet, Outlet)>,
    error: Option<Outlet>,
}

type Pending<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>>;

/// Serves the pairs of streams that a client opens.
pub(super) async fn run(
    node: &Weak<Shared>,
    request: &PortForwardRequest,
    mut opened: mpsc::Receiver<Opened>,
) {
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut pending: Pending<'_> = FuturesUnordered::new();
    let mut open = true;
    while open || !pending.is_empty() {
        tokio::select! {
            next = opened.recv(), if open => match next {
                None => open = false,
                Some(stream) => take(node, request, stream, (&mut pairs, &mut pending)).await,
            },
            Some(late) = pending.next() => {
                let late = late.and_then(|id| pairs.remove_entry(&id));
                if let Some((id, Pair { error: Some(error), .. })) = late {
                    let text = format!("(request={id}) timed out waiting for streams");
                    drop(error.write(text).await);
                    error.close().await;
                }
            }
        }
    }
}

async fn take<'a>(
    node: &'a Weak<Shared>,
    request: &'a PortForwardRequest,
    stream: Opened,
    (pairs, pending): (&mut HashMap<String, Pair>, &mut Pending<'a>),
) {
    let Opened {
        headers,
        inlet,
        outlet,
    } = stream;
    let kind = value(&headers, "streamtype").unwrap_or_default();
    let port = value(&headers, "port").and_then(|port| port.parse::<u16>().ok());
    let Some(port) = port.filter(|port| *port > 0 && ["error", "data"].contains(&kind)) else {
        return outlet.cancel().await;
    };
    // An old client gives no number: its streams come in pairs, the one for errors first.
    let id = value(&headers, "requestid")
        .filter(|id| !id.is_empty())
        .map_or_else(
            || {
                outlet
                    .id()
                    .saturating_sub(if kind == "data" { 2 } else { 0 })
                    .to_string()
            },
            str::to_owned,
        );
    if !pairs.contains_key(&id) {
        if pairs.len() >= WAITING {
            return outlet.cancel().await;
        }
        let late = id.clone();
        pending.push(Box::pin(async move {
            tokio::time::sleep(CREATION).await;
            Some(late)
        }));
    }
    let pair = pairs.entry(id.clone()).or_default();
    outlet.reply().await;
    match kind {
        "data" => pair.data = Some((inlet, outlet)),
        _ => pair.error = Some(outlet),
    }
    if pair.data.is_some()
        && pair.error.is_some()
        && let Some(Pair {
            data: Some(data),
            error: Some(error),
        }) = pairs.remove(&id)
    {
        pending.push(Box::pin(async move {
            connect(node, request, port, (data, error)).await;
            None
        }));
    }
}

/// Serves ports over channels: the two of each begin with its number.
pub(super) async fn channels(
    node: &Weak<Shared>,
    request: &PortForwardRequest,
    opened: Vec<Opened>,
) {
    let mut opened = opened.into_iter();
    let mut connections = Vec::new();
    for port in &request.port {
        let (Some(data), Some(error)) = (opened.next(), opened.next()) else {
            break;
        };
        let port = u16::try_from(*port).unwrap_or_default();
        drop(data.outlet.write(port.to_le_bytes()).await);
        drop(error.outlet.write(port.to_le_bytes()).await);
        let streams = ((data.inlet, data.outlet), error.outlet);
        connections.push(connect(node, request, port, streams));
    }
    join_all(connections).await;
}

async fn connect(
    node: &Weak<Shared>,
    request: &PortForwardRequest,
    port: u16,
    ((mut inlet, outlet), error): ((Inlet, Outlet), Outlet),
) {
    let target = match node.upgrade() {
        Some(shared) => {
            let target = shared.node().target(&request.pod_sandbox_id, port);
            target.map_err(|refusal| refusal.to_string())
        }
        None => Err("the node is gone".to_owned()),
    };
    let done = match target {
        Ok(Target::Echo) => {
            while let Some(bytes) = inlet.recv().await {
                if outlet.write(bytes).await.is_err() {
                    break;
                }
            }
            Ok(())
        }
        Ok(Target::Tcp(address)) => carry(address, &mut inlet, &outlet)
            .await
            .map_err(|error| error.to_string()),
        Ok(Target::Refused) => Err(format!(
            "failed to connect to localhost:{port}: connect: connection refused"
        )),
        Err(why) => Err(why),
    };
    if let Err(why) = done {
        let pod = &request.pod_sandbox_id;
        let text = format!("error forwarding port {port} to pod {pod}, uid : {why}");
        drop(error.write(text).await);
        outlet.cancel().await;
    }
    outlet.close().await;
    error.close().await;
}

/// Carries bytes both ways until the server says no more.
async fn carry(address: SocketAddr, inlet: &mut Inlet, outlet: &Outlet) -> std::io::Result<()> {
    let (mut read, mut write) = TcpStream::connect(address).await?.into_split();
    let inwards = async {
        while let Some(bytes) = inlet.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // The client may have said all it has to say, and still wait for the answer.
        drop(write.shutdown().await);
        std::future::pending().await
    };
    let outwards = async {
        let mut bytes = vec![0; 32 << 10];
        while let count @ 1.. = read.read(&mut bytes).await? {
            if outlet.write(bytes[..count].to_vec()).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        () = inwards => Ok(()),
        done = outwards => done,
    }
}
