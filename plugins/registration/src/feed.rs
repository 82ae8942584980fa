//! A subscriber's feed: the whole state, then every change; after it has fallen behind, the whole state anew.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::{Board, Event, Plugin, PluginHandler};

/// One subscriber's events.
pub(crate) struct Feed<H: PluginHandler> {
    board: Arc<Board<H>>,
    changes: broadcast::Receiver<Event<H::Plugin>>,
    waiting: VecDeque<Event<H::Plugin>>,
    /// Names of the plugins that the subscriber takes for registered.
    known: BTreeSet<String>,
}

impl<H: PluginHandler> Feed<H> {
    pub(crate) fn new(board: Arc<Board<H>>) -> Self {
        let (changes, waiting) = snapshot(&board);
        Self {
            board,
            changes,
            waiting,
            known: BTreeSet::new(),
        }
    }

    /// Returns the next event; `None` when the registry is gone.
    pub(crate) async fn next(&mut self) -> Option<Event<H::Plugin>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.remember(&event);
                return Some(event);
            }
            match self.changes.recv().await {
                Ok(event) => self.waiting.push_back(event),
                Err(broadcast::error::RecvError::Lagged(_)) => self.resync(),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Everything again, beginning with what has gone unseen.
    fn resync(&mut self) {
        let (changes, waiting) = snapshot(&self.board);
        self.changes = changes;
        let here: BTreeSet<&str> = waiting.iter().filter_map(registered).collect();
        let gone = self
            .known
            .iter()
            .filter(|name| !here.contains(name.as_str()))
            .map(|name| Event::Gone(name.clone()));
        self.waiting = gone.chain(waiting.iter().cloned()).collect();
    }

    fn remember(&mut self, event: &Event<H::Plugin>) {
        match event {
            Event::Registered(plugin) => {
                self.known.insert(plugin.name().to_owned());
            }
            Event::Gone(name) => {
                self.known.remove(name);
            }
            Event::Refused { .. } | Event::Synced => {}
        }
    }
}

type Subscription<P> = (broadcast::Receiver<Event<P>>, VecDeque<Event<P>>);

fn snapshot<H: PluginHandler>(board: &Board<H>) -> Subscription<H::Plugin> {
    // Under the lock: what changes after it is in the receiver.
    let table = board.table();
    (board.events.subscribe(), table.snapshot().into())
}

fn registered<P: Plugin>(event: &Event<P>) -> Option<&str> {
    match event {
        Event::Registered(plugin) => Some(plugin.name()),
        Event::Gone(_) | Event::Refused { .. } | Event::Synced => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::with;
    use crate::testing::{TestHandler, TestPlugin};

    fn words(event: &Event<TestPlugin>) -> String {
        match event {
            Event::Registered(plugin) => format!("backend {}", plugin.name),
            Event::Gone(name) => format!("gone {name}"),
            Event::Refused { socket, .. } => format!("refused {socket}"),
            Event::Synced => "synced".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_told_everything_anew() {
        let board = Arc::new(Board::new(TestHandler));
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
        for _ in 0..=crate::BACKLOG_MAX {
            board.change(|_| ((), vec![Event::Synced]));
        }
        assert_eq!(words(&feed.next().await.unwrap()), "gone a");
        assert_eq!(words(&feed.next().await.unwrap()), "backend b");
        assert_eq!(words(&feed.next().await.unwrap()), "synced");
    }
}
