//! `GetContainerEvents`: the runtime's own, or made from containerd's event stream.
//!
//! An event opens a stream's answer only when it comes, with servers in Go. An agent that waits for the head
//! before it relists would wait for the first event: here the head is answered as soon as the runtime has had
//! time to refuse.

mod containerd_event;
mod keyed_queues;
mod lookup;
mod pending_exits;
mod pod;
mod pod_cache;
mod poll;
mod subscription;
mod translator;

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::BodyStream;
use hyper::body::{Frame, Incoming};
pub(crate) use pending_exits::PendingExits;
use proto::cri::ContainerEventResponse;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::backend::{ConnectedBackend, RuntimeBackend};
use crate::configuration::Flavour;
use crate::grpc::{self, Frames};
use crate::quirks::EventSource;
use crate::relay::Relay;

/// The method that this module answers.
pub(crate) const PATH: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// A runtime that has no events says so within microseconds.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(100);

/// Answers with the runtime's own events.
pub(crate) async fn native(
    backend: &RuntimeBackend,
    connected: ConnectedBackend,
    request: Request<Body>,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, Status> {
    let mut connection = connected.connection.clone();
    let mut sending = Box::pin(async move { connection.send(request).await });
    let Ok(answer) = tokio::time::timeout(REFUSAL_TIMEOUT, &mut sending).await else {
        backend.report_events(EventSource::Native);
        let place = backend.place();
        let late = async move {
            match sending.await {
                Ok(answer) => rest(answer, place, permit),
                Err(error) => ended(&crate::backend::lost(&place, error)),
            }
        };
        return Ok(grpc::answer(stream::once(late).flatten().boxed()));
    };
    let answer = answer.map_err(|error| backend.lost(error))?;
    match grpc::ended(answer.headers()) {
        Some(Code::Unimplemented) if backend.configuration().flavour == Flavour::Containerd => {
            backend.report_events(EventSource::FromContainerd);
            translated(backend, connected, permit).await
        }
        Some(Code::Ok) if connected.quirks.empty_stream_means_off => {
            backend.report_events(EventSource::Absent);
            Err(Status::unimplemented(format!(
                "{} has its container events switched off: set enable_pod_events = true in its configuration",
                backend.place()
            )))
        }
        refused => {
            match refused {
                Some(Code::Unimplemented) => backend.report_events(EventSource::Absent),
                // Any other refusal says nothing of what the runtime can do.
                Some(_) => {}
                None => backend.report_events(EventSource::Native),
            }
            Ok(answer.map(|body| Body::new(Relay::new(body, backend.place(), permit))))
        }
    }
}

/// Answers with events made from containerd's own.
pub(crate) async fn translated(
    backend: &RuntimeBackend,
    connected: ConnectedBackend,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, Status> {
    let events = subscription::start(backend, connected).await?;
    let frames = stream::unfold(Some((events, permit)), |open| async move {
        let (mut events, permit) = open?;
        Some(match next(&mut events).await {
            Ok(event) => (Ok(grpc::message(&event)), Some((events, permit))),
            Err(status) => (Ok(Frame::trailers(grpc::trailers(&status))), None),
        })
    });
    Ok(grpc::answer(frames.boxed()))
}

async fn next(
    events: &mut mpsc::Receiver<Result<ContainerEventResponse, Status>>,
) -> Result<ContainerEventResponse, Status> {
    let gone = || {
        Err(Status::unavailable(
            "the translation of containerd's events ended",
        ))
    };
    events.recv().await.unwrap_or_else(gone)
}

/// The rest of an answer whose head has been sent already.
fn rest(answer: Response<Incoming>, place: String, permit: OwnedSemaphorePermit) -> Frames {
    let (parts, body) = answer.into_parts();
    if grpc::ended(&parts.headers).is_some() {
        // An answer of trailers alone carries them in its head.
        return stream::once(async move { Ok(Frame::trailers(parts.headers)) }).boxed();
    }
    BodyStream::new(Relay::new(body, place, permit)).boxed()
}

fn ended(status: &Status) -> Frames {
    let frame = Frame::trailers(grpc::trailers(status));
    stream::once(async move { Ok(frame) }).boxed()
}
