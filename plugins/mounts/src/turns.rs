//! One call about a volume at a time; calls about different volumes know nothing of each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Line, OwnedMutexGuard};
use tonic::Status;

use crate::bench::in_words;

/// Who is at work on which volume. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    lines: Arc<Mutex<HashMap<String, Arc<Line<()>>>>>,
}

/// The right to work on a volume, until it is dropped.
///
/// Move it into the work that is done on the bench: work that is stuck then keeps it, and nobody else works on
/// that volume beside it.
#[derive(Debug)]
pub struct Turn {
    held: Option<OwnedMutexGuard<()>>,
    place: Place,
}

/// A place in the line; the line is forgotten when nobody has one.
#[derive(Debug)]
struct Place {
    turns: Turns,
    id: String,
    line: Option<Arc<Line<()>>>,
}

impl Turns {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until nobody works on `id`, in the order of arrival.
    pub async fn turn(&self, id: &str, within: Duration) -> Result<Turn, Status> {
        let place = self.place(id);
        let line = place.line.clone().expect("only taken when it is dropped");
        match tokio::time::timeout(within, line.lock_owned()).await {
            Ok(held) => Ok(Turn {
                held: Some(held),
                place,
            }),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "another call about volume {id} did not end within {}",
                in_words(within)
            ))),
        }
    }

    /// Returns how many volumes are worked on.
    pub fn busy(&self) -> usize {
        self.lines().len()
    }

    fn place(&self, id: &str) -> Place {
        let line = self.lines().entry(id.to_owned()).or_default().clone();
        Place {
            turns: self.clone(),
            id: id.to_owned(),
            line: Some(line),
        }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Line<()>>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Returns the volume that it is about.
    pub fn id(&self) -> &str {
        &self.place.id
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before the place, which looks whether anybody still holds the line.
        drop(self.held.take());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.turns.lines();
        drop(self.line.take());
        // Clones are made under this lock only, or of a clone that is counted: one left means ours alone.
        if lines.get(&self.id).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.id);
        }
    }
}
