//! Connections to ports of a pod. Each is a pair of streams with one request number: data, and errors.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use proto::cri::PortForwardRequest;
use tokio::sync::mpsc;

use super::StreamingBackend;
use super::connection::{NewStream, StreamReader, StreamWriter};
use super::spdy::headers::value;

/// How long a client may take to open the second stream of a pair; upstream's value.
const STREAM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Pairs that may wait for their second stream at a time.
const MAX_INCOMPLETE_PAIRS: usize = 256;

/// The streams of one connection to a port, as far as the client has opened them.
#[derive(Default)]
struct StreamPair {
    data: Option<(StreamReader, StreamWriter)>,
    error: Option<StreamWriter>,
}

/// Connections in progress, and the timeouts of pairs by their request numbers.
type PendingPairs<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = Option<String>> + Send + 'a>>>;

/// Serves the pairs of streams that a client opens.
pub(super) async fn serve_pairs(
    backend: &impl StreamingBackend,
    request: &PortForwardRequest,
    mut opened: mpsc::Receiver<NewStream>,
) {
    let mut pairs: HashMap<String, StreamPair> = HashMap::new();
    let mut pending: PendingPairs<'_> = FuturesUnordered::new();
    let mut open = true;
    while open || !pending.is_empty() {
        tokio::select! {
            next = opened.recv(), if open => match next {
                None => open = false,
                Some(stream) => accept_stream(backend, request, stream, (&mut pairs, &mut pending)).await,
            },
            Some(late) = pending.next() => {
                let late = late.and_then(|id| pairs.remove_entry(&id));
                if let Some((id, StreamPair { error: Some(error), .. })) = late {
                    let text = format!("(request={id}) timed out waiting for streams");
                    drop(error.write(text).await);
                    error.close().await;
                }
            }
        }
    }
}

async fn accept_stream<'a>(
    backend: &'a impl StreamingBackend,
    request: &'a PortForwardRequest,
    stream: NewStream,
    (pairs, pending): (&mut HashMap<String, StreamPair>, &mut PendingPairs<'a>),
) {
    let NewStream {
        headers,
        reader,
        writer,
    } = stream;
    let kind = value(&headers, "streamtype").unwrap_or_default();
    let port = value(&headers, "port").and_then(|port| port.parse::<u16>().ok());
    let Some(port) = port.filter(|port| *port > 0 && ["error", "data"].contains(&kind)) else {
        return writer.cancel().await;
    };
    // An old client gives no number: its streams come in pairs, the one for errors first.
    let id = value(&headers, "requestid")
        .filter(|id| !id.is_empty())
        .map_or_else(
            || {
                writer
                    .id()
                    .saturating_sub(if kind == "data" { 2 } else { 0 })
                    .to_string()
            },
            str::to_owned,
        );
    if !pairs.contains_key(&id) {
        if pairs.len() >= MAX_INCOMPLETE_PAIRS {
            return writer.cancel().await;
        }
        let late = id.clone();
        pending.push(Box::pin(async move {
            tokio::time::sleep(STREAM_CREATION_TIMEOUT).await;
            Some(late)
        }));
    }
    let pair = pairs.entry(id.clone()).or_default();
    writer.reply().await;
    match kind {
        "data" => pair.data = Some((reader, writer)),
        _ => pair.error = Some(writer),
    }
    if pair.data.is_some()
        && pair.error.is_some()
        && let Some(StreamPair {
            data: Some(data),
            error: Some(error),
        }) = pairs.remove(&id)
    {
        pending.push(Box::pin(async move {
            connect(backend, request, port, (data, error)).await;
            None
        }));
    }
}

/// Serves ports over channels: the two of each begin with its number.
pub(super) async fn serve_channels(
    backend: &impl StreamingBackend,
    request: &PortForwardRequest,
    opened: Vec<NewStream>,
) {
    let mut opened = opened.into_iter();
    let mut connections = Vec::new();
    for port in &request.port {
        let (Some(data), Some(error)) = (opened.next(), opened.next()) else {
            break;
        };
        let port = u16::try_from(*port).unwrap_or_default();
        drop(data.writer.write(port.to_le_bytes()).await);
        drop(error.writer.write(port.to_le_bytes()).await);
        let streams = ((data.reader, data.writer), error.writer);
        connections.push(connect(backend, request, port, streams));
    }
    join_all(connections).await;
}

async fn connect(
    backend: &impl StreamingBackend,
    request: &PortForwardRequest,
    port: u16,
    ((mut reader, writer), error): ((StreamReader, StreamWriter), StreamWriter),
) {
    let pod = &request.pod_sandbox_id;
    if let Err(why) = backend.port_forward(pod, port, &mut reader, &writer).await {
        let text = format!("error forwarding port {port} to pod {pod}, uid : {why}");
        drop(error.write(text).await);
        writer.cancel().await;
    }
    writer.close().await;
    error.close().await;
}
