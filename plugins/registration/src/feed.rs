//! A subscriber's feed: the whole state, then every change; after it has fallen behind, the whole state anew.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::broadcast;

use crate::{Board, Plugin, PluginHandler, RegistrationEvent};

/// One subscriber's events.
pub(crate) struct Feed<H: PluginHandler> {
    board: Arc<Board<H>>,
    changes: broadcast::Receiver<RegistrationEvent<H::Plugin>>,
    waiting: VecDeque<RegistrationEvent<H::Plugin>>,
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
    pub(crate) async fn next(&mut self) -> Option<RegistrationEvent<H::Plugin>> {
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
            .map(|name| RegistrationEvent::Gone(name.clone()));
        self.waiting = gone.chain(waiting.iter().cloned()).collect();
    }

    fn remember(&mut self, event: &RegistrationEvent<H::Plugin>) {
        match event {
            RegistrationEvent::Registered(plugin) => {
                self.known.insert(plugin.name().to_owned());
            }
            RegistrationEvent::Gone(name) => {
                self.known.remove(name);
            }
            RegistrationEvent::Refused { .. } | RegistrationEvent::Synced => {}
        }
    }
}

type Subscription<P> = (
    broadcast::Receiver<RegistrationEvent<P>>,
    VecDeque<RegistrationEvent<P>>,
);

fn snapshot<H: PluginHandler>(board: &Board<H>) -> Subscription<H::Plugin> {
    // Under the lock: what changes after it is in the receiver.
    let table = board.table();
    (board.events.subscribe(), table.snapshot().into())
}

fn registered<P: Plugin>(event: &RegistrationEvent<P>) -> Option<&str> {
    match event {
        RegistrationEvent::Registered(plugin) => Some(plugin.name()),
        RegistrationEvent::Gone(_)
        | RegistrationEvent::Refused { .. }
        | RegistrationEvent::Synced => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::with;
    use crate::testing::{TestHandler, TestPlugin};

    fn words(event: &RegistrationEvent<TestPlugin>) -> String {
        match event {
            RegistrationEvent::Registered(plugin) => format!("backend {}", plugin.name),
            RegistrationEvent::Gone(name) => format!("gone {name}"),
            RegistrationEvent::Refused { socket, .. } => format!("refused {socket}"),
            RegistrationEvent::Synced => "synced".to_owned(),
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
            board.change(|_| ((), vec![RegistrationEvent::Synced]));
        }
        assert_eq!(words(&feed.next().await.unwrap()), "gone a");
        assert_eq!(words(&feed.next().await.unwrap()), "backend b");
        assert_eq!(words(&feed.next().await.unwrap()), "synced");
    }
}
