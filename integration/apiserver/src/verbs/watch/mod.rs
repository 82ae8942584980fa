//! Watches: what happened after a version, as it happens.

mod events;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use events::{EventFormat, WatchEvents};
use futures_util::stream;
use http::{HeaderValue, header};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, sleep_until};

use crate::encoding::tables;
use crate::endpoints::answer::{Body, Response, StatusError};
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::selectors::ListSelector;
use crate::server::faults::Effect;
use crate::server::state::State;

/// How many events may wait for a slow client; behind them the history does.
const BACKLOG: usize = 16;

/// How long a watch stays open that does not say.
const LONGEST: Duration = Duration::from_secs(45 * 60);

/// The time in which half an event is sent before the connection is cut without a closing chunk.
const REQUEST_GRACE_PERIOD: Duration = Duration::from_millis(20);

/// Starts to answer a watch.
pub(crate) fn open(
    state: &Arc<State>,
    call: &RequestInfo,
    order: Option<Effect>,
) -> Result<Response, StatusError> {
    let mut selection = ListSelector::parse(&call.query)?;
    if let Some(name) = &call.name {
        selection = selection.named(name);
    }
    let initial = initial_events(call)?;
    let shape = EventFormat {
        call: call.clone(),
        selection,
        table: tables::Representation::of(call)?,
    };
    let lines = WatchEvents::begin(&state.store(), shape, initial);
    let bookmarks = call.query.is_true("allowWatchBookmarks");
    let timeout = call
        .query
        .number("timeoutSeconds")
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0);
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let closings = state.faults().controls().closings;
    let watched = ServedWatch {
        state: state.clone(),
        lines,
        sender,
        order,
        closings,
        bookmarks,
        waiting: VecDeque::new(),
    };
    tokio::spawn(watched.run(timeout.map_or(LONGEST, Duration::from_secs)));
    let frames = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|frame| (frame, receiver))
    });
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

/// The first events of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchStart {
    /// All objects there are, as if just added.
    Objects,
    /// The same, and then a bookmark that says so.
    List,
    /// What happened after a version.
    After(u64),
}

fn initial_events(call: &RequestInfo) -> Result<WatchStart, StatusError> {
    let version = call.query.get("resourceVersion").unwrap_or_default();
    if call.query.get("sendInitialEvents").is_some() {
        if call.query.get("resourceVersionMatch") != Some("NotOlderThan") {
            let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(StatusError::invalid(
                call.resource,
                "",
                "resourceVersionMatch",
                why,
            ));
        }
        if call.query.is_true("sendInitialEvents") {
            if !call.query.is_true("allowWatchBookmarks") {
                return Err(StatusError::invalid(
                    call.resource,
                    "",
                    "allowWatchBookmarks",
                    "Forbidden: sendInitialEvents requires allowWatchBookmarks",
                ));
            }
            return Ok(WatchStart::List);
        }
    } else if call.query.get("resourceVersionMatch").is_some() {
        let why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return Err(StatusError::invalid(
            call.resource,
            "",
            "resourceVersionMatch",
            why,
        ));
    }
    match version {
        "" | "0" => Ok(WatchStart::Objects),
        text => text
            .parse()
            .map(WatchStart::After)
            .map_err(|_| StatusError::bad_request(format!("invalid resource version \"{text}\""))),
    }
}

/// One watch that is open.
struct ServedWatch {
    state: Arc<State>,
    lines: WatchEvents,
    sender: mpsc::Sender<std::io::Result<Frame<Bytes>>>,
    /// The fault that waits for its moment.
    order: Option<Effect>,
    closings: u64,
    bookmarks: bool,
    waiting: VecDeque<Value>,
}

/// Why a watch ends.
#[derive(Debug)]
struct StreamEnded;

impl ServedWatch {
    async fn run(mut self, open: Duration) {
        let (ordered, pulse) = (self.state.faults().ordered(), self.state.store().pulse());
        let end = in_future(open);
        let mut marks = self.marks();
        loop {
            let (order, change) = (ordered.notified(), pulse.notified());
            let now = self.state.faults().controls();
            if now.closings != self.closings || (!now.muted && self.send_events().await.is_err()) {
                return;
            }
            tokio::select! {
                biased;
                () = self.sender.closed() => return,
                () = sleep_until(end) => return,
                () = order => {}
                _ = marks.tick(), if self.bookmarks && !now.muted => {
                    let mark = self.lines.bookmark();
                    self.waiting.push_back(mark);
                }
                () = change => {}
            }
        }
    }

    fn marks(&self) -> Interval {
        let period = Duration::try_from_secs_f64(self.state.options.bookmark_seconds)
            .unwrap_or_default()
            .max(Duration::from_millis(1));
        let mut marks = tokio::time::interval_at(in_future(period), period);
        marks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        marks
    }

    /// Sends what there is to tell.
    async fn send_events(&mut self) -> Result<(), StreamEnded> {
        if self.order == Some(Effect::Mute) {
            return Ok(());
        }
        let fresh = self.lines.next_events(&self.state.store());
        let expired = fresh.is_none();
        self.waiting
            .extend(fresh.unwrap_or_else(|| vec![self.lines.expired()]));
        while let Some(event) = self.waiting.pop_front() {
            let mut line = serde_json::to_vec(&event).expect("a JSON value can be written");
            line.push(b'\n');
            self.apply_fault(&mut line).await?;
            self.send(line).await?;
        }
        if expired { Err(StreamEnded) } else { Ok(()) }
    }

    /// Lets the ordered fault happen in front of an event.
    async fn apply_fault(&mut self, line: &mut Vec<u8>) -> Result<(), StreamEnded> {
        match self.order.take() {
            Some(Effect::HalfEvent) => {
                line.truncate(line.len() / 2);
                self.send(std::mem::take(line)).await?;
                tokio::time::sleep(REQUEST_GRACE_PERIOD).await;
                self.sender
                    .send(Err(std::io::Error::other("cut off as ordered")))
                    .await
                    .map_err(|_| StreamEnded)?;
                Err(StreamEnded)
            }
            Some(Effect::GarbageEvent) => {
                self.send(b"{\"type\":\"ADDED\",\"object\":[1,]}\n".to_vec())
                    .await
            }
            Some(Effect::OtherEvent) => {
                let mut other: Value = serde_json::from_slice(line).expect("it was just written");
                other["type"] = json!("DELETED");
                other["object"]["kind"] = json!("ConfigMap");
                self.send(format!("{other}\n").into_bytes()).await
            }
            Some(Effect::ExpireEvent) => {
                let mut expired =
                    serde_json::to_vec(&self.lines.expired()).expect("a JSON value can be written");
                expired.push(b'\n');
                self.send(expired).await?;
                Err(StreamEnded)
            }
            _ => Ok(()),
        }
    }

    async fn send(&self, line: Vec<u8>) -> Result<(), StreamEnded> {
        self.sender
            .send(Ok(Frame::data(line.into())))
            .await
            .map_err(|_| StreamEnded)
    }
}

fn in_future(time: Duration) -> Instant {
    Instant::now() + time
}
