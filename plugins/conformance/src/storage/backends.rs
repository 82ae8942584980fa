//! Laws of what a plugin tells of the backends behind it.

use std::time::Duration;

use futures_util::FutureExt;
use proto::storage::event::Event;
use proto::storage::{InquireRequest, WatchRequest};
use tokio::time::timeout;
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused};
use super::StorageCheck;
use super::case::StorageCase;

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "Watch tells what is known and then Synced, to each watcher, or is silent",
        |case| watched(case).boxed(),
    ),
    (
        "Inquire about a backend that is not there is refused",
        |case| inquired(case).boxed(),
    ),
];

/// A plugin that has nothing to tell by then has no backends.
const SILENT_FOR: Duration = Duration::from_secs(1);
const SYNCED_TIMEOUT: Duration = Duration::from_secs(20);

async fn watched(case: &mut StorageCase) -> CheckResult {
    for _ in 0..3 {
        let mut events = case.storage.watch(WatchRequest {}).await?.into_inner();
        let first = match timeout(SILENT_FOR, events.message()).await {
            Err(_) => continue,
            Ok(first) => first?,
        };
        let mut next = first;
        loop {
            let event = next.ok_or_else(|| CheckStop::Broken("the stream ended".to_owned()))?;
            match event.event {
                Some(Event::Synced(_)) => break,
                Some(Event::Backend(backend)) => {
                    holds(!backend.name.is_empty(), || {
                        format!("{backend:?} has no name")
                    })?;
                }
                Some(Event::Refused(refused)) => {
                    holds(!refused.why.is_empty(), || {
                        format!("{refused:?} has no reason")
                    })?;
                }
                Some(Event::Gone(gone)) => {
                    holds(false, || format!("{gone:?} came before Synced"))?;
                }
                None => holds(false, || "an event is empty".to_owned())?,
            }
            next = timeout(SYNCED_TIMEOUT, events.message())
                .await
                .map_err(|_| CheckStop::Broken("Synced did not come".to_owned()))??;
        }
        let after = timeout(SILENT_FOR / 10, events.message()).await;
        let ended = matches!(after, Ok(Ok(None)));
        holds(!ended, || "the stream ended after Synced".to_owned())?;
    }
    Ok(())
}

async fn inquired(case: &mut StorageCase) -> CheckResult {
    let request = InquireRequest {
        name: "nobody.example.com".to_owned(),
        within_ms: 10_000,
    };
    let answer = case.storage.inquire(request).await;
    let status = refused("a backend that is not there", answer)?;
    let expected = [Code::NotFound, Code::Unimplemented];
    holds(expected.contains(&status.code()), || {
        format!("it was refused with {status}, expected NOT_FOUND or UNIMPLEMENTED")
    })
}
