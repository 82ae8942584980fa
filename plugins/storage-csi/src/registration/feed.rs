//! What one reader is told: everything as it is, then every change; to one that falls behind, everything anew.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use proto::storage::event::Event as Told;
use proto::storage::{BackendGone, Event};
use tokio::sync::broadcast;

use super::Board;

/// What one reader is told.
pub(super) struct Feed {
    board: Arc<Board>,
    changes: broadcast::Receiver<Event>,
    waiting: VecDeque<Event>,
    told: BTreeSet<String>,
}

impl Feed {
    pub(super) fn new(board: Arc<Board>) -> Self {
        let (changes, waiting) = whole(&board);
        Self {
            board,
            changes,
            waiting,
            told: BTreeSet::new(),
        }
    }

    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.remember(&event);
                return Some(event);
            }
            match self.changes.recv().await {
                Ok(event) => self.waiting.push_back(event),
                Err(broadcast::error::RecvError::Lagged(_)) => self.anew(),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Everything again, beginning with what has gone unseen.
    fn anew(&mut self) {
        let (changes, waiting) = whole(&self.board);
        self.changes = changes;
        let here: BTreeSet<&str> = waiting.iter().filter_map(backend).collect();
        let gone = self
            .told
            .iter()
            .filter(|name| !here.contains(name.as_str()));
        let gone = gone.map(|name| {
            let name = name.clone();
            Event {
                event: Some(Told::Gone(BackendGone { name })),
            }
        });
        self.waiting = gone.chain(waiting.iter().cloned()).collect();
    }

    fn remember(&mut self, event: &Event) {
        match &event.event {
            Some(Told::Backend(backend)) => {
                self.told.insert(backend.name.clone());
            }
            Some(Told::Gone(gone)) => {
                self.told.remove(&gone.name);
            }
            Some(Told::Refused(_) | Told::Synced(_)) | None => {}
        }
    }
}

fn whole(board: &Board) -> (broadcast::Receiver<Event>, VecDeque<Event>) {
    // Under the lock: what changes after it is in the receiver.
    let table = board.table();
    (board.events.subscribe(), table.snapshot().into())
}

fn backend(event: &Event) -> Option<&str> {
    match &event.event {
        Some(Told::Backend(backend)) => Some(&backend.name),
        Some(Told::Gone(_) | Told::Refused(_) | Told::Synced(_)) | None => None,
    }
}
