//! What was heard: one line a request, the newest 100,000.

use std::collections::VecDeque;

use serde::Serialize;

const KEPT: usize = 100_000;

/// One request and the status of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heard {
    /// The HTTP method.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// The query as it came.
    pub query: String,
    /// The status of the answer; 0 while there is none, or the connection was cut instead.
    pub status: u16,
    /// The client's name for itself.
    pub user_agent: String,
    /// The content type of the body.
    pub content_type: String,
    /// The number of the connection that it came on.
    pub connection: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    heard: VecDeque<Heard>,
    dropped: usize,
}

impl Journal {
    /// Writes a request down; its status comes later, by the number returned.
    pub(crate) fn add(&mut self, heard: Heard) -> usize {
        if self.heard.len() == KEPT {
            self.heard.pop_front();
            self.dropped += 1;
        }
        self.heard.push_back(heard);
        self.dropped + self.heard.len() - 1
    }

    pub(crate) fn answered(&mut self, number: usize, status: u16) {
        let at = number.checked_sub(self.dropped);
        if let Some(heard) = at.and_then(|at| self.heard.get_mut(at)) {
            heard.status = status;
        }
    }

    pub(crate) fn all(&self) -> Vec<Heard> {
        self.heard.iter().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.dropped += self.heard.len();
        self.heard.clear();
    }
}
