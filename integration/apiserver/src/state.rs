//! What all parts of a server share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{auth::Auth, faults::Faults, journal::Journal, options::Options, store::Store};

/// One server's world. It outlives an outage: only the thread that serves it ends.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: Options,
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    journal: Mutex<Journal>,
    pub(crate) auth: Auth,
}

impl State {
    pub(crate) fn new(options: Options) -> anyhow::Result<Arc<State>> {
        let auth = Auth::new(&options)?;
        let store = Store::new(options.history);
        Ok(Arc::new(State {
            options,
            store: Mutex::new(store),
            faults: Mutex::default(),
            journal: Mutex::default(),
            auth,
        }))
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
