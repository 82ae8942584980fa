//! The requests that were received: one record each, the newest 100,000.

use std::collections::VecDeque;
use std::fmt;

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

/// Hears of each request, its body and its answer, as lines.
pub(crate) type RequestObserver = Box<dyn FnMut(String) + Send>;

#[derive(Default)]
pub(crate) struct RequestLog {
    request: VecDeque<RecordedRequest>,
    dropped: usize,
    observer: Option<RequestObserver>,
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestLog({} requests)", self.request.len())
    }
}

impl RequestLog {
    /// Writes a request down; its status comes later, by the number returned.
    pub(crate) fn add(&mut self, request: RecordedRequest) -> usize {
        if self.request.len() == KEPT {
            self.request.pop_front();
            self.dropped += 1;
        }
        let number = self.dropped + self.request.len();
        self.tell(|| {
            format!(
                "{number} {} {}?{}",
                request.method, request.path, request.query
            )
        });
        self.request.push_back(request);
        number
    }

    pub(crate) fn read(&mut self, number: usize, body: &[u8]) {
        if !body.is_empty() {
            self.tell(|| format!("{number} body {}", String::from_utf8_lossy(body)));
        }
    }

    pub(crate) fn answered(&mut self, number: usize, status: u16) {
        self.tell(|| format!("{number} answer {status}"));
        let at = number.checked_sub(self.dropped);
        if let Some(request) = at.and_then(|at| self.request.get_mut(at)) {
            request.status = status;
        }
    }

    pub(crate) fn observe(&mut self, observer: RequestObserver) {
        self.observer = Some(observer);
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(observer) = &mut self.observer {
            observer(line());
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
