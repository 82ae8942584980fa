//! Removals of trees in the background: a few threads take turns at them, and there is one removal per tree.
//!
//! A tree of a pod may have millions of entries. Its removal never ends at a caller's deadline: the caller gets its
//! answer then, the removal continues, and the next caller waits for the same one. What takes longer than a turn goes to
//! the end of the queue, behind trees that had no turn yet, so that many large trees do not hold up a small one.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use files::Removal;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::{format_duration, reason};

/// How many threads remove trees. One that hangs in the kernel keeps its place.
const MAX_THREADS: usize = 4;
/// How many of them may be at trees that had a turn already: the others are for new ones.
const MAX_CONTINUING: usize = MAX_THREADS - 1;
/// How long the first turn of a tree is. Each further one is twice as long, so that a tree whose first millions of entries
/// cannot be removed does not have only these looked at for ever.
const FIRST_TURN: Duration = Duration::from_secs(1);
/// How often the length of a turn doubles.
const MAX_DOUBLINGS: u32 = 9;
/// Enough for the remover, which does not recurse.
const STACK_BYTES: usize = 256 << 10;

/// Why a tree is not removed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemovalError {
    /// The removal continues, and the next call waits for it.
    #[error("removing {} takes longer than {}, and continues", tree.display(), format_duration(*within))]
    Continues { tree: PathBuf, within: Duration },
    /// The kernel refuses a part of it, which the source names. The next call tries again.
    #[error("cannot remove {}", tree.display())]
    Failed {
        tree: PathBuf,
        source: Arc<io::Error>,
    },
}

type Outcome = Result<(), Arc<io::Error>>;
type Remove = fn(&Path, &mut dyn FnMut() -> bool) -> io::Result<Removal>;

/// Removals under way. Clones share them.
#[derive(Clone)]
pub struct Removals(Arc<Shared>);

struct Shared {
    remove: Remove,
    first_turn: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What becomes of each tree that is waited for or worked on.
    trees: HashMap<PathBuf, watch::Sender<Option<Outcome>>>,
    /// Trees that had no turn yet.
    new: VecDeque<PathBuf>,
    /// Trees that had turns, and how many.
    continued: VecDeque<(PathBuf, u32)>,
    threads: usize,
    continuing: usize,
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removals")
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}

impl Default for Removals {
    fn default() -> Self {
        Self::new()
    }
}

impl Removals {
    /// Makes a set without removals under way.
    pub fn new() -> Self {
        Self::by(files::remove_tree_while, FIRST_TURN)
    }

    fn by(remove: Remove, first_turn: Duration) -> Self {
        Self(Arc::new(Shared {
            remove,
            first_turn,
            state: Mutex::default(),
        }))
    }

    /// Returns how many trees are waited for or worked on.
    pub fn under_way(&self) -> usize {
        self.0.state().trees.len()
    }

    /// Begins to remove a tree, unless that is under way.
    pub fn begin(&self, tree: &Path) {
        drop(self.join(tree));
    }

    /// Removes a tree, and waits for the end of the removal for at most `within`. Nothing there is fine.
    ///
    /// # Errors
    /// [`RemovalError::Continues`] at the deadline, [`RemovalError::Failed`] for what cannot be removed.
    pub async fn remove(&self, tree: &Path, within: Duration) -> Result<(), RemovalError> {
        let mut outcome = self.join(tree);
        let ended = timeout(within, outcome.wait_for(Option::is_some)).await;
        let tree = tree.to_owned();
        let outcome = match ended {
            Err(_) => return Err(RemovalError::Continues { tree, within }),
            Ok(Ok(outcome)) => outcome.clone(),
            Ok(Err(_)) => None,
        };
        let outcome =
            outcome.unwrap_or_else(|| Err(Arc::new(io::Error::other("no thread for it"))));
        outcome.map_err(|source| RemovalError::Failed { tree, source })
    }

    fn join(&self, tree: &Path) -> watch::Receiver<Option<Outcome>> {
        let mut state = self.0.state();
        if let Some(under_way) = state.trees.get(tree) {
            return under_way.subscribe();
        }
        let (outcome, receiver) = watch::channel(None);
        state.trees.insert(tree.to_owned(), outcome);
        state.new.push_back(tree.to_owned());
        if state.threads < MAX_THREADS {
            let shared = self.0.clone();
            let started = std::thread::Builder::new()
                .name("removal".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work());
            match started {
                Ok(_) => state.threads += 1,
                // Without any thread nobody would come to it.
                Err(error) if state.threads == 0 => {
                    state.new.clear();
                    state.trees.clear();
                    tracing::error!(%error, "no thread can be started for removals");
                }
                Err(_) => {}
            }
        }
        receiver
    }
}

/// A tree that a thread is at.
struct QueuedTree {
    tree: PathBuf,
    /// How many turns it had before.
    turns: u32,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes turns at trees until there is none.
    fn work(&self) {
        loop {
            let next = self.state().take();
            let Some(turn) = next else { return };
            let length = self.first_turn * (1 << turn.turns.min(MAX_DOUBLINGS));
            let end = Instant::now() + length;
            let mut in_time = || Instant::now() < end;
            let removed =
                catch_unwind(AssertUnwindSafe(|| (self.remove)(&turn.tree, &mut in_time)));
            let removed = removed
                .unwrap_or_else(|panic| Err(io::Error::other(reason(panic.as_ref()).to_owned())));
            self.state().ended(turn, removed);
        }
    }
}

