//! The subscription to containerd's events, and what is learned of its pods while it begins.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use proto::containerd::SubscribeRequest;
use proto::containerd::events_client::EventsClient;
use tokio::sync::mpsc;
use tonic::Status;

use super::containerd_event;
use super::lookup::Lookup;
use super::pod_cache::PodCache;
use super::translator::{
    EnvelopeStream, EventResult, MAX_QUEUED_EVENTS, MAX_UNREAD_EVENTS, Translator, too_many,
};
use crate::backend::{ConnectedBackend, RuntimeBackend};
use crate::connection::RuntimeConnection;

/// containerd's own limit for a message: an event of any length is read, and passed over if it is absurd.
const LONGEST_EVENT: usize = 16 << 20;

/// Subscribes, and returns the translated events from now on.
pub(crate) async fn start(
    backend: &RuntimeBackend,
    connected: ConnectedBackend,
) -> Result<mpsc::Receiver<EventResult>, Status> {
    let namespace = backend.configuration().namespace.clone();
    let connection = connected.connection;
    let lookup = Lookup::new(connection.clone(), backend.creations().clone());
    let mut envelopes = subscribe(connection.clone(), &namespace);
    let mut early = Vec::new();
    let cache = {
        let mut learning = std::pin::pin!(learn(&lookup));
        loop {
            // Polled in this order, the subscription is sent before the lists: nothing falls between. Neither arm
            // loses anything when the other wins.
            tokio::select! {
                biased;
                envelope = envelopes.next() => {
                    early.push(envelope.unwrap_or_else(|| Err(ended()))?);
                    if early.len() > MAX_QUEUED_EVENTS {
                        return Err(Status::unavailable(too_many()));
                    }
                }
                cache = &mut learning => break cache?,
            }
        }
    };
    let (events, receiver) = mpsc::channel(MAX_UNREAD_EVENTS + 1);
    let envelopes = stream::iter(early.into_iter().map(Ok))
        .chain(envelopes)
        .boxed();
    let place = backend.place();
    let unsettled = backend.unsettled().clone();
    tokio::spawn(async move {
        let Ok(last) = events.clone().reserve_owned().await else {
            return;
        };
        let translator = Translator::new(connection, lookup, cache, unsettled, events.clone());
        let why = tokio::select! {
            why = translator.run(envelopes, &namespace) => why,
            () = events.closed() => return,
        };
        let status = Status::unavailable(format!("container events of {place}: {why}"));
        tracing::warn!("{}", status.message());
        last.send(Err(status));
    });
    Ok(receiver)
}

/// containerd answers the subscription with its first event, so the call itself is part of the stream.
fn subscribe(connection: RuntimeConnection, namespace: &str) -> EnvelopeStream {
    let mut client = EventsClient::new(connection).max_decoding_message_size(LONGEST_EVENT);
    let filters = containerd_event::filters(namespace);
    let call = async move {
        client
            .subscribe(SubscribeRequest { filters })
            .await
            .map(tonic::Response::into_inner)
    };
    stream::once(call).try_flatten().boxed()
}

async fn learn(lookup: &Lookup) -> Result<PodCache, Status> {
    let mut cache = PodCache::new();
    for sandbox in lookup.sandboxes().await? {
        cache.learn_container(&sandbox.id, &sandbox.id);
        cache.learn_pod(sandbox);
    }
    for container in lookup.containers(None).await? {
        cache.learn_container(&container.id, &container.pod_sandbox_id);
    }
    Ok(cache)
}

pub(crate) fn ended() -> Status {
    Status::unavailable("containerd ended its event stream")
}
