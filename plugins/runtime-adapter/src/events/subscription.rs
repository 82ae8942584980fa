//! The subscription to containerd's events, and what is learned of its pods while it begins.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use proto::containerd::SubscribeRequest;
use proto::containerd::events_client::EventsClient;
use tokio::sync::mpsc;
use tonic::Status;

use super::happening;
use super::lookup::Lookup;
use super::memory::Memory;
use super::translator::{Envelopes, Event, MOST_HELD, MOST_UNREAD, Translator, too_many};
use crate::backend::{Backend, Connected};
use crate::connection::Connection;

/// containerd's own limit for a message: an event of any length is read, and passed over if it is absurd.
const LONGEST_EVENT: usize = 16 << 20;

/// Subscribes, and returns the translated events from now on.
pub(crate) async fn start(
    backend: &Backend,
    connected: Connected,
) -> Result<mpsc::Receiver<Event>, Status> {
    let namespace = backend.configuration().namespace.clone();
    let connection = connected.connection;
    let lookup = Lookup::new(connection.clone());
    let mut envelopes = subscribe(connection.clone(), &namespace);
    let mut early = Vec::new();
    let memory = {
        let mut learning = std::pin::pin!(learn(&lookup));
        loop {
            // Polled in this order, the subscription is sent before the lists: nothing falls between. Neither arm
            // loses anything when the other wins.
            tokio::select! {
                biased;
                envelope = envelopes.next() => {
                    early.push(envelope.unwrap_or_else(|| Err(ended()))?);
                    if early.len() > MOST_HELD {
                        return Err(Status::unavailable(too_many()));
                    }
                }
                memory = &mut learning => break memory?,
            }
        }
    };
    let (events, receiver) = mpsc::channel(MOST_UNREAD + 1);
    let envelopes = stream::iter(early.into_iter().map(Ok))
        .chain(envelopes)
        .boxed();
    let place = backend.place();
    let unsettled = backend.unsettled().clone();
    tokio::spawn(async move {
        let Ok(last) = events.clone().reserve_owned().await else {
            return;
        };
        let translator = Translator::new(connection, lookup, memory, unsettled, events.clone());
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
fn subscribe(connection: Connection, namespace: &str) -> Envelopes {
    let mut client = EventsClient::new(connection).max_decoding_message_size(LONGEST_EVENT);
    let filters = happening::filters(namespace);
    let call = async move {
        client
            .subscribe(SubscribeRequest { filters })
            .await
            .map(tonic::Response::into_inner)
    };
    stream::once(call).try_flatten().boxed()
}

async fn learn(lookup: &Lookup) -> Result<Memory, Status> {
    let mut memory = Memory::new();
    for sandbox in lookup.sandboxes().await? {
        memory.learn_container(&sandbox.id, &sandbox.id);
        memory.learn_pod(sandbox);
    }
    for container in lookup.containers(None).await? {
        memory.learn_container(&container.id, &container.pod_sandbox_id);
    }
    Ok(memory)
}

pub(crate) fn ended() -> Status {
    Status::unavailable("containerd ended its event stream")
}