impl State {
    /// Takes the next tree. A thread that gets none has counted itself off.
    fn take(&mut self) -> Option<QueuedTree> {
        if let Some(tree) = self.new.pop_front() {
            return Some(QueuedTree { tree, turns: 0 });
        }
        if self.continuing < MAX_CONTINUING
            && let Some((tree, turns)) = self.continued.pop_front()
        {
            self.continuing += 1;
            return Some(QueuedTree { tree, turns });
        }
        self.threads -= 1;
        None
    }

    fn ended(&mut self, turn: QueuedTree, removed: io::Result<Removal>) {
        if turn.turns > 0 {
            self.continuing -= 1;
        }
        let outcome = match removed {
            Ok(Removal::Stopped) => {
                self.continued.push_back((turn.tree, turn.turns + 1));
                return;
            }
            Ok(Removal::Done) => Ok(()),
            Err(error) => Err(Arc::new(error)),
        };
        if let Some(waiting) = self.trees.remove(&turn.tree) {
            waiting.send_replace(Some(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_tree_is_removed_and_one_that_is_not_there_is_fine() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        let removals = Removals::new();
        removals.remove(&tree, LONG).await.unwrap();
        removals.remove(&tree, LONG).await.unwrap();
        assert!(!tree.exists());
        assert_eq!(removals.under_way(), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_removed_is_reported_to_everyone_who_waits() {
        let refused =
            |_: &Path, _: &mut dyn FnMut() -> bool| Err(io::ErrorKind::PermissionDenied.into());
        let removals = Removals::by(refused, FIRST_TURN);
        let tree = Path::new("/tree");
        let (one, two) = tokio::join!(removals.remove(tree, LONG), removals.remove(tree, LONG));
        for error in [one.unwrap_err(), two.unwrap_err()] {
            assert!(matches!(error, RemovalError::Failed { .. }), "{error}");
            assert_eq!(error.to_string(), "cannot remove /tree");
        }
    }

    #[tokio::test]
    async fn a_panic_costs_its_own_tree() {
        let panics = |tree: &Path, _: &mut dyn FnMut() -> bool| {
            assert!(tree == Path::new("/sound"), "not this one");
            Ok(Removal::Done)
        };
        let removals = Removals::by(panics, FIRST_TURN);
        for _ in 0..2 * MAX_THREADS {
            removals.remove(Path::new("/bad"), LONG).await.unwrap_err();
        }
        removals.remove(Path::new("/sound"), LONG).await.unwrap();
    }

    /// How many turns the slow trees of the next test had.
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    static OPEN: AtomicUsize = AtomicUsize::new(0);

    /// Uses up its turn, unless its tree is called "small".
    fn slow(tree: &Path, go_on: &mut dyn FnMut() -> bool) -> io::Result<Removal> {
        if tree.ends_with("small") {
            return Ok(Removal::Done);
        }
        assert!(OPEN.fetch_add(1, Ordering::SeqCst) < MAX_THREADS);
        while go_on() {
            std::thread::yield_now();
        }
        OPEN.fetch_sub(1, Ordering::SeqCst);
        TURNS.fetch_add(1, Ordering::SeqCst);
        Ok(Removal::Stopped)
    }

    #[tokio::test]
    async fn many_slow_removals_continue_past_their_deadline_and_hold_up_no_small_one() {
        let removals = Removals::by(slow, SHORT);
        let trees: Vec<_> = (0..64)
            .map(|n| PathBuf::from(format!("/slow/{n}")))
            .collect();
        for tree in &trees {
            let error = removals.remove(tree, Duration::ZERO).await.unwrap_err();
            assert!(matches!(error, RemovalError::Continues { .. }), "{error}");
        }
        // Each of them asked for once more is the same removal.
        trees.iter().for_each(|tree| removals.begin(tree));
        assert_eq!(removals.under_way(), 64);
        removals.remove(Path::new("/small"), LONG).await.unwrap();
        // They had one turn each by then: 64 trees by four threads.
        assert!(TURNS.load(Ordering::SeqCst) >= 60);
        assert_eq!(removals.under_way(), 64);
    }

    #[test]
    fn one_thread_is_left_for_trees_that_had_no_turn() {
        let continued = (0..9).map(|n| (PathBuf::from(format!("/{n}")), 1));
        let mut state = State {
            continued: continued.collect(),
            threads: MAX_THREADS,
            ..State::default()
        };
        for _ in 0..MAX_CONTINUING {
            assert!(state.take().is_some());
        }
        state.new.push_back(PathBuf::from("/new"));
        assert_eq!(state.take().map(|turn| turn.turns), Some(0));
        assert!(state.take().is_none());
        assert_eq!(state.threads, MAX_THREADS - 1);
    }
}
