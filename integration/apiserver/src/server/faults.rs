//! Faults on demand: what goes wrong with the next requests that match, and what all watches are ordered to do.
//!
//! By hand: `POST /_faults` takes one fault as JSON, or `{"closeWatches": true}`, `{"muteWatches": true|false}`,
//! `{"expireHistory": true}`; `DELETE /_faults` clears all; `GET /_faults` lists the pending ones;
//! `GET /_requests` lists the journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// A fault, and the requests that it hits.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiFault {
    /// The HTTP method; none matches all.
    #[serde(default)]
    pub method: Option<String>,
    /// The prefix of the path.
    #[serde(default)]
    pub path: String,
    /// A substring of path and query; none matches all.
    #[serde(default)]
    pub contains: Option<String>,
    /// Only watches, or only what is not one; none is both.
    #[serde(default)]
    pub watch: Option<bool>,
    /// How many requests it hits; 1 if left out.
    #[serde(default = "once")]
    pub times: u32,
    /// What happens to a request that matches.
    pub effect: Effect,
}

fn once() -> u32 {
    1
}

/// What a fault does to a request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Answered with this status and a fitting `Status` object, nothing done; 429 and 503 may say when to come again.
    #[serde(rename_all = "camelCase")]
    Status {
        /// The HTTP status.
        code: u16,
        /// Seconds of the header Retry-After.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// Answered 200 with a body that is no JSON, nothing done.
    Garbage,
    /// Answered 200 with JSON of another shape, nothing done.
    Nonsense,
    /// Answered 200 with an empty list of another kind, nothing done.
    OtherList,
    /// Done, but only after so many seconds.
    Delay(f64),
    /// The connection is cut without an answer, nothing done.
    Refuse,
    /// Done, and then the connection is cut without an answer.
    Lose,
    /// Done, and then the connection is cut in the middle of the answer.
    Cut,
    /// Never answered; the connection stays.
    Hang,
    /// The watch sends half of its next event, then its connection is cut.
    HalfEvent,
    /// The watch sends a line that is no event in front of its next one.
    GarbageEvent,
    /// The watch says of its next event's object that it was deleted, under another kind, in front of the event.
    OtherEvent,
    /// The watch gets an ERROR event, 410 Expired, in place of its next event.
    ExpireEvent,
    /// The watch stays open and sends nothing.
    Mute,
}

/// Orders to all open watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchControls {
    /// Rises when all that are open shall end.
    pub(crate) closings: u64,
    pub(crate) muted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct FaultQueue {
    waiting: Vec<ApiFault>,
    controls: WatchControls,
    ordered: Arc<Notify>,
}

impl FaultQueue {
    pub(crate) fn add(&mut self, fault: ApiFault) {
        self.waiting.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.mute_watches(false);
    }

    pub(crate) fn waiting(&self) -> &[ApiFault] {
        &self.waiting
    }

    /// Returns what shall go wrong with a request, counted as having happened.
    pub(crate) fn take(&mut self, method: &str, target: &str, watch: bool) -> Option<Effect> {
        let at = self
            .waiting
            .iter()
            .position(|fault| fault.hits(method, target, watch))?;
        let fault = &mut self.waiting[at];
        let effect = fault.effect.clone();
        fault.times -= 1;
        if fault.times == 0 {
            self.waiting.remove(at);
        }
        Some(effect)
    }

    pub(crate) fn controls(&self) -> WatchControls {
        self.controls
    }

    /// Returns what each order wakes. A `notified()` that is made before a look misses no order after it.
    pub(crate) fn ordered(&self) -> Arc<Notify> {
        Arc::clone(&self.ordered)
    }

    pub(crate) fn close_watches(&mut self) {
        self.controls.closings += 1;
        self.ordered.notify_waiters();
    }

    pub(crate) fn mute_watches(&mut self, muted: bool) {
        self.controls.muted = muted;
        self.ordered.notify_waiters();
    }
}

impl ApiFault {
    /// Returns a fault that hits once.
    pub fn once(method: &str, path: &str, effect: Effect) -> ApiFault {
        ApiFault {
            method: Some(method.to_string()),
            path: path.to_string(),
            contains: None,
            watch: None,
            times: 1,
            effect,
        }
    }

    /// Returns a fault that hits so often, any method.
    pub fn times(times: u32, path: &str, effect: Effect) -> ApiFault {
        ApiFault {
            method: None,
            path: path.to_string(),
            contains: None,
            watch: None,
            times,
            effect,
        }
    }

    /// Returns a fault that hits the next watch under a path.
    pub fn watch(path: &str, effect: Effect) -> ApiFault {
        ApiFault {
            method: None,
            path: path.to_string(),
            contains: None,
            watch: Some(true),
            times: 1,
            effect,
        }
    }

    fn hits(&self, method: &str, target: &str, watch: bool) -> bool {
        self.times > 0
            && self
                .method
                .as_deref()
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && target.starts_with(&self.path)
            && self
                .contains
                .as_deref()
                .is_none_or(|part| target.contains(part))
            && self.watch.is_none_or(|wanted| wanted == watch)
    }
}
