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

#[cfg(test)]
mod tests {
    use proto::storage::Synced;

    use super::*;
    use crate::registration::table::tests::with;

    fn words(event: &Event) -> String {
        match event.event.as_ref().unwrap() {
            Told::Backend(backend) => format!("backend {}", backend.name),
            Told::Gone(gone) => format!("gone {}", gone.name),
            Told::Refused(refused) => format!("refused {}", refused.endpoint),
            Told::Synced(_) => "synced".to_owned(),
        }
    }

    /// Only a plugin has one.
    async fn health() -> (sdk::Health, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let build = move |setup: sdk::Setup| {
            sender.send(setup.health).unwrap();
            async { Ok(sdk::Routes::default()) }
        };
        let configuration = serde_json::Value::Null;
        let started = sdk::testing::start(folder.path(), crate::info("0"), configuration, build);
        drop(started.await.unwrap());
        (receiver.recv().await.unwrap(), folder)
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_told_everything_anew() {
        let (health, _folder) = health().await;
        let board = Arc::new(Board::new(health));
        board.change(|table| {
            *table = with("a");
            ((), Vec::new())
        });
        let mut feed = Feed::new(board.clone());
        assert_eq!(words(&feed.next().await.unwrap()), "backend a");
        assert_eq!(words(&feed.next().await.unwrap()), "synced");
        board.change(|table| {
            *table = with("b");
            ((), Vec::new())
        });
        // More than a reader may have waiting, and none of it says what became of the drivers.
        let filler = Event {
            event: Some(Told::Synced(Synced {})),
        };
        for _ in 0..=super::super::BEHIND_MOST {
            board.change(|_| ((), vec![filler.clone()]));
        }
        assert_eq!(words(&feed.next().await.unwrap()), "gone a");
        assert_eq!(words(&feed.next().await.unwrap()), "backend b");
        assert_eq!(words(&feed.next().await.unwrap()), "synced");
    }
}
