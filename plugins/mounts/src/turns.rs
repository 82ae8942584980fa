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
        if lines
            .get(&self.id)
            .is_some_and(|line| Arc::strong_count(line) == 1)
        {
            lines.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_secs(600);

    #[tokio::test(start_paused = true)]
    async fn calls_about_one_volume_follow_each_other_in_order() {
        let turns = Turns::new();
        let first = turns.turn("a", LATE).await.unwrap();
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..10 {
            let (turns, sender) = (turns.clone(), sender.clone());
            tokio::spawn(async move {
                let turn = turns.turn("a", LATE).await.unwrap();
                sender.send(number).unwrap();
                drop(turn);
            });
            tokio::task::yield_now().await;
        }
        assert!(order.try_recv().is_err());
        drop((first, sender));
        let mut seen = Vec::new();
        while let Some(number) = order.recv().await {
            seen.push(number);
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(turns.busy(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn different_volumes_know_nothing_of_each_other() {
        let turns = Turns::new();
        let held: Vec<_> = ["a", "b", "c"].map(|id| turns.turn(id, LATE)).into();
        let held = futures_util::future::join_all(held).await;
        assert_eq!(turns.busy(), 3);
        drop(held);
        assert_eq!(turns.busy(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_and_forgotten() {
        let turns = Turns::new();
        let held = turns.turn("kubernetes.io/nfs/x", LATE).await.unwrap();
        let refusal = turns
            .turn("kubernetes.io/nfs/x", Duration::from_secs(5))
            .await;
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::DeadlineExceeded);
        assert_eq!(
            refusal.message(),
            "another call about volume kubernetes.io/nfs/x did not end within 5s"
        );
        assert_eq!((turns.busy(), held.id()), (1, "kubernetes.io/nfs/x"));
        drop(held);
        assert_eq!(turns.busy(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_while_waiting_is_forgotten() {
        let turns = Turns::new();
        let held = turns.turn("a", LATE).await.unwrap();
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { drop(turns.turn("a", LATE).await) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        drop(waiting.await);
        drop(held);
        assert_eq!(turns.busy(), 0);
        drop(turns.turn("a", LATE).await.unwrap());
    }

    #[tokio::test]
    async fn a_turn_moved_into_work_lasts_as_long_as_the_work() {
        let turns = Turns::new();
        let turn = turns.turn("a", LATE).await.unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let work = std::thread::spawn(move || {
            wait.recv().unwrap_err();
            drop(turn);
        });
        turns
            .turn("a", Duration::from_millis(20))
            .await
            .unwrap_err();
        drop(go);
        turns.turn("a", LATE).await.unwrap();
        work.join().unwrap();
        assert_eq!(turns.busy(), 0);
    }
}
