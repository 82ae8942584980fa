//! The order of asks: an actor asks only those that are started before it, so that the asks form no circle and none waits
//! for itself.
//!
//! The order is that of the tree from the top down. It is checked with every ask: a message in the log names the first of each
//! pair that breaks it. Actors outside a tree, and code that no actor runs, may ask anyone.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mailbox::gauge::Gauge;
use crate::system::watchdog;

/// So many different pairs are named; more would be of one cause.
const MAX_NAMED: usize = 64;

/// Where an actor stands in its tree.
#[derive(Debug)]
pub(crate) struct TreePosition {
    pub(crate) path: Arc<str>,
    /// The number of each supervisor on the way to the actor, and its own, in the order of spawning.
    pub(crate) order: Vec<u64>,
}

thread_local! {
    /// The pairs of paths that broke the order: who asked, and who was asked.
    static BROKEN: RefCell<BTreeSet<(Arc<str>, Arc<str>)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Checks that the actor being polled may ask the one with this gauge.
pub(crate) fn check(asked: &Gauge) {
    let Some(asked) = asked.position() else {
        return;
    };
    let Some(asker) = watchdog::polled_actor() else {
        return;
    };
    let Some(asker) = asker.position() else {
        return;
    };
    if asked.order < asker.order {
        return;
    }
    let pair = (Arc::clone(&asker.path), Arc::clone(&asked.path));
    let is_new = BROKEN.with_borrow_mut(|broken| broken.len() < MAX_NAMED && broken.insert(pair));
    if is_new {
        tracing::error!(actor = %asker.path, asked = %asked.path, "the actor asks one that is started after it");
    }
}

/// Takes the pairs that broke the order on this thread, as `PATH asks PATH`.
#[cfg(feature = "testing")]
pub(crate) fn take_broken() -> Vec<String> {
    let broken = BROKEN.with_borrow_mut(std::mem::take);
    let line = |(asker, asked): &(Arc<str>, Arc<str>)| format!("{asker} asks {asked}");
    broken.iter().map(line).collect()
}
