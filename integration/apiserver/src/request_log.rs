//! The requests that were received: one record each, the newest 100,000.

use std::collections::VecDeque;

use serde::Serialize;

const KEPT: usize = 100_000;

/// One request and the status of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// The query, not decoded; empty if there is none.
    pub query: String,
    /// The status of the answer; 0 while there is none, or the connection was cut instead.
    pub status: u16,
    /// The header User-Agent.
    pub user_agent: String,
    /// The content type of the body.
    pub content_type: String,
    /// The number of the connection that it came on.
    pub connection: u64,
}

#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    request: VecDeque<RecordedRequest>,
    dropped: usize,
}

impl RequestLog {
    /// Writes a request down; its status comes later, by the number returned.
    pub(crate) fn add(&mut self, request: RecordedRequest) -> usize {
        if self.request.len() == KEPT {
            self.request.pop_front();
            self.dropped += 1;
        }
        self.request.push_back(request);
        self.dropped + self.request.len() - 1
    }

    pub(crate) fn answered(&mut self, number: usize, status: u16) {
        let at = number.checked_sub(self.dropped);
        if let Some(request) = at.and_then(|at| self.request.get_mut(at)) {
            request.status = status;
        }
    }

    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.request.iter().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.dropped += self.request.len();
        self.request.clear();
    }
}
